package perf

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// figure is one run of a scenario: a report under way and the folder of its boxes.
type figure struct {
	LoadOptions
	r        *Report
	scrap    string
	progress io.Writer
	boxes    int
}

// measureFigure runs body with what every scenario needs and saves the report unless an error is returned.
func measureFigure(o LoadOptions, title, run string, progress io.Writer, body func(*figure) error) (Report, error) {
	r := Report{Title: title, Command: o.command(), Started: time.Now()}
	scrap, clean, err := o.scrapDir()
	if err != nil {
		return r, err
	}
	defer clean()
	r.Machine = machineOf(scrap)
	if err := body(&figure{LoadOptions: o, r: &r, scrap: scrap, progress: progress}); err != nil {
		return r, err
	}
	r.Seconds = time.Since(r.Started).Seconds()
	return r, o.save(&r, run, progress)
}

// fresh starts a box on an empty folder.
func (f *figure) fresh(ctx context.Context, o boxOptions) (*box, error) {
	f.boxes++
	o.binary, o.scrap = f.Binary, f.scrap
	b, err := startBox(ctx, fmt.Sprintf("box%d", f.boxes), o)
	if err == nil {
		b.name = "millrace"
	}
	return b, err
}

func (f *figure) target(figure, want, got string, met bool, why string) {
	f.r.Targets = append(f.r.Targets, Target{Figure: figure, Want: want, Got: got, Met: met, Why: why})
}

func (f *figure) note(format string, a ...any) {
	f.r.Notes = append(f.r.Notes, fmt.Sprintf(format, a...))
}

// quartiles are the middle half of the rounds.
func (r rounds) quartiles() (low, high float64) {
	if len(r) == 0 {
		return 0, 0
	}
	s := slices.Sorted(slices.Values(r))
	return s[(len(s)-1)/4], s[len(s)-1-(len(s)-1)/4]
}

// medianWithin is where the median lies with 95 % confidence, by ranks (sign test); with less than six rounds anywhere
// between the extremes.
func (r rounds) medianWithin() (low, high float64) {
	if len(r) == 0 {
		return 0, 0
	}
	s := slices.Sorted(slices.Values(r))
	n := float64(len(s))
	k := max(int((n-1.96*math.Sqrt(n))/2), 0)
	return s[k], s[len(s)-1-k]
}

// pause waits, or less when ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
