package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"hash"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

const (
	minSecret    = 24  // characters of a supplied secret
	maxSecret    = 512 // bytes of a supplied secret
	secretRandom = 20  // random bytes of a generated secret or token: 160 bits
	keySize      = 32
)

// digest is what is kept of a secret.
type digest [sha256.Size]byte

// mint generates secrets and token texts: lower-case base32, so that a secret survives a shell, a URL and being read aloud.
func mint(random func([]byte)) string {
	var raw [secretRandom]byte
	random(raw[:])
	return strings.ToLower(base32.StdEncoding.EncodeToString(raw[:]))
}

func checkSecret(secret string) *Fault {
	switch {
	case !utf8.ValidString(secret):
		return faultf("secret", "is not UTF-8")
	case utf8.RuneCountInString(secret) < minSecret:
		return faultf("secret", "has %d characters, at least %d: leave it out to have one generated", utf8.RuneCountInString(secret), minSecret)
	case len(secret) > maxSecret:
		return faultf("secret", "is %d bytes long, at most %d", len(secret), maxSecret)
	case strings.ContainsFunc(secret, unicode.IsControl):
		return faultf("secret", "holds a control character (a line end?): remove it")
	}
	return nil
}

// hasher computes keyed hashes. Secrets have at least the entropy of 24 characters or 160 random bits, so one HMAC is enough:
// without the key, which is in no export, a stolen hash cannot even be tried. Safe for concurrent use.
type hasher struct{ idle sync.Pool } // of *hashing

type hashing struct {
	mac  hash.Hash
	text []byte
}

func newHasher(key []byte) *hasher {
	h := &hasher{}
	h.idle.New = func() any { return &hashing{mac: hmac.New(sha256.New, key)} }
	return h
}

// of hashes a secret bound to what it is for and whose it is, so that a hash cannot be moved to another record.
func (h *hasher) of(use, owner string, secret []byte) digest {
	w := h.idle.Get().(*hashing)
	w.text = append(w.text[:0], use...)
	w.text = append(w.text, 0)
	w.text = append(w.text, owner...)
	w.text = append(w.text, 0)
	w.text = append(w.text, secret...)
	w.mac.Reset()
	_, _ = w.mac.Write(w.text) // a hash never fails
	var sum digest
	clear(w.text)
	copy(sum[:], w.mac.Sum(w.text[:0]))
	h.idle.Put(w)
	return sum
}
