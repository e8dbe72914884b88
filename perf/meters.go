package perf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// reading is what a server has used since it began. A figure that cannot be had is −1.
type reading struct {
	at       time.Time
	cpu      time.Duration // user and system
	resident int64         // bytes
	written  int64         // bytes the process caused to be written to disk
	sectors  int64         // bytes written to the whole device under the data, by whoever
}

// meter reads a server from outside.
type meter interface {
	read(ctx context.Context) (reading, error)
}

// procMeter reads a child process from /proc.
type procMeter struct {
	pid int
	dir string // on the device to watch; "" = none
}

// userHZ is the unit of /proc/PID/stat on every Linux architecture Go supports.
const userHZ = 100

func (m procMeter) read(context.Context) (reading, error) {
	r := reading{at: time.Now(), written: -1, sectors: -1}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.pid))
	if err != nil {
		return r, fmt.Errorf("perf: server's CPU: %w", err)
	}
	text := string(stat)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 22 {
		return r, errors.New("perf: server's CPU: /proc/PID/stat is short")
	}
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	r.cpu = time.Duration(user+system) * time.Second / userHZ
	r.resident = procField(fmt.Sprintf("/proc/%d/status", m.pid), "VmRSS:") * 1024
	r.written = procField(fmt.Sprintf("/proc/%d/io", m.pid), "write_bytes:")
	if m.dir != "" {
		r.sectors = deviceWritten(m.dir)
	}
	return r, nil
}

// procField returns the number behind name in a file of "name value" lines, −1 when it is not there.
func procField(path, name string) int64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if f := strings.Fields(rest); len(f) > 0 {
				if v, err := strconv.ParseInt(f[0], 10, 64); err == nil {
					return v
				}
			}
		}
	}
	return -1
}

// deviceWritten is the number of bytes written to the block device that holds dir, −1 when unknown.
func deviceWritten(dir string) int64 {
	var st syscall.Stat_t
	if syscall.Stat(dir, &st) != nil {
		return -1
	}
	major := strconv.FormatUint(st.Dev>>8&0xfff|st.Dev>>32&^0xfff, 10)
	minor := strconv.FormatUint(st.Dev&0xff|st.Dev>>12&^0xff, 10)
	text, err := os.ReadFile("/proc/diskstats")
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) > 9 && f[0] == major && f[1] == minor {
			sectors, err := strconv.ParseInt(f[9], 10, 64)
			if err != nil {
				return -1
			}
			return sectors * 512
		}
	}
	return -1
}

// scrapeMeter reads a running server from its /metrics.
type scrapeMeter struct{ api *api }

func (m scrapeMeter) read(ctx context.Context) (reading, error) {
	r := reading{at: time.Now(), resident: -1, written: -1, sectors: -1}
	text, err := m.api.do(ctx, "GET", "/metrics", "", nil)
	if err != nil {
		return r, err
	}
	cpu, ok := m.api.metric(text, "process_cpu_seconds_total")
	if !ok {
		return r, errors.New("perf: /metrics has no process_cpu_seconds_total")
	}
	r.cpu = time.Duration(cpu * float64(time.Second))
	if v, ok := m.api.metric(text, "process_resident_memory_bytes"); ok {
		r.resident = int64(v)
	}
	return r, nil
}

// usage is what a server used over a stretch.
type usage struct {
	Seconds    float64
	CPU        float64 // seconds
	Peak       int64   // resident bytes
	GrowthMBpm float64 // slope of resident memory over the second half, MB per minute
	Written    int64
	Sectors    int64
}

// watch samples a server's memory from now until stop, which returns what was used in between. One goroutine,
// ended by stop.
func watch(ctx context.Context, m meter) (stop func() (usage, error), err error) {
	first, err := m.read(ctx)
	if err != nil {
		return nil, err
	}
	readings := []reading{first}
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if r, err := m.read(ctx); err == nil {
					readings = append(readings, r)
				}
			case <-quit:
				return
			}
		}
	})
	return func() (usage, error) {
		close(quit)
		wg.Wait()
		last, err := m.read(ctx)
		if err != nil {
			return usage{}, err
		}
		return used(append(readings, last)), nil
	}, nil
}

func used(readings []reading) usage {
	first, last := readings[0], readings[len(readings)-1]
	u := usage{Seconds: last.at.Sub(first.at).Seconds(), CPU: (last.cpu - first.cpu).Seconds(), Written: -1, Sectors: -1, Peak: -1}
	if first.written >= 0 && last.written >= 0 {
		u.Written = last.written - first.written
	}
	if first.sectors >= 0 && last.sectors >= 0 {
		u.Sectors = last.sectors - first.sectors
	}
	for _, r := range readings {
		u.Peak = max(u.Peak, r.resident)
	}
	// Least squares over the second half: the first still fills caches.
	half := readings[len(readings)/2:]
	var n, sx, sy, sxx, sxy float64
	for _, r := range half {
		x, y := r.at.Sub(first.at).Minutes(), float64(r.resident)/1e6
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	if d := n*sxx - sx*sx; n >= 3 && d > 0 {
		u.GrowthMBpm = (n*sxy - sx*sy) / d
	}
	return u
}

// onDisk adds up the files below dir: allocated blocks and lengths.
func onDisk(dir string) (blocks, lengths int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return nil
		}
		lengths += info.Size()
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			blocks += st.Blocks * 512
		}
		return nil
	})
	return blocks, lengths
}
