package historian

import "github.com/cockroachdb/pebble/v2/vfs"

// logFS is the disk as Pebble sees it. It forgets what the page cache holds of a log file that is about to be
// used again. Such pages stem from large writes and come in large units; Linux then counts every small write
// into one as a write of all of it: 32 KB instead of 4 for each fsync in write_bytes, which is what operators
// and container limits go by. Without them it makes small pages again.
type logFS struct{ vfs.FS }

// Unwrap is for vfs.Root.
func (f logFS) Unwrap() vfs.FS { return f.FS }

func (f logFS) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(from, to, category)
	if err == nil && file.Fd() != vfs.InvalidFd {
		forgetPages(file.Fd())
	}
	return file, err
}
