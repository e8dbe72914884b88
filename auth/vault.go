package auth

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"millrace/historian/kv"
)

// Secrets at rest are sealed by AES-256-GCM with a data key; the data keys are records, each sealed by the master key, which is
// in a file of its own. So a copy of the records says nothing without the file, and a new master key costs one record.

const (
	vaultRecordKey = "auth/vault"
	sealVault      = "vault" // what a record's seal field says
	blobVersion    = 1
	blobHead       = 1 + 4 // version, number of the data key
	nonceSize      = 12
	maxDataKeys    = 1000
)

// vaultRecord holds the data keys.
type vaultRecord struct {
	Version int             `json:"version"`
	Master  string          `json:"master"` // id of the master key that seals them
	Keys    []dataKeyRecord `json:"keys"`   // the last one seals; the others still open
}

type dataKeyRecord struct {
	Number uint32 `json:"number"`
	Sealed []byte `json:"sealed"`
}

// Vault seals small secrets for records and files. Safe for concurrent use. What was sealed stays readable over every rotation.
type Vault struct {
	records Records
	file    KeyFile
	random  func([]byte)

	mu     sync.RWMutex
	master masterKey
	keys   map[uint32][]byte // the data keys
	newest uint32
}

// OpenVault opens the vault of a store with its key file. In a store that has none a master key is made and, where there is no
// file either, written to it. A missing, foreign or damaged file is an error of one line, and nothing is changed.
func OpenVault(records Records, file KeyFile, random func([]byte)) (*Vault, error) {
	v := &Vault{records: records, file: file, random: random, keys: map[uint32][]byte{}}
	keys, err := readKeys(file)
	if err != nil {
		return nil, err
	}
	value, ok, err := records.Get([]byte(vaultRecordKey))
	if err != nil {
		return nil, fmt.Errorf("auth: reading the vault: %w", err)
	}
	if !ok {
		return v, v.begin(keys)
	}
	var r vaultRecord
	if err := decode(vaultRecordKey, value, &r); err != nil {
		return nil, err
	}
	for _, k := range keys {
		if k.id == r.Master {
			v.master = k
		}
	}
	switch {
	case len(keys) == 0:
		return nil, fmt.Errorf("auth: key file %s is missing, and the secrets of this data folder are sealed by its key %s: put the file back from its copy, "+
			"or name its place with auth.keyFile; nothing was changed", file, r.Master)
	case v.master.key == nil:
		return nil, fmt.Errorf("auth: key file %s holds the key %s, and the secrets of this data folder are sealed by the key %s: put the right file in its place, "+
			"or name it with auth.keyFile; nothing was changed", file, keys[0].id, r.Master)
	case len(r.Keys) == 0:
		return nil, damaged(vaultRecordKey, errors.New("it holds no key"))
	}
	for _, k := range r.Keys {
		plain, err := unseal(v.master.key, wrapping(k.Number), k.Sealed)
		if err != nil || len(plain) != keySize {
			return nil, fmt.Errorf("auth: key %s of key file %s does not open the data key %d: the file or record %q is damaged: put the file back from its copy, "+
				"or restore a backup; nothing was changed", v.master.id, file, k.Number, vaultRecordKey)
		}
		v.keys[k.Number], v.newest = plain, k.Number
	}
	return v, nil
}

// begin makes the first keys. The file comes first: a kill after it leaves a key that seals nothing yet.
func (v *Vault) begin(have []masterKey) error {
	next, err := v.next(have)
	if err != nil {
		return err
	}
	if len(have) == 0 {
		if err := v.file.Write(formatKeys([]masterKey{next.master})); err != nil {
			return fmt.Errorf("auth: key file %s cannot be written: %w: make its folder writable, or name another place with auth.keyFile", v.file, bare(err))
		}
	}
	if err := v.records.Apply(next.op); err != nil {
		return fmt.Errorf("auth: storing the vault: %w", err)
	}
	v.adopt(next)
	return nil
}

// vaultState is a vault as it will be.
type vaultState struct {
	master masterKey
	keys   map[uint32][]byte
	newest uint32
	op     kv.Op
}

// next is the state with one more data key, sealed by the first of have or, without any, by a new master key.
func (v *Vault) next(have []masterKey) (vaultState, error) {
	n := vaultState{keys: map[uint32][]byte{}, newest: v.newest + 1}
	if len(have) > 0 {
		n.master = have[0]
	} else {
		n.master = masterKey{mint(v.random)[:kidLetters], make([]byte, keySize)}
		v.random(n.master.key)
	}
	for number, key := range v.keys {
		n.keys[number] = key
	}
	n.keys[n.newest] = make([]byte, keySize)
	v.random(n.keys[n.newest])
	r := vaultRecord{Version: recordVersion, Master: n.master.id}
	for number := uint32(1); number <= n.newest; number++ {
		key, ok := n.keys[number]
		if !ok {
			continue
		}
		sealed, err := seal(v.random, n.master.key, wrapping(number), key)
		if err != nil {
			return n, err
		}
		r.Keys = append(r.Keys, dataKeyRecord{number, sealed})
	}
	var err error
	n.op, err = set(vaultRecordKey, r)
	return n, err
}

func (v *Vault) adopt(n vaultState) {
	v.mu.Lock()
	v.master, v.keys, v.newest = n.master, n.keys, n.newest
	v.mu.Unlock()
}

// Master is the id of the master key in force, and the name of its file.
func (v *Vault) Master() (id, file string) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.master.id, v.file.String()
}

// Seal seals a secret for a use, for example "connector/press1/password"; only the same use opens it, so that what is sealed
// cannot be moved to another place. The result is the caller's.
func (v *Vault) Seal(use string, plain []byte) ([]byte, error) {
	v.mu.RLock()
	number, key := v.newest, v.keys[v.newest]
	v.mu.RUnlock()
	return v.sealWith(number, key, use, plain)
}

func (v *Vault) sealWith(number uint32, key []byte, use string, plain []byte) ([]byte, error) {
	text, err := seal(v.random, key, "use "+use, plain)
	if err != nil {
		return nil, err
	}
	blob := binary.BigEndian.AppendUint32([]byte{blobVersion}, number)
	return append(blob, text...), nil
}

// ErrSealed says that something sealed does not open: it is damaged, was sealed for another use, or in another box.
var ErrSealed = errors.New("auth: a sealed secret does not open: it is damaged, or was sealed for another use or by another box")

// Open gives what Seal sealed for the same use. ErrSealed.
func (v *Vault) Open(use string, sealed []byte) ([]byte, error) {
	if len(sealed) < blobHead || sealed[0] != blobVersion {
		return nil, ErrSealed
	}
	v.mu.RLock()
	key := v.keys[binary.BigEndian.Uint32(sealed[1:])]
	v.mu.RUnlock()
	if key == nil {
		return nil, ErrSealed
	}
	return unseal(key, "use "+use, sealed[blobHead:])
}

// wrapping is the use of a master key.
func wrapping(number uint32) string { return fmt.Sprintf("data key %d", number) }

func gcm(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	return cipher.NewGCM(block)
}

// seal gives nonce and ciphertext of plain, bound to use.
func seal(random func([]byte), key []byte, use string, plain []byte) ([]byte, error) {
	a, err := gcm(key)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, nonceSize, nonceSize+len(plain)+a.Overhead())
	random(nonce)
	return a.Seal(nonce, nonce, plain, []byte(use)), nil
}

func unseal(key []byte, use string, text []byte) ([]byte, error) {
	a, err := gcm(key)
	if err != nil {
		return nil, err
	}
	if len(text) < nonceSize {
		return nil, ErrSealed
	}
	plain, err := a.Open(nil, text[:nonceSize], text[nonceSize:], []byte(use))
	if err != nil {
		return nil, ErrSealed
	}
	return plain, nil
}
