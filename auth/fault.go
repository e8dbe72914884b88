package auth

import (
	"errors"
	"fmt"
)

// The sentinels a caller tests with errors.Is.
var (
	ErrNotFound = errors.New("auth: no such client")
	ErrExists   = errors.New("auth: client exists")
	ErrChanged  = errors.New("auth: client was changed by someone else: read it again and repeat")
	ErrNoToken  = errors.New("auth: no such token")
	ErrClosed   = errors.New("auth: closed")

	ErrNoUser      = errors.New("auth: no such user")
	ErrUserExists  = errors.New("auth: user exists")
	ErrUserChanged = errors.New("auth: user was changed by someone else: read it again and repeat")
	ErrLastAdmin   = errors.New("auth: this is the last administrator: make another one first")
	ErrBusy        = errors.New("auth: too many passwords are being checked: try again in a moment")
	ErrCredentials = errors.New("auth: the user is unknown or disabled, or the password is wrong")
	ErrNoVault     = errors.New("auth: there is no key file")
	ErrSetUpDone   = errors.New("auth: the box is set up already")
	ErrSetUpToken  = errors.New("auth: this is not the token of the set-up link")
)

// Fault is refused input: which field, what is wrong with it and how to mend it. Field uses the JSON names, for example
// "grants[1].filter". It is the caller's mistake, never ours, and its text holds no secret.
type Fault struct{ Field, Message string }

// Error implements error.
func (f *Fault) Error() string { return f.Field + ": " + f.Message }

func faultf(field, format string, args ...any) *Fault {
	return &Fault{Field: field, Message: fmt.Sprintf(format, args...)}
}

// maxShown bounds how much of a refused text comes back in a message.
const maxShown = 80

// shown quotes text for a message; a peer's 64 KiB must not fill a log or an answer.
func shown(text string) string {
	if len(text) <= maxShown {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprintf("%q… (%d bytes)", text[:maxShown], len(text))
}
