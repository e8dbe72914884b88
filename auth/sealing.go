package auth

import (
	"fmt"

	"millrace/historian/kv"
)

// The book's own secrets in the vault: the key of all hashes and the keys that sign access tokens.

// sealedVersion is the version of records that a program without a vault must not read.
const sealedVersion = 2

// sealFor seals with the newest data key, or of the state that is to come. Without a vault it gives the secret as it is.
func (b *Book) sealFor(next *vaultState, use string, plain []byte) (kind string, text []byte, err error) {
	switch {
	case b.o.Vault == nil:
		return "", plain, nil
	case next != nil:
		text, err = b.o.Vault.sealWith(next.newest, next.keys[next.newest], use, plain)
	default:
		text, err = b.o.Vault.Seal(use, plain)
	}
	return sealVault, text, err
}

// openSealed is the inverse, for the record key.
func (b *Book) openSealed(kind, key string, text []byte) ([]byte, error) {
	switch {
	case kind == "":
		return text, nil
	case kind != sealVault:
		return nil, fmt.Errorf("auth: record %q is sealed by %s, which this program cannot open: start the newer program", key, shown(kind))
	case b.o.Vault == nil:
		return nil, fmt.Errorf("auth: record %q is sealed and no key file is named: name it with auth.keyFile", key)
	}
	plain, err := b.o.Vault.Open(key, text)
	if err != nil {
		return nil, damaged(key, err)
	}
	return plain, nil
}

// keyOp stores the key of all hashes.
func (b *Book) keyOp(next *vaultState, key []byte) (kv.Op, error) {
	kind, text, err := b.sealFor(next, keyRecord, key)
	if err != nil {
		return kv.Op{}, err
	}
	return set(keyRecord, boxKey{Version: recordVersion, Seal: kind, Key: text})
}

// signingOp stores a signing key.
func (b *Book) signingOp(next *vaultState, k *signingKey) (kv.Op, error) {
	r := k.signingRecord
	var err error
	if r.Seal, r.Seed, err = b.sealFor(next, signingPrefix+r.KID, k.Seed); err != nil {
		return kv.Op{}, err
	}
	if r.Version = recordVersion; r.Seal != "" {
		r.Version = sealedVersion
	}
	return set(signingPrefix+r.KID, r)
}

// sealAll are the operations that seal everything the book has; the caller holds change.
func (b *Book) sealAll(next *vaultState) (ops []kv.Op, err error) {
	op, err := b.keyOp(next, b.key)
	if err != nil {
		return nil, err
	}
	ops = append(ops, op)
	for _, k := range b.signing {
		if op, err = b.signingOp(next, k); err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	return ops, nil
}

// sealOld seals what a program without a vault has stored.
func (b *Book) sealOld() error {
	if b.o.Vault == nil || !b.unsealed {
		return nil
	}
	b.change.Lock()
	defer b.change.Unlock()
	ops, err := b.sealAll(nil)
	if err != nil {
		return err
	}
	master, _ := b.o.Vault.Master()
	if err := b.commit(theBox, ops, Event{Category: "key", Action: "seal", ID: master, Detail: "stored by an earlier version without"}); err != nil {
		return err
	}
	b.unsealed = false
	return nil
}

// RotateMaster makes a new master key and a new data key, and seals everything anew. The key file then holds the new master key
// and the one before it, which a backup that is being taken may still need; what others have sealed stays readable. ErrNoVault
// without a key file.
func (a Acting) RotateMaster() error {
	b, v := a.Book, a.o.Vault
	if v == nil {
		return ErrNoVault
	}
	b.change.Lock()
	defer b.change.Unlock()
	switch {
	case b.closed:
		return ErrClosed
	case len(v.keys) >= maxDataKeys:
		return faultf("key", "there are %d data keys, their bound", len(v.keys))
	}
	next, err := v.next(nil)
	if err != nil {
		return err
	}
	ops, err := b.sealAll(&next)
	if err != nil {
		return err
	}
	// The file first, with both keys: whatever a kill leaves behind, it opens what the records say.
	if err := v.file.Write(formatKeys([]masterKey{next.master, v.master})); err != nil {
		return faultf("key", "key file %s cannot be written: %v: make it writable for the box while the key is changed", v.file, bare(err))
	}
	before, after := v.master.id, next.master.id
	if err := b.commit(a.by, append(ops, next.op), Event{Category: "key", Action: "rotate_master", ID: after, Before: before, After: after}); err != nil {
		return err
	}
	v.adopt(next)
	b.log.Info("master key rotated", "key", after, "file", v.file.String())
	return nil
}

// Vault is where this box's secrets are sealed, nil without a key file.
func (b *Book) Vault() *Vault { return b.o.Vault }
