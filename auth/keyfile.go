package auth

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// KeyFile is where the keys that seal a box's secrets are kept, apart from what they seal. *FileKeys is one.
type KeyFile interface {
	// Read gives the whole file; an error that is fs.ErrNotExist when there is none.
	Read() ([]byte, error)
	// Write replaces the file as a whole; it is durable when it returns nil, and after an error the old one is there.
	Write(text []byte) error
	// String names it in errors.
	String() string
}

// FileKeys is a key file on a disk.
type FileKeys struct{ Path string }

// String is the path.
func (f *FileKeys) String() string { return f.Path }

// Read implements KeyFile.
func (f *FileKeys) Read() ([]byte, error) {
	text, err := os.ReadFile(f.Path)
	if err == nil && len(text) > maxKeyFile {
		return nil, fmt.Errorf("it has %d bytes, more than any key file", len(text))
	}
	return text, err
}

// Write implements KeyFile: mode 0600, in a folder of mode 0700 where there is none yet.
func (f *FileKeys) Write(text []byte) (err error) {
	dir := filepath.Dir(f.Path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	fresh, err := os.CreateTemp(dir, ".key-*") // born with mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(fresh.Name())
		}
	}()
	_, err = fresh.Write(text)
	if err = errors.Join(err, fresh.Sync(), fresh.Close()); err != nil {
		return err
	}
	if err := os.Rename(fresh.Name(), f.Path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Loose says whether others than the owner may read the file; a group may, since that is how services get credentials.
func (f *FileKeys) Loose() bool {
	info, err := os.Stat(f.Path)
	return err == nil && info.Mode().Perm()&0o007 != 0
}

const (
	maxKeyFile  = 64 << 10
	keyLine     = "millrace-key-1"
	keyFileHead = "# The keys that seal the secrets of a Millrace box, the newest first. Keep a copy away from the box and from its backups:\n" +
		"# without it nobody signs in any more, with it a stolen copy of the data folder can be read.\n"
)

// masterKey is one line of a key file.
type masterKey struct {
	id  string
	key []byte
}

func parseKeys(text []byte) (keys []masterKey, err error) {
	number := 0
	for line := range bytes.Lines(text) {
		number++
		fields := strings.Fields(string(line))
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if fields[0] != keyLine || len(fields) != 3 {
			return nil, fmt.Errorf("line %d is not `%s ID KEY`", number, keyLine)
		}
		key, err := base64.StdEncoding.Strict().DecodeString(fields[2])
		if err != nil || len(key) != keySize {
			return nil, fmt.Errorf("the key of line %d is not %d bytes in base64", number, keySize)
		}
		keys = append(keys, masterKey{fields[1], key})
	}
	if len(keys) == 0 {
		return nil, errors.New("it holds no key")
	}
	return keys, nil
}

func formatKeys(keys []masterKey) []byte {
	text := []byte(keyFileHead)
	for _, k := range keys {
		text = fmt.Appendf(text, "%s %s %s\n", keyLine, k.id, base64.StdEncoding.EncodeToString(k.key))
	}
	return text
}

// readKeys gives the keys of a file; none when there is no file.
func readKeys(file KeyFile) ([]masterKey, error) {
	text, err := file.Read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var keys []masterKey
	if err == nil {
		keys, err = parseKeys(text)
	}
	if err != nil {
		return nil, fmt.Errorf("auth: key file %s: %w: put the file back from its copy; nothing was changed", file, bare(err))
	}
	return keys, nil
}

// bare leaves out the path that an fs error repeats.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
