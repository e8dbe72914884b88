package auth

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"millrace/historian/kv"
)

const (
	userPrefix = "auth/user/"
	maxUsers   = 1000
	// AdminName is the user that set-up makes.
	AdminName = "admin"
)

// User is a person as shown. It never holds the password's hash.
type User struct {
	Name     string    `json:"name"`
	Role     Role      `json:"role"`
	Enabled  bool      `json:"enabled"`
	Created  time.Time `json:"created"`
	Revision uint64    `json:"revision"` // grows by one with every change: the ETag
}

// NewUser asks for one.
type NewUser struct {
	Name     string `json:"name"`
	Role     Role   `json:"role"`
	Password string `json:"password"`
}

// LogValue keeps the password out of logs.
func (n NewUser) LogValue() slog.Value { return slog.StringValue(n.String()) }

// String shows the name only.
func (n NewUser) String() string { return "user " + shown(n.Name) }

// UserPatch is a change of a user: nil fields stay as they are.
type UserPatch struct {
	Role     *Role
	Enabled  *bool
	Password *string
	Revision uint64 // 0: whatever it is now; else ErrUserChanged unless the user still has this revision (If-Match)
}

// account is a user in memory. It is replaced as a whole, never changed.
type account struct {
	User
	hash string // of the password
}

// userRecord is a user as stored.
type userRecord struct {
	Version  int       `json:"version"`
	Name     string    `json:"name"`
	Role     Role      `json:"role"`
	Enabled  bool      `json:"enabled"`
	Created  time.Time `json:"created"`
	Revision uint64    `json:"revision"`
	Password string    `json:"password"` // argon2id, in the usual text form
}

// folded is the name by which a user is found: Anna and anna are one person.
func folded(name string) string { return strings.ToLower(name) }

func (a *account) record() (kv.Op, error) {
	return set(userPrefix+folded(a.Name), userRecord{Version: recordVersion, Name: a.Name, Role: a.Role, Enabled: a.Enabled,
		Created: a.Created, Revision: a.Revision, Password: a.hash})
}

// checkName holds the rule of user names: that of client ids, and @ for those who use their mail address.
func checkName(name string) *Fault {
	if fault := checkID(strings.ReplaceAll(name, "@", "-")); fault != nil {
		return faultf("name", "%s: a name is 1 to 64 characters of A-Z a-z 0-9 . _ - @", shown(name))
	}
	return nil
}

func checkRole(role Role) *Fault {
	if role.known() {
		return nil
	}
	return faultf("role", "%s is none of viewer, operator, designer, admin", shown(string(role)))
}

// readUsers fills users from the store.
func (b *Book) readUsers() error {
	return b.scan(userPrefix, func(key string, value []byte) error {
		var r userRecord
		if err := decode(key, value, &r); err != nil {
			return err
		}
		if userPrefix+folded(r.Name) != key {
			return damaged(key, fmt.Errorf("it names user %s", shown(r.Name)))
		}
		if !r.Role.known() {
			return damaged(key, fmt.Errorf("role %s is unknown", shown(string(r.Role))))
		}
		if _, err := decodeArgon(r.Password); err != nil {
			return damaged(key, err)
		}
		b.users[folded(r.Name)] = &account{User{r.Name, r.Role, r.Enabled, r.Created, r.Revision}, r.Password}
		return nil
	})
}

// Users lists all users by name.
func (b *Book) Users() []User {
	b.mu.RLock()
	list := make([]User, 0, len(b.users))
	for _, a := range b.users {
		list = append(list, a.User)
	}
	b.mu.RUnlock()
	slices.SortFunc(list, func(x, y User) int { return strings.Compare(folded(x.Name), folded(y.Name)) })
	return list
}

// User returns one user, or ErrNoUser. Upper and lower case are the same.
func (b *Book) User(name string) (User, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if a, ok := b.users[folded(name)]; ok {
		return a.User, nil
	}
	return User{}, ErrNoUser
}

// AddUser makes a user. *Fault, ErrUserExists, ErrBusy (too many passwords are being hashed).
func (b *Book) AddUser(ctx context.Context, n NewUser) (User, error) {
	return b.addUser(ctx, theBox, n)
}

func (b *Book) addUser(ctx context.Context, by Actor, n NewUser) (User, error) {
	a, err := b.newAccount(ctx, n)
	if err != nil {
		return User{}, err
	}
	b.change.Lock()
	defer b.change.Unlock()
	op, err := b.toAdd(a)
	if err != nil {
		return User{}, err
	}
	if err := b.commit(by, []kv.Op{op}, Event{Category: "user", Action: "add", ID: a.Name, After: a.User}); err != nil {
		return User{}, err
	}
	b.showUser(a)
	b.log.Info("user added", "user", a.Name, "role", string(a.Role))
	return a.User, nil
}

// newAccount checks what is asked for and hashes the password; no lock is held.
func (b *Book) newAccount(ctx context.Context, n NewUser) (*account, error) {
	for _, fault := range []*Fault{checkName(n.Name), checkRole(n.Role), checkPassword(n.Name, n.Password)} {
		if fault != nil {
			return nil, fault
		}
	}
	if _, err := b.User(n.Name); err == nil {
		return nil, ErrUserExists // before the hash is paid for; looked at again under the lock
	}
	hash, err := b.passwords.hash(ctx, n.Password)
	if err != nil {
		return nil, err
	}
	return &account{User{n.Name, n.Role, true, b.o.Now().UTC().Truncate(time.Millisecond), 1}, hash}, nil
}

// toAdd is the operation that stores a new account; the caller holds change.
func (b *Book) toAdd(a *account) (op kv.Op, err error) {
	switch _, exists := b.users[folded(a.Name)]; {
	case b.closed:
		return op, ErrClosed
	case exists:
		return op, ErrUserExists
	case len(b.users) >= maxUsers:
		return op, faultf("name", "the box would hold more than %d users: delete some first", maxUsers)
	}
	return a.record()
}

func (b *Book) showUser(a *account) {
	b.mu.Lock()
	b.users[folded(a.Name)] = a
	b.metrics.users.Set(float64(len(b.users)))
	b.mu.Unlock()
}

// PatchUser changes a user. A change of role, password or enabled ends the user's sessions before it returns; tokens of the
// user are held to the new role at once. ErrNoUser, ErrUserChanged, ErrLastAdmin, ErrBusy, *Fault.
func (b *Book) PatchUser(ctx context.Context, name string, p UserPatch) (User, error) {
	return b.patchUser(ctx, theBox, name, p)
}

func (b *Book) patchUser(ctx context.Context, by Actor, name string, p UserPatch) (User, error) {
	hash := ""
	if p.Role != nil {
		if fault := checkRole(*p.Role); fault != nil {
			return User{}, fault
		}
	}
	if p.Password != nil {
		u, err := b.User(name)
		if err != nil {
			return User{}, err
		}
		if fault := checkPassword(u.Name, *p.Password); fault != nil {
			return User{}, fault
		}
		if hash, err = b.passwords.hash(ctx, *p.Password); err != nil {
			return User{}, err
		}
	}
	b.change.Lock()
	defer b.change.Unlock()
	old, ok := b.users[folded(name)]
	switch {
	case b.closed:
		return User{}, ErrClosed
	case !ok:
		return User{}, ErrNoUser
	case p.Revision != 0 && p.Revision != old.Revision:
		return User{}, ErrUserChanged
	}
	a := &account{old.User, old.hash}
	if p.Role != nil {
		a.Role = *p.Role
	}
	if p.Enabled != nil {
		a.Enabled = *p.Enabled
	}
	action := "patch"
	if p.Password != nil {
		a.hash, action = hash, "password"
	}
	if *a == *old {
		return old.User, nil
	}
	if old.Enabled && old.Role == RoleAdmin && (!a.Enabled || a.Role != RoleAdmin) && b.lastAdmin(name) {
		return User{}, ErrLastAdmin
	}
	a.Revision++
	op, err := a.record()
	if err != nil {
		return User{}, err
	}
	ops, ended := b.endingSessions(name)
	if err := b.commit(by, append(ops, op), Event{Category: "user", Action: action, ID: a.Name, Before: old.User, After: a.User}); err != nil {
		return User{}, err
	}
	b.showUser(a)
	b.forgetSessions(ended)
	if a.Role != old.Role || a.Enabled != old.Enabled {
		b.standAnew(folded(name))
	}
	if p.Password != nil {
		b.lock.forgive(folded(name))
	}
	b.log.Info("user changed", "user", a.Name, "role", string(a.Role), "enabled", a.Enabled, "password", p.Password != nil)
	return a.User, nil
}

// DeleteUser removes a user with their sessions and tokens. ErrNoUser, ErrLastAdmin.
func (b *Book) DeleteUser(name string) error { return b.deleteUser(theBox, name) }

func (b *Book) deleteUser(by Actor, name string) error {
	b.change.Lock()
	defer b.change.Unlock()
	old, ok := b.users[folded(name)]
	switch {
	case b.closed:
		return ErrClosed
	case !ok:
		return ErrNoUser
	case old.Enabled && old.Role == RoleAdmin && b.lastAdmin(name):
		return ErrLastAdmin
	}
	ops, ended := b.endingSessions(name)
	events := []Event{{Category: "user", Action: "delete", ID: old.Name, Before: old.User}}
	var tokens []digest
	for hash, t := range b.tokens {
		if t.Owner == folded(name) {
			ops, tokens = append(ops, remove(tokenPrefix+t.ID)), append(tokens, hash)
			events = append(events, Event{Category: "token", Action: "delete", ID: t.ID, Before: t.Token, Detail: "its owner was deleted"})
		}
	}
	if err := b.commit(by, append(ops, remove(userPrefix+folded(name))), events...); err != nil {
		return err
	}
	b.mu.Lock()
	delete(b.users, folded(name))
	for _, hash := range tokens {
		b.tokens[hash].principal.policy.Store(nil)
		delete(b.tokens, hash)
	}
	b.metrics.users.Set(float64(len(b.users)))
	b.mu.Unlock()
	b.forgetSessions(ended)
	b.log.Info("user deleted", "user", old.Name)
	return nil
}

// lastAdmin says whether nobody but name is an administrator that can sign in; the caller holds change.
func (b *Book) lastAdmin(name string) bool {
	for key, a := range b.users {
		if key != folded(name) && a.Enabled && a.Role == RoleAdmin {
			return false
		}
	}
	return true
}

// hasAdmin says whether there is an administrator; the caller holds mu or change.
func (b *Book) hasAdmin() bool {
	for _, a := range b.users {
		if a.Role == RoleAdmin {
			return true
		}
	}
	return false
}
