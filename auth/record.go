package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"millrace/historian/kv"
)

// The keyspace of this package, and the version its records are written with. A record of a newer version is never guessed at.
const (
	keyRecord     = "auth/key"
	clientPrefix  = "auth/client/"
	tokenPrefix   = "auth/token/"
	recordVersion = 1
)

// boxKey is the record of the key of all hashes. Seal names how Key is protected at rest: "" is not at all, "vault" by the data
// keys of the vault.
type boxKey struct {
	Version int    `json:"version"`
	Seal    string `json:"seal"`
	Key     []byte `json:"key"`
}

// clientRecord is a client as stored. It is not Client: what REST shows may change without changing the disk.
type clientRecord struct {
	Version     int       `json:"version"`
	ID          string    `json:"id"`
	Workspace   string    `json:"workspace"`
	Description string    `json:"description,omitempty"`
	Enabled     bool      `json:"enabled"`
	Grants      []Grant   `json:"grants"`
	Metrics     bool      `json:"metrics,omitempty"`
	Created     time.Time `json:"created"`
	Revision    uint64    `json:"revision"`
	Hash        []byte    `json:"hash"`
}

// tokenRecord is a personal access token as stored. Expires is absent when it has no end.
type tokenRecord struct {
	Version int        `json:"version"`
	ID      string     `json:"id"`
	Name    string     `json:"name"`
	Owner   string     `json:"owner,omitempty"` // folded user name; absent: nobody's
	Role    Role       `json:"role"`            // "": reads the metrics only
	Metrics bool       `json:"metrics,omitempty"`
	Scoped  int        `json:"scoped,omitempty"` // 1: Metrics says whether it reads them; 0: written before there were scopes, it does
	Created time.Time  `json:"created"`
	Expires *time.Time `json:"expires,omitempty"`
	Hash    []byte     `json:"hash"`
}

// set makes the operation that stores record under key.
func set(key string, record any) (kv.Op, error) {
	value, err := json.Marshal(record)
	if err != nil {
		return kv.Op{}, fmt.Errorf("auth: record %q cannot be written: %w", key, err)
	}
	return kv.Op{Key: []byte(key), Value: value}, nil
}

func remove(key string) kv.Op { return kv.Op{Key: []byte(key)} }

// decode reads a stored record, after its version.
func decode(key string, value []byte, record any) error {
	var head struct {
		Version int `json:"version"`
	}
	err := json.Unmarshal(value, &head)
	if err == nil {
		switch {
		case head.Version > sealedVersion:
			return fmt.Errorf("auth: record %q has version %d, this program knows up to %d: start the newer program or restore an older backup",
				key, head.Version, sealedVersion)
		case head.Version < 1:
			err = errors.New("it has no version")
		default:
			err = json.Unmarshal(value, record)
		}
	}
	if err != nil {
		return damaged(key, err)
	}
	return nil
}

func damaged(key string, cause error) error {
	return fmt.Errorf("auth: record %q is damaged: %w: restore a backup", key, cause)
}

func (r *clientRecord) check(key string) error {
	switch {
	case clientPrefix+r.ID != key:
		return damaged(key, fmt.Errorf("it names client %s", shown(r.ID)))
	case len(r.Hash) != len(digest{}):
		return damaged(key, fmt.Errorf("its hash has %d bytes", len(r.Hash)))
	}
	for _, g := range r.Grants {
		// The namespace may have been configured anew since; what the filter says has not changed. So none is looked for.
		if _, fault := g.normal(place{namespace: "\x00"}); fault != nil {
			return damaged(key, fault)
		}
	}
	return nil
}

func (r *tokenRecord) check(key string) error {
	switch {
	case tokenPrefix+r.ID != key:
		return damaged(key, fmt.Errorf("it names token %s", shown(r.ID)))
	case len(r.Hash) != len(digest{}):
		return damaged(key, fmt.Errorf("its hash has %d bytes", len(r.Hash)))
	case !r.Role.known() && (r.Role != "" || !r.Metrics):
		return damaged(key, fmt.Errorf("role %s is unknown", shown(string(r.Role))))
	}
	return nil
}

// record gives the stored form of an entry.
func (e *entry) record() (kv.Op, error) {
	c := e.client
	return set(clientPrefix+c.ID, clientRecord{
		Version: recordVersion, ID: c.ID, Workspace: c.Workspace, Description: c.Description, Enabled: c.Enabled,
		Grants: c.Grants, Metrics: c.Metrics, Created: c.Created, Revision: c.Revision, Hash: e.hash[:],
	})
}

// entryOf is the inverse of record.
func entryOf(r *clientRecord) *entry {
	e := &entry{
		client: Client{
			ID: r.ID, Workspace: r.Workspace, Description: r.Description, Enabled: r.Enabled,
			Grants: r.Grants, Metrics: r.Metrics, Created: r.Created, Revision: r.Revision,
		},
		hash: digest(r.Hash),
	}
	if e.client.Grants == nil {
		e.client.Grants = []Grant{}
	}
	return e
}
