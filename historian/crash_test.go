package historian_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"millrace/historian"
)

// A crash test runs appenders against a store on a file system that remembers what was fsynced, takes what a
// power cut would leave at a random operation on that file system, opens a store on it and compares. Several
// crashes follow each other on one history, so that a start after a crash is crashed too.
//
// Each appender appends one batch after the other, so what a crash leaves of it must be its first batches,
// whole, and no fewer than were acknowledged when the crash was taken (in NoSync mode: than were synced).

const (
	crashAppenders = 4
	crashBatches   = 120
	crashLives     = 3
)

// batch is what one Append stored, as it was filled in.
type batch struct {
	samples []historian.Sample
	lastSeq uint64
}

// appender is one caller with series of its own.
type appender struct {
	n       int
	r       *rand.Rand
	ids     []historian.Series
	names   map[historian.Series]string
	batches []batch      // what was sent; those behind a crash are cut off
	acked   atomic.Int64 // how many of them were acknowledged
}

// totals are what all crashes of a test add up to.
type totals struct{ crashes, midway, acked, stored, lost, doubled, wrong int }

func (a *totals) String() string {
	return fmt.Sprintf("%d crashes (%d in the middle), %d values acknowledged, %d recovered, %d lost, %d doubled, %d wrong",
		a.crashes, a.midway, a.acked, a.stored, a.lost, a.doubled, a.wrong)
}

// crash is one seed.
type crash struct {
	t       *testing.T
	r       *rand.Rand
	sync    bool // acknowledged means fsynced
	claim   bool // hold the store to that
	wrap    func(vfs.FS) vfs.FS
	percent int
	clock   clock
	disk    *vfs.MemFS
	callers []*appender
	total   *totals
	read    int // values read by the last comparison
	say     func(format string, a ...any)
}

func (c *crash) run() {
	c.disk = vfs.NewCrashableMem()
	c.clock.ns.Store(epoch)
	for n := range crashAppenders {
		c.callers = append(c.callers, &appender{n: n, r: rand.New(rand.NewPCG(c.r.Uint64(), 9)), names: map[historian.Series]string{}})
	}
	for range crashLives {
		if !c.live() {
			return
		}
	}
}

// linkFS keeps links and clones apart: MemFS.Link takes the lock of clones twice, for reading, and a clone that
// asks for it in between makes both wait for ever.
type linkFS struct {
	vfs.FS
	linking *sync.Mutex
}

func (f linkFS) Link(from, to string) error {
	f.linking.Lock()
	defer f.linking.Unlock()
	return f.FS.Link(from, to)
}

// live opens a store, works, crashes, and compares what is left; false ends the seed.
func (c *crash) live() bool {
	var left *vfs.MemFS
	var floor [crashAppenders]int64
	var synced, syncedThen atomic.Uint64
	var crashed atomic.Bool
	var midway atomic.Bool
	var once sync.Once
	var linking sync.Mutex
	rng := rand.New(rand.NewPCG(c.r.Uint64(), 10)) // of the clone alone: it is made on any goroutine
	cut := func() {
		once.Do(func() {
			// What is counted before the clone must be in it.
			for i, a := range c.callers {
				floor[i] = a.acked.Load()
			}
			syncedThen.Store(synced.Load())
			linking.Lock()
			left = c.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: c.percent, RNG: rng})
			linking.Unlock()
			crashed.Store(true)
		})
	}
	countdown := atomic.Int64{}
	// A store that fsyncs each commit does that many more operations.
	reach := int64(250)
	if c.sync {
		reach = 1200
	}
	countdown.Store(1 + c.r.Int64N(reach))
	fs := errorfs.Wrap(linkFS{c.disk, &linking}, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && countdown.Add(-1) == 0 {
			midway.Store(true)
			cut()
		}
		return nil
	}))
	opened := vfs.FS(fs)
	if c.wrap != nil {
		opened = c.wrap(fs)
	}
	store, err := historian.Open("store", memoryOptions(opened, c.clock.now, c.sync))
	if err != nil {
		c.say("open: %v", err)
		return false
	}
	var work sync.WaitGroup
	for _, a := range c.callers {
		work.Go(func() { a.work(c, store, &crashed, &synced) })
	}
	work.Wait()
	if c.r.IntN(2) == 0 {
		cut() // with the store open
	}
	if err := store.Close(); err != nil {
		c.say("close: %v", err)
		return false
	}
	cut()
	c.total.crashes++
	if midway.Load() {
		c.total.midway++
	}
	c.disk = left
	return c.compare(floor, syncedThen.Load())
}

func (a *appender) work(c *crash, store *historian.Store, crashed *atomic.Bool, synced *atomic.Uint64) {
	ctx := context.Background()
	for range a.r.IntN(crashBatches) {
		if crashed.Load() {
			return
		}
		if len(a.ids) == 0 || len(a.ids) < 5 && a.r.IntN(10) == 0 {
			name := fmt.Sprintf("a%d/%d/%d", a.n, len(a.ids), a.r.Uint32())
			id, err := store.CreateSeries(name, historian.ClassForever, []byte(name))
			if err != nil {
				c.t.Errorf("create: %v", err)
				return
			}
			a.ids = append(a.ids, id)
			a.names[id] = name
		}
		now := c.clock.ns.Add(a.r.Int64N(40e6))
		samples := hostile(a.r, 1+a.r.IntN(8), a.ids[0])
		for i := range samples {
			s := &samples[i]
			s.Series = a.ids[a.r.IntN(len(a.ids))]
			s.Stamped = a.r.IntN(3) == 0
			s.Scale = 6
			s.Time = (now - a.r.Int64N(2)*a.r.Int64N(3*3600*1e9)) / 1e6 * 1e6
		}
		rows := []historian.Row{{Key: []byte{'a', byte(a.n)}, Value: binary.BigEndian.AppendUint32(nil, uint32(len(a.batches)+1))}}
		err := store.Append(ctx, samples, rows)
		if err != nil {
			c.t.Errorf("append: %v", err)
			return
		}
		a.batches = append(a.batches, batch{samples, samples[len(samples)-1].Seq})
		a.acked.Store(int64(len(a.batches)))
		for now := store.State().SyncedSeq; ; {
			was := synced.Load()
			if now <= was || synced.CompareAndSwap(was, now) {
				break
			}
		}
		if a.r.IntN(25) == 0 {
			if err := store.Checkpoint(ctx); err != nil {
				c.t.Errorf("checkpoint: %v", err)
				return
			}
		}
		if a.r.IntN(40) == 0 {
			if err := store.MergeAll(); err != nil {
				c.t.Errorf("merge: %v", err)
				return
			}
		}
		if !c.sync && a.r.IntN(150) == 0 {
			// A sync tick is a real one: without waiting for some, no run would last until the first.
			for deadline := time.Now().Add(time.Second); store.State().SyncedSeq < samples[0].Seq && time.Now().Before(deadline) && !crashed.Load(); {
				time.Sleep(time.Millisecond)
			}
		}
	}
}

// compare opens what a crash left and holds it against the histories; then they go on from there.
func (c *crash) compare(floor [crashAppenders]int64, synced uint64) bool {
	store, err := historian.Open("store", memoryOptions(c.disk, c.clock.now, true))
	if err != nil {
		c.say("open after the crash: %v", err)
		c.total.lost++
		return false
	}
	names := map[historian.Series]string{}
	if err := store.EachSeries(func(row historian.SeriesRow) bool {
		names[row.Series] = row.Name
		return true
	}); err != nil {
		c.say("series: %v", err)
		return false
	}
	rows := map[byte]int{}
	if err := store.Rows([]byte{'a'}, func(key, value []byte) bool {
		rows[key[1]] = int(binary.BigEndian.Uint32(value))
		return true
	}); err != nil {
		c.say("rows: %v", err)
		return false
	}
	ok := true
	var last, firstLost uint64 = 0, math.MaxUint64
	for i, a := range c.callers {
		for _, b := range a.batches[:floor[i]] {
			c.total.acked += len(b.samples)
		}
		// The row was committed with its batch, so it tells how many there are.
		n := rows[byte(a.n)]
		if n > len(a.batches) {
			c.say("appender %d: the row says %d batches, %d were sent", i, n, len(a.batches))
			c.total.wrong++
			return false
		}
		lost := 0
		for j := n; j < len(a.batches); j++ {
			if c.claim && j < int(floor[i]) || a.batches[j].lastSeq <= synced {
				lost += len(a.batches[j].samples)
			}
			firstLost = min(firstLost, a.batches[j].samples[0].Seq)
		}
		if lost > 0 {
			c.say("appender %d: %d batches are left of %d acknowledged", i, n, floor[i])
			c.total.lost += lost
			ok = false
		}
		if n > 0 {
			last = max(last, a.batches[n-1].lastSeq)
		}
		a.batches = a.batches[:n]
		a.acked.Store(int64(n))
		a.ids = slices.DeleteFunc(a.ids, func(id historian.Series) bool {
			name, there := names[id]
			if there && name != a.names[id] {
				c.say("series %d is %s, was %s", id, name, a.names[id])
				c.total.wrong++
				ok = false
			}
			return !there
		})
		for _, b := range a.batches {
			for _, s := range b.samples {
				if !slices.Contains(a.ids, s.Series) {
					c.say("series %d has values and no row", s.Series)
					c.total.wrong++
					return false
				}
			}
		}
	}
	if firstLost < last {
		c.say("a hole: sequence %d is gone, %d is there", firstLost, last)
		c.total.wrong++
		ok = false
	}
	ok = c.values(store) && ok
	c.total.stored += c.read
	// What a start rebuilt must survive becoming chunks, being merged, and a clean stop.
	if err := store.Checkpoint(context.Background()); err != nil {
		c.say("checkpoint: %v", err)
		return false
	}
	ok = c.values(store) && ok
	if c.r.IntN(3) == 0 {
		if err := store.MergeAll(); err != nil {
			c.say("merge: %v", err)
			return false
		}
		ok = c.values(store) && ok
	}
	if err := store.Close(); err != nil {
		c.say("close: %v", err)
		return false
	}
	return ok
}

// values compares all values of all series.
func (c *crash) values(store *historian.Store) bool {
	ok := true
	c.read = 0
	for _, a := range c.callers {
		want := map[historian.Series][]historian.Sample{}
		for _, b := range a.batches {
			for _, s := range b.samples {
				want[s.Series] = append(want[s.Series], s)
			}
		}
		for _, id := range a.ids {
			w := want[id]
			slices.SortStableFunc(w, func(a, b historian.Sample) int {
				if a.Time != b.Time {
					return int(min(max(a.Time-b.Time, -1), 1))
				}
				return 0
			})
			got, _, err := store.Raw(context.Background(), nil, historian.Query{Series: id, From: math.MinInt64, To: math.MaxInt64, Limit: 100_000})
			if err != nil {
				c.say("raw: %v", err)
				c.total.lost += len(w)
				return false
			}
			c.read += len(got)
			if len(got) != len(w) {
				c.total.doubled += max(0, len(got)-len(w))
				c.total.lost += max(0, len(w)-len(got))
				c.say("series %d: %d values, want %d", id, len(got), len(w))
				ok = false
				continue
			}
			for i := range w {
				if traitsOf(w[i]) != traitsOf(got[i]) || !w[i].Value.Equal(got[i].Value) || w[i].Value.Kind != got[i].Value.Kind {
					c.say("series %d: value %d is %+v, want %+v", id, i, got[i], w[i])
					c.total.wrong++
					ok = false
					break
				}
			}
			if len(w) > 0 {
				if latest, there := store.Latest(id); !there || traitsOf(latest) != traitsOf(w[len(w)-1]) || !latest.Value.Equal(w[len(w)-1].Value) {
					c.say("series %d: latest %+v, want %+v", id, latest, w[len(w)-1])
					c.total.wrong++
					ok = false
				}
			}
		}
	}
	return ok
}

// seedCount is how many seeds of a test are run: more with MILLRACE_LONG=1, fewer under the race detector.
func seedCount(plain uint64) uint64 {
	if long() {
		plain *= 30
	}
	if raced {
		plain = plain/4 + 1
	}
	return plain
}

// With fsync every acknowledged value is there after a power cut, once, bit for bit and in order.
func TestCrashKeepsAcknowledged(t *testing.T) {
	var total totals
	for seed := range seedCount(70) {
		c := &crash{t: t, r: rand.New(rand.NewPCG(seed, 11)), sync: true, claim: true, percent: int(seed%3) * 50, total: &total}
		c.say = func(format string, a ...any) { t.Errorf("seed %d: %s", seed, fmt.Sprintf(format, a...)) }
		c.run()
	}
	t.Log(&total)
	if total.midway == 0 || total.acked == 0 || total.stored == 0 {
		t.Error("nothing was tried")
	}
}

// Without fsync a power cut leaves the oldest values, without a hole, and all that a sync tick reached.
func TestCrashWithoutSyncKeepsPrefix(t *testing.T) {
	var total totals
	for seed := range seedCount(50) {
		c := &crash{t: t, r: rand.New(rand.NewPCG(seed, 12)), percent: int(seed%3) * 50, total: &total}
		c.say = func(format string, a ...any) { t.Errorf("seed %d: %s", seed, fmt.Sprintf(format, a...)) }
		c.run()
	}
	t.Log(&total)
	if total.midway == 0 || total.acked == 0 || total.stored == 0 {
		t.Error("nothing was tried")
	}
}

// idleSync is a file system whose log files are never fsynced.
type idleSync struct{ vfs.FS }

type idleFile struct{ vfs.File }

func (idleFile) Sync() error                { return nil }
func (idleFile) SyncData() error            { return nil }
func (idleFile) SyncTo(int64) (bool, error) { return false, nil }

func (f idleSync) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	if err == nil && strings.HasSuffix(name, ".log") {
		return idleFile{file}, nil
	}
	return file, err
}

func (f idleSync) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(from, to, c)
	if err == nil && strings.HasSuffix(to, ".log") {
		return idleFile{file}, nil
	}
	return file, err
}

// The controls: on a disk that ignores fsync, and in a mode without fsync that is taken for one with it, the
// very same comparison must find losses. Otherwise the tests above prove nothing.
func TestCrashTestCanFail(t *testing.T) {
	for name, set := range map[string]func(*crash){
		"a disk that ignores fsync": func(c *crash) {
			c.sync = true
			c.wrap = func(fs vfs.FS) vfs.FS { return idleSync{fs} }
		},
		"no fsync taken for durable": func(c *crash) { c.sync = false },
	} {
		var total totals
		for seed := range uint64(12) {
			c := &crash{t: t, r: rand.New(rand.NewPCG(seed, 13)), claim: true, total: &total, say: func(string, ...any) {}}
			set(c)
			c.run()
		}
		t.Logf("%s: %v", name, &total)
		if total.lost == 0 {
			t.Errorf("%s: nothing was lost", name)
		}
	}
}
