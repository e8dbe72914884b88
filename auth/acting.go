package auth

import (
	"context"
	"time"
)

// Acting is a Book in somebody's hand: what is changed through it is theirs in the audit log. The Book's own methods act as
// the box itself.
type Acting struct {
	*Book
	by Actor
}

// As puts the Book into the hand of by.
func (b *Book) As(by Actor) Acting { return Acting{b, by} }

var theBox = Actor{Kind: ByBox}

// AddAll is Book.AddAll.
func (a Acting) AddAll(list []NewClient) ([]Added, error) { return a.addAll(a.by, list) }

// Patch is Book.Patch.
func (a Acting) Patch(id string, p Patch) (Client, error) { return a.patchAndTell(a.by, id, p) }

// Rotate is Book.Rotate.
func (a Acting) Rotate(id, secret string) (string, error) { return a.rotateAndTell(a.by, id, secret) }

// Delete is Book.Delete.
func (a Acting) Delete(id string) error { return a.deleteAndTell(a.by, id) }

// AddUser is Book.AddUser.
func (a Acting) AddUser(ctx context.Context, n NewUser) (User, error) {
	return a.addUser(ctx, a.by, n)
}

// PatchUser is Book.PatchUser.
func (a Acting) PatchUser(ctx context.Context, name string, p UserPatch) (User, error) {
	return a.patchUser(ctx, a.by, name, p)
}

// DeleteUser is Book.DeleteUser.
func (a Acting) DeleteUser(name string) error { return a.deleteUser(a.by, name) }

// AddToken is Book.AddToken.
func (a Acting) AddToken(name string, role Role, ttl time.Duration) (id, text string, err error) {
	return a.addToken(a.by, NewToken{Name: name, Role: role, TTL: ttl})
}

// MakeToken is Book.MakeToken.
func (a Acting) MakeToken(n NewToken) (Token, string, error) { return a.makeToken(a.by, n) }

// DeleteToken is Book.DeleteToken.
func (a Acting) DeleteToken(id string) error { return a.deleteToken(a.by, id) }

// RotateSigning is Book.RotateSigning.
func (a Acting) RotateSigning() error { return a.rotateSigningNow(a.by) }

// RemoveSigning is Book.RemoveSigning.
func (a Acting) RemoveSigning(kid string) error { return a.removeSigning(a.by, kid) }

// Note appends to the audit log what was done outside of this package. It is written before it returns.
func (a Acting) Note(events ...Event) error { return a.note(a.by, events...) }

// Refused counts a call that the caller may not make; the audit log tells of it once a minute.
func (a Acting) Refused(call, why string) { a.tally(a.by, "access", "refused", call, why) }
