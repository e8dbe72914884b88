package perf

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	readerClient = "perf-reader"
	readerPath   = "perf/hour"
	hourValues   = 3600
	readerPause  = 50 * time.Millisecond
)

// reader asks for a raw hour of one topic, 3,600 values, again and again.
type reader struct {
	box   *box
	start time.Time
}

// reading back is counted in these.
type readerCounts struct {
	took   *hdrhistogram.Histogram // µs
	fault  error
	short  int // answers without all 3,600 values
	values int
}

func (c readerCounts) String() string {
	if c.fault != nil {
		return "reader failed: " + c.fault.Error()
	}
	return fmt.Sprintf("%d reads of a raw hour (%d values): p50 %.2f ms, p99 %.2f ms, %d short", c.took.TotalCount(), hourValues,
		milliseconds(c.took, 50), milliseconds(c.took, 99), c.short)
}

// newReader writes the hour through a device of its own: one value a second, with timestamps.
func newReader(ctx context.Context, b *box) (*reader, error) {
	err := b.api.addClients(ctx, []identity{{ID: readerClient, Secret: b.secret(readerClient), Workspace: "main", Grants: []grant{allow("perf/#", "publish")}}})
	if err != nil {
		return nil, err
	}
	l, err := dialLink(ctx, b.mqtt, readerClient, b.secret(readerClient), time.Minute)
	if err != nil {
		return nil, err
	}
	defer l.close()
	r := &reader{box: b, start: time.Now().Add(-(hourValues + 60) * time.Second).Truncate(time.Second)}
	signal := newSignal(7, 0, 3, false)
	for i := range hourValues {
		payload := fmt.Appendf(nil, `{"value": %s, "timestamp": %q}`, signal.kind.appendDigits(nil, signal.next()),
			r.start.Add(time.Duration(i)*time.Second).UTC().Format("2006-01-02T15:04:05.000Z07:00"))
		if err := l.publish("mHv1.0/main/_ingress/"+readerClient+"/"+readerPath, payload); err != nil {
			return nil, fmt.Errorf("perf: hour of history: %w", err)
		}
	}
	return r, l.settle()
}

// begin starts reading in one goroutine until the returned stop. A nil reader reads nothing.
func (r *reader) begin(ctx context.Context) (stop func() readerCounts) {
	if r == nil {
		return func() readerCounts { return readerCounts{} }
	}
	ctx, cancel := context.WithCancel(ctx)
	c := readerCounts{took: hdrhistogram.New(1, longestLatency, 3)}
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(readerPause)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			took, n, err := r.once(ctx)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				c.fault = err
				return
			}
			_ = c.took.RecordValue(min(max(took.Microseconds(), 1), longestLatency))
			if c.values = n; n != hourValues {
				c.short++
			}
		}
	})
	return func() readerCounts {
		cancel()
		wg.Wait()
		return c
	}
}

func (r *reader) once(ctx context.Context) (took time.Duration, n int, err error) {
	begin := time.Now()
	answer, err := r.box.api.historyPage(ctx, readerPath, r.start, r.start.Add(hourValues*time.Second), pageLimit, "")
	took = time.Since(begin)
	if err != nil {
		return took, 0, err
	}
	values, _, err := parseHistory(readerPath, answer)
	return took, len(values), err
}
