package main

import (
	"math"
	"path/filepath"
	"testing"
)

func TestQuantile(t *testing.T) {
	edges := []float64{0, 1, 2, 3, math.Inf(1)}
	for _, tt := range []struct {
		name   string
		counts []uint64
		want   float64
	}{
		{"nothing", []uint64{0, 0, 0, 0}, 0},
		{"all in one", []uint64{0, 50, 0, 0}, 2},
		{"the hundredth of a hundred is beyond", []uint64{99, 1, 0, 0}, 1},
		{"two of a hundred are", []uint64{98, 0, 2, 0}, 3},
		{"the open bucket", []uint64{0, 0, 0, 9}, 3},
	} {
		if got := quantile(tt.counts, edges, 0.99); got != tt.want {
			t.Errorf("%s: %g, want %g", tt.name, got, tt.want)
		}
	}
}

func TestPressure(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cpu")
	if _, ok := pressure(file); ok {
		t.Error("a file that is not there told something")
	}
	write(t, file, "some avg10=12.34 avg60=1.00 avg300=0.10 total=5\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
	if v, ok := pressure(file); !ok || v != 12.34 {
		t.Errorf("%g %v", v, ok)
	}
}
