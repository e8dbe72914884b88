package historian_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millrace/historian"
)

// long says that the long forms of the tests are wanted (make long).
func long() bool { return os.Getenv("MILLRACE_LONG") == "1" }

// clock is a clock that tests turn by hand.
type clock struct{ ns atomic.Int64 }

func (c *clock) now() time.Time { return time.Unix(0, c.ns.Load()) }

// memoryOptions are those of a store on a file system of memory, with a disk that never fills.
func memoryOptions(fs vfs.FS, now func() time.Time, sync bool) historian.Options {
	o := historian.DefaultOptions()
	o.Pebble.SyncWrites = sync
	o.Pebble.CommitWindow = 0
	o.FS = fs
	o.Now = now
	o.Free = func(string) (uint64, error) { return 1 << 50, nil }
	o.Log = slog.New(slog.DiscardHandler)
	o.Fatal = func(err error) { panic(err) }
	return o
}

// model drives a store and the oracle side by side.
type model struct {
	t       *testing.T
	seed    uint64
	r       *rand.Rand
	fs      vfs.FS
	clock   clock
	store   *historian.Store
	oracle  *oracle
	ids     []historian.Series
	receipt map[historian.Series]int64 // the last receipt stamp
	seq     uint64
	times   []int64 // some that were used, to be used again
	asked   int
	read    int
}

func (m *model) fail(format string, a ...any) {
	m.t.Helper()
	m.t.Fatalf("seed %d: %s", m.seed, fmt.Sprintf(format, a...))
}

func (m *model) open() {
	m.t.Helper()
	s, err := historian.Open("store", memoryOptions(m.fs, m.clock.now, m.r.IntN(2) == 0))
	if err != nil {
		m.fail("open: %v", err)
	}
	m.store = s
}

func (m *model) close() {
	m.t.Helper()
	if err := m.store.Close(); err != nil {
		m.fail("close: %v", err)
	}
}

func (m *model) create() {
	row := historian.SeriesRow{
		Name:  fmt.Sprintf("line%d/tag%d", m.r.IntN(5), len(m.ids)),
		Class: historian.ClassForever,
		Meta:  []byte(fmt.Sprint("meta", m.r.IntN(100))),
	}
	id, err := m.store.CreateSeries(row.Name, row.Class, row.Meta)
	if err != nil {
		m.fail("create: %v", err)
	}
	if slices.Contains(m.ids, id) || id == 0 {
		m.fail("series %d is given out twice", id)
	}
	m.ids = append(m.ids, id)
	row.Series = id
	m.oracle.setSeries(row)
}

func (m *model) setSeries() {
	id := m.ids[m.r.IntN(len(m.ids))]
	for _, row := range m.oracle.series() {
		if row.Series == id {
			row.Meta = []byte(fmt.Sprint("changed", m.r.IntN(100)))
			if err := m.store.SetSeries(context.Background(), id, row.Class, row.Meta); err != nil {
				m.fail("set series: %v", err)
			}
			m.oracle.setSeries(row)
		}
	}
}

// time is a device's own: on time, late, far in the future or the past, or one that was there before.
func (m *model) time(scale uint8) int64 {
	now := m.clock.ns.Load()
	var t int64
	switch m.r.IntN(10) {
	case 0:
		t = now - m.r.Int64N(48*3600*1e9)
	case 1:
		t = now + m.r.Int64N(48*3600*1e9)
	case 2:
		t = m.r.Int64N(4e18) - 2e18
	case 3:
		// The ends of the range, where sums overflow. To is exclusive, so the last time of all cannot be asked for.
		t = []int64{math.MinInt64, math.MinInt64 + 7e9, math.MaxInt64 - 1, math.MaxInt64 - 7e9, -1, 0}[m.r.IntN(6)]
		if m.r.IntN(4) != 0 {
			t = now
		}
	case 4:
		if len(m.times) > 0 {
			t = m.times[m.r.IntN(len(m.times))]
		}
	default:
		t = now - m.r.Int64N(2e9)
	}
	t = t / pow10[scale] * pow10[scale]
	if m.times = append(m.times, t); len(m.times) > 20 {
		m.times = m.times[1:]
	}
	return t
}

func (m *model) append() {
	n := m.r.IntN(12)
	if m.r.IntN(60) == 0 {
		n = 100 + m.r.IntN(900)
	}
	samples := hostile(m.r, max(n, 1), m.ids[0])[:n]
	stamped := m.r.IntN(3)
	few := m.ids[:1+m.r.IntN(len(m.ids))]
	for i := range samples {
		s := &samples[i]
		s.Series = few[m.r.IntN(len(few))]
		s.Seq, s.Received = 0, 0
		if s.Stamped = stamped == 2 || stamped == 1 && m.r.IntN(3) == 0; s.Stamped {
			s.Scale = []uint8{6, 6, 6, 9, 3, 0, 7}[m.r.IntN(7)]
			s.Time = m.time(s.Scale)
		} else {
			s.Scale, s.Time = 0, 0
		}
	}
	var rows []historian.Row
	for range m.r.IntN(3) {
		row := historian.Row{Key: []byte(fmt.Sprintf("k%d/%d", m.r.IntN(3), m.r.IntN(10))), Value: []byte(fmt.Sprint(m.r.Uint64()))}
		switch m.r.IntN(8) {
		case 0, 1:
			row.Value = nil
		case 2:
			row.Value = []byte{}
		}
		rows = append(rows, row)
	}
	sent := slices.Clone(samples)
	now := m.clock.ns.Load()
	if err := m.store.Append(context.Background(), samples, rows); err != nil {
		m.fail("append: %v", err)
	}
	for i := range samples {
		m.filled(sent[i], samples[i], now)
	}
	m.oracle.add(samples)
	m.oracle.setRows(rows)
	if m.r.IntN(2) == 0 {
		// The caller reuses what it lent.
		for i := range samples {
			clear(samples[i].Value.Raw)
		}
		for i := range rows {
			clear(rows[i].Value)
		}
	}
}

// filled checks what Append filled in and that it left the rest alone.
func (m *model) filled(sent, got historian.Sample, now int64) {
	m.t.Helper()
	m.seq++
	if got.Seq != m.seq {
		m.fail("sequence %d, want %d", got.Seq, m.seq)
	}
	ms := now / 1e6 * 1e6
	want := sent
	want.Seq = got.Seq
	if sent.Stamped {
		want.Received = got.Received
		if got.Received/1e6 != now/1e6 {
			m.fail("received at %d, now is %d", got.Received, now)
		}
	} else {
		want.Time = max(ms, m.receipt[sent.Series])
		want.Received, want.Scale = want.Time, 6
		m.receipt[sent.Series] = want.Time
	}
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
		m.fail("append filled in: %s", d)
	}
}

// ask compares a random query, page by page.
func (m *model) ask() {
	q := historian.Query{Series: m.ids[m.r.IntN(len(m.ids))], From: math.MinInt64, To: math.MaxInt64, Desc: m.r.IntN(2) == 0}
	if m.r.IntN(2) == 0 {
		q.From, q.To = m.time(6), m.time(6)
		if q.From > q.To && m.r.IntN(4) != 0 {
			q.From, q.To = q.To, q.From
		}
	}
	if m.r.IntN(2) == 0 {
		q.Limit = 1 + m.r.IntN(200)
	}
	if m.r.IntN(8) == 0 {
		q.After = &historian.Cursor{Time: m.time(6), Ord: uint32(m.r.IntN(3))}
	}
	for range 1 + m.r.IntN(5) {
		m.asked++
		want, wantNext := m.oracle.raw(q)
		lent := []historian.Sample{{Series: 4711}}
		got, next, err := m.store.Raw(context.Background(), lent, q)
		if err != nil {
			m.fail("raw %+v: %v", q, err)
		}
		if len(got) == 0 || got[0].Series != 4711 {
			m.fail("raw %+v wrote over what was lent", q)
		}
		got = got[1:]
		m.read += len(got)
		sameSamples(m.t, fmt.Sprintf("seed %d: raw %+v after %+v", m.seed, q, q.After), want, got)
		for i := range got {
			if got[i].Seq != 0 {
				m.fail("raw: sample %d has sequence %d", i, got[i].Seq)
			}
		}
		if d := cmp.Diff(wantNext, next); d != "" {
			m.fail("raw %+v: next of %d: %s", q, len(got), d)
		}
		if next == nil {
			return
		}
		q.After = next
		if m.r.IntN(4) == 0 {
			m.append() // a cursor stays valid while values arrive
		}
		if m.r.IntN(10) == 0 {
			m.checkpoint()
		}
	}
}

func (m *model) checkpoint() {
	if err := m.store.Checkpoint(context.Background()); err != nil {
		m.fail("checkpoint: %v", err)
	}
	if m.r.IntN(3) == 0 {
		if err := m.store.MergeAll(); err != nil {
			m.fail("merge: %v", err)
		}
	}
}

// all compares everything there is.
func (m *model) all() {
	m.t.Helper()
	// Series are born with the next commit: this waits for it.
	if err := m.store.Append(context.Background(), nil, []historian.Row{{Key: []byte("zz"), Value: nil}}); err != nil {
		m.fail("append: %v", err)
	}
	for _, id := range m.ids {
		want, ok := m.oracle.latest(id)
		got, gotOK := m.store.Latest(id)
		if ok != gotOK {
			m.fail("latest of %d: %v, want %v", id, gotOK, ok)
		}
		if ok {
			sameSamples(m.t, fmt.Sprintf("seed %d: latest of %d", m.seed, id), []historian.Sample{want}, []historian.Sample{got})
		}
		if want, got := m.oracle.finest(id), m.store.FinestScale(id); want != got {
			m.fail("finest scale of %d: %d, want %d", id, got, want)
		}
		q := historian.Query{Series: id, From: math.MinInt64, To: math.MaxInt64, Limit: 100_000}
		wantAll, _ := m.oracle.raw(q)
		gotAll, _, err := m.store.Raw(context.Background(), nil, q)
		if err != nil {
			m.fail("raw: %v", err)
		}
		sameSamples(m.t, fmt.Sprintf("seed %d: all of %d", m.seed, id), wantAll, gotAll)
	}
	var series []historian.SeriesRow
	if err := m.store.EachSeries(func(row historian.SeriesRow) bool {
		row.Meta = slices.Clone(row.Meta)
		series = append(series, row)
		return true
	}); err != nil {
		m.fail("series: %v", err)
	}
	if d := cmp.Diff(m.oracle.series(), series, cmpopts.IgnoreFields(historian.SeriesRow{}, "Created")); d != "" {
		m.fail("series: %s", d)
	}
	for _, prefix := range []string{"", "k", "k1", "k1/3", "z"} {
		var rows []historian.Row
		if err := m.store.Rows([]byte(prefix), func(key, value []byte) bool {
			rows = append(rows, historian.Row{Key: slices.Clone(key), Value: slices.Clone(value)})
			return true
		}); err != nil {
			m.fail("rows: %v", err)
		}
		if d := cmp.Diff(m.oracle.rows([]byte(prefix)), rows, cmpopts.EquateEmpty()); d != "" {
			m.fail("rows under %q: %s", prefix, d)
		}
	}
	if _, ok := m.store.Latest(m.ids[len(m.ids)-1] + 1000); ok {
		m.fail("an unknown series has a latest value")
	}
}

// The store must answer as the oracle does, whatever is appended, in whichever order, and whenever heads
// become chunks or the store is closed and opened again.
func TestStoreAnswersAsTheOracle(t *testing.T) {
	seeds := seedCount(40)
	asked, read, stored := 0, 0, uint64(0)
	zones := []*time.Location{nil, zone(t, "Europe/Berlin"), zone(t, "Asia/Kolkata")}
	for seed := range seeds {
		m := &model{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 8)), fs: vfs.NewMem(), oracle: newOracle(t), receipt: map[historian.Series]int64{}}
		m.clock.ns.Store(epoch + m.r.Int64N(1e9))
		m.open()
		m.create()
		for range 150 {
			switch m.r.IntN(40) {
			case 0:
				m.checkpoint()
			case 1:
				m.close()
				m.open()
				m.all()
			case 2, 3:
				if len(m.ids) < 8 {
					m.create()
				}
			case 4:
				m.setSeries()
			case 5:
				m.all()
			case 6:
				m.clock.ns.Add(m.r.Int64N(2*3600*1e9) - 1800*1e9) // it may go back
			case 7, 8, 9, 10, 11, 12, 13:
				m.ask()
			case 14, 15, 16:
				m.askAggregate(zones)
			default:
				m.clock.ns.Add(m.r.Int64N(1e9))
				m.append()
			}
		}
		m.all()
		m.checkpoint()
		m.all()
		m.close()
		m.open()
		m.all()
		m.close()
		asked, read, stored = asked+m.asked, read+m.read, stored+m.seq
	}
	t.Logf("%d seeds: %d values stored, %d pages asked, %d values read", seeds, stored, asked, read)
}
