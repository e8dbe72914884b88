package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// progressLive is how often the line of a terminal is drawn anew, progressLog how often a line is written where stderr is
	// no terminal: a log should tell of an hour's copy, not of a second's.
	progressLive = 200 * time.Millisecond
	progressLog  = 10 * time.Second
)

// progress tells on stderr how far a long command is and how long it will still take. On a terminal it is one line that is
// drawn anew and taken away at the end. Use it from one goroutine.
type progress struct {
	out   io.Writer
	live  bool
	unit  func(int64) string // words an amount, as bytes or values
	now   func() time.Time
	began time.Time
	told  time.Time
	wide  int // columns of the line that stands there
}

// newProgress begins to count now. unit words an amount; see sizeText.
func newProgress(con console, unit func(int64) string) *progress {
	p := &progress{out: con.err, unit: unit, now: time.Now}
	if f, ok := con.err.(*os.File); ok {
		_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		p.live = err == nil
	}
	p.began = p.now()
	p.told = p.began
	return p
}

// to tells that done of total are done; total 0 is not known yet. Most calls write nothing.
func (p *progress) to(what string, done, total int64) {
	now := p.now()
	every := progressLog
	if p.live {
		every = progressLive
	}
	if now.Sub(p.told) < every {
		return
	}
	p.told = now
	p.draw(p.line(what, done, total, now.Sub(p.began)))
}

// line is one report. The time left follows from the mean speed so far.
func (p *progress) line(what string, done, total int64, took time.Duration) string {
	if total <= 0 {
		if done == 0 {
			return what
		}
		return fmt.Sprintf("%s  %s", what, p.unit(done))
	}
	text := fmt.Sprintf("%s  %3d %%  %s of %s", what, done*100/total, p.unit(done), p.unit(total))
	if done > 0 && took > 0 {
		speed := float64(done) / took.Seconds()
		text += fmt.Sprintf("  %s/s", p.unit(int64(speed)))
		if left := time.Duration(float64(total-done) / speed * float64(time.Second)); done < total {
			text += "  " + leftText(left) + " left"
		}
	}
	return text
}

func (p *progress) draw(text string) {
	if !p.live {
		fmt.Fprintln(p.out, text)
		return
	}
	fmt.Fprintf(p.out, "\r%s%s", text, strings.Repeat(" ", max(0, p.wide-len(text))))
	p.wide = len(text)
}

// end takes the line of a terminal away.
func (p *progress) end() {
	if p.live && p.wide > 0 {
		fmt.Fprintf(p.out, "\r%s\r", strings.Repeat(" ", p.wide))
		p.wide = 0
	}
}

// leftText words a duration as people say it: 45 s, 12 min 5 s, 3 h 10 min.
func leftText(d time.Duration) string {
	s := int64((d + time.Second - 1) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", s)
	case s < 3600:
		return fmt.Sprintf("%d min %d s", s/60, s%60)
	}
	return fmt.Sprintf("%d h %d min", s/3600, s%3600/60)
}

// sizeText words bytes.
func sizeText(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
