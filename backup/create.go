package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// SnapshotDir is where below the data folder the cuts of a running backup lie. It is of no use to anybody after it.
const SnapshotDir = ".snapshot"

// ErrTarget: the folder named cannot become a backup.
var ErrTarget = errors.New("backup: target")

// Target is where a backup goes.
type Target struct {
	// Dir becomes the backup; it does not exist or is empty, and the folder it lies in exists.
	Dir string
	// Previous is a backup whose files are linked where they are the same to the last octet; "" for none. The new
	// backup is whole by itself: Previous may be deleted.
	Previous string
}

// Create makes a backup of box. It holds everything that was stored before the call. Dir appears by a rename
// after all of it is on the disk, so one that is there is whole. ctx ends it early; then, and after an error, nothing of it
// stays. A killed process leaves a folder `.NAME.partial`, which is no backup and which the next one to the same place clears.
func Create(ctx context.Context, box Box, to Target, now func() time.Time, report Report) (m Manifest, err error) {
	c := creation{box: box, to: to, report: report}
	if err := c.prepare(); err != nil {
		return m, err
	}
	lock, err := c.open()
	if err != nil {
		return m, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(c.draft))
		}
		err = errors.Join(err, lock.Close())
	}()
	c.m = Manifest{Format: format, Version: box.Version, Taken: now().UTC(), Previous: to.Previous}
	report.tell(Progress{Phase: "snapshot"})
	source, clear, err := c.cut()
	if err != nil {
		return m, err
	}
	err = c.fill(ctx, source)
	if err = errors.Join(err, clear()); err != nil {
		return m, err
	}
	if err := c.finish(); err != nil {
		return m, err
	}
	return c.m, nil
}

type creation struct {
	box      Box
	to       Target
	report   Report
	parent   string
	draft    string // becomes to.Dir
	m        Manifest
	previous map[string]Entry
	progress Progress
}

// prepare holds the target to its rules.
func (c *creation) prepare() (err error) {
	if c.to.Dir, err = filepath.Abs(c.to.Dir); err != nil {
		return err
	}
	c.parent = filepath.Dir(c.to.Dir)
	c.draft = filepath.Join(c.parent, "."+filepath.Base(c.to.Dir)+".partial")
	if info, err := os.Stat(c.parent); err != nil || !info.IsDir() {
		return refuse(ErrTarget, "%s is not there: make it, or mount its disk, first", c.parent)
	}
	entries, err := os.ReadDir(c.to.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return refuse(ErrTarget, "%s cannot become a backup: %v", c.to.Dir, err)
	case len(entries) > 0:
		return refuse(ErrTarget, "%s is not empty: a backup is a new folder, name another", c.to.Dir)
	}
	data, err := filepath.Abs(c.box.Data)
	if err != nil {
		return err
	}
	if below, err := filepath.Rel(data, c.to.Dir); err == nil && !strings.HasPrefix(below, "..") {
		return refuse(ErrTarget, "%s lies in the data folder and would be lost with it: name a folder elsewhere, best on another disk", c.to.Dir)
	}
	if c.to.Previous == "" {
		return nil
	}
	if c.to.Previous, err = filepath.Abs(c.to.Previous); err != nil {
		return err
	}
	before, err := ReadManifest(c.to.Previous)
	if err != nil {
		return err
	}
	c.previous = before.byPath()
	return nil
}

// open makes the draft and locks it against a second backup to the same place.
func (c *creation) open() (lock *os.File, err error) {
	for {
		if err = os.Mkdir(c.draft, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, refuse(ErrTarget, "%s: %v: mend its owner or mode, or name a folder that the box's user can write in", c.parent, noSpace(err))
		}
		left := err != nil
		if lock, err = os.Open(c.draft); err != nil {
			return nil, err
		}
		if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
			return nil, errors.Join(refuse(ErrRunning, "another backup into %s is being made: wait for it", c.to.Dir), lock.Close())
		}
		if !left {
			return lock, nil
		}
		// A process that was killed left it.
		if err := errors.Join(os.RemoveAll(c.draft), lock.Close()); err != nil {
			return nil, err
		}
	}
}

// cut takes the snapshots and gives the folder they lie in, and what removes it.
func (c *creation) cut() (source string, clear func() error, err error) {
	if c.box.Sequence != nil {
		c.m.Sequence = c.box.Sequence()
	}
	clear = func() error { return nil }
	for _, p := range c.box.Parts {
		if !p.lacking(c.box.Data) {
			c.m.Parts = append(c.m.Parts, p.Name)
		}
	}
	if len(c.box.Parts) == 0 || c.box.Parts[0].Snapshot == nil {
		return c.box.Data, clear, nil
	}
	source = filepath.Join(c.box.Data, SnapshotDir)
	clear = func() error { return os.RemoveAll(source) }
	if err := errors.Join(clear(), os.Mkdir(source, 0o700)); err != nil {
		return "", nil, fmt.Errorf("backup: %w", err)
	}
	for range cutTries {
		settled, err := c.snapshots(source)
		if err != nil {
			return "", nil, errors.Join(err, clear())
		}
		if settled {
			return source, clear, nil
		}
		if err := errors.Join(clear(), os.Mkdir(source, 0o700)); err != nil {
			return "", nil, fmt.Errorf("backup: %w", err)
		}
	}
	return "", nil, errors.Join(fmt.Errorf("backup: %s change with every look at them: make the backup when nobody rotates keys", strings.Join(c.box.Files, ", ")), clear())
}

// cutTries is how often the cuts are made anew because a single file changed meanwhile.
const cutTries = 5

// snapshots cuts every part. The single files are the same before and after, or the cut is not settled: a key that was rotated in
// between might not open what was cut.
func (c *creation) snapshots(source string) (settled bool, err error) {
	before := make([][]byte, len(c.box.Files))
	for i, name := range c.box.Files {
		if before[i], err = readIfThere(filepath.Join(c.box.Data, name)); err != nil {
			return false, err
		}
	}
	for _, p := range c.box.Parts {
		if err := p.Snapshot(filepath.Join(source, p.Name)); err != nil {
			return false, err
		}
	}
	for i, name := range c.box.Files {
		after, err := readIfThere(filepath.Join(c.box.Data, name))
		if err != nil {
			return false, err
		}
		if !bytes.Equal(before[i], after) {
			return false, nil
		}
		if after == nil {
			continue
		}
		to := filepath.Join(source, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), writeDurably(to, after)); err != nil {
			return false, fmt.Errorf("backup: %w", err)
		}
	}
	return true, nil
}

// readIfThere gives the whole file, nil when there is none.
func readIfThere(name string) ([]byte, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("backup: %w", err)
	}
	return text, nil
}

// fill copies or links all files into the draft.
func (c *creation) fill(ctx context.Context, source string) error {
	var files []Entry
	for _, p := range c.box.Parts {
		if p.lacking(c.box.Data) {
			continue
		}
		list, err := filesIn(source, p.Name)
		if err != nil {
			return fmt.Errorf("backup: %w", err)
		}
		files = append(files, list...)
	}
	for _, name := range c.box.Files {
		if info, err := os.Lstat(filepath.Join(source, name)); err == nil && info.Mode().IsRegular() {
			files = append(files, Entry{Path: filepath.ToSlash(name), Size: info.Size()})
		}
	}
	var need int64
	for _, e := range files {
		c.progress.Total += e.Size
		if p, ok := c.previous[e.Path]; !ok || p.Size != e.Size {
			need += e.Size + 4096
		}
	}
	keep := int64(spareSpace)
	if sameDisk(c.parent, c.box.Data) {
		keep = max(keep, c.box.MinFree)
	}
	if err := room(c.parent, need, keep); err != nil {
		return err
	}
	c.progress.Phase = "copy"
	c.report.tell(c.progress)
	var since int64
	r := newReading(ctx, func(n int64) error {
		c.progress.Bytes += n
		c.report.tell(c.progress)
		if since += n; since >= 64<<20 {
			since = 0
			return room(c.parent, 0, keep) // the box goes on writing meanwhile
		}
		return nil
	})
	r.gentle = source != c.box.Data
	for _, e := range files {
		from := e.at(source)
		if err := os.MkdirAll(filepath.Dir(e.at(c.draft)), 0o700); err != nil {
			return noSpace(err)
		}
		done, err := c.take(ctx, r, e, from)
		if err != nil {
			return fmt.Errorf("backup: %s: %w", e.Path, err)
		}
		c.m.Files = append(c.m.Files, done)
		c.m.Bytes += done.Size
	}
	c.m.Linked = c.progress.Linked
	return nil
}

// take puts one file into the draft: linked when the previous backup has the very same, else copied. The bytes of both are
// read, because a number can name another table after a restore, and a previous backup can have rotted.
func (c *creation) take(ctx context.Context, r *reading, e Entry, from string) (Entry, error) {
	if p, ok := c.previous[e.Path]; ok && p.Size == e.Size {
		quiet := newReading(ctx, func(int64) error { return nil })
		_, old, err := quiet.file(p.at(c.to.Previous), nil)
		if ctx.Err() != nil {
			return e, ctx.Err()
		}
		if err == nil && old == p.SHA256 {
			if size, sum, err := quiet.file(from, nil); err == nil && size == p.Size && sum == p.SHA256 && os.Link(p.at(c.to.Previous), e.at(c.draft)) == nil {
				c.progress.Bytes += size
				c.progress.Linked += size
				c.report.tell(c.progress)
				e.SHA256 = sum
				return e, nil
			}
		}
	}
	var err error
	e.Size, e.SHA256, err = r.copy(from, e.at(c.draft))
	return e, err
}

// finish makes the draft the backup.
func (c *creation) finish() error {
	c.progress.Phase = "finish"
	c.report.tell(c.progress)
	if err := syncTree(c.draft); err != nil {
		return err
	}
	if err := c.m.write(c.draft); err != nil {
		return noSpace(err)
	}
	if err := syncDir(c.draft); err != nil {
		return err
	}
	if err := os.Rename(c.draft, c.to.Dir); err != nil {
		return fmt.Errorf("backup: %w (is %s a mount point? name a new folder in it)", err, c.to.Dir)
	}
	return syncDir(c.parent)
}
