package uns

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"millrace/historian"

	"github.com/prometheus/client_golang/prometheus"
)

// Options: config section `uns` plus what is injected.
type Options struct {
	Namespace  string   `koanf:"namespace"`
	Workspaces []string `koanf:"workspaces"`
	Ingress    struct {
		PerClientRatePerSec    int   `koanf:"perClientRatePerSec"`    // 0 = off
		PerWorkspaceRatePerSec int   `koanf:"perWorkspaceRatePerSec"` // 0 = off
		MaxTopics              int   `koanf:"maxTopics"`              // per workspace
		MaxValueSize           int64 `koanf:"maxValueSize"`           // bytes of one payload
	} `koanf:"ingress"`
	MaxFuture  time.Duration `koanf:"maxFuture"`
	LateWindow string        `koanf:"lateWindow"` // "retention" or a duration
	LiveMirror struct {
		QoS int `koanf:"qos"`
	} `koanf:"liveMirror"`

	// DefaultClass is the retention of topics that nobody has set one for.
	DefaultClass historian.Class       `koanf:"-"`
	Now          func() time.Time      `koanf:"-"` // nil = time.Now
	Log          *slog.Logger          `koanf:"-"` // nil = silent
	Registry     prometheus.Registerer `koanf:"-"` // nil = a private one
}

// maxRate keeps a token at least 100 ns wide, so that the buckets' arithmetic stays within 1 %.
const maxRate = 10_000_000

// DefaultOptions are the defaults of contract section 2.
func DefaultOptions() Options {
	var o Options
	o.Namespace = "mHv1.0"
	o.Workspaces = []string{"main"}
	o.Ingress.PerClientRatePerSec = 2000
	o.Ingress.MaxTopics = 1_000_000
	o.Ingress.MaxValueSize = 256 << 10
	o.MaxFuture = 5 * time.Minute
	o.LateWindow = lateRetention
	o.LiveMirror.QoS = 1
	o.DefaultClass = historian.Class1d
	return o
}

const lateRetention = "retention"

// Validate reports every fault, each with its config key, the value and the bound.
func (o *Options) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if text := nameFault(o.Namespace); text != "" {
		fault("uns.namespace: %q %s", o.Namespace, text)
	}
	if len(o.Workspaces) == 0 {
		fault("uns.workspaces: is empty, at least one is wanted")
	}
	seen := make(map[string]bool)
	for i, w := range o.Workspaces {
		if text := nameFault(w); text != "" {
			fault("uns.workspaces[%d]: %q %s", i, w, text)
		} else if seen[w] {
			fault("uns.workspaces[%d]: %q is listed twice", i, w)
		}
		seen[w] = true
	}
	between := func(key string, n, lo, hi int64) {
		if n < lo {
			fault("uns.%s: %d is below %d", key, n, lo)
		} else if n > hi {
			fault("uns.%s: %d is above %d", key, n, hi)
		}
	}
	between("ingress.perClientRatePerSec", int64(o.Ingress.PerClientRatePerSec), 0, maxRate)
	between("ingress.perWorkspaceRatePerSec", int64(o.Ingress.PerWorkspaceRatePerSec), 0, maxRate)
	between("ingress.maxTopics", int64(o.Ingress.MaxTopics), 1, 100_000_000)
	between("ingress.maxValueSize", o.Ingress.MaxValueSize, 1, 256<<20)
	between("liveMirror.qos", int64(o.LiveMirror.QoS), 0, 2)
	if o.MaxFuture < 0 {
		fault("uns.maxFuture: %v is below 0s", o.MaxFuture)
	}
	if _, err := lateWindow(o.LateWindow); err != nil {
		fault("uns.lateWindow: %q is neither %q nor a duration above 0s, like 7d", o.LateWindow, lateRetention)
	}
	return errors.Join(faults...)
}

// nameFault checks a namespace or workspace: one topic level that a client may name.
func nameFault(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > 64:
		return "is longer than 64 bytes"
	case s[0] == '_' || s[0] == '$':
		return "starts with _ or $, which belong to the box"
	case !utf8.ValidString(s):
		return "is not UTF-8"
	}
	for _, r := range s {
		if r == '/' || r == '+' || r == '#' || r < 0x20 || r >= 0x7f && r < 0xA0 {
			return fmt.Sprintf("holds %q, which no single topic level may", r)
		}
	}
	return ""
}

// lateWindow is 0 for the topic's retention.
func lateWindow(s string) (time.Duration, error) {
	if s == lateRetention {
		return 0, nil
	}
	d, err := parseDuration(s)
	if err == nil && d <= 0 {
		err = errors.New("not above 0s")
	}
	return d, err
}

// parseDuration reads Go's durations and whole or broken days, like 7d.
func parseDuration(s string) (time.Duration, error) {
	days, ok := strings.CutSuffix(s, "d")
	if !ok {
		return time.ParseDuration(s)
	}
	n, err := strconv.ParseFloat(days, 64)
	if err != nil || !(n >= 0 && n <= 36500) {
		return 0, fmt.Errorf("%q is not a number of days", s)
	}
	return time.Duration(n * float64(24*time.Hour)), nil
}
