package queue

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// While the stream takes nothing the queue says so, nothing is lost, and afterwards everything comes in order.
func TestAStreamThatRefuses(t *testing.T) {
	t.Parallel()
	q := open1(t, t.TempDir(), Options{})
	js, err := jetstream.New(q.conn)
	if err != nil {
		t.Fatal(err)
	}
	c := q.config()
	c.MaxBytes = 2000
	if _, err := js.UpdateStream(within(t), c); err != nil {
		t.Fatal(err)
	}
	const n = 400
	put := make(chan error, 1)
	go func() {
		for seq := uint64(1); seq <= n; seq++ {
			if err := q.Put(within(t), Normal, entry(seq, 1)); err != nil {
				put <- err
				return
			}
		}
		put <- nil
	}()
	eventually(t, "the fault is told", func() bool { return q.State().Fault != "" })
	c.MaxBytes = 1 << 30
	if _, err := js.UpdateStream(within(t), c); err != nil {
		t.Fatal(err)
	}
	seqs, suspect := takeAll(t, q, Normal, n)
	rising(t, seqs, 1, n)
	if err := <-put; err != nil || suspect != 0 {
		t.Error(err, suspect)
	}
	eventually(t, "the fault is over", func() bool { return q.State().Fault == "" })
	if s := q.Stats(); s != (Stats{}) {
		t.Errorf("%+v", s)
	}
}
