package datadir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Look says whether dir bears the mark of kind in a format this code reads. Nothing is locked, made or written. The
// error is one line: what, where, how to mend it.
func Look(fsys vfs.FS, dir string, kind Kind) error {
	c := &Claim{dir: dir, kind: kind}
	if _, err := fsys.Stat(fsys.PathJoin(dir, MarkFile)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %s has no %s file, so it holds no store of ours: name another folder", kind.Part, dir, MarkFile)
		}
		return c.Explain(err)
	}
	return c.checkMark(fsys)
}

// CopyMark writes the mark of kind into dir, which exists, durably: a copy of a store is ours as well.
func CopyMark(fsys vfs.FS, dir string, kind Kind) error {
	return (&Claim{dir: dir, kind: kind}).mark(fsys)
}

// ReadOnly is fsys for a store that is only looked at: whatever would write fails, and a lock is one in name only,
// because the folder may lie on a medium that cannot be written.
func ReadOnly(fsys vfs.FS) vfs.FS { return readOnly{fsys} }

type readOnly struct{ vfs.FS }

func (readOnly) refuse(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fs.ErrPermission}
}

// Unwrap is for vfs.Root.
func (r readOnly) Unwrap() vfs.FS { return r.FS }

// Lock is granted to anybody.
func (readOnly) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

func (r readOnly) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, r.refuse("create", name)
}

func (r readOnly) Link(_, name string) error { return r.refuse("link", name) }

func (r readOnly) OpenReadWrite(name string, _ vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	return nil, r.refuse("open for writing", name)
}

func (r readOnly) Remove(name string) error { return r.refuse("remove", name) }

func (r readOnly) RemoveAll(name string) error { return r.refuse("remove", name) }

func (r readOnly) Rename(name, _ string) error { return r.refuse("rename", name) }

func (r readOnly) ReuseForWrite(name, _ string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, r.refuse("reuse", name)
}

func (r readOnly) MkdirAll(name string, _ fs.FileMode) error { return r.refuse("mkdir", name) }

// readPause is how many records are read between two looks at the context.
const readPause = 1024

// ReadAll reads every record of db, so that each block it has meets its checksum.
func ReadAll(ctx context.Context, db *pebble.DB) error {
	it, err := db.NewIter(nil)
	if err != nil {
		return err
	}
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if _, err := it.ValueAndErr(); err != nil {
			return errors.Join(err, it.Close())
		}
		if n++; n%readPause == 0 && ctx.Err() != nil {
			return errors.Join(ctx.Err(), it.Close())
		}
	}
	return it.Close()
}
