package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
)

// maxFaults is how many are told; more say no more.
const maxFaults = 100

// Fault is one thing wrong with a backup.
type Fault struct {
	Path   string `json:"path"` // file or part; "" for the whole
	Detail string `json:"detail"`
}

// Verify reads all of the backup in dir: every file of the manifest has its size and checksum, no part holds a file that is
// not in it, and each part opens and reads to its last block. It changes nothing. An error is our failure or a folder that is
// no backup; what is wrong with a backup comes as faults.
func Verify(ctx context.Context, dir string, parts []Part, report Report) (m Manifest, faults []Fault, err error) {
	if m, err = ReadManifest(dir); err != nil {
		return m, nil, err
	}
	fault := func(at, format string, args ...any) {
		if len(faults) < maxFaults {
			faults = append(faults, Fault{at, fmt.Sprintf(format, args...)})
		}
	}
	progress := Progress{Phase: "check", Total: m.Bytes}
	r := newReading(ctx, func(n int64) error {
		progress.Bytes += n
		report.tell(progress)
		return nil
	})
	for _, e := range m.Files {
		size, sum, err := r.file(e.at(dir), nil)
		switch {
		case ctx.Err() != nil:
			return m, nil, ctx.Err()
		case errors.Is(err, fs.ErrNotExist):
			fault(e.Path, "is missing")
		case err != nil:
			fault(e.Path, "cannot be read: %v", err)
		case size != e.Size:
			fault(e.Path, "has %d octets, the manifest says %d", size, e.Size)
		case sum != e.SHA256:
			fault(e.Path, "is damaged: its checksum is another")
		}
	}
	known := m.byPath()
	for _, part := range m.Parts {
		list, err := filesIn(dir, part)
		if err != nil {
			fault(part, "cannot be listed: %v", err)
			continue
		}
		for _, e := range list {
			if _, ok := known[e.Path]; !ok {
				fault(e.Path, "does not belong to the backup")
			}
		}
	}
	if len(faults) > 0 {
		return m, faults, nil // a store that is known to be damaged need not be opened
	}
	progress.Phase = "finish"
	report.tell(progress)
	for _, name := range m.Parts {
		p, ok := find(parts, name)
		if !ok {
			fault(name, "is a part that this millrace does not know")
			continue
		}
		if err := p.Check(ctx, filepath.Join(dir, name), true); ctx.Err() != nil {
			return m, nil, ctx.Err()
		} else if err != nil {
			fault(name, "%v", err)
		}
	}
	for _, p := range parts {
		if !has(m, p.Name) && !p.Optional {
			fault(p.Name, "is not in the backup")
		}
	}
	return m, faults, nil
}

func find(parts []Part, name string) (Part, bool) {
	for _, p := range parts {
		if p.Name == name {
			return p, true
		}
	}
	return Part{}, false
}

func has(m Manifest, part string) bool {
	for _, e := range m.Files {
		if e.inside(part) {
			return true
		}
	}
	return false
}

// top is the first level of the entry.
func (e Entry) top() string {
	for p := e.Path; ; p = path.Dir(p) {
		if path.Dir(p) == "." {
			return p
		}
	}
}
