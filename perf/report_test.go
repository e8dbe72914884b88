package perf_test

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/perf"
)

func goldenReport() perf.Report {
	return perf.Report{
		Title: "Ingest", Command: "millrace perf ingest --rates 20000", Started: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), Seconds: 61,
		Machine: perf.Machine{Host: "h", CPU: "Some CPU", Cores: 2, MemoryMB: 4096, Disk: "/dev/vda ext4", Kernel: "6.1", Go: "go1.26", Revision: "0123456789ab"},
		Setup:   []string{"One line of set-up."},
		Targets: []perf.Target{{Figure: "p99", Want: "≤ 10 ms", Got: "2.00 ms", Met: true}, {Figure: "memory", Want: "≤ 250 MB", Got: "300 MB", Why: "a reason"}},
		Stages: []perf.Stage{
			{Server: "box", Name: "first contacts", Offered: 0, Stored: 32000, AckP50: 1, AckP99: 2, Cores: 0.5, CPU: 18, Generator: 5, PeakMB: 90, Written: 90, Device: 95},
			{Server: "box", Name: "paced", Offered: 20000, Stored: 19990, AckP50: 1, AckP99: 2, VerdictP99: 3, Cores: 0.5, CPU: 25, Generator: 5, PeakMB: -1, Written: -1, Device: -1, Refused: 2, Disconnects: 1},
		},
		Tables:      []perf.Table{{Title: "Kills", Head: []string{"kill", "s"}, Rows: [][]string{{"1", "0.5"}}}},
		Comparisons: []perf.Comparison{{Run: "box", Topics: 10, Acked: 100, Stored: 99, Lost: 2, Doubled: 1, Seconds: 1, Faults: []string{"a/b: 10 acknowledged, 8 stored"}}},
		Notes:       []string{"A note."},
	}
}

var update = flag.Bool("update", false, "rewrite testdata/report.md")

func TestReportGolden(t *testing.T) {
	r := goldenReport()
	var md strings.Builder
	r.WriteMarkdown(&md)
	if *update {
		if err := os.WriteFile("testdata/report.md", []byte(md.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/report.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), md.String()); diff != "" {
		t.Errorf("report.md (-want +got), rewrite with -update:\n%s", diff)
	}
}

// TestLost is the exit code: anything wrong counts, what a run without fsync declares does not.
func TestLost(t *testing.T) {
	for _, tc := range []struct {
		name string
		c    perf.Comparison
		want int
	}{
		{"right", perf.Comparison{Acked: 5, Stored: 6, Unasked: 1}, 0},
		{"lost", perf.Comparison{Lost: 2}, 2},
		{"doubled", perf.Comparison{Doubled: 1}, 1},
		{"different", perf.Comparison{Different: 3}, 3},
		{"declared tail", perf.Comparison{Lost: 2, Excused: 2}, 0},
		{"more than the declared tail", perf.Comparison{Lost: 3, Excused: 2}, 1},
	} {
		r := perf.Report{Comparisons: []perf.Comparison{tc.c, {}}}
		if got := r.Lost(); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}

func TestUsageOfReadings(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	var list []perf.Reading
	for i := range 11 {
		grown := int64(0)
		if i > 5 {
			grown = int64(i-5) * 1e6 // 1 MB each 6 s in the second half
		}
		list = append(list, perf.NewReading(at.Add(time.Duration(i)*6*time.Second), time.Duration(i)*time.Second, 100e6+grown, int64(i)*1000, -1))
	}
	u := perf.Used(list)
	if u.Seconds != 60 || u.CPU != 10 || u.Peak != 105e6 || u.Written != 10000 || u.Sectors != -1 || u.GrowthMBpm < 9.9 || u.GrowthMBpm > 10.1 {
		t.Errorf("%+v", u)
	}
}
