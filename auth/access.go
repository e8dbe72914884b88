package auth

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Access tokens: signed, short-lived, stored nowhere. One stands for the client and the secret it was got with: rotating the
// secret, disabling and deleting end it like they end the secret.

const (
	accessIssuer = "millrace"
	minAccessTTL = time.Second
	maxAccessTTL = 24 * time.Hour
)

// accessClaims are what a token says.
type accessClaims struct {
	jwt.RegisteredClaims
	Generation string `json:"gen"` // of the secret
}

// generation tells one secret of a client from the next without telling anything about either.
func (b *Book) generation(e *entry) string {
	sum := b.hash.of("generation", e.client.ID, e.hash[:])
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// Issue makes an access token for a client that has signed in with its secret. ErrNotFound when p has ended meanwhile.
func (b *Book) Issue(p *Principal) (text string, ttl time.Duration, err error) {
	key, err := b.signer()
	if err != nil {
		return "", 0, err
	}
	b.mu.RLock()
	e, known := b.clients[p.id]
	b.mu.RUnlock()
	if !known || e.principal != p || p.Policy() == nil {
		return "", 0, ErrNotFound
	}
	now := b.o.Now()
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, accessClaims{Generation: b.generation(e), RegisteredClaims: jwt.RegisteredClaims{
		Issuer: accessIssuer, Audience: jwt.ClaimStrings{accessIssuer}, Subject: p.id,
		IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(b.o.Token.TTL)),
	}})
	token.Header["kid"] = key.KID
	if text, err = token.SignedString(key.private); err != nil {
		return "", 0, fmt.Errorf("auth: signing an access token: %w", err)
	}
	b.metrics.issued.Inc()
	return text, b.o.Token.TTL, nil
}

var errUnknownKey = errors.New("auth: no such key")

// access resolves an access token: whose it is and when it ends. One answer for everything that is wrong with it.
func (b *Book) access(text string) (e *entry, until time.Time, ok bool) {
	if len(text) > maxToken {
		return nil, until, false
	}
	var claims accessClaims
	_, err := jwt.ParseWithClaims(text, &claims, func(t *jwt.Token) (any, error) {
		kid, _ := t.Header["kid"].(string)
		if key := b.verifier(kid); key != nil {
			return key, nil
		}
		return nil, errUnknownKey
	}, jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithIssuer(accessIssuer), jwt.WithAudience(accessIssuer),
		jwt.WithExpirationRequired(), jwt.WithTimeFunc(b.o.Now), jwt.WithStrictDecoding())
	if err != nil {
		return nil, until, false
	}
	b.mu.RLock()
	e, known := b.clients[claims.Subject]
	closed := b.closed
	b.mu.RUnlock()
	if !known || closed || claims.Generation != b.generation(e) || e.principal.Policy() == nil {
		return nil, until, false
	}
	return e, claims.ExpiresAt.Time, true
}

// looksSigned says whether a password can be an access token: three parts, the first of them a JSON object.
func looksSigned(password []byte) bool {
	return len(password) <= maxToken && bytes.HasPrefix(password, []byte("eyJ")) && bytes.Count(password, []byte{'.'}) == 2
}

// Admit signs a device in with its secret, or with an access token of its own, and a person, whatever the id, with a personal
// access token. until is when the session has to end, zero:
// there is no such time. ok=false says only "no".
func (b *Book) Admit(id string, password []byte) (p *Principal, until time.Time, ok bool) {
	return b.AdmitFrom("", id, password)
}

// AdmitFrom is Admit for a connection from address, which the audit log tells of.
func (b *Book) AdmitFrom(address, id string, password []byte) (p *Principal, until time.Time, ok bool) {
	if looksSigned(password) {
		if e, until, ok := b.access(string(password)); ok && e.client.ID == id {
			b.metrics.ok.Inc()
			b.tally(Actor{Kind: ByClient, Name: id, Address: address}, "session", "access_token", id, "")
			return e.principal, until, true
		}
	}
	if p, until, ok = b.person(address, password); ok {
		b.metrics.ok.Inc()
		return p, until, true
	}
	p, ok = b.SignInFrom(address, id, password) // which counts the failure, too; and a secret may look like anything
	return p, until, ok
}
