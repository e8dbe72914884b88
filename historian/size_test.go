package historian_test

import (
	"encoding/binary"
	"testing"

	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/historian"
)

// tableSize is the size of an SST that holds the chunks, with the block size and compression of the store.
func tableSize(t *testing.T, chunks [][]byte) int {
	t.Helper()
	fs := vfs.NewMem()
	f, err := fs.Create("chunks.sst", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(f), sstable.WriterOptions{
		BlockSize: 16 << 10, Compression: block.ZstdCompression, TableFormat: sstable.TableFormatPebblev6,
	})
	for i, chunk := range chunks {
		key := make([]byte, 20)
		key[0] = 'P'
		binary.BigEndian.PutUint32(key[6:], uint32(i))
		if err := w.Set(key, chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	st, err := fs.Stat("chunks.sst")
	if err != nil {
		t.Fatal(err)
	}
	return int(st.Size())
}

// The bounds hold what the format promises (FORMAT.md, "What it takes"); a worse arrangement fails here.
func TestSizeOfPlantValues(t *testing.T) {
	const devices = 20
	for _, c := range []struct {
		name           string
		period, jitter int64
		n              int
		noise, trim    bool
		open, rest     float64 // B/value
	}{
		{"1 Hz, 0-3 ms, 600", 1000, 3, 600, false, false, 1.7, 0.70},
		{"1 Hz, 0-3 ms, 600, noise", 1000, 3, 600, true, false, 1.7, 0.72},
		{"1 Hz, 0-3 ms, 600, trimmed", 1000, 3, 600, false, true, 1.95, 0.70},
		{"1 Hz, 0-3 ms, 3600", 1000, 3, 3600, false, false, 1.7, 0.65},
		{"2 Hz, 0-9 ms, 600", 500, 9, 600, false, false, 1.7, 0.90},
		{"2 Hz, 0-9 ms, 1200", 500, 9, 1200, false, false, 1.7, 0.85},
		{"1 Hz, 0-3 ms, 60", 1000, 3, 60, false, false, 1.85, 1.15},
	} {
		p := newPlant(devices, c.period, c.jitter)
		p.noise = c.noise
		runs := make([][]historian.Sample, devices*plantTags)
		columns := make([]historian.Column, len(runs))
		for range c.n {
			p.next(func(s *historian.Sample) {
				if c.trim {
					s.Value = trimmed(s.Value)
				}
				runs[s.Series-1] = append(runs[s.Series-1], *s)
				columns[s.Series-1].Add(s)
			})
		}
		var chunks [][]byte
		open, plain := 0, 0
		for i, run := range runs {
			chunks = append(chunks, historian.EncodeChunk(nil, run))
			plain += len(chunks[i])
			open += columns[i].Size()
		}
		values := float64(c.n * len(runs))
		perOpen, perRest := float64(open)/values, float64(tableSize(t, chunks))/values
		t.Logf("%-28s open %.2f  chunk %.2f  at rest %.3f B/value", c.name, perOpen, float64(plain)/values, perRest)
		if perOpen > c.open || perRest > c.rest {
			t.Errorf("%s: more than %.2f open or %.2f at rest", c.name, c.open, c.rest)
		}
	}
}
