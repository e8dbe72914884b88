package historian

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"
)

// A ring gives back what was put and not released, oldest first, whatever the sizes: held to a list.
func TestRingModel(t *testing.T) {
	life := []byte("0123456789abcdef")
	rapid.Check(t, func(t *rapid.T) {
		r := &ring{mem: make([]byte, ringHeader+rapid.IntRange(8, 64).Draw(t, "units")*ringUnit)}
		r.begin(life)
		var held [][]byte
		var number, first uint64 = 0, 1
		for i := range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.IntRange(0, 3).Draw(t, "what") == 0 && len(held) > 0 {
				n := rapid.IntRange(1, len(held)).Draw(t, "released")
				r.release(first + uint64(n) - 1)
				held, first = held[n:], first+uint64(n)
			} else {
				b := bytes.Repeat([]byte{byte(i)}, rapid.IntRange(0, 120).Draw(t, "size"))
				if r.put(b) {
					held = append(held, b)
					number++
				} else if len(held) == 0 && entryHead+len(b) <= (len(r.mem)-ringHeader)/2 {
					t.Fatalf("an empty ring refuses %d octets", len(b))
				}
			}
			var got [][]byte
			// As a new process finds it: nothing but the memory.
			n, err := (&ring{mem: r.mem}).replay(life, func(b []byte) error {
				got = append(got, bytes.Clone(b))
				return nil
			})
			if err != nil || n != len(held) || !slices.EqualFunc(got, held, bytes.Equal) {
				t.Fatalf("step %d: %d entries (%v), %d are held", i, n, err, len(held))
			}
		}
		if n, _ := (&ring{mem: r.mem}).replay([]byte("another life ..."), func([]byte) error { return nil }); n != 0 {
			t.Fatalf("the ring of another life gave %d entries", n)
		}
	})
}

// An entry that a kill cut off, or that is damaged, ends the replay; what is before it counts.
func TestRingTornEntry(t *testing.T) {
	life := []byte("0123456789abcdef")
	r := &ring{mem: make([]byte, 4096)}
	r.begin(life)
	for i := range 5 {
		r.put(bytes.Repeat([]byte{byte(i)}, 20))
	}
	for at := range r.mem[ringHeader : ringHeader+5*40] {
		torn := &ring{mem: bytes.Clone(r.mem)}
		torn.mem[ringHeader+at] ^= 1
		n, err := torn.replay(life, func([]byte) error { return nil })
		if padding := at%40 >= entryHead+20; err != nil || !padding && n != at/40 || padding && n != 5 {
			t.Fatalf("damaged at %d: %d entries, %v", at, n, err)
		}
	}
}

// Without syncWrites a kill loses nothing: of a disk that lost everything not synced, and what the ring held, every acknowledged
// value comes back, in order, through several kills. Without the ring some are lost, so the test can tell.
func TestKillLosesNothingWithTheRing(t *testing.T) {
	for _, where := range []string{t.TempDir(), RingOff} {
		lost := 0
		mem := vfs.NewCrashableMem()
		var names []string
		for life := range 6 {
			o := DefaultOptions()
			o.FS, o.Pebble.SyncWrites, o.Ring, o.Checkpoint.Values, o.KeepAll = mem, false, where, 300, true
			s, err := Open("db", o)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				id, ok, err := s.Lookup(name)
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				if ok {
					page, _, err := s.Raw(context.Background(), nil, Query{Series: id, From: -1 << 60, To: 1 << 62, Limit: 1000})
					if err != nil {
						t.Fatal(err)
					}
					for n = 0; n < len(page); n++ {
						if page[n].Value.Mant != int64(n) {
							t.Fatalf("life %d, %s, place %d: %v", life, name, n, page[n].Value)
						}
					}
				}
				lost += 100 - n
			}
			name := fmt.Sprint("s", life)
			id, err := s.CreateSeries(name, Class1d, nil)
			if err != nil {
				t.Fatal(err)
			}
			for n := range 100 {
				if err := s.Append(context.Background(), []Sample{{Series: id, Stamped: true, Scale: 6, Time: int64(n+1) * millisecond, Value: Value{Kind: Decimal, Mant: int64(n)}}}, nil); err != nil {
					t.Fatal(err)
				}
			}
			names = append(names, name)
			// The kill: what the process held is gone, the ring's file is there.
			// First the ring: what leaves it between the two is on the disk.
			var kept []byte
			path := s.ringPath()
			if path != "" {
				if kept, err = os.ReadFile(path); err != nil {
					t.Fatal(err)
				}
			}
			killed := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, uint64(life)))})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if path != "" {
				if _, err := os.Stat(path); err == nil {
					t.Error("an orderly end leaves the ring's file")
				}
				if err := os.WriteFile(path, kept, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			mem = killed
			if where == RingOff {
				names = names[:0] // without the ring the rest of the store is what is there, and may be anything
				o.FS = killed
				s, err := Open("db", o)
				if err != nil {
					t.Fatal(err)
				}
				if id, ok, _ := s.Lookup(name); ok {
					page, _, err := s.Raw(context.Background(), nil, Query{Series: id, From: -1 << 60, To: 1 << 62, Limit: 1000})
					if err != nil {
						t.Fatal(err)
					}
					lost += 100 - len(page)
				} else {
					lost += 100
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if (lost > 0) != (where == RingOff) {
			t.Errorf("ring %q: %d acknowledged values are lost", where, lost)
		}
	}
}

// A ring that belongs to another life of the directory, or to somebody else, is not taken.
func TestRingOfAnother(t *testing.T) {
	folder := t.TempDir()
	o := DefaultOptions()
	o.FS, o.Pebble.SyncWrites, o.Ring = vfs.NewMem(), false, folder
	s, err := Open("db", o)
	if err != nil {
		t.Fatal(err)
	}
	path := s.ringPath()
	if err := s.Append(context.Background(), nil, []Row{{Key: []byte("k"), Value: []byte("v")}}); err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(path)
	if err := errors.Join(err, s.Close(), os.WriteFile(path, kept, 0o600)); err != nil {
		t.Fatal(err)
	}
	// The directory was made anew at the same place.
	o.FS = vfs.NewMem()
	if s, err = Open("db", o); err != nil {
		t.Fatal(err)
	}
	rows := 0
	if err := errors.Join(s.Rows([]byte("k"), func(_, _ []byte) bool { rows++; return true }), s.Close()); err != nil || rows != 0 {
		t.Errorf("%d rows of another directory's ring: %v", rows, err)
	}
	// Others may read or write it: whoever can is not to say what this box has stored.
	if err := errors.Join(os.WriteFile(path, kept, 0o600), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	if s, err = Open("db", o); err != nil {
		t.Fatal(err)
	}
	if s.ring != nil {
		t.Error("a file that others may open was taken as the ring")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, filepath.Base(path))); err != nil {
		t.Errorf("a file that is not ours was removed: %v", err)
	}
}

// What does not fit is fsynced instead, and said.
func TestRingFull(t *testing.T) {
	o := DefaultOptions()
	o.FS, o.Pebble.SyncWrites, o.Ring = vfs.NewMem(), false, t.TempDir()
	s, err := Open("db", o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Append(context.Background(), nil, []Row{{Key: []byte("k"), Value: make([]byte, ringBytes)}}); err != nil {
		t.Fatal(err)
	}
	if len(s.ring.pending) != 0 {
		t.Errorf("%d commits are held after a commit with fsync", len(s.ring.pending))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
