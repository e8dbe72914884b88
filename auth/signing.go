package auth

import (
	"cmp"
	"crypto/ed25519"
	"fmt"
	"maps"
	"slices"
	"time"

	"millrace/historian/kv"
)

const (
	signingPrefix = "auth/signing/"
	// signingLife is how long one key signs; a new one is made with the first token after it.
	signingLife = 30 * 24 * time.Hour
	// signingOverlap is how long a key that signs no more still verifies: the longest life of a token.
	signingOverlap = maxAccessTTL + time.Minute
	kidLetters     = 16
)

// signingRecord is a key for access tokens as stored.
type signingRecord struct {
	Version int       `json:"version"`
	KID     string    `json:"kid"`
	Seed    []byte    `json:"seed"`
	Seal    string    `json:"seal,omitempty"` // as of boxKey; in memory Seed is plain
	Created time.Time `json:"created"`
	// Retired is when a newer key took over; zero: this one signs.
	Retired time.Time `json:"retired"`
}

// signingKey is one key in memory; never changed.
type signingKey struct {
	signingRecord
	private ed25519.PrivateKey
}

func (k *signingKey) verifies(now time.Time) bool {
	return k.Retired.IsZero() || now.Before(k.Retired.Add(signingOverlap))
}

// PublicKey is a key that verifies access tokens, as shown: a JSON Web Key without its secret half.
type PublicKey struct {
	KID     string
	Key     ed25519.PublicKey
	Created time.Time
	Signs   bool // the one that new tokens are signed with
}

// readSigning fills the keys from the store.
func (b *Book) readSigning() error {
	return b.scan(signingPrefix, func(key string, value []byte) error {
		var r signingRecord
		if err := decode(key, value, &r); err != nil {
			return err
		}
		switch {
		case signingPrefix+r.KID != key:
			return damaged(key, fmt.Errorf("it names key %s", shown(r.KID)))
		}
		var err error
		if b.unsealed = b.unsealed || r.Seal == ""; r.Seal != "" {
			if r.Seed, err = b.openSealed(r.Seal, key, r.Seed); err != nil {
				return err
			}
			r.Seal = ""
		}
		if len(r.Seed) != ed25519.SeedSize {
			return damaged(key, fmt.Errorf("its seed has %d bytes", len(r.Seed)))
		}
		b.signing[r.KID] = &signingKey{r, ed25519.NewKeyFromSeed(r.Seed)}
		return nil
	})
}

// PublicKeys lists the keys that verify tokens now, the newest first.
func (b *Book) PublicKeys() []PublicKey {
	now := b.o.Now()
	b.mu.RLock()
	defer b.mu.RUnlock()
	var list []PublicKey
	for _, k := range b.signing {
		if k.verifies(now) {
			list = append(list, PublicKey{k.KID, k.private.Public().(ed25519.PublicKey), k.Created, k.Retired.IsZero()})
		}
	}
	slices.SortFunc(list, func(x, y PublicKey) int {
		return cmp.Or(y.Created.Compare(x.Created), cmp.Compare(x.KID, y.KID))
	})
	return list
}

// verifier finds the key of a token, nil when it verifies nothing (any more).
func (b *Book) verifier(kid string) ed25519.PublicKey {
	now := b.o.Now()
	b.mu.RLock()
	defer b.mu.RUnlock()
	if k := b.signing[kid]; k != nil && k.verifies(now) {
		return k.private.Public().(ed25519.PublicKey)
	}
	return nil
}

// signer is the key for new tokens; it is made, or renewed, when it is due.
func (b *Book) signer() (*signingKey, error) {
	if k := b.signerNow(); k != nil {
		return k, nil
	}
	b.change.Lock()
	defer b.change.Unlock()
	if k := b.signerNow(); k != nil {
		return k, nil
	}
	return b.rotateSigning(theBox, "due")
}

// signerNow is the key in force, nil when there is none or it is due.
func (b *Book) signerNow() *signingKey {
	now := b.o.Now()
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, k := range b.signing {
		if k.Retired.IsZero() && now.Before(k.Created.Add(signingLife)) {
			return k
		}
	}
	return nil
}

// RotateSigning makes a new key for access tokens. The one before verifies what it has signed for another 24 hours.
func (b *Book) RotateSigning() error { return b.rotateSigningNow(theBox) }

func (b *Book) rotateSigningNow(by Actor) error {
	b.change.Lock()
	defer b.change.Unlock()
	_, err := b.rotateSigning(by, "asked for")
	return err
}

// rotateSigning does it; the caller holds change.
func (b *Book) rotateSigning(by Actor, why string) (*signingKey, error) {
	if b.closed {
		return nil, ErrClosed
	}
	now := b.o.Now().UTC().Truncate(time.Millisecond)
	seed := make([]byte, ed25519.SeedSize)
	b.o.Random(seed)
	fresh := &signingKey{signingRecord{Version: recordVersion, KID: mint(b.o.Random)[:kidLetters], Seed: seed, Created: now}, ed25519.NewKeyFromSeed(seed)}
	keys := map[string]*signingKey{fresh.KID: fresh}
	var ops []kv.Op
	put := func(k *signingKey) error {
		op, err := b.signingOp(nil, k)
		ops = append(ops, op)
		return err
	}
	if err := put(fresh); err != nil {
		return nil, err
	}
	for kid, k := range b.signing {
		switch {
		case !k.verifies(now):
			ops = append(ops, remove(signingPrefix+kid))
		case k.Retired.IsZero():
			old := &signingKey{k.signingRecord, k.private}
			old.Retired = now
			if err := put(old); err != nil {
				return nil, err
			}
			keys[kid] = old
		default:
			keys[kid] = k
		}
	}
	if err := b.commit(by, ops, Event{Category: "key", Action: "rotate_signing", ID: fresh.KID, Detail: why}); err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.signing = keys
	b.mu.Unlock()
	b.log.Info("key for access tokens made", "kid", fresh.KID, "keys", len(keys))
	return fresh, nil
}

// RemoveSigning ends a key at once, and with it every token it has signed; sessions that signed in with one go on until
// they expire. ErrNoToken when there is none of that kid. The next token makes a new key if need be.
func (b *Book) RemoveSigning(kid string) error { return b.removeSigning(theBox, kid) }

func (b *Book) removeSigning(by Actor, kid string) error {
	b.change.Lock()
	defer b.change.Unlock()
	if b.closed {
		return ErrClosed
	}
	if b.signing[kid] == nil {
		return ErrNoToken
	}
	if err := b.commit(by, []kv.Op{remove(signingPrefix + kid)}, Event{Category: "key", Action: "remove_signing", ID: kid}); err != nil {
		return err
	}
	keys := maps.Clone(b.signing)
	delete(keys, kid)
	b.mu.Lock()
	b.signing = keys
	b.mu.Unlock()
	b.log.Info("key for access tokens removed", "kid", kid)
	return nil
}
