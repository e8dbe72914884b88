package kv_test

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/historian/kv"
)

// kvLog writes records one by one and gives what is on the disk then, with the newest log.
func kvLog(t *testing.T, records, size int, closed bool) (disk *vfs.MemFS, name string, log []byte) {
	t.Helper()
	fsys := vfs.NewCrashableMem()
	s, err := kv.Open("kv", kv.Options{FS: fsys})
	if err != nil {
		t.Fatal(err)
	}
	for i := range records {
		if err := s.Apply(set(fmt.Sprintf("%04d", i), strings.Repeat(string(rune('a'+i%26)), size))); err != nil {
			t.Fatal(err)
		}
	}
	if closed {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	} else {
		t.Cleanup(func() { _ = s.Close() })
	}
	disk = fsys.CrashClone(vfs.CrashCloneCfg{})
	names, err := disk.List("kv")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasSuffix(n, ".log") && n > name {
			name = n
		}
	}
	f, err := disk.Open(path.Join("kv", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if log, err = io.ReadAll(f); err != nil {
		t.Fatal(err)
	}
	return disk, path.Join("kv", name), log
}

// with opens a copy of the disk on which the log is another.
func with(t *testing.T, disk *vfs.MemFS, name string, log []byte) (records int, err error) {
	t.Helper()
	fsys := disk.CrashClone(vfs.CrashCloneCfg{})
	f, err := fsys.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(bytes.Clone(log)); err != nil { // the memory disk of builds with the race detector spoils what it is given
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	s, err := kv.Open("kv", kv.Options{FS: fsys})
	if err != nil {
		return 0, err
	}
	records = len(scan(t, s, ""))
	return records, s.Close()
}

// A log that is damaged before its end is refused, with the place; a torn one starts with what is whole. Pebble alone drops
// what follows damage without a word, in the last block of 32 KiB and in the whole first log of a store.
func TestDamagedLog(t *testing.T) {
	for _, tt := range []struct {
		name          string
		records, size int
		closed        bool
	}{
		{"one block, killed", 40, 100, false},
		{"one block, stopped", 40, 100, true},
		{"many blocks, killed", 60, 3000, false},
		{"many blocks, stopped", 60, 3000, true},
		{"records over several blocks", 10, 50_000, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			disk, name, log := kvLog(t, tt.records, tt.size, tt.closed)
			if n, err := with(t, disk, name, log); n != tt.records || err != nil {
				t.Fatalf("untouched: %d records, %v", n, err)
			}
			used := len(bytes.TrimRight(log, "\x00"))
			last := bytes.LastIndex(log[:used], fmt.Appendf(nil, "%04d", tt.records-1)) - 60 // where the last record is, roughly
			refused, silent := 0, 0
			step, tear := max(used/300, 1), max(used/60, 1)
			if tt.size > 32<<10 {
				step, tear = used/14, used/7 // Pebble looks for the flipped bit of a large record for a second
			}
			for at := 0; at < used; at += step {
				hurt := bytes.Clone(log)
				hurt[at] ^= 1 << (at % 8)
				n, err := with(t, disk, name, hurt)
				switch {
				case err != nil && (strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "replaying WAL")) && !strings.Contains(err.Error(), "\n"):
					refused++
				case err != nil:
					t.Fatalf("octet %d: %v", at, err)
				case n < tt.records && at < last:
					silent++
					t.Errorf("octet %d of %d: starts with %d of %d records", at, used, n, tt.records)
				case n < tt.records-1:
					t.Errorf("octet %d of %d, in the last record: %d of %d records", at, used, n, tt.records)
				}
				if silent > 3 {
					t.FailNow()
				}
			}
			if refused == 0 {
				t.Error("no damage was refused")
			}
			// Longer damage: a sector of zeros in the middle.
			hurt := bytes.Clone(log)
			clear(hurt[used/3 : min(used/3+512, last)])
			if n, err := with(t, disk, name, hurt); err == nil {
				t.Errorf("zeros in the middle: starts with %d of %d records", n, tt.records)
			}
			// Torn: cut anywhere, or the rest never written. With a stop the end mark would be missing too.
			for at := 1; at < used; at += tear {
				zeros := append(bytes.Clone(log[:at]), make([]byte, len(log)-at)...)
				for _, torn := range [][]byte{log[:at], zeros} {
					if n, err := with(t, disk, name, torn); err != nil {
						t.Fatalf("torn at %d of %d: %v", at, used, err)
					} else if at > last+60 && n < tt.records-1 {
						t.Fatalf("torn at %d of %d: %d records", at, used, n)
					}
				}
			}
		})
	}
}
