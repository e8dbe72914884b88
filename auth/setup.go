package auth

import (
	"context"
	"crypto/subtle"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"millrace/historian/kv"
)

const (
	plantRecordKey = "auth/plant"
	maxPlant       = 128
)

// plantRecord is the plant's name as stored.
type plantRecord struct {
	Version int    `json:"version"`
	Name    string `json:"name"`
}

// setUp is the way to the first administrator: a token that this start of the box shows, good until there is one.
type setUp struct {
	mu    sync.Mutex
	token string // "": done
}

func (s *setUp) prepare(random func([]byte), done bool) {
	if !done {
		s.token = mint(random)
	}
}

// SetUpToken is the token of the set-up link, "" once there is an administrator. It is another at each start.
func (b *Book) SetUpToken() string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.hasAdmin() {
		return ""
	}
	b.setUp.mu.Lock()
	defer b.setUp.mu.Unlock()
	return b.setUp.token
}

// SetUp makes the user admin with a password, names the plant ("" leaves it) and signs in. ErrSetUpDone when there is an
// administrator, ErrSetUpToken, *LockedError, *Fault, ErrBusy.
func (b *Book) SetUp(ctx context.Context, token, password, plant, address string) (SignedIn, error) {
	by := Actor{Kind: ByNobody, Name: "set-up link", Address: address}
	now := b.SetUpToken()
	if now == "" {
		return SignedIn{}, ErrSetUpDone
	}
	const account = "\x00set-up"
	if wait := b.lock.enter(account, address); wait > 0 {
		return SignedIn{}, &LockedError{wait}
	}
	if subtle.ConstantTimeCompare([]byte(token), []byte(now)) != 1 {
		b.tally(by, "setup", "set_up", "", "wrong token")
		return SignedIn{}, ErrSetUpToken
	}
	b.lock.forget(account, address)
	if fault := checkPlant(plant); fault != nil {
		return SignedIn{}, fault
	}
	if err := b.firstAdmin(ctx, by, password, plant, "by the set-up link"); err != nil {
		return SignedIn{}, err
	}
	b.mu.RLock()
	a := b.users[AdminName]
	b.mu.RUnlock()
	return b.begin(Actor{Kind: ByUser, Name: AdminName, Address: address}, a, true, "sign_in")
}

// SetAdminPassword makes the user admin at the first start. It does nothing once there is an administrator.
func (b *Book) SetAdminPassword(ctx context.Context, password string) error {
	if b.SetUpToken() == "" {
		return nil
	}
	return b.firstAdmin(ctx, theBox, password, "", "by MILLRACE_ADMIN_PASSWORD")
}

// firstAdmin makes the user admin, or, where there is one who is no administrator, makes them one with this password.
func (b *Book) firstAdmin(ctx context.Context, by Actor, password, plant, how string) error {
	if fault := checkPassword(AdminName, password); fault != nil {
		return fault
	}
	hash, err := b.passwords.hash(ctx, password)
	if err != nil {
		return err
	}
	b.change.Lock()
	defer b.change.Unlock()
	if b.closed {
		return ErrClosed
	}
	if b.hasAdmin() {
		return ErrSetUpDone
	}
	a := &account{User{AdminName, RoleAdmin, true, b.o.Now().UTC().Truncate(1e6), 1}, hash}
	if old := b.users[AdminName]; old != nil {
		a.Created, a.Revision = old.Created, old.Revision+1
	}
	op, err := a.record()
	if err != nil {
		return err
	}
	ops, ended := b.endingSessions(AdminName)
	ops = append(ops, op)
	events := []Event{{Category: "setup", Action: "set_up", ID: AdminName, Detail: how, After: a.User}}
	if plant != "" {
		op, err := set(plantRecordKey, plantRecord{Version: recordVersion, Name: plant})
		if err != nil {
			return err
		}
		ops = append(ops, op)
		events = append(events, Event{Category: "setting", Action: "plant", Before: b.plant, After: plant})
	}
	if err := b.commit(by, ops, events...); err != nil {
		return err
	}
	b.showUser(a)
	b.forgetSessions(ended)
	if plant != "" {
		b.mu.Lock()
		b.plant = plant
		b.mu.Unlock()
	}
	b.setUp.mu.Lock()
	b.setUp.token = ""
	b.setUp.mu.Unlock()
	b.log.Info("set up", "how", how)
	return nil
}

// Plant is the plant's name, "" when none was given.
func (b *Book) Plant() string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.plant
}

// SetPlant names the plant.
func (a Acting) SetPlant(name string) error {
	if fault := checkPlant(name); fault != nil {
		return fault
	}
	b := a.Book
	b.change.Lock()
	defer b.change.Unlock()
	if b.closed {
		return ErrClosed
	}
	if name == b.plant {
		return nil
	}
	op, err := set(plantRecordKey, plantRecord{Version: recordVersion, Name: name})
	if err != nil {
		return err
	}
	if err := b.commit(a.by, []kv.Op{op}, Event{Category: "setting", Action: "plant", Before: b.plant, After: name}); err != nil {
		return err
	}
	b.mu.Lock()
	b.plant = name
	b.mu.Unlock()
	return nil
}

func checkPlant(name string) *Fault {
	if len(name) > maxPlant || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return faultf("plant", "%s: give at most %d bytes of text without control characters", shown(name), maxPlant)
	}
	return nil
}

// readPlant reads the plant's name.
func (b *Book) readPlant() error {
	value, ok, err := b.records.Get([]byte(plantRecordKey))
	if err != nil || !ok {
		return err
	}
	var r plantRecord
	if err := decode(plantRecordKey, value, &r); err != nil {
		return err
	}
	b.plant = r.Name
	return nil
}
