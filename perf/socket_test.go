package perf_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/perf"
)

// TestDialSocketInADeepFolder reaches a socket whose path no socket address has room for.
func TestDialSocketInADeepFolder(t *testing.T) {
	for _, deep := range []string{"a", strings.Repeat("b", 120)} {
		dir := filepath.Join(t.TempDir(), deep)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		near := filepath.Join(os.TempDir(), filepath.Base(filepath.Dir(filepath.Dir(dir)))+".sock")
		l, err := net.Listen("unix", near)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		path := filepath.Join(dir, "admin.sock")
		if err := os.Rename(near, path); err != nil {
			t.Fatal(err)
		}
		c, err := perf.DialSocket(t.Context(), path)
		if err != nil {
			t.Fatalf("%d bytes: %v", len(path), err)
		}
		c.Close()
	}
}
