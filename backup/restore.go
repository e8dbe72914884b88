package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// RestoreDir is where below the data folder a restore works. While it is there the folder is no box's: a box must not start.
const RestoreDir = ".restoring"

// mayStay are names that an empty data folder may hold.
var mayStay = []string{"lost+found", "config.yaml", RestoreDir}

// Restore makes data the data folder of the backup in dir. data does not exist, or is empty, or is left from a restore that
// was cut off. Every file is held to its checksum on the way, each part is opened once, and only then do the parts move into
// place; until RestoreDir is gone, which is the last step, no box starts there. After an error data is as empty as before.
func Restore(ctx context.Context, dir, data string, parts []Part, report Report) (m Manifest, err error) {
	if m, err = ReadManifest(dir); err != nil {
		return m, err
	}
	for _, p := range parts {
		if !has(m, p.Name) && !p.Optional {
			return m, fmt.Errorf("%s holds no %s; use another backup", dir, p.Name)
		}
	}
	work := filepath.Join(data, RestoreDir)
	tops, err := target(m, data, work)
	if err != nil {
		return m, err
	}
	if err := os.MkdirAll(data, 0o750); err != nil {
		return m, refuse(ErrTarget, "%s: %v", data, err)
	}
	if err := room(data, m.Bytes+int64(len(m.Files))*4096, spareSpace); err != nil {
		return m, err
	}
	clear := func() error {
		var faults []error
		for _, name := range tops {
			faults = append(faults, os.RemoveAll(filepath.Join(data, name)))
		}
		// Last: as long as it is there nothing beside it counts.
		return errors.Join(append(faults, os.RemoveAll(work))...)
	}
	if err := clear(); err != nil {
		return m, fmt.Errorf("restore: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, clear())
		}
	}()
	if err := errors.Join(os.Mkdir(work, 0o700), syncDir(data), syncDir(filepath.Dir(data))); err != nil {
		return m, fmt.Errorf("restore: %w", err)
	}
	if err := fetch(ctx, m, dir, work, report); err != nil {
		return m, err
	}
	for _, p := range parts {
		if !has(m, p.Name) {
			continue
		}
		if err := p.Check(ctx, filepath.Join(work, p.Name), false); err != nil {
			return m, fmt.Errorf("restore: %w", err)
		}
	}
	if err := give(data, work); err != nil {
		return m, fmt.Errorf("restore: %w", err)
	}
	if err := syncTree(work); err != nil {
		return m, fmt.Errorf("restore: %w", err)
	}
	for _, name := range tops {
		if err := os.Rename(filepath.Join(work, name), filepath.Join(data, name)); err != nil {
			return m, fmt.Errorf("restore: %w", err)
		}
	}
	if err := syncDir(data); err != nil {
		return m, fmt.Errorf("restore: %w", err)
	}
	if err := os.RemoveAll(work); err != nil {
		return m, fmt.Errorf("restore: %w", err)
	}
	return m, syncDir(data)
}

// target refuses a data folder that holds anything, and gives the names that will lie in it.
func target(m Manifest, data, work string) (tops []string, err error) {
	for _, e := range m.Files {
		if top := e.top(); !slices.Contains(tops, top) {
			tops = append(tops, top)
		}
	}
	_, err = os.Stat(work)
	unfinished := err == nil
	entries, err := os.ReadDir(data)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, refuse(ErrTarget, "%s: %v", data, err)
	}
	for _, e := range entries {
		if name := e.Name(); !slices.Contains(mayStay, name) && (!unfinished || !slices.Contains(tops, name)) {
			return nil, refuse(ErrTarget, "%s is not empty, it holds %s: a restore overwrites nothing; move it away or name another folder with --data", data, name)
		}
	}
	return tops, nil
}

// fetch copies all files into work, each held to its checksum.
func fetch(ctx context.Context, m Manifest, dir, work string, report Report) error {
	progress := Progress{Phase: "copy", Total: m.Bytes}
	r := newReading(ctx, func(n int64) error {
		progress.Bytes += n
		report.tell(progress)
		return nil
	})
	for _, e := range m.Files {
		if err := os.MkdirAll(filepath.Dir(e.at(work)), 0o750); err != nil {
			return fmt.Errorf("restore: %w", noSpace(err))
		}
		// Copied, never linked: a store writes into log files that it uses again, and would change the backup.
		size, sum, err := r.copy(e.at(dir), e.at(work))
		if err != nil {
			return fmt.Errorf("restore: %s: %w", e.Path, err)
		}
		if size != e.Size || sum != e.SHA256 {
			return fmt.Errorf("restore: %s in %s is damaged; use another backup, `backup verify` names all that is wrong with this one", e.Path, dir)
		}
	}
	progress.Phase = "finish"
	report.tell(progress)
	return nil
}

// give hands what the administrator restored to the owner of the data folder, who is to run the box.
func give(data, work string) error {
	var s unix.Stat_t
	if os.Geteuid() != 0 || unix.Stat(data, &s) != nil || s.Uid == 0 {
		return nil
	}
	return filepath.WalkDir(work, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, int(s.Uid), int(s.Gid))
	})
}
