package perf

import (
	"bytes"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// stats are the counts of one stretch of a run. Latencies are in µs.
type stats struct {
	begin, end time.Time
	generator  time.Duration // the generator's own CPU

	Sent        uint64 // new values, resends apart
	Acked       uint64 // as stored
	Refused     map[byte]uint64
	Resent      uint64 // values sent again after a lost connection
	Skipped     uint64 // due, but the device's buffer was full
	Unexpected  uint64 // acknowledgements of nothing
	Disconnects uint64
	Delivered   uint64 // to the subscribers
	Asked       uint64 // verdicts
	Answered    uint64
	Denied      uint64 // verdicts other than stored
	ack         *hdrhistogram.Histogram
	answer      *hdrhistogram.Histogram
}

const longestLatency = 120 * 1000 * 1000 // µs

func newStats() *stats {
	return &stats{begin: time.Now(), generator: ownCPU(), Refused: map[byte]uint64{},
		ack: hdrhistogram.New(1, longestLatency, 3), answer: hdrhistogram.New(1, longestLatency, 3)}
}

func (s *stats) acked(ns int64, code byte) {
	if code >= 0x80 {
		s.Refused[code]++
	} else {
		s.Acked++
	}
	_ = s.ack.RecordValue(min(max(ns/1000, 1), longestLatency))
}

func (s *stats) verdict(ns int64, payload []byte) {
	s.Answered++
	if !bytes.Contains(payload, []byte(`"status":"stored"`)) {
		s.Denied++
	}
	_ = s.answer.RecordValue(min(max(ns/1000, 1), longestLatency))
}

func (s *stats) refusals() (n uint64) {
	for _, c := range s.Refused {
		n += c
	}
	return n
}

func (s *stats) seconds() float64 { return s.end.Sub(s.begin).Seconds() }

// milliseconds is the latency at quantile q (0 to 100); 0 when nothing was measured.
func milliseconds(h *hdrhistogram.Histogram, q float64) float64 {
	if h.TotalCount() == 0 {
		return 0
	}
	return float64(h.ValueAtQuantile(q)) / 1000
}

// ownCPU is the CPU time of this process, the generator.
func ownCPU() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
