package web_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// BenchmarkLatest reads the last values of 10,000 topics by REST.
func BenchmarkLatest(b *testing.B) {
	x := newBox(b)
	for topic := range 10_000 {
		x.put("main", fmt.Sprintf("line%d/machine%d/temp", topic%10, topic), "20.5")
		if topic%1000 == 0 {
			x.clock.add(time.Second)
		}
	}
	for b.Loop() {
		r := x.get("/uns/latest", "limit", "10000")
		if r.StatusCode != 200 || strings.Count(r.text, `"topic"`) != 10_000 {
			b.Fatal(r.StatusCode, len(r.text))
		}
	}
}
