package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	copyBlock = 1 << 20
	// syncEvery bounds what waits for the disk at once, so that the fsyncs of a running box do not queue behind a file
	// of any size.
	syncEvery = 4 << 20
	// maxRest keeps a disk that hangs from making a backup take twice as long as it does anyway.
	maxRest = 200 * time.Millisecond
	// spareSpace is left free on a disk that is not the box's.
	spareSpace = 16 << 20
)

// ErrNoSpace: the target's file system is, or became, too full.
var ErrNoSpace = errors.New("backup: no space")

// freeSpace is what an ordinary user may still write at dir; ok is false where the file system does not tell.
func freeSpace(dir string) (free int64, ok bool) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0, false
	}
	return int64(s.Bavail) * s.Bsize, true
}

// sameDisk says whether both lie on one file system.
func sameDisk(a, b string) bool {
	var s, t unix.Stat_t
	return unix.Stat(a, &s) == nil && unix.Stat(b, &t) == nil && s.Dev == t.Dev
}

// room refuses when less than need+keep is free at dir.
func room(dir string, need, keep int64) error {
	if free, ok := freeSpace(dir); ok && free < need+keep {
		return refuse(ErrNoSpace, "%s has %s free, this needs %s and %s must stay free: free some space or name another disk", dir, mebi(free), mebi(need), mebi(keep))
	}
	return nil
}

func mebi(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func writeDurably(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// reading is a file being read for its checksum.
type reading struct {
	ctx  context.Context
	sum  hash.Hash
	each func(n int64) error // after every block
	buf  []byte
	// gentle leaves the disk to others for as long as it was kept from them.
	gentle bool
}

func newReading(ctx context.Context, each func(n int64) error) *reading {
	return &reading{ctx: ctx, sum: sha256.New(), each: each, buf: make([]byte, copyBlock)}
}

// file reads all of name, into to unless that is nil, and gives size and checksum. What is written is synced every
// syncEvery octets and at the end.
func (r *reading) file(name string, to *os.File) (size int64, sum string, err error) {
	from, err := os.Open(name)
	if err != nil {
		return 0, "", err
	}
	defer from.Close()
	r.sum.Reset()
	var unsynced int64
	for {
		if err := r.ctx.Err(); err != nil {
			return size, "", err
		}
		n, err := from.Read(r.buf)
		if n > 0 {
			size += int64(n)
			r.sum.Write(r.buf[:n])
			if to != nil {
				if _, err := to.Write(r.buf[:n]); err != nil {
					return size, "", noSpace(err)
				}
				if unsynced += int64(n); unsynced >= syncEvery {
					unsynced = 0
					if err := r.sync(to); err != nil {
						return size, "", noSpace(err)
					}
				}
			}
			if err := r.each(int64(n)); err != nil {
				return size, "", err
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return size, "", err
		}
	}
	if to != nil {
		if err := to.Sync(); err != nil {
			return size, "", noSpace(err)
		}
	}
	return size, hex.EncodeToString(r.sum.Sum(nil)), nil
}

// sync syncs what was written so far. A gentle one then rests as long as that took: values that a box acknowledges wait for
// the same disk.
func (r *reading) sync(to *os.File) error {
	began := time.Now()
	if err := unix.Fdatasync(int(to.Fd())); err != nil {
		return err
	}
	if r.gentle {
		rest := time.NewTimer(min(time.Since(began), maxRest))
		defer rest.Stop()
		select {
		case <-rest.C:
		case <-r.ctx.Done():
		}
	}
	return nil
}

func noSpace(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return refuse(ErrNoSpace, "%v: free some space or name another disk", err)
	}
	return err
}

// copy writes name anew at to, durably but for the folder's entry, and gives size and checksum.
func (r *reading) copy(name, to string) (size int64, sum string, err error) {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, "", noSpace(err)
	}
	size, sum, err = r.file(name, f)
	return size, sum, errors.Join(err, f.Close())
}

// filesIn lists the regular files below root/part, as paths with /, with their sizes. The lock is nobody's content.
func filesIn(root, part string) (list []Entry, err error) {
	err = filepath.WalkDir(filepath.Join(root, part), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is no ordinary file", name)
		}
		below, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if d.Name() != "LOCK" {
			list = append(list, Entry{Path: filepath.ToSlash(below), Size: info.Size()})
		}
		return nil
	})
	return list, err
}

// syncTree syncs every folder below dir, and dir.
func syncTree(dir string) error {
	return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return syncDir(name)
	})
}
