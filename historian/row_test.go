package historian_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/historian"
)

func TestHasRowAndDropRows(t *testing.T) {
	disk := vfs.NewCrashableMem()
	s := mustOpen(t, "db", options(disk))
	id := mustCreate(t, s, "a")
	for i := range 10 {
		x := at(id, int64(i), 1)
		row := historian.Row{Key: fmt.Appendf(nil, "k%d", i), Value: []byte{}}
		if err := s.Append(t.Context(), []historian.Sample{x}, []historian.Row{row}); err != nil {
			t.Fatal(err)
		}
	}
	has := func(want string) {
		t.Helper()
		got := ""
		for i := range 10 {
			there, err := s.HasRow(fmt.Appendf(nil, "k%d", i))
			if err != nil {
				t.Fatal(err)
			}
			if there {
				got += fmt.Sprint(i)
			}
		}
		if got != want {
			t.Errorf("there are %s, want %s", got, want)
		}
	}
	has("0123456789")
	if err := s.DropRows(t.Context(), []byte("k3"), []byte("k7")); err != nil {
		t.Fatal(err)
	}
	has("012789")
	for _, empty := range [][2]string{{"k9", "k1"}, {"k1", "k1"}, {"k1", ""}} {
		if err := s.DropRows(t.Context(), []byte(empty[0]), []byte(empty[1])); err != nil {
			t.Fatal(err)
		}
	}
	has("012789")
	s = mustOpen(t, "db", options(disk.CrashClone(vfs.CrashCloneCfg{})))
	has("012789")
	if got := len(all(t, s, id, 100, false)); got != 10 {
		t.Errorf("%d samples are left of 10", got)
	}
}
