package historian

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// ringFolder is where RingAuto puts it. Not /run: a container often has none that can be written.
const ringFolder = "/dev/shm"

// ringPath names the file of this directory's ring; "" when there is to be none. The name comes from the directory itself, not
// from its path, so that a copy or a restored backup has another.
func (s *Store) ringPath() string {
	folder := s.o.Ring
	switch folder {
	case RingOff, "":
		return ""
	case RingAuto:
		var f unix.Statfs_t
		if !s.o.warm || unix.Statfs(ringFolder, &f) != nil || f.Type != unix.TMPFS_MAGIC || unix.Access(ringFolder, unix.W_OK) != nil {
			return ""
		}
		folder = ringFolder
	}
	identity := s.dir
	if info, err := os.Stat(s.dir); err == nil && s.o.warm {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			identity = fmt.Sprint(st.Dev, " ", st.Ino)
		}
	}
	sum := sha256.Sum256([]byte(identity))
	return filepath.Join(folder, "millrace-"+hex.EncodeToString(sum[:8])+".ring")
}

// openRing maps the ring's file, made if create is true; nil when there is none. A file of that name that is not ours alone is
// left alone, and there is no ring.
func (s *Store) openRing(create bool) (*ring, error) {
	path := s.ringPath()
	if path == "" {
		return nil, nil
	}
	flags := os.O_RDWR | unix.O_NOFOLLOW
	if create {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return s.withoutRing(path, err)
	}
	defer f.Close() // the mapping stays
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return s.withoutRing(path, err)
	}
	if st.Uid != uint32(os.Geteuid()) || st.Mode&0o077 != 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return s.withoutRing(path, fmt.Errorf("it belongs to somebody else, or others may open it"))
	}
	if st.Size != ringBytes {
		if !create {
			return nil, nil // made, and never begun
		}
		// Reserved at once: a page that tmpfs cannot give later would end the process.
		if err := errors.Join(f.Truncate(0), unix.Fallocate(int(f.Fd()), 0, 0, ringBytes)); err != nil {
			return s.withoutRing(path, err)
		}
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, ringBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return s.withoutRing(path, err)
	}
	return &ring{mem: mem, unmap: func() error { return unix.Munmap(mem) }}, nil
}

// withoutRing goes on as if there were none: a kill may then lose what a power cut may.
func (s *Store) withoutRing(path string, err error) (*ring, error) {
	s.log.Warn("no ring: a kill may lose up to the last 100 ms, as a power cut may", "file", path, "error", err)
	return nil, nil
}

func (s *Store) removeRing() {
	if path := s.ringPath(); path != "" {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn("the ring's file stays", "file", path, "error", err)
		}
	}
}
