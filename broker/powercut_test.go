package broker_test

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"millrace/historian"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is a real historian on a file system whose power can be cut.
type disk struct {
	*historian.Store
	fs *vfs.MemFS
}

func openDisk(t *testing.T, fs *vfs.MemFS) *disk {
	t.Helper()
	o := historian.DefaultOptions()
	o.FS, o.MinFreeSpace = fs, 0
	o.Free = func(string) (uint64, error) { return 1 << 40, nil }
	s, err := historian.Open("historian", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &disk{s, fs}
}

// values counts what is stored of a topic.
func (d *disk) values(t *testing.T, x *box, path string) (n int) {
	t.Helper()
	topic := x.catalog.Lookup("main", path)
	if topic == nil {
		return 0
	}
	q := historian.Query{Series: topic.Series, To: 1<<63 - 1, Limit: 10_000}
	for {
		page, next, err := d.Raw(t.Context(), nil, q)
		if err != nil {
			t.Fatal(err)
		}
		if n += len(page); next == nil {
			return n
		}
		q.After = next
	}
}

// Sessions and QoS 2 on the real historian while the power is cut, of what was not synced nothing, half or all being there:
// the model of TestSessionModel, with publishes on their way at each cut. MILLRACE_LONG=1 cuts some thousand times.
func TestSessionsOverPowerCuts(t *testing.T) {
	t.Parallel()
	steps := 30_000
	if os.Getenv("MILLRACE_LONG") == "1" {
		steps = 1_000_000
	} else if testing.Short() {
		steps = 5_000
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	d := openDisk(t, vfs.NewCrashableMem())
	m := &sessionModel{t: t, x: open(t, setting{disk: d, broker: live2}), rng: rng, cuts: 2}
	cuts := 0
	m.crash = func(old *box) *box {
		cuts++
		left := d.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[cuts%3], RNG: rng})
		_ = m.p.conn.Close()
		old.stop()
		_ = d.Close() // of the box that is no more
		d = openDisk(t, left)
		return open(t, setting{disk: d, broker: live2})
	}
	m.stored = func() int { return d.values(t, m.x, "a") }
	m.run(steps)
	t.Logf("%d cuts", cuts)
	if cuts < steps/1000 {
		t.Errorf("only %d cuts", cuts)
	}
}
