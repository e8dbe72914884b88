package backup

import (
	"errors"
	"fmt"
	"path/filepath"
)

// Options is the config section `backup`.
type Options struct {
	// Root is the folder that callers over the network may make backups in, each by a plain name. "": they may make none.
	// Whoever may open the admin socket names any folder.
	Root string `koanf:"root"`
}

// DefaultOptions returns the defaults of the configuration contract.
func DefaultOptions() Options { return Options{} }

// Validate reports every fault; each names its key, the value and what is wanted.
func (o *Options) Validate() error {
	if o.Root != "" && !filepath.IsAbs(o.Root) {
		return fmt.Errorf("backup.root: %q is not an absolute path, as in /var/backups/millrace", o.Root)
	}
	return nil
}

// ErrNoRoot: a caller over the network asked for a backup and backup.root is not set.
var ErrNoRoot = errors.New("backup: no root")

// Place is the folder that a caller means by name. A local caller names any folder by its absolute path; every other, and a
// local one with a plain name, one below Root.
func (o *Options) Place(name string, local bool) (string, error) {
	if local && filepath.IsAbs(name) {
		return filepath.Clean(name), nil
	}
	if o.Root == "" {
		return "", ErrNoRoot
	}
	if name == "." || name == ".." || name == "" || name[0] == '.' || filepath.Base(name) != name || !filepath.IsLocal(name) {
		return "", refuse(ErrTarget, "%q is not a plain name: a backup lies directly in backup.root, as in monday", name)
	}
	return filepath.Join(o.Root, name), nil
}
