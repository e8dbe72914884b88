package uns_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/historian"
	"millrace/uns"
)

// noon is the clock of these tests: 2026-09-21T14:13:20.250Z.
var noon = time.UnixMilli(1790000000250)

// memory is a Store and Reader that keeps everything in slices. The hooks may be nil.
type memory struct {
	mu      sync.Mutex
	rows    []historian.SeriesRow
	samples []historian.Sample
	opaque  []historian.Row
	appends int
	deleted []historian.Series
	clock   func() time.Time // nil: noon

	onAppend func() error
	onCreate func() error
	onSet    func() error
}

func (m *memory) CreateSeries(name string, class historian.Class, meta []byte) (historian.Series, error) {
	if m.onCreate != nil {
		if err := m.onCreate(); err != nil {
			return 0, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	id := historian.Series(len(m.rows) + 1)
	m.rows = append(m.rows, historian.SeriesRow{Series: id, Name: name, Class: class, Meta: meta})
	return id, nil
}

func (m *memory) SetSeries(_ context.Context, id historian.Series, class historian.Class, meta []byte) error {
	if m.onSet != nil {
		if err := m.onSet(); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rows[id-1].Class, m.rows[id-1].Meta = class, meta
	return nil
}

func (m *memory) DeleteSeries(_ context.Context, id historian.Series, _ bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deleted = append(m.deleted, id)
	return nil
}

func (m *memory) Append(_ context.Context, samples []historian.Sample, rows []historian.Row) error {
	if m.onAppend != nil {
		if err := m.onAppend(); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range samples {
		if slices.Contains(m.deleted, samples[i].Series) {
			return historian.ErrUnknownSeries
		}
	}
	m.appends++
	for i := range samples {
		s := &samples[i]
		s.Received = noon.UnixNano()
		if m.clock != nil {
			s.Received = m.clock().UnixNano()
		}
		if !s.Stamped {
			s.Time, s.Scale = s.Received, 6
		}
		s.Seq = uint64(len(m.samples) + 1)
		kept := *s
		kept.Value = kept.Value.Clone()
		m.samples = append(m.samples, kept)
	}
	m.opaque = append(m.opaque, rows...)
	return nil
}

func (m *memory) HasRow(key []byte) (bool, error) {
	there := false
	err := m.Rows(key, func(k, _ []byte) bool { there = len(k) == len(key); return false })
	return there, err
}

func (m *memory) EachSeries(fn func(historian.SeriesRow) bool) error {
	for _, row := range m.rows {
		if !fn(row) {
			break
		}
	}
	return nil
}

func (m *memory) Latest(id historian.Series) (historian.Sample, bool) {
	for i := len(m.samples) - 1; i >= 0; i-- {
		if m.samples[i].Series == id {
			return m.samples[i], true
		}
	}
	return historian.Sample{}, false
}

func (m *memory) Rows(prefix []byte, fn func(key, value []byte) bool) error {
	m.mu.Lock()
	kept := map[string][]byte{}
	for _, r := range m.opaque {
		if kept[string(r.Key)] = r.Value; r.Value == nil {
			delete(kept, string(r.Key))
		}
	}
	m.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(kept)) {
		if strings.HasPrefix(key, string(prefix)) && !fn([]byte(key), kept[key]) {
			break
		}
	}
	return nil
}

// sink is a Store that keeps nothing, for allocation counts and benchmarks.
type sink struct{ memory }

func (s *sink) Append(context.Context, []historian.Sample, []historian.Row) error { return nil }

// published is a Live that remembers what it was given.
type published struct{ list []string }

func (p *published) Prepare(*uns.Batch) {}

func (p *published) Publish(b *uns.Batch, i int) {
	t, s := b.Messages[i].Topic, &b.Samples[b.Messages[i].At]
	p.list = append(p.list, fmt.Sprintf("%s %s", t.Full, uns.AppendLive(nil, s)))
}

// box is a way in with a clock that stands still.
type box struct {
	*uns.Ingress
	ns      *uns.Namespace
	catalog *uns.Catalog
	store   *memory
	now     time.Time
}

func options(change func(*uns.Options)) uns.Options {
	o := uns.DefaultOptions()
	o.Ingress.PerClientRatePerSec = 0
	if change != nil {
		change(&o)
	}
	return o
}

func newBox(t testing.TB, change func(*uns.Options)) *box {
	t.Helper()
	return boxOn(t, &memory{}, change)
}

func boxOn(t testing.TB, store *memory, change func(*uns.Options)) *box {
	t.Helper()
	b := &box{store: store, now: noon}
	o := options(change)
	o.Now = func() time.Time { return b.now }
	store.clock = o.Now
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	b.ns = uns.NewNamespace(o)
	var err error
	if b.catalog, err = uns.OpenCatalog(b.ns, store, store, o); err != nil {
		t.Fatal(err)
	}
	b.Ingress = uns.NewIngress(b.ns, b.catalog, store, nil, o)
	return b
}

// send puts one payload through and returns its verdict and sample.
func (b *box) send(t testing.TB, path, payload string) (uns.Verdict, uns.Sample) {
	t.Helper()
	return b.put(t, uns.Message{Workspace: "main", Path: path, Payload: []byte(payload)})
}

func (b *box) put(t testing.TB, m uns.Message) (uns.Verdict, uns.Sample) {
	t.Helper()
	batch := &uns.Batch{Messages: []uns.Message{m}}
	if err := b.Accept(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	m = batch.Messages[0]
	if m.Verdict.Reason != uns.Stored {
		if m.At != -1 || len(batch.Samples) != 0 {
			t.Fatalf("refused (%v), yet At %d with %d samples", m.Verdict, m.At, len(batch.Samples))
		}
		return m.Verdict, uns.Sample{}
	}
	s := batch.Samples[m.At]
	s.Value = s.Value.Clone()
	return m.Verdict, s
}

func (b *box) set(t testing.TB, path, patch string) *uns.Topic {
	t.Helper()
	topic, err := b.catalog.Set(t.Context(), "main", path, []byte(patch))
	if err != nil {
		t.Fatalf("set %s %s: %v", path, patch, err)
	}
	return topic
}
