package queue

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// copyOf is what a kill leaves of a store in use: its files as they are now.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "queue")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

func fill(t *testing.T, q *JetStream, l Lane, from, to uint64) {
	t.Helper()
	for seq := from; seq <= to; seq++ {
		if err := q.Put(within(t), l, entry(seq, 2)); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Flush(within(t)); err != nil {
		t.Fatal(err)
	}
}

func takeAll(t *testing.T, q *JetStream, l Lane, n int) (seqs []uint64, suspect int) {
	t.Helper()
	for len(seqs) < n {
		f := take(t, q, l)
		if f.Suspect {
			suspect += len(f.Entries)
		}
		for _, e := range f.Entries {
			seqs = append(seqs, e.Seq)
		}
		f.Ack()
	}
	return seqs, suspect
}

func rising(t *testing.T, seqs []uint64, from, to uint64) {
	t.Helper()
	var want []uint64
	for s := from; s <= to; s++ {
		want = append(want, s)
	}
	if diff := cmp.Diff(want, seqs); diff != "" {
		t.Errorf("sequences (-want +got):\n%s", diff)
	}
}

// After a stop, what was out and not acknowledged comes first, in order, then what waited, and all of it is suspect; what is
// put now comes behind and is not.
func TestSurvivingFramesComeFirst(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "queue")
	for _, how := range []string{"stopped", "killed"} {
		t.Run(how, func(t *testing.T) {
			dir := dir + how
			q := open1(t, dir, Options{})
			fill(t, q, Normal, 1, 40)
			var acked, seen int
			for seen < 20 {
				f := take(t, q, Normal)
				if seen += len(f.Entries); acked == 0 {
					acked = len(f.Entries)
					f.Ack()
				}
			}
			fill(t, q, Normal, 41, 300)
			if how == "stopped" {
				if err := q.Close(); err != nil {
					t.Fatal(err)
				}
			} else {
				if _, err := q.ctl.Info(within(t)); err != nil { // the acknowledgement is through: requests of a connection keep their order
					t.Fatal(err)
				}
				eventually(t, "acknowledged", func() bool {
					i, err := q.ctl.Info(within(t))
					return err == nil && i.State.FirstSeq > 1
				})
				dir = copyOf(t, dir)
			}
			q = open1(t, dir, Options{})
			survivors := q.Survivors()
			if len(survivors) != 300-acked || survivors[0].Seq != uint64(acked)+1 || len(survivors[0].Refs) != 2 {
				t.Errorf("%d survivors from %v, acknowledged %d", len(survivors), survivors[:1], acked)
			}
			if s := q.Stats(); s.Pending[Normal] != 2*(300-acked) {
				t.Errorf("pending %v", s.Pending)
			}
			fill(t, q, Normal, 301, 310)
			seqs, suspect := takeAll(t, q, Normal, 310-acked)
			rising(t, seqs, uint64(acked)+1, 310)
			if suspect != 300-acked {
				t.Errorf("%d are suspect, want %d", suspect, 300-acked)
			}
			if s := q.State(); s != (State{}) {
				t.Errorf("state %+v", s)
			}
		})
	}
}

// Whatever happens to its files, a queue opens, says so where it noticed, hands out only what was put, and takes new ones.
func TestADamagedStoreOpens(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "queue")
	q := open1(t, dir, Options{})
	fill(t, q, Normal, 1, 500)
	fill(t, q, High, 501, 600)
	early := copyOf(t, dir)
	fill(t, q, Normal, 601, 900)
	manual := entry(0, 1)
	manual.Kind, manual.ID = Manual, 77
	if err := q.Put(within(t), Low, manual); err != nil {
		t.Fatal(err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	var files []string
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			rel, _ := filepath.Rel(dir, path)
			files = append(files, rel)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	check := func(t *testing.T, at string, must bool) {
		q := open1(t, at, Options{})
		for _, s := range q.Survivors() {
			if s.Seq == 0 || s.Seq > 900 || len(s.Refs) != 2 {
				t.Errorf("survivor %+v", s)
			}
		}
		if s := q.State(); must && s.SetAside == "" && s.Damaged == 0 {
			t.Errorf("nothing noticed; %d survivors", len(q.Survivors()))
		}
		fill(t, q, Low, 1001, 1003)
		for left := true; left; {
			f := take(t, q, Low)
			for _, e := range f.Entries {
				left = left && e.Seq != 1003
			}
			f.Ack()
		}
	}
	if len(files) < 5 {
		t.Fatalf("files: %v", files)
	}
	for _, name := range files {
		if strings.Contains(name, "obs/") && !strings.HasSuffix(name, "normal/o.dat") {
			continue // all of them alike
		}
		for how, damage := range map[string]func(b []byte) []byte{
			"zeros": func(b []byte) []byte { return make([]byte, len(b)) },
			"torn":  func(b []byte) []byte { return b[:len(b)*2/3] },
			"empty": func([]byte) []byte { return nil },
			"bit":   func(b []byte) []byte { b[len(b)/2] ^= 0x10; return b },
			"gone":  nil,
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				at := copyOf(t, dir)
				path := filepath.Join(at, name)
				b, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if damage == nil || len(b) == 0 {
					err = os.Remove(path)
				} else {
					err = os.WriteFile(path, damage(bytes.Clone(b)), 0o640)
				}
				if err != nil {
					t.Fatal(err)
				}
				check(t, at, false)
			})
		}
	}
	t.Run("rolled back", func(t *testing.T) {
		check(t, early, false)
	})
	t.Run("only the mark is left", func(t *testing.T) {
		at := copyOf(t, dir)
		if err := os.RemoveAll(filepath.Join(at, "jetstream")); err != nil {
			t.Fatal(err)
		}
		check(t, at, true)
	})
	t.Run("deleted", func(t *testing.T) {
		check(t, filepath.Join(t.TempDir(), "queue"), false)
	})
	t.Run("a newer format", func(t *testing.T) {
		at := copyOf(t, dir)
		if err := os.WriteFile(filepath.Join(at, markName), []byte("millrace queue 2\n"), 0o640); err != nil {
			t.Fatal(err)
		}
		if q, err := Open(at, Options{}); err == nil || !strings.Contains(err.Error(), "newer") {
			t.Errorf("opened: %v", err)
			_ = q.Close()
		}
	})
}

// A frame that does not read takes all values with it, because their order would be broken, and leaves what no log holds.
func TestADamagedFrameLeavesWhatNoLogHolds(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "queue")
	q := open1(t, dir, Options{})
	fill(t, q, Normal, 1, 100)
	hook := entry(0, 2)
	hook.Kind, hook.ID = Webhook, 9
	if err := q.Put(within(t), Normal, hook); err != nil {
		t.Fatal(err)
	}
	fill(t, q, Normal, 101, 120)
	if _, err := q.conn.Request(subjects[High], []byte("no frame"), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it is whole
		q = open1(t, dir, Options{})
		if n := len(q.Survivors()); n != 0 {
			t.Errorf("%d values survived", n)
		}
		if s := q.Stats(); s.Pending != [Lanes]int{Normal: 2} {
			t.Errorf("pending %v", s.Pending)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	}
	q = open1(t, dir, Options{})
	f := take(t, q, Normal)
	if len(f.Entries) != 1 || f.Entries[0].ID != 9 || !f.Suspect {
		t.Errorf("took %+v", f)
	}
	f.Ack()
}

// TestKilled runs this test in a process of its own and kills it: what Flush confirmed is there.
func TestKilled(t *testing.T) {
	if dir := os.Getenv("MILLRACE_QUEUE_VICTIM"); dir != "" {
		q := open1(t, dir, Options{})
		fill(t, q, Normal, 1, 1000)
		for range 3 {
			take(t, q, Normal)
		}
		os.Stdout.WriteString("flushed\n")
		select {}
	}
	dir := filepath.Join(t.TempDir(), "queue")
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	cmd.Env = append(os.Environ(), "MILLRACE_QUEUE_VICTIM="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 8)
	_, err = out.Read(said)
	if kill := cmd.Process.Kill(); kill != nil || err != nil {
		t.Fatal(err, kill)
	}
	_ = cmd.Wait() // killed
	q := open1(t, dir, Options{})
	seqs, suspect := takeAll(t, q, Normal, 1000)
	rising(t, seqs, 1, 1000)
	if suspect != 1000 || len(q.Survivors()) != 1000 {
		t.Errorf("%d suspect, %d survivors", suspect, len(q.Survivors()))
	}
}

func golden() ([]Entry, string) {
	return []Entry{
		{Kind: Value, Seq: 1000, Workspace: "main", Topic: "a/b", Time: 1790000000000000000, Scale: 6, Value: []byte("21.5"), Refs: []Ref{{1, 2, 0}, {300, 1, 2}}},
		{Kind: Value, Seq: 1001, Workspace: "main", Topic: "a/b", Time: 1790000000001000000, Scale: 6, Quality: 1, Hops: 3, Value: []byte("21.6"), Refs: []Ref{{1, 2, 0}}},
		{Kind: Webhook, ID: 255, Workspace: "main", Time: 1790000000001000000, Value: []byte("{}"), Refs: []Ref{{9, 1, 0}}},
	}, "6d7101010000000300000004000001a0c46ef080000000000000002a00000600d00f00808098bf84e1add73100046d61696e03612f620432312e3502010200ac02010200010603020080897a010432312e360101020002000000d10fff010000046d61696e00027b7d01090100aa726c83"
}

// The octets of version 1 read for ever as what they were.
func TestGoldenFrame(t *testing.T) {
	want, text := golden()
	b := newBuilder(Normal, 42, time.UnixMilli(1790002000000))
	for i := range want {
		b.add(&want[i])
	}
	if got := hex.EncodeToString(b.frame()); got != text {
		t.Errorf("written as %s", got) // allowed to change, with a new version
	}
	data, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	h, got, err := decode(data)
	if err != nil || h.runs != 4 || h.lane != Normal || h.boot != 42 || h.created.UnixMilli() != 1790002000000 {
		t.Fatal(h, err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func FuzzFrame(f *testing.F) {
	list, _ := golden()
	b := newBuilder(Low, 1, time.UnixMilli(5))
	for i := range list {
		b.add(&list[i])
	}
	whole := b.frame()
	f.Add(whole[:len(whole)-sumSize])
	f.Fuzz(func(t *testing.T, body []byte) {
		data := binary.BigEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, castagnoli))
		h, entries, err := decode(data)
		if err != nil {
			if !errors.Is(err, errFrame) && !errors.Is(err, errNewFormat) {
				t.Fatal(err)
			}
			return
		}
		b := newBuilder(h.lane, h.boot, h.created)
		runs := 0
		for i := range entries {
			b.add(&entries[i])
			runs += len(entries[i].Refs)
		}
		if runs != h.runs {
			t.Fatalf("%d runs, the header says %d", runs, h.runs)
		}
		_, again, err := decode(b.frame())
		if err != nil || !cmp.Equal(entries, again) {
			t.Fatalf("%v\n%+v\n%+v", err, entries, again)
		}
	})
}
