package perf_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"millrace/perf"
)

func texts(seed uint64, device, tag, n int) []string {
	s := perf.NewSignal(seed, device, tag, false)
	var out []string
	for range n {
		out = append(out, s.Text())
	}
	return out
}

// TestSignalsAreDeterministic is what lets a read-back replay the values.
func TestSignalsAreDeterministic(t *testing.T) {
	for tag := range 10 {
		one := texts(1, 3, tag, 2000)
		if !slices.Equal(one, texts(1, 3, tag, 2000)) {
			t.Errorf("tag %d: the same seed yields other values", tag)
		}
		if tag < 8 && (slices.Equal(one, texts(2, 3, tag, 2000)) || slices.Equal(one, texts(1, 4, tag, 2000))) {
			t.Errorf("tag %d: another seed or device yields the same values", tag)
		}
	}
}

// TestSignalsLookLikeAPlant checks the mix that the figures at rest depend on.
func TestSignalsLookLikeAPlant(t *testing.T) {
	const n = 5000
	for tag := range 10 {
		list := texts(1, 0, tag, n)
		distinct, changes := map[string]bool{}, 0
		for i, v := range list {
			if !json.Valid([]byte(v)) {
				t.Fatalf("tag %d: %q is not JSON", tag, v)
			}
			distinct[v] = true
			if i > 0 && v != list[i-1] {
				changes++
			}
			_, decimals, _ := strings.Cut(v, ".")
			want := [10]int{1, 1, 1, 2, 2, 2, 0, 0, 0, 0}[tag]
			if len(decimals) != want {
				t.Fatalf("tag %d: %q has not %d decimals", tag, v, want)
			}
		}
		switch {
		case tag < 3 && (changes < n/5 || changes > n/3+n/20):
			t.Errorf("tag %d drifts in %d of %d steps", tag, changes, n)
		case tag >= 3 && tag < 6 && changes < n*9/10:
			t.Errorf("tag %d is quiet: %d of %d steps", tag, changes, n)
		case tag == 7 && changes != n-1:
			t.Errorf("tag 7 counts in %d of %d steps", changes, n)
		case tag == 8 && (len(distinct) > 6 || len(distinct) < 2):
			t.Errorf("tag 8 has %d states", len(distinct))
		case tag == 9 && (len(distinct) != 2 || !distinct["true"] || !distinct["false"]):
			t.Errorf("tag 9 shows %v", distinct)
		}
	}
}
