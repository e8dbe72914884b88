package historian_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/historian"
)

// TestPagesWhileValuesArriveAndHeadsMove reads a series over and over, in small pages, while values arrive,
// some late, and checkpoints move them. No reading may miss a value acknowledged before it began, or see one
// twice.
func TestPagesWhileValuesArriveAndHeadsMove(t *testing.T) {
	const total = 4000
	o := options(vfs.NewMem())
	o.Checkpoint.CarryBelow = 50 // both ways out of a checkpoint happen
	s := mustOpen(t, "db", o)
	id := mustCreate(t, s, "a")
	mustAppend(t, s, at(id, 0, 0))

	var acked atomic.Int64 // values 0 to acked are stored
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(stop)
		for n := int64(1); n <= total; n++ {
			ms := n / 3 // three values share a time
			if n%10 == 0 {
				ms = n / 30 // late
			}
			if err := s.Append(context.Background(), []historian.Sample{at(id, ms, n)}, nil); err != nil {
				t.Error(err)
				return
			}
			acked.Store(n)
		}
	})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := s.Checkpoint(context.Background()); err != nil {
				t.Error(err)
				return
			}
		}
	})
	readings := 0
	for running := true; running; readings++ {
		select {
		case <-stop:
			running = false // one last reading of all
		default:
		}
		seen := make([]bool, total+1)
		promised := acked.Load()
		q := historian.Query{Series: id, From: 0, To: 1 << 60, Limit: 97 + readings%500, Desc: readings%2 == 1}
		for {
			page, next, err := s.Raw(context.Background(), nil, q)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range page {
				if seen[x.Value.Mant] {
					t.Fatalf("reading %d (desc %v): value %d came twice", readings, q.Desc, x.Value.Mant)
				}
				seen[x.Value.Mant] = true
			}
			if next == nil {
				break
			}
			q.After = next
		}
		for n := int64(0); n <= promised; n++ {
			if !seen[n] {
				t.Fatalf("reading %d (desc %v): value %d of %d acknowledged before is missing", readings, q.Desc, n, promised)
			}
		}
	}
	wg.Wait()
}
