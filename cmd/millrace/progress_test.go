package main

import (
	"strings"
	"testing"
	"time"
)

// Time left follows from the speed so far; where stderr is no terminal, a line comes every ten seconds and no more.
func TestProgressTellsTheTimeLeft(t *testing.T) {
	var out strings.Builder
	at := time.Unix(1_800_000_000, 0)
	p := newProgress(console{err: &out}, sizeText)
	p.now = func() time.Time { return at }
	p.began, p.told = at, at
	for range 150 { // 15 s, a MiB each 100 ms
		at = at.Add(100 * time.Millisecond)
		p.to("copying", int64(at.Sub(p.began)/(100*time.Millisecond))<<20, 1000<<20)
	}
	p.end()
	if got, want := out.String(), "copying   10 %  100.0 MiB of 1000.0 MiB  10.0 MiB/s  1 min 30 s left\n"; got != want {
		t.Errorf("told %q, want %q", got, want)
	}
	out.Reset()
	p.live, p.told = true, at.Add(-time.Hour)
	p.to("copying", 500<<20, 1000<<20)
	p.told = at.Add(-time.Hour)
	p.to("x", 0, 0)
	p.end()
	if got := out.String(); !strings.HasPrefix(got, "\rcopying   50 %") || !strings.Contains(got, "\rx    ") || !strings.HasSuffix(got, " \r") || strings.Contains(got, "\n") {
		t.Errorf("drawn %q", got)
	}
	for d, want := range map[time.Duration]string{500 * time.Millisecond: "1 s", 61 * time.Second: "1 min 1 s", 190 * time.Minute: "3 h 10 min"} {
		if got := leftText(d); got != want {
			t.Errorf("%v is worded %q, want %q", d, got, want)
		}
	}
}
