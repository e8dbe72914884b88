package historian_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"millrace/historian"
)

// Whole hours come from the tallies of the merge, and from nothing else: with the merged chunks gone the answer is the same.
// Where late values interleave, or a bucket cuts an hour, only the samples tell.
func TestWholeHoursComeFromTallies(t *testing.T) {
	clock := &clock{}
	begin := epoch / int64(time.Hour) * int64(time.Hour)
	clock.ns.Store(begin + 10*int64(time.Hour))
	o := memoryOptions(vfs.NewMem(), clock.now, false)
	o.KeepAll = true
	s := mustOpen(t, "store", o)
	id := mustCreate(t, s, "a")
	put := func(hour int64, minutes ...int64) {
		var group []historian.Sample
		for _, m := range minutes {
			for sec := range int64(60) {
				group = append(group, historian.Sample{Series: id, Stamped: true, Scale: 6, Time: begin + hour*int64(time.Hour) + m*int64(time.Minute) + sec*int64(time.Second),
					Value: historian.Value{Kind: historian.Decimal, Mant: m*61 + sec, Exp: 1}})
			}
		}
		mustAppend(t, s, group...)
		if err := s.Checkpoint(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := s.MergeAll(); err != nil {
			t.Fatal(err)
		}
	}
	for hour := range int64(4) {
		put(hour, 0, 10, 20, 30)
	}
	put(1, 40, 50) // late, behind what was there
	put(2, 5, 15)  // late, in between
	ask := func(step historian.Step) []string {
		return asked(t, s, historian.Aggregation{Series: []historian.Series{id}, From: begin, To: begin + 4*int64(time.Hour), Step: step, Weighted: true}, 1000)[0]
	}
	hours, halves, whole := ask(historian.Step{Every: time.Hour}), ask(historian.Step{Every: 30 * time.Minute}), ask(historian.Step{})
	if len(hours) != 4 || len(halves) != 8 || len(whole) != 1 {
		t.Fatalf("%d hours, %d halves, %d of all", len(hours), len(halves), len(whole))
	}
	for hour, n := range []int{240, 360, 360, 240} {
		if want := fmt.Sprintf("n=%d ", n); !strings.Contains(hours[hour], want) {
			t.Errorf("hour %d: %s, want %s", hour, hours[hour], want)
		}
	}
	s.Drop('C')
	if d := cmp.Diff([]string{hours[0], hours[1], hours[3]}, ask(historian.Step{Every: time.Hour})); d != "" {
		t.Errorf("without chunks (-before +after): %s", d)
	}
	if got := ask(historian.Step{Every: 30 * time.Minute}); len(got) != 0 {
		t.Errorf("half hours without chunks: %v", got)
	}
}
