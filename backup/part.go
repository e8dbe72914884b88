package backup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Part is one store of the box: a folder below data, and a folder of the same name in a backup.
type Part struct {
	Name string
	// Snapshot makes dir a durable copy of the store as it is at the call; dir does not exist and lies on the file
	// system of the data folder. Nil: nobody writes in the store meanwhile, so its folder itself is copied.
	Snapshot func(dir string) error
	// Optional says that a folder or a backup of an earlier version may lack it.
	Optional bool
	// Check opens the store in dir for reading alone and changes nothing; with every it reads all there is.
	Check func(ctx context.Context, dir string, every bool) error
}

// lacking says that a folder has no such part and need not have.
func (p *Part) lacking(data string) bool {
	if !p.Optional {
		return false
	}
	_, err := os.Lstat(filepath.Join(data, p.Name))
	return errors.Is(err, fs.ErrNotExist)
}

// Box is what is backed up.
type Box struct {
	// Data is the folder that the parts lie in.
	Data string
	// Parts are cut one after the other, in this order. A part may refer only to what lies in parts behind it: the
	// historian names API clients, so its cut comes before that of the records.
	Parts []Part
	// Files are single files below Data that belong to the box, if they are there. Cuts during which one of them changes are made anew.
	Files []string
	// Sequence is the number of the last value stored; it is read before the first cut. Nil is not told.
	Sequence func() uint64
	// Version is the program's, for the manifest.
	Version string
	// MinFree is what must stay free on the file system of Data, for the box to go on.
	MinFree int64
}
