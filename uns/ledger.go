package uns

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"millrace/historian"
)

// LedgerStore keeps the rows of closed and open hours.
type LedgerStore interface {
	Append(ctx context.Context, samples []historian.Sample, rows []historian.Row) error
	Rows(prefix []byte, fn func(key, value []byte) bool) error
}

const (
	ledgerPrefix = "ul"
	ledgerDays   = 32
	ledgerWrite  = time.Minute // a kill loses the counts of that long; the values themselves it does not
	ledgerPart   = 512         // rows in one commit
	ledgerWait   = 30 * time.Second
)

// Ledger keeps, hour by hour, what each API client sent and what became of it: gaps, late, duplicate, refused by reason.
// It looks at the counters of the sources, so it costs a value nothing. An hour is exact to a second at its edges; hours
// are kept for 32 days. Safe for concurrent use.
type Ledger struct {
	in    *Ingress
	store LedgerStore
	log   *slog.Logger

	mu      sync.Mutex
	pages   map[*Source]*page
	at      time.Time // of the last look
	written time.Time
	swept   time.Time
	failing bool
}

// page is the open hour of one source.
type page struct {
	counted Hour // all that the source's counters had come to at the last look
	hour    Hour
	dirty   bool
}

// NewLedger wires a ledger; Run keeps it.
func NewLedger(in *Ingress, st LedgerStore) *Ledger {
	return &Ledger{in: in, store: st, log: in.log, pages: map[*Source]*page{}, at: in.now(), written: in.now()}
}

// Run looks at the sources and writes what changed once a minute, at the end of an hour and before it returns, which it
// does when ctx ends.
func (l *Ledger) Run(ctx context.Context) error {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			l.look(l.in.now())
			return l.write(last)
		case <-t.C:
		}
		l.tick(ctx, l.in.now())
	}
}

func (l *Ledger) tick(ctx context.Context, now time.Time) {
	l.mu.Lock()
	edge := !now.UTC().Truncate(time.Hour).Equal(l.at.UTC().Truncate(time.Hour))
	due := edge || now.Sub(l.written) >= ledgerWrite || now.Before(l.written)
	sweep := now.Sub(l.swept) >= 24*time.Hour || now.Before(l.swept)
	l.mu.Unlock()
	if due {
		l.look(now)
		limited, cancel := context.WithTimeout(ctx, ledgerWait)
		err := l.write(limited)
		cancel()
		l.report(err)
		l.mu.Lock()
		l.written = now
		l.mu.Unlock()
	}
	if sweep {
		l.report(l.sweep(ctx, now))
		l.mu.Lock()
		l.swept = now
		l.mu.Unlock()
	}
}

// report logs the first failure of a row of them, and its end. What could not be written is written with the next.
func (l *Ledger) report(err error) {
	switch {
	case err != nil && !l.failing:
		l.log.Warn("the ledger of clients cannot be kept for now", "error", err)
	case err == nil && l.failing:
		l.log.Info("the ledger of clients is kept again")
	}
	l.failing = err != nil
}

// look brings the pages up to date. What came since the last look belongs to the hour of that look.
func (l *Ledger) look(now time.Time) {
	l.in.mu.RLock()
	sources := make([]*Source, 0, len(l.in.sources))
	for _, s := range l.in.sources {
		sources = append(sources, s)
	}
	l.in.mu.RUnlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	hour := l.at.UTC().Truncate(time.Hour)
	for _, s := range sources {
		p := l.pages[s]
		if p == nil {
			p = &page{}
			l.pages[s] = p
		}
		l.turn(s, p, hour)
	}
	l.at = now
}

// turn adds to the page what its source counted since the last look. The lock is held.
func (l *Ledger) turn(s *Source, p *page, hour time.Time) {
	total := s.total()
	since := total.less(&p.counted)
	if since.empty() {
		return
	}
	if !p.hour.Start.Equal(hour) {
		if p.dirty {
			return // the hour before is not written yet; these counts wait
		}
		before, err := l.read(s.Client, hour)
		if err != nil {
			return
		}
		p.hour = before
	}
	p.hour.Add(&since)
	p.counted = total
	p.dirty = true
}

// read is the row of an hour as a process before this one left it.
func (l *Ledger) read(client string, hour time.Time) (h Hour, err error) {
	key := ledgerKey(client, hour)
	fault := l.store.Rows(key, func(k, v []byte) bool {
		if len(k) == len(key) {
			h, err = parseHour(v)
		}
		return false
	})
	if err != nil { // counts that cannot be read are begun anew, not a reason to stop counting
		l.log.Warn("an hour of the ledger cannot be read", "client", client, "hour", hour, "error", err)
		h = Hour{}
	}
	h.Start = hour
	return h, fault
}

// write makes the changed pages durable.
func (l *Ledger) write(ctx context.Context) error {
	for {
		l.mu.Lock()
		var rows []historian.Row
		var pages []*page
		for s, p := range l.pages {
			if p.dirty && len(rows) < ledgerPart {
				rows = append(rows, historian.Row{Key: ledgerKey(s.Client, p.hour.Start), Value: p.hour.append(nil)})
				p.dirty = false
				pages = append(pages, p)
			}
		}
		l.mu.Unlock()
		if len(rows) == 0 {
			return nil
		}
		if err := l.store.Append(ctx, nil, rows); err != nil {
			l.mu.Lock()
			for _, p := range pages {
				p.dirty = true
			}
			l.mu.Unlock()
			return fmt.Errorf("uns: ledger: %w", err)
		}
	}
}

// sweep deletes hours that are too old, and what cannot be a row.
func (l *Ledger) sweep(ctx context.Context, now time.Time) error {
	oldest := now.Add(-ledgerDays * 24 * time.Hour)
	for {
		var rows []historian.Row
		err := l.store.Rows([]byte(ledgerPrefix), func(key, _ []byte) bool {
			if _, start, ok := parseLedgerKey(key); !ok || start.Before(oldest) {
				rows = append(rows, historian.Row{Key: slices.Clone(key)})
			}
			return len(rows) < 8*ledgerPart && ctx.Err() == nil
		})
		if err == nil && len(rows) > 0 {
			err = l.store.Append(ctx, nil, rows)
		}
		if err != nil || len(rows) < 8*ledgerPart {
			return err
		}
	}
}

// Hours returns the hours of a client that began in [from, to) and in which something happened, oldest first, the open
// one up to now. The slice is the caller's.
func (l *Ledger) Hours(client string, from, to time.Time) ([]Hour, error) {
	l.look(l.in.now())
	var hours []Hour
	var fault error
	err := l.store.Rows(ledgerKeys(client), func(key, value []byte) bool {
		_, start, ok := parseLedgerKey(key)
		if !ok || start.Before(from) || !start.Before(to) {
			return true
		}
		var h Hour
		if h, fault = parseHour(value); fault != nil {
			fault = fmt.Errorf("uns: ledger of %s, hour %s: %w", client, start.Format(time.RFC3339), fault)
			return false
		}
		h.Start = start
		hours = append(hours, h)
		return true
	})
	if err != nil || fault != nil {
		return nil, cmp.Or(err, fault)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for s, p := range l.pages {
		if s.Client != client || p.hour.Start.Before(from) || !p.hour.Start.Before(to) || p.hour.empty() {
			continue
		}
		open := p.hour
		open.Refused = nil
		for reason, n := range p.hour.Refused {
			open.Add(&Hour{Refused: map[string]uint64{reason: n}})
		}
		if i, found := slices.BinarySearchFunc(hours, open.Start, func(h Hour, at time.Time) int { return h.Start.Compare(at) }); found {
			hours[i] = open
		} else {
			hours = slices.Insert(hours, i, open)
		}
	}
	return hours, nil
}
