package perf

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"
)

// history is where stored values are read back from.
type history interface {
	// History returns one page of topic's values in [from, to) as JSON text, oldest first, and the cursor of
	// the next page, "" after the last.
	History(ctx context.Context, topic string, from, to time.Time, limit int, cursor string) (values []string, next string, err error)
}

const (
	pageLimit    = 100000 // the most one raw page may hold
	namedFaults  = 20     // topics named in a report
	readBackLine = 4      // topics read at once
)

// readBack is the result of comparing every topic.
type readBack struct {
	outcome
	Topics  int
	Faults  []string // the first topics that differ
	Seconds float64

	lost map[*track][]uint32 // numbers of the values lost, by topic
}

// compareAll reads the history of every track from h and holds it against what was sent. The fleet must have
// stopped.
func compareAll(ctx context.Context, h history, seed uint64, serial bool, tracks []*track, from, to time.Time, progress io.Writer) (readBack, error) {
	begin := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	all := readBack{Topics: len(tracks), lost: map[*track][]uint32{}}
	var failed error
	turn, said := 0, begin
	take := func() *track {
		mu.Lock()
		defer mu.Unlock()
		if turn == len(tracks) || failed != nil {
			return nil
		}
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			say(progress, "read-back: %d of %d topics", turn, len(tracks))
		}
		turn++
		return tracks[turn-1]
	}
	for range readBackLine {
		wg.Go(func() {
			for t := take(); t != nil; t = take() {
				o, err := compareOne(ctx, h, seed, serial, t, from, to)
				mu.Lock()
				switch {
				case err != nil && failed == nil:
					failed = err
					cancel()
				case err == nil:
					if len(o.missing) > 0 {
						all.lost[t], o.missing = o.missing, nil
					}
					all.add(o)
					if o.Lost+o.Doubled+o.Different > 0 && len(all.Faults) < namedFaults {
						all.Faults = append(all.Faults, fmt.Sprintf("%s: %d acknowledged, %d stored, %d lost, %d doubled, %d different",
							t.path, o.Acked, o.Stored, o.Lost, o.Doubled, o.Different))
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	all.Seconds = time.Since(begin).Seconds()
	return all, failed
}

func compareOne(ctx context.Context, h history, seed uint64, serial bool, t *track, from, to time.Time) (outcome, error) {
	var stored []string
	for cursor := ""; ; {
		page, next, err := h.History(ctx, t.path, from, to, pageLimit, cursor)
		if err != nil {
			return outcome{}, err
		}
		stored = append(stored, page...)
		if next == "" {
			break
		}
		if next == cursor {
			return outcome{}, fmt.Errorf("perf: history of %s: the cursor does not move", t.path)
		}
		cursor = next
	}
	signal := newSignal(seed, t.device, t.tag, serial)
	texts := make([]string, t.fresh)
	var b []byte
	for i := range texts {
		b = signal.kind.appendDigits(b[:0], signal.next())
		texts[i] = string(b)
	}
	sent := t.transmissions(make([]transmission, 0, t.sent))
	digits := make([]string, len(sent))
	for i, s := range sent {
		digits[i] = texts[s.value]
	}
	return match(sent, digits, stored), nil
}

// tracks lists every topic of the fleet.
func (f *Fleet) tracks() []*track {
	var all []*track
	for _, s := range f.sessions {
		if s.device != nil {
			for i := range s.device.tracks {
				all = append(all, &s.device.tracks[i])
			}
		}
	}
	return all
}

// say writes one progress line; nil is silence.
func say(w io.Writer, format string, a ...any) {
	if w != nil {
		_, _ = fmt.Fprintf(w, format+"\n", a...)
	}
}
