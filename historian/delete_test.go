package historian_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"millrace/historian"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A deleted series is gone at once and stays gone: over restarts and power cuts, whether its samples lay in the log, in a head
// that is carried, in chunks of checkpoints or in merged ones. Its name may begin anew, its id never does.
func TestDeleteSeries(t *testing.T) {
	for _, where := range []string{"log", "carried", "chunks", "merged"} {
		for _, purge := range []bool{false, true} {
			t.Run(fmt.Sprint(where, " purge ", purge), func(t *testing.T) {
				c, fsys := newPlantClock(), vfs.NewCrashableMem()
				o := c.options(fsys)
				if where == "carried" {
					o.Checkpoint.CarryBelow = 64
				}
				s := mustOpen(t, "db", o)
				a, b := create(t, s, "a", historian.ClassForever), create(t, s, "b", historian.ClassForever)
				for n := range int64(20) {
					c.pass(time.Minute)
					mustAppend(t, s, historian.Sample{Series: a, Value: number(n)}, historian.Sample{Series: b, Value: number(n)})
				}
				if where != "log" {
					checkpoint(t, s)
				}
				if where == "merged" {
					c.pass(2 * time.Hour)
					mergeNow(t, s)
				}
				if err := s.DeleteSeries(context.Background(), a, purge); err != nil {
					t.Fatal(err)
				}
				gone := func(when string) {
					t.Helper()
					if _, _, err := s.Raw(context.Background(), nil, historian.Query{Series: a, To: 1 << 62}); !errors.Is(err, historian.ErrUnknownSeries) {
						t.Errorf("%s: reading it: %v", when, err)
					}
					if err := s.Append(context.Background(), []historian.Sample{{Series: a, Value: number(1)}}, nil); !errors.Is(err, historian.ErrUnknownSeries) {
						t.Errorf("%s: appending to it: %v", when, err)
					}
					if _, ok := s.Latest(a); ok {
						t.Errorf("%s: it has a last value", when)
					}
					if err := s.SetSeries(context.Background(), a, historian.Class1d, nil); !errors.Is(err, historian.ErrUnknownSeries) {
						t.Errorf("%s: setting it: %v", when, err)
					}
					if err := s.DeleteSeries(context.Background(), a, false); !errors.Is(err, historian.ErrUnknownSeries) {
						t.Errorf("%s: deleting it again: %v", when, err)
					}
					if _, ok, err := s.Lookup("a"); ok && where != "" && when == "at once" || err != nil {
						t.Errorf("%s: its name leads somewhere: %v", when, err)
					}
					if got := len(all(t, s, b, 100, false)); got != 20 {
						t.Errorf("%s: its neighbour has %d values", when, got)
					}
					if got := s.State().Series; when == "at once" && got != 1 {
						t.Errorf("%s: %d series", when, got)
					}
				}
				gone("at once")
				reopen := func(fsys vfs.FS) {
					o.FS = fsys
					s = mustOpen(t, "db", o)
				}
				reopen(fsys.CrashClone(vfs.CrashCloneCfg{})) // the power is cut
				gone("after a power cut")
				again := create(t, s, "a", historian.ClassForever)
				if again == a {
					t.Error("the id is used again")
				}
				mustAppend(t, s, historian.Sample{Series: again, Value: number(7)})
				checkpoint(t, s)
				if err := s.PurgeNow(); err != nil {
					t.Fatal(err)
				}
				c.pass(2 * time.Hour)
				mergeNow(t, s)
				gone("after a checkpoint and a merge")
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				reopen(o.FS)
				gone("after a restart")
				if got := all(t, s, again, 10, false); len(got) != 1 {
					t.Errorf("the one that took its name: %v", got)
				}
				left := s.KeysOf(a)
				if purge && left != 0 {
					t.Errorf("%d keys of it are left after the purge", left)
				}
				if !purge && where == "merged" && left == 0 {
					t.Error("this test cannot tell a purge from none")
				}
			})
		}
	}
}

// A purge gives the room back.
func TestPurgeFreesTheDisk(t *testing.T) {
	c := newPlantClock()
	s := mustOpen(t, t.TempDir(), c.options(vfs.Default))
	big, small := create(t, s, "big", historian.ClassForever), create(t, s, "small", historian.ClassForever)
	text := make([]byte, 4<<10)
	for n := range 200 {
		c.pass(time.Minute)
		for i := range text {
			text[i] = byte('a' + (i*7+n*i)%26)
		}
		mustAppend(t, s, historian.Sample{Series: big, Value: historian.Value{Kind: historian.Text, Raw: fmt.Append(nil, n, string(text))}},
			historian.Sample{Series: small, Value: number(int64(n))})
		if n%50 == 49 {
			checkpoint(t, s)
		}
	}
	before := s.TableBytes()
	if err := s.DeleteSeries(context.Background(), big, true); err != nil {
		t.Fatal(err)
	}
	if err := s.PurgeNow(); err != nil {
		t.Fatal(err)
	}
	if after := s.TableBytes(); after > before/4 {
		t.Errorf("tables take %d octets, before the purge %d", after, before)
	}
	if got := len(all(t, s, small, 1000, false)); got != 200 {
		t.Errorf("the other has %d values", got)
	}
}
