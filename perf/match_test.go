package perf_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"millrace/perf"
)

// transmissionsOf reads "0 1 2? 3! 2 3": ? was not acknowledged, ! was refused.
func transmissionsOf(t *testing.T, text string) (sent []perf.Transmission, digits []string) {
	t.Helper()
	for word := range strings.FieldsSeq(text) {
		fate := perf.FateAcked
		if rest, ok := strings.CutSuffix(word, "?"); ok {
			word, fate = rest, perf.FateOpen
		} else if rest, ok := strings.CutSuffix(word, "!"); ok {
			word, fate = rest, perf.FateRefused
		}
		var n uint32
		if _, err := fmt.Sscan(word, &n); err != nil {
			t.Fatal(err)
		}
		sent = append(sent, perf.NewTransmission(n, fate))
		digits = append(digits, word)
	}
	return sent, digits
}

func TestMatch(t *testing.T) {
	for _, tc := range []struct {
		name, sent, stored string
		want               perf.Outcome
		missing            []uint32
	}{
		{"all there", "0 1 2 3", "0 1 2 3", perf.Outcome{Acked: 4, Stored: 4}, nil},
		{"nothing sent", "", "", perf.Outcome{}, nil},
		{"lost in the middle", "0 1 2 3", "0 1 3", perf.Outcome{Acked: 4, Stored: 3, Lost: 1}, []uint32{2}},
		{"lost at the end", "0 1 2 3 4", "0 1 2", perf.Outcome{Acked: 5, Stored: 3, Lost: 2}, []uint32{3, 4}},
		{"lost at the start", "0 1 2", "1 2", perf.Outcome{Acked: 3, Stored: 2, Lost: 1}, []uint32{0}},
		{"all lost", "0 1 2", "", perf.Outcome{Acked: 3, Lost: 3}, []uint32{0, 1, 2}},
		{"doubled", "0 1 2 3", "0 1 1 2 3", perf.Outcome{Acked: 4, Stored: 5, Doubled: 1}, nil},
		{"doubled later", "0 1 2 3", "0 1 2 3 1", perf.Outcome{Acked: 4, Stored: 5, Doubled: 1}, nil},
		{"a value nobody sent", "0 1 2", "0 1 9 2", perf.Outcome{Acked: 3, Stored: 4, Different: 1}, nil},
		{"an altered value", "0 1 2", "0 9 2", perf.Outcome{Acked: 3, Stored: 3, Different: 1}, nil},
		{"unacknowledged, stored", "0 1 2?", "0 1 2", perf.Outcome{Acked: 2, Stored: 3, Unasked: 1}, nil},
		{"unacknowledged, not stored", "0 1 2?", "0 1", perf.Outcome{Acked: 2, Stored: 2}, nil},
		{"sent again, stored twice", "0 1 2? 3? 2 3 4", "0 1 2 3 2 3 4", perf.Outcome{Acked: 5, Stored: 7, Unasked: 2}, nil},
		{"sent again, stored once", "0 1 2? 3? 2 3 4", "0 1 2 3 4", perf.Outcome{Acked: 5, Stored: 5}, nil},
		{"sent again, first of them twice", "0 1 2? 3? 2 3 4", "0 1 2 2 3 4", perf.Outcome{Acked: 5, Stored: 6, Unasked: 1}, nil},
		{"sent again, yet stored three times", "0 1 2? 2 3", "0 1 2 2 2 3", perf.Outcome{Acked: 4, Stored: 6, Unasked: 1, Doubled: 1}, nil},
		{"sent again, acknowledged and lost", "0 1 2? 2 3", "0 1 3", perf.Outcome{Acked: 4, Stored: 3, Lost: 1}, []uint32{2}},
		{"refused and not stored", "0 1! 2", "0 2", perf.Outcome{Acked: 2, Stored: 2}, nil},
		{"refused and stored", "0 1! 2", "0 1 2", perf.Outcome{Acked: 2, Stored: 3, Different: 1}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sent, digits := transmissionsOf(t, tc.sent)
			got := perf.Match(sent, digits, strings.Fields(tc.stored))
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreUnexported(perf.Outcome{})); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if !slices.Equal(got.Missing(), tc.missing) {
				t.Errorf("missing %v, want %v", got.Missing(), tc.missing)
			}
		})
	}
	t.Run("swapped", func(t *testing.T) {
		sent, digits := transmissionsOf(t, "0 1 2 3")
		if got := perf.Match(sent, digits, strings.Fields("0 2 1 3")); got.Lost+got.Doubled+got.Different == 0 {
			t.Errorf("another order passes: %+v", got)
		}
	})
	t.Run("too large for the table", func(t *testing.T) {
		var sent []perf.Transmission
		var digits, stored []string
		for i := range 6000 {
			sent = append(sent, perf.NewTransmission(uint32(i), perf.FateAcked))
			digits = append(digits, fmt.Sprint(i))
			if i != 2 && i != 5998 {
				stored = append(stored, fmt.Sprint(i))
			}
		}
		if got := perf.Match(sent, digits, append(stored[:20:20], stored[19:]...)); got.Lost != 2 || got.Doubled != 1 {
			t.Errorf("%+v, want 2 lost and 1 doubled", got)
		}
	})
}

// TestMatchFindsEveryFault draws a run with resends and few distinct digits, stores what an honest box could have
// stored, and then breaks it once.
func TestMatchFindsEveryFault(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var sent []perf.Transmission
		var digits, stored []string
		var surest []int // positions in stored of values with a digit of their own
		for i := range rapid.IntRange(1, 60).Draw(t, "values") {
			text := fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "digit"))
			unique := rapid.IntRange(0, 4).Draw(t, "unique") == 0
			if unique {
				text = fmt.Sprint(1000 + i)
			}
			for rapid.IntRange(0, 5).Draw(t, "unacknowledged") == 0 {
				sent, digits = append(sent, perf.NewTransmission(uint32(i), perf.FateOpen)), append(digits, text)
				unique = false
				if rapid.Bool().Draw(t, "stored") {
					stored = append(stored, text)
				}
			}
			sent, digits = append(sent, perf.NewTransmission(uint32(i), perf.FateAcked)), append(digits, text)
			if unique {
				surest = append(surest, len(stored))
			}
			stored = append(stored, text)
		}
		honest := perf.Match(sent, digits, stored)
		if honest.Lost+honest.Doubled+honest.Different != 0 {
			t.Fatalf("an honest history is called wrong: %+v", honest)
		}
		if len(surest) == 0 {
			return
		}
		at := rapid.SampledFrom(surest).Draw(t, "at")
		if got := perf.Match(sent, digits, slices.Delete(slices.Clone(stored), at, at+1)); got.Lost == 0 {
			t.Fatalf("a lost value is not seen: %+v", got)
		}
		if got := perf.Match(sent, digits, slices.Insert(slices.Clone(stored), at, stored[at])); got.Doubled == 0 {
			t.Fatalf("a doubled value is not seen: %+v", got)
		}
	})
}

// historyOf is a history that answers in pages of three.
type historyOf map[string][]string

func (h historyOf) History(_ context.Context, topic string, _, _ time.Time, _ int, cursor string) ([]string, string, error) {
	at := 0
	if cursor != "" {
		if _, err := fmt.Sscan(cursor, &at); err != nil {
			return nil, "", err
		}
	}
	all := h[topic]
	if at+3 >= len(all) {
		return all[at:], "", nil
	}
	return all[at : at+3], fmt.Sprint(at + 3), nil
}

// TestReadBackFindsOneLostAndOneDoubled is the control of the crash run: a history with one fault of each kind.
func TestReadBackFindsOneLostAndOneDoubled(t *testing.T) {
	a := newAcceptor(t, nil)
	o := smallFleet(a.address())
	o.Serial = true
	f, stop := drive(t, o)
	if err := f.Set(perf.ModeClosed, 0); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "1,000 publishes", func() bool { a.mu.Lock(); defer a.mu.Unlock(); return a.total >= 1000 })
	drained(t, f)
	stop()
	stored := historyOf(a.stored(t))
	read := func() perf.ReadBack {
		t.Helper()
		b, err := perf.CompareAll(t.Context(), stored, o.Seed, true, f.Tracks(), time.Time{}, time.Time{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if b := read(); b.Lost+b.Doubled+b.Different+b.Unasked != 0 || b.Acked != b.Stored || b.Topics != 50 {
		t.Fatalf("a right history: %+v", b)
	}
	lost, doubled := f.Tracks()[7].Path(), f.Tracks()[31].Path()
	stored[lost] = slices.Delete(stored[lost], 5, 6)
	stored[doubled] = slices.Insert(stored[doubled], 5, stored[doubled][4])
	b := read()
	if b.Lost != 1 || b.Doubled != 1 || b.Different != 0 || len(b.Faults) != 2 {
		t.Errorf("one lost and one doubled: %+v", b)
	}
	for _, path := range []string{lost, doubled} {
		if !strings.Contains(strings.Join(b.Faults, "\n"), path) {
			t.Errorf("%v does not name %s", b.Faults, path)
		}
	}
}
