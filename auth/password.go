package auth

import (
	"context"
	"crypto/subtle"
	_ "embed"
	"encoding/base64"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
)

// Bounds of passwords. There are no rules of composition: they make passwords that people write down.
const (
	minPassword      = 8    // characters
	maxPassword      = 256  // characters
	maxPasswordBytes = 1024 // bytes looked at of anything offered as one
)

// Cost of a password's hash: OWASP's least for argon2id. One takes about 25 ms and 19 MiB.
const (
	argonTime    = 2
	argonMemory  = 19 << 10 // KiB
	argonThreads = 1
	argonSalt    = 16
	argonKey     = 32
	// What a stored hash may ask for at most, so that a damaged record cannot take all memory.
	maxArgonTime   = 16
	maxArgonMemory = 256 << 10
)

// hashSlots is how many passwords are hashed at once, hashWaiting how many callers wait for that at most. Beyond: ErrBusy.
const (
	hashSlots   = 2
	hashWaiting = 32
)

// commonText is our own list of passwords that are tried first, one a line, in lower case.
//
//go:embed common.txt
var commonText string

func common(password string) bool {
	lower := strings.ToLower(password)
	for line := range strings.Lines(commonText) {
		if strings.TrimSpace(line) == lower {
			return true
		}
	}
	return false
}

// checkPassword holds the rules of a new password of the user name.
func checkPassword(name, password string) *Fault {
	n := utf8.RuneCountInString(password)
	switch {
	case !utf8.ValidString(password):
		return faultf("password", "is not UTF-8")
	case n < minPassword:
		return faultf("password", "has %d characters, at least %d: any will do, and spaces too", n, minPassword)
	case n > maxPassword || len(password) > maxPasswordBytes:
		return faultf("password", "has %d characters, at most %d", n, maxPassword)
	case strings.ContainsFunc(password, unicode.IsControl):
		return faultf("password", "holds a control character (a line end?): remove it")
	case common(password) || oneRune(password):
		return faultf("password", "is one that is tried first by whoever guesses: take another, a few words for example")
	case strings.EqualFold(password, name):
		return faultf("password", "is the user's name: take another")
	}
	return nil
}

func oneRune(text string) bool {
	first, _ := utf8.DecodeRuneInString(text)
	return strings.Trim(text, string(first)) == ""
}

// passwords hashes passwords, a few at a time, so that a storm of sign-ins takes neither all memory nor all processors.
type passwords struct {
	slots   chan struct{}
	waiting atomic.Int32
	random  func([]byte)
	metrics *metrics
	nobody  string // what the password of an unknown user is compared with
}

func newPasswords(random func([]byte), m *metrics) *passwords {
	p := &passwords{slots: make(chan struct{}, hashSlots), random: random, metrics: m}
	var raw [argonSalt + argonKey]byte
	random(raw[:])
	p.nobody = encodeArgon(raw[:argonSalt], raw[argonSalt:])
	return p
}

// enter takes a slot, waiting for one unless too many wait already. leave gives it back.
func (p *passwords) enter(ctx context.Context) error {
	select {
	case p.slots <- struct{}{}:
		return nil
	default:
	}
	if p.waiting.Add(1) > hashWaiting {
		p.waiting.Add(-1)
		p.metrics.hashesRefused.Inc()
		return ErrBusy
	}
	defer p.waiting.Add(-1)
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *passwords) leave(began time.Time) {
	<-p.slots
	p.metrics.hashTime.Observe(time.Since(began).Seconds())
}

// hash makes the stored form of a password.
func (p *passwords) hash(ctx context.Context, password string) (string, error) {
	if err := p.enter(ctx); err != nil {
		return "", err
	}
	defer p.leave(time.Now())
	salt := make([]byte, argonSalt)
	p.random(salt)
	return encodeArgon(salt, argon2.IDKey([]byte(password), salt, argonTime, argonMemory, argonThreads, argonKey)), nil
}

// verify compares a password with a stored form; "" is nobody's and costs the same.
func (p *passwords) verify(ctx context.Context, stored, password string) (bool, error) {
	if stored == "" {
		stored = p.nobody
	}
	a, err := decodeArgon(stored)
	if err != nil {
		return false, err
	}
	if len(password) > maxPasswordBytes {
		password = "" // belongs to nobody
	}
	if err := p.enter(ctx); err != nil {
		return false, err
	}
	defer p.leave(time.Now())
	sum := argon2.IDKey([]byte(password), a.salt, a.time, a.memory, a.threads, uint32(len(a.key)))
	return subtle.ConstantTimeCompare(sum, a.key) == 1, nil
}

// argonHash is a stored form taken apart.
type argonHash struct {
	time, memory uint32
	threads      uint8
	salt, key    []byte
}

// encodeArgon writes the usual text form, which carries its own cost.
func encodeArgon(salt, key []byte) string {
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, argonMemory, argonTime, argonThreads, b64.EncodeToString(salt), b64.EncodeToString(key))
}

func decodeArgon(text string) (a argonHash, err error) {
	parts := strings.Split(text, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return a, fmt.Errorf("auth: a password's hash is not of the form $argon2id$v=%d$…", argon2.Version)
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &a.memory, &a.time, &a.threads); err != nil {
		return a, fmt.Errorf("auth: the cost of a password's hash cannot be read: %w", err)
	}
	if a.memory < 1<<10 || a.memory > maxArgonMemory || a.time < 1 || a.time > maxArgonTime || a.threads < 1 {
		return a, fmt.Errorf("auth: a password's hash asks for %d KiB and %d passes, which is out of bounds", a.memory, a.time)
	}
	if a.salt, err = base64.RawStdEncoding.Strict().DecodeString(parts[4]); err == nil {
		a.key, err = base64.RawStdEncoding.Strict().DecodeString(parts[5])
	}
	if err == nil && (len(a.salt) < 8 || len(a.key) < 16) {
		err = fmt.Errorf("%d bytes of salt, %d of hash", len(a.salt), len(a.key))
	}
	if err != nil {
		return a, fmt.Errorf("auth: a password's hash cannot be read: %w", err)
	}
	return a, nil
}
