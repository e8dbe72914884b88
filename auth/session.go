package auth

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"millrace/historian/kv"
)

const (
	sessionPrefix = "auth/session/"
	// maxSessions is how many sessions one user has at most; one more ends the oldest.
	maxSessions = 16
	maxCookie   = 64 // bytes looked at
)

// SignedIn is a session that has just begun. Cookie is the only copy there will ever be.
type SignedIn struct {
	Cookie  string
	CSRF    string // to be sent with every change
	User    User
	Expires time.Time // at the latest
}

// session is one sign-in of a person in memory. Only seen changes.
type session struct {
	hash    digest
	user    string // folded
	created time.Time
	address string
	seen    atomic.Int64 // Unix ns of the last call
}

// sessionRecord is a session as stored. When it was last used is not: after a restart the idle time begins anew.
type sessionRecord struct {
	Version int       `json:"version"`
	Hash    []byte    `json:"hash"`
	User    string    `json:"user"`
	Created time.Time `json:"created"`
	Address string    `json:"address"`
}

func (s *session) key() string { return sessionPrefix + hex.EncodeToString(s.hash[:16]) }

func (b *Book) over(s *session, now time.Time) bool {
	return !now.Before(s.created.Add(b.o.Session.MaxAge)) || now.UnixNano()-s.seen.Load() >= int64(b.o.Session.Idle)
}

// readSessions fills sessions from the store. Sessions that are over, or whose user is gone, are left for Tidy.
func (b *Book) readSessions() error {
	now := b.o.Now().UnixNano()
	return b.scan(sessionPrefix, func(key string, value []byte) error {
		var r sessionRecord
		if err := decode(key, value, &r); err != nil {
			return err
		}
		if len(r.Hash) != len(digest{}) {
			return damaged(key, fmt.Errorf("its hash has %d bytes", len(r.Hash)))
		}
		s := &session{hash: digest(r.Hash), user: r.User, created: r.Created, address: r.Address}
		if s.key() != key {
			return damaged(key, errors.New("it is another session's"))
		}
		s.seen.Store(now)
		b.sessions[s.hash] = s
		return nil
	})
}

// SignInUser signs a person in with their password. address is where the call comes from. ErrCredentials says "no" to unknown
// users, wrong passwords and disabled users alike, after the same work; *LockedError: not looked at; ErrBusy.
func (b *Book) SignInUser(ctx context.Context, name, password, address string) (SignedIn, error) {
	by := Actor{Kind: ByUser, Name: cut(name), Address: address}
	if wait := b.lock.enter(folded(cut(name)), address); wait > 0 {
		b.metrics.userLocked.Inc()
		b.tally(by, "session", "sign_in", name, "locked out")
		return SignedIn{}, &LockedError{wait}
	}
	b.mu.RLock()
	a := b.users[folded(name)]
	b.mu.RUnlock()
	stored := ""
	if a != nil {
		stored = a.hash
	}
	same, err := b.passwords.verify(ctx, stored, password)
	if err != nil {
		b.lock.withdraw(folded(cut(name)), address)
		return SignedIn{}, err
	}
	return b.begin(by, a, same, "sign_in")
}

// ChangePassword gives a signed-in person a new password; they show that they know the old one. All their sessions end and a
// new one begins. Errors as of SignInUser and PatchUser.
func (b *Book) ChangePassword(ctx context.Context, name, current, fresh, address string) (SignedIn, error) {
	if wait := b.lock.enter(folded(name), address); wait > 0 {
		b.metrics.userLocked.Inc()
		return SignedIn{}, &LockedError{wait}
	}
	b.mu.RLock()
	a := b.users[folded(name)]
	b.mu.RUnlock()
	if a == nil {
		return SignedIn{}, ErrNoUser
	}
	by := Actor{Kind: ByUser, Name: a.Name, Address: address}
	same, err := b.passwords.verify(ctx, a.hash, current)
	if err != nil {
		b.lock.withdraw(folded(name), address)
		return SignedIn{}, err
	}
	if !same {
		return SignedIn{}, errors.Join(ErrCredentials, b.note(by, Event{Category: "user", Action: "password", ID: a.Name, Result: ResultRefused, Detail: "wrong password"}))
	}
	b.lock.withdraw(folded(name), address)
	if _, err := b.patchUser(ctx, by, name, UserPatch{Password: &fresh, Revision: a.Revision}); err != nil {
		return SignedIn{}, err
	}
	b.mu.RLock()
	a = b.users[folded(name)]
	b.mu.RUnlock()
	return b.begin(by, a, true, "sign_in")
}

// begin starts a session of a whose password was right, or notes that it was not.
func (b *Book) begin(by Actor, a *account, same bool, action string) (SignedIn, error) {
	b.change.Lock()
	defer b.change.Unlock()
	if b.closed {
		return SignedIn{}, ErrClosed
	}
	if a == nil || !same || !a.Enabled || b.users[folded(a.Name)] != a { // changed while the hash was computed
		b.metrics.userRefused.Inc()
		by.Kind = ByNobody
		why := "wrong password"
		switch {
		case a == nil:
			why = "unknown user"
		case same:
			why = "disabled or changed"
		}
		b.log.Info("sign-in refused", "user", shown(by.Name), "address", by.Address, "why", why)
		if a == nil {
			// Anybody can make up names, so these are counted; as entries of their own they would push others out of the log.
			b.tally(by, "session", action, by.Name, why)
			return SignedIn{}, ErrCredentials
		}
		if err := b.commit(by, nil, Event{Category: "session", Action: action, ID: by.Name, Result: ResultRefused, Detail: why}); err != nil {
			return SignedIn{}, err
		}
		return SignedIn{}, ErrCredentials
	}
	by.Name = a.Name
	cookie, s, ops, dropped, err := b.newSession(a, by.Address)
	if err != nil {
		return SignedIn{}, err
	}
	if err := b.commit(by, ops, Event{Category: "session", Action: action, ID: a.Name}); err != nil {
		return SignedIn{}, err
	}
	b.forgetSessions(dropped)
	b.mu.Lock()
	b.sessions[s.hash] = s
	b.mu.Unlock()
	b.lock.forget(folded(a.Name), by.Address)
	b.metrics.userOK.Inc()
	b.log.Info("signed in", "user", a.Name, "address", by.Address)
	return SignedIn{Cookie: cookie, CSRF: b.CSRF(cookie), User: a.User, Expires: s.created.Add(b.o.Session.MaxAge)}, nil
}

// newSession makes a session of a and the operations that store it and drop those that are too many or over. The caller
// holds change.
func (b *Book) newSession(a *account, address string) (cookie string, s *session, ops []kv.Op, dropped []digest, err error) {
	now := b.o.Now().UTC().Truncate(time.Millisecond)
	cookie = mint(b.o.Random)
	s = &session{hash: b.hash.of("session", "", []byte(cookie)), user: folded(a.Name), created: now, address: address}
	s.seen.Store(b.o.Now().UnixNano())
	op, err := set(s.key(), sessionRecord{Version: recordVersion, Hash: s.hash[:], User: s.user, Created: now, Address: address})
	if err != nil {
		return "", nil, nil, nil, err
	}
	var mine []*session
	for _, old := range b.sessions {
		if old.user == s.user {
			mine = append(mine, old)
		}
	}
	slices.SortFunc(mine, func(x, y *session) int { return cmp.Compare(y.seen.Load(), x.seen.Load()) })
	for i, old := range mine {
		if i >= maxSessions-1 || b.over(old, now) {
			ops, dropped = append(ops, remove(old.key())), append(dropped, old.hash)
		}
	}
	return cookie, s, append(ops, op), dropped, nil
}

// Session resolves the cookie of a session: one keyed hash and two look-ups. It counts as use.
func (b *Book) Session(cookie string) (Caller, bool) {
	if cookie == "" || len(cookie) > maxCookie {
		return Caller{}, false
	}
	sum := b.hash.of("session", "", []byte(cookie))
	now := b.o.Now()
	b.mu.RLock()
	defer b.mu.RUnlock()
	s := b.sessions[sum]
	if s == nil || b.closed || b.over(s, now) {
		return Caller{}, false
	}
	a := b.users[s.user]
	if a == nil || !a.Enabled {
		return Caller{}, false
	}
	s.seen.Store(now.UnixNano())
	return Caller{Name: a.Name, Role: a.Role, Metrics: true, User: a.Name, Session: true}, true
}

// CSRF is what has to come with every change that a session makes. It follows from the cookie and says nothing about it.
func (b *Book) CSRF(cookie string) string {
	sum := b.hash.of("csrf", "", []byte(cookie))
	return hex.EncodeToString(sum[:16])
}

// EndSession signs a person out. A session that is none is let pass.
func (b *Book) EndSession(cookie, address string) error {
	if len(cookie) > maxCookie {
		return nil
	}
	b.change.Lock()
	defer b.change.Unlock()
	s := b.sessions[b.hash.of("session", "", []byte(cookie))]
	if s == nil {
		return nil
	}
	if b.closed {
		return ErrClosed
	}
	by := Actor{Kind: ByUser, Name: b.nameOf(s.user), Address: address}
	if err := b.commit(by, []kv.Op{remove(s.key())}, Event{Category: "session", Action: "sign_out", ID: by.Name}); err != nil {
		return err
	}
	b.forgetSessions([]digest{s.hash})
	return nil
}

// nameOf is the name of a user as it is written, also of one who is gone; the caller holds mu or change.
func (b *Book) nameOf(user string) string {
	if a := b.users[user]; a != nil {
		return a.Name
	}
	return user
}

// endingSessions are the operations that end every session of a user; the caller holds change.
func (b *Book) endingSessions(name string) (ops []kv.Op, ended []digest) {
	for hash, s := range b.sessions {
		if s.user == folded(name) {
			ops, ended = append(ops, remove(s.key())), append(ended, hash)
		}
	}
	return ops, ended
}

func (b *Book) forgetSessions(ended []digest) {
	b.mu.Lock()
	for _, hash := range ended {
		delete(b.sessions, hash)
	}
	b.mu.Unlock()
}
