package perf

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
)

// Machine is what a figure was measured on.
type Machine struct {
	Host     string `json:"host"`
	CPU      string `json:"cpu"`
	Cores    int    `json:"cores"`
	MemoryMB int64  `json:"memory_mb"`
	Disk     string `json:"disk"`
	Kernel   string `json:"kernel"`
	Go       string `json:"go"`
	Revision string `json:"revision"`
}

// machineOf looks at this machine; dir lies on the disk that the run writes to.
func machineOf(dir string) Machine {
	m := Machine{CPU: "unknown", Cores: runtime.NumCPU(), MemoryMB: procField("/proc/meminfo", "MemTotal:") / 1024,
		Disk: diskOf(dir), Go: runtime.Version(), Revision: revision()}
	m.Host, _ = os.Hostname()
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(text))
	}
	return m
}

// diskOf names the device and file system that hold dir.
func diskOf(dir string) string {
	var st syscall.Stat_t
	if syscall.Stat(dir, &st) != nil {
		return "unknown"
	}
	number := strconv.FormatUint(st.Dev>>8&0xfff, 10) + ":" + strconv.FormatUint(st.Dev&0xff|st.Dev>>12&0xfff00, 10)
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return number
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 7 || f[2] != number {
			continue
		}
		for i, word := range f {
			if word == "-" && i+2 < len(f) {
				return f[i+2] + " " + f[i+1]
			}
		}
	}
	return number
}

// revision is the source the binary was built from: stamped by the build, else asked of git.
func revision() string {
	rev, dirty := "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				rev = s.Value
			case "vcs.modified":
				if s.Value == "true" {
					dirty = " with changes"
				}
			}
		}
	}
	if rev == "" {
		out, err := exec.Command("git", "rev-parse", "HEAD").Output()
		if err != nil {
			return "unknown"
		}
		rev = strings.TrimSpace(string(out))
	}
	return rev[:min(12, len(rev))] + dirty
}

// resultsDir is where a report goes unless it is told: perf/results/<date>-<machine>-<run>.
func resultsDir(date, run string, m Machine) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(m.CPU))
	name = strings.Join(strings.FieldsFunc(name, func(r rune) bool { return r == '-' }), "-")
	return filepath.Join("perf", "results", date+"-"+name[:min(24, len(name))]+"-"+strconv.Itoa(m.Cores)+"core-"+run)
}
