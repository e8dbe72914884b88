package historian_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"millrace/historian"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// F28: a block in the middle of an old table is zeroed. What needs it fails; everything else is read, and values are
// stored and read as before, also after the query and the merge that met the damage.
func TestDamagedBlockStopsNothingElse(t *testing.T) {
	for _, merged := range []bool{false, true} {
		t.Run(fmt.Sprint("merged=", merged), func(t *testing.T) {
			dir, c := t.TempDir(), newPlantClock()
			s := mustOpen(t, dir, c.options(vfs.Default))
			ids := make([]historian.Series, 50)
			for i := range ids {
				ids[i] = create(t, s, fmt.Sprint("s", i), historian.ClassForever)
			}
			noise := uint64(1)
			batch := make([]historian.Sample, len(ids))
			for n := range 600 {
				c.pass(30 * time.Second)
				for i, id := range ids {
					noise = noise*6364136223846793005 + 1
					batch[i] = historian.Sample{Series: id, Value: number(int64(noise >> 20))}
				}
				mustAppend(t, s, batch...)
				if n%100 == 99 {
					checkpoint(t, s)
				}
			}
			c.pass(3 * time.Hour)
			if merged {
				if err := s.MergeNow(); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			zeroInLargestTable(t, dir)

			s = mustOpen(t, dir, c.options(vfs.Default))
			whole, failed := 0, 0
			// A few: Pebble looks for the flipped bit of a bad block at each read, 0.1 s of CPU.
			for i := 0; i < len(ids); i += 7 {
				id := ids[i]
				page, _, err := s.Raw(context.Background(), nil, historian.Query{Series: id, From: -1 << 60, To: 1 << 62, Limit: 1000})
				switch {
				case err != nil:
					failed++
				case len(page) == 600:
					whole++
				default:
					t.Errorf("series %d: %d of 600 values and no error", id, len(page))
				}
			}
			if whole == 0 || failed == 0 {
				t.Errorf("%d series are whole and %d failed; of both there must be some", whole, failed)
			}
			if err := s.MergeNow(); (err == nil) != merged {
				t.Errorf("merge: %v", err)
			}
			now := c.now().UnixNano()
			mustAppend(t, s, historian.Sample{Series: ids[0], Time: now, Value: number(7)})
			checkpoint(t, s)
			page, _, err := s.Raw(context.Background(), nil, historian.Query{Series: ids[0], From: now, To: 1 << 62, Limit: 10})
			if err != nil || len(page) != 1 {
				t.Errorf("the value that came after: %d, %v", len(page), err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// zeroInLargestTable overwrites 4 KiB in the middle, far from what a table's end says about it.
func zeroInLargestTable(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil {
		t.Fatal(err)
	}
	largest, size := "", int64(0)
	for _, name := range files {
		st, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if st.Size() > size {
			largest, size = name, st.Size()
		}
	}
	if size < 32<<10 {
		t.Fatalf("the largest table has %d octets: too few to damage one block of many", size)
	}
	f, err := os.OpenFile(largest, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 4<<10), size/2); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
