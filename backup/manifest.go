package backup

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// Names in a backup beside the parts.
const (
	ManifestFile = "backup.json"
	// SumFile holds the checksum of the manifest, as sha256sum writes it. It is written last: a backup without it is none.
	SumFile = "backup.json.sha256"
)

// format is the newest layout that this code reads and the one it writes.
const format = 1

// maxManifest bounds what is read as a manifest: 100 octets a file, a million files.
const maxManifest = 256 << 20

// Manifest says what a backup holds.
type Manifest struct {
	Format  int    `json:"format"`
	Version string `json:"version"`
	// Taken is when the first cut began: everything acknowledged before it is in the backup.
	Taken time.Time `json:"taken"`
	// Sequence is the number of the last value stored before the first cut; 0 when it was not told.
	Sequence uint64   `json:"sequence,omitempty"`
	Parts    []string `json:"parts"`
	// Previous names the backup whose files were linked; only for people, a backup needs no other.
	Previous string  `json:"previous,omitempty"`
	Bytes    int64   `json:"bytes"`
	Linked   int64   `json:"linked_bytes"` // of Bytes, those that share the disk with Previous
	Files    []Entry `json:"files"`
}

// Entry is one file of a backup.
type Entry struct {
	Path   string `json:"path"` // with / between levels, below the backup's folder
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// ErrNoBackup: the folder holds no backup, or one that was never finished.
var ErrNoBackup = errors.New("backup: no backup")

// ReadManifest reads the manifest of the backup in dir and holds it to its own checksum.
func ReadManifest(dir string) (m Manifest, err error) {
	info, err := os.Stat(filepath.Join(dir, ManifestFile))
	if errors.Is(err, fs.ErrNotExist) {
		return m, refuse(ErrNoBackup, "%s holds no %s: it is no backup, or one that was not finished; name the folder that `backup create` made", dir, ManifestFile)
	}
	if err != nil {
		return m, fmt.Errorf("backup: %w", err)
	}
	if info.Size() > maxManifest {
		return m, refuse(ErrNoBackup, "%s in %s has %d octets and cannot be ours", ManifestFile, dir, info.Size())
	}
	text, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if err != nil {
		return m, fmt.Errorf("backup: %w", err)
	}
	told, err := os.ReadFile(filepath.Join(dir, SumFile))
	if errors.Is(err, fs.ErrNotExist) {
		return m, refuse(ErrNoBackup, "%s lacks %s: it was not finished; make a new one", dir, SumFile)
	}
	if err != nil {
		return m, fmt.Errorf("backup: %w", err)
	}
	sum := sha256.Sum256(text)
	if word, _, _ := strings.Cut(string(told), " "); word != hex.EncodeToString(sum[:]) {
		return m, refuse(ErrNoBackup, "%s in %s is damaged: its checksum is another; use an older backup", ManifestFile, dir)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, refuse(ErrNoBackup, "%s in %s cannot be read: %v", ManifestFile, dir, err)
	}
	if m.Format > format {
		return m, refuse(ErrNoBackup, "%s has format %d, this millrace reads up to %d: use a newer millrace", dir, m.Format, format)
	}
	for _, e := range m.Files {
		if !fs.ValidPath(e.Path) || e.Size < 0 {
			return m, refuse(ErrNoBackup, "%s in %s names the file %q, which cannot lie in a backup", ManifestFile, dir, e.Path)
		}
	}
	return m, nil
}

// write puts the manifest into dir, durably, and its checksum after it.
func (m *Manifest) write(dir string) error {
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	text = append(text, '\n')
	if err := writeDurably(filepath.Join(dir, ManifestFile), text); err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	line := hex.EncodeToString(sum[:]) + "  " + ManifestFile + "\n"
	return writeDurably(filepath.Join(dir, SumFile), []byte(line))
}

// byPath finds the entries of m.
func (m *Manifest) byPath() map[string]Entry {
	by := make(map[string]Entry, len(m.Files))
	for _, e := range m.Files {
		by[e.Path] = e
	}
	return by
}

// inside says whether the entry lies in the part.
func (e Entry) inside(part string) bool { return strings.HasPrefix(e.Path, part+"/") }

// at is the entry's place below dir.
func (e Entry) at(dir string) string {
	return filepath.Join(dir, filepath.FromSlash(path.Clean(e.Path)))
}
