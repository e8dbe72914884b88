package datadir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// MarkFile is the name of the file that says whose directory it is and in which format.
const MarkFile = "FORMAT"

const markDraft = "FORMAT.new"

// maxMark bounds how much of a mark file is read: a foreign file of that name may be anything.
const maxMark = 256

// Kind names what lives in a directory.
type Kind struct {
	// Part prefixes errors and stands in the mark file: historian, kv.
	Part string
	// Version is the newest format the caller reads; it is written into new directories.
	Version int
}

// Claim is a directory held by this process.
type Claim struct {
	dir  string
	kind Kind
	lock *pebble.Lock
}

// Take makes dir if need be, checks that it is empty or ours and not of a newer format, locks it and marks
// it. The mark is durable when Take returns. Errors are one line: what, where, how to mend it. A foreign
// directory is left untouched.
func Take(fsys vfs.FS, dir string, kind Kind) (*Claim, error) {
	c := &Claim{dir: dir, kind: kind}
	if err := makeDir(fsys, dir); err != nil {
		return nil, c.Explain(err)
	}
	marked, err := c.inspect(fsys)
	if err != nil {
		return nil, err
	}
	if c.lock, err = pebble.LockDirectory(dir, fsys); err != nil {
		return nil, c.explainLock(err)
	}
	if !marked {
		if err := c.mark(fsys); err != nil {
			return nil, c.Explain(errors.Join(err, c.lock.Close()))
		}
	}
	return c, nil
}

// Lock is what pebble.Options.Lock wants.
func (c *Claim) Lock() *pebble.Lock { return c.lock }

// Release gives the directory up, after the store in it is closed.
func (c *Claim) Release() error {
	if err := c.lock.Close(); err != nil {
		return fmt.Errorf("%s: unlock %s: %w", c.kind.Part, c.dir, err)
	}
	return nil
}

// Explain words an error of opening dir or the store in it.
func (c *Claim) Explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s: cannot write in %s (%w): give the user that runs millrace write access, or choose another data directory", c.kind.Part, c.dir, err)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%s: %s is not a directory (%w): choose another data directory", c.kind.Part, c.dir, err)
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%s: no space left for %s (%w): free some, or choose another data directory", c.kind.Part, c.dir, err)
	case strings.Contains(err.Error(), "unknown format major version"):
		return fmt.Errorf("%s: %s was written by a newer millrace (%w): run that version, or restore a backup made with this one", c.kind.Part, c.dir, err)
	}
	return fmt.Errorf("%s: cannot open %s (%w): see whether the disk is well, or restore a backup", c.kind.Part, c.dir, err)
}

func (c *Claim) explainLock(err error) error {
	switch {
	case errors.Is(err, syscall.EAGAIN), strings.Contains(err.Error(), "lock held"):
		return fmt.Errorf("%s: %s is in use by another millrace (%w): stop it, or choose another data directory", c.kind.Part, c.dir, err)
	}
	return c.Explain(err)
}

// inspect says whether dir bears our mark; a foreign or newer one is an error.
func (c *Claim) inspect(fsys vfs.FS) (marked bool, err error) {
	names, err := fsys.List(c.dir)
	if err != nil {
		return false, c.Explain(err)
	}
	stranger := ""
	for _, name := range names {
		switch name {
		case MarkFile:
			return true, c.checkMark(fsys)
		case markDraft, "LOCK", "lost+found":
			// What a start leaves that ended before the mark, and what a fresh file system comes with.
		default:
			stranger = name
		}
	}
	if stranger != "" {
		return false, fmt.Errorf("%s: %s holds foreign files (%s) and no %s file of ours: choose an empty data directory", c.kind.Part, c.dir, stranger, MarkFile)
	}
	return false, nil
}

func (c *Claim) markText() string {
	return fmt.Sprintf("millrace %s %d\n", c.kind.Part, c.kind.Version)
}

func (c *Claim) checkMark(fsys vfs.FS) error {
	f, err := fsys.Open(fsys.PathJoin(c.dir, MarkFile))
	if err != nil {
		return c.Explain(err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxMark))
	if err := errors.Join(err, f.Close()); err != nil {
		return c.Explain(err)
	}
	word, isOurs := strings.CutPrefix(string(text), "millrace "+c.kind.Part+" ")
	version, err := strconv.Atoi(strings.TrimSpace(word))
	if !isOurs || err != nil {
		return fmt.Errorf("%s: the file %s in %s is not ours (it begins %.32q): choose an empty data directory", c.kind.Part, MarkFile, c.dir, text)
	}
	return c.CheckVersion(version)
}

// CheckVersion refuses a format newer than this code.
func (c *Claim) CheckVersion(version int) error {
	if version > c.kind.Version {
		return fmt.Errorf("%s: %s has format %d, this millrace reads up to %d: run a newer millrace, or restore a backup made with this one", c.kind.Part, c.dir, version, c.kind.Version)
	}
	return nil
}

// mark writes the mark file so that after a power cut it is there whole or not at all.
func (c *Claim) mark(fsys vfs.FS) error {
	draft := fsys.PathJoin(c.dir, markDraft)
	f, err := fsys.Create(draft, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, c.markText())
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(draft, fsys.PathJoin(c.dir, MarkFile)); err != nil {
		return err
	}
	return syncDir(fsys, c.dir)
}

// makeDir makes dir and its parents so that they outlive a power cut.
func makeDir(fsys vfs.FS, dir string) error {
	var parents []string
	for p := dir; ; {
		_, err := fsys.Stat(p)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		up := fsys.PathDir(p)
		if up == p {
			break
		}
		parents = append(parents, up)
		p = up
	}
	if err := fsys.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	for _, p := range parents {
		if p == "" {
			p = "."
		}
		if err := syncDir(fsys, p); err != nil {
			return err
		}
	}
	return nil
}

func syncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
