package perf

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Stage is one measured stretch of load.
type Stage struct {
	Server       string  `json:"server"`
	Name         string  `json:"name"`
	Offered      float64 `json:"offered_per_s"` // 0 = closed loop
	Seconds      float64 `json:"seconds"`
	Sent         float64 `json:"sent_per_s"`
	Stored       float64 `json:"stored_per_s"` // acknowledged as stored
	AckP50       float64 `json:"ack_p50_ms"`
	AckP99       float64 `json:"ack_p99_ms"`
	AckP999      float64 `json:"ack_p999_ms"`
	AckMax       float64 `json:"ack_max_ms"`
	VerdictP50   float64 `json:"verdict_p50_ms"`
	VerdictP99   float64 `json:"verdict_p99_ms"`
	Verdicts     uint64  `json:"verdicts"`
	VerdictsAway uint64  `json:"verdicts_unanswered"`
	Cores        float64 `json:"server_cores"`
	CPU          float64 `json:"server_us_per_value"`
	Generator    float64 `json:"generator_us_per_value"`
	PeakMB       float64 `json:"resident_peak_mb"`
	GrowthMB     float64 `json:"resident_growth_mb_per_min"`
	Written      float64 `json:"written_bytes_per_value"` // by the process; −1 = unknown
	Device       float64 `json:"device_bytes_per_value"`  // by the whole device; −1 = unknown
	Delivered    float64 `json:"delivered_per_s"`
	Refused      uint64  `json:"refused"`
	Resent       uint64  `json:"resent"`
	Skipped      uint64  `json:"skipped"`
	Unexpected   uint64  `json:"unexpected_acks"`
	Disconnects  uint64  `json:"disconnects"`
	Backlog      int64   `json:"backlog"` // values due and not yet sent at the end

	acked uint64
}

// faults names what a clean stage must not have.
func (s Stage) faults() string {
	var list []string
	note := func(n uint64, what string) {
		if n > 0 {
			list = append(list, fmt.Sprintf("%d %s", n, what))
		}
	}
	note(s.Refused, "refused")
	note(s.Disconnects, "disconnects")
	note(s.Resent, "resent")
	note(s.Skipped, "skipped")
	note(s.Unexpected, "unexpected acks")
	return strings.Join(list, ", ")
}

// Target is one figure held against its bound.
type Target struct {
	Figure string `json:"figure"`
	Want   string `json:"want"`
	Got    string `json:"got"`
	Met    bool   `json:"met"`
	Why    string `json:"why,omitempty"` // for a miss, or a caveat
}

// Table is a free table of the report.
type Table struct {
	Title string     `json:"title"`
	Head  []string   `json:"head"`
	Rows  [][]string `json:"rows"`
}

// Comparison is the read-back of a run: everything acknowledged held against history.
type Comparison struct {
	Run       string   `json:"run"`
	Topics    int      `json:"topics"`
	Acked     int      `json:"acknowledged"`
	Stored    int      `json:"stored"`
	Lost      int      `json:"lost"`
	Doubled   int      `json:"doubled"`
	Different int      `json:"different"`
	Unasked   int      `json:"stored_unacknowledged"` // sent again by the driver after a lost connection, or never acknowledged
	Unacked   int64    `json:"unacknowledged_at_end"`
	Excused   int      `json:"excused"` // lost within the window that a run without fsync declares
	Seconds   float64  `json:"seconds"`
	Faults    []string `json:"faults,omitempty"`
}

func comparisonOf(run string, r readBack, unacked int64) Comparison {
	return Comparison{Run: run, Topics: r.Topics, Acked: r.Acked, Stored: r.Stored, Lost: r.Lost, Doubled: r.Doubled,
		Different: r.Different, Unasked: r.Unasked, Unacked: unacked, Seconds: r.Seconds, Faults: r.Faults}
}

// Report is the result of a run. Write it with Save; Lost decides the exit code.
type Report struct {
	Title       string       `json:"title"`
	Command     string       `json:"command"`
	Started     time.Time    `json:"started"`
	Seconds     float64      `json:"seconds"`
	Machine     Machine      `json:"machine"`
	Setup       []string     `json:"setup"`
	Targets     []Target     `json:"targets,omitempty"`
	Stages      []Stage      `json:"stages,omitempty"`
	Tables      []Table      `json:"tables,omitempty"`
	Comparisons []Comparison `json:"comparisons"`
	Notes       []string     `json:"notes,omitempty"`
}

// Lost counts the acknowledged values that history does not show exactly once, digit for digit and in order.
func (r *Report) Lost() int {
	n := 0
	for _, c := range r.Comparisons {
		n += c.Lost + c.Doubled + c.Different - c.Excused
	}
	return n
}

// Unmet counts the targets missed.
func (r *Report) Unmet() int {
	n := 0
	for _, t := range r.Targets {
		if !t.Met {
			n++
		}
	}
	return n
}

// Save writes report.md and summary.json into dir.
func (r *Report) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("perf: report: %w", err)
	}
	var md strings.Builder
	r.WriteMarkdown(&md)
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("perf: report: %w", err)
	}
	err = errors.Join(os.WriteFile(filepath.Join(dir, "report.md"), []byte(md.String()), 0o644),
		os.WriteFile(filepath.Join(dir, "summary.json"), append(text, '\n'), 0o644))
	if err != nil {
		return fmt.Errorf("perf: report: %w", err)
	}
	return nil
}

// WriteMarkdown writes the report for people.
func (r *Report) WriteMarkdown(w io.Writer) {
	p := func(format string, a ...any) { _, _ = fmt.Fprintf(w, format+"\n", a...) }
	p("# %s\n", r.Title)
	m := r.Machine
	p("Measured %s in %s.\n", r.Started.UTC().Format("2006-01-02 15:04 UTC"), time.Duration(r.Seconds*float64(time.Second)).Round(time.Second))
	p("```\n%s\n```\n", r.Command)
	p("Machine: %s, %d cores, %d MB memory, disk %s, kernel %s, %s, revision %s.\n", m.CPU, m.Cores, m.MemoryMB, m.Disk, m.Kernel, m.Go, m.Revision)
	for _, s := range r.Setup {
		p("- %s", s)
	}
	if len(r.Comparisons) > 0 {
		verdict := "every acknowledged value was found once, digit for digit and in order"
		if n := r.Lost(); n > 0 {
			verdict = fmt.Sprintf("**%d values wrong**", n)
		}
		p("\n## Read-back: %s\n", verdict)
		rows := [][]string{}
		for _, c := range r.Comparisons {
			rows = append(rows, []string{c.Run, fmt.Sprint(c.Topics), fmt.Sprint(c.Acked), fmt.Sprint(c.Stored), fmt.Sprint(c.Lost),
				fmt.Sprint(c.Doubled), fmt.Sprint(c.Different), fmt.Sprint(c.Unasked), fmt.Sprint(c.Unacked), fmt.Sprintf("%.1f", c.Seconds)})
		}
		writeTable(w, []string{"run", "topics", "acknowledged", "stored", "lost", "doubled", "different", "stored unacknowledged", "open at end", "s"}, rows)
		p("\nStored unacknowledged: the acknowledgement never reached the device; most were then sent again by the driver on a new session.")
		for _, c := range r.Comparisons {
			for _, f := range c.Faults {
				p("- %s: %s", c.Run, f)
			}
		}
	}
	if len(r.Targets) > 0 {
		p("\n## Targets: %d of %d met\n", len(r.Targets)-r.Unmet(), len(r.Targets))
		rows := [][]string{}
		for _, t := range r.Targets {
			met := "met"
			if !t.Met {
				met = "**missed**"
			}
			rows = append(rows, []string{t.Figure, t.Want, t.Got, met, t.Why})
		}
		writeTable(w, []string{"figure", "target", "measured", "", "why"}, rows)
	}
	if len(r.Stages) > 0 {
		p("\n## Stages\n")
		rows := [][]string{}
		for _, s := range r.Stages {
			offered := "closed loop"
			if s.Name == stageFirst {
				offered = "at once"
			}
			if s.Offered > 0 {
				offered = fmt.Sprintf("%.0f", s.Offered)
			}
			rows = append(rows, []string{s.Server, s.Name, offered, fmt.Sprintf("%.0f", s.Stored), ms(s.AckP50), ms(s.AckP99), ms(s.VerdictP99),
				fmt.Sprintf("%.2f", s.Cores), fmt.Sprintf("%.1f", s.CPU), fmt.Sprintf("%.1f", s.Generator), whole(s.PeakMB), bytesEach(s.Written),
				bytesEach(s.Device), fmt.Sprintf("%.0f", s.Delivered), s.faults()})
		}
		writeTable(w, []string{"server", "stage", "offered/s", "stored/s", "ack p50 ms", "ack p99 ms", "verdict p99 ms", "server cores", "server µs/value",
			"generator µs/value", "peak MB", "written B/value", "device B/value", "delivered/s", "faults"}, rows)
		p("\nLatency runs from the publish leaving the device to its acknowledgement, or its verdict on the response topic (1 in 100). Device bytes are those of the whole disk, other writers included.")
	}
	for _, t := range r.Tables {
		p("\n## %s\n", t.Title)
		writeTable(w, t.Head, t.Rows)
	}
	if len(r.Notes) > 0 {
		p("\n## Notes\n")
		for _, n := range r.Notes {
			p("- %s", n)
		}
	}
}

func writeTable(w io.Writer, head []string, rows [][]string) {
	line := func(cells []string) { _, _ = fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	line(strings.Split(strings.TrimSuffix(strings.Repeat("--- ", len(head)), " "), " "))
	for _, r := range rows {
		line(r)
	}
}

func ms(v float64) string {
	if v == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", v)
}

func whole(v float64) string {
	if v < 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f", v)
}

func bytesEach(v float64) string {
	if v < 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", v)
}
