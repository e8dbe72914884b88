package auth

import (
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of what is kept for one client, and of their number.
const (
	maxID          = 64
	maxDescription = 1024
	maxGrants      = 1000
	maxClients     = 100_000
)

// Client is an API client as shown. It never holds the secret. The slices belong to whoever received it.
type Client struct {
	ID          string    `json:"id"`
	Workspace   string    `json:"workspace"`
	Description string    `json:"description,omitempty"`
	Enabled     bool      `json:"enabled"`
	Grants      []Grant   `json:"grants"` // normalised; never nil
	Metrics     bool      `json:"metrics,omitempty"`
	Created     time.Time `json:"created"`
	Revision    uint64    `json:"revision"` // grows by one with every change: the ETag
}

// clone returns a Client that shares no memory with c.
func (c Client) clone() Client {
	grants := make([]Grant, len(c.Grants))
	for i, g := range c.Grants {
		g.Actions = slices.Clone(g.Actions)
		grants[i] = g
	}
	c.Grants = grants
	return c
}

// NewClient asks for one. Secret "" = generated, Workspace "" = the first one; without grants the client may do nothing but
// read its own verdicts.
type NewClient struct {
	ID          string  `json:"id"`
	Secret      string  `json:"secret,omitempty"`
	Workspace   string  `json:"workspace,omitempty"`
	Description string  `json:"description,omitempty"`
	Grants      []Grant `json:"grants,omitempty"`
	Metrics     bool    `json:"metrics,omitempty"`
}

// LogValue keeps the secret out of logs.
func (n NewClient) LogValue() slog.Value { return slog.StringValue(n.String()) }

// String shows the id only.
func (n NewClient) String() string { return "client " + shown(n.ID) }

// Added is one result of AddAll. Err is a *Fault or ErrExists; when any result of the list has one, nothing was created and
// no result holds a secret. Secret is the only copy there will ever be; JSON leaves it out, so that it is shown on purpose
// or not at all.
type Added struct {
	Client Client
	Secret string `json:"-"`
	Err    error
}

// LogValue keeps the secret out of logs.
func (a Added) LogValue() slog.Value { return slog.StringValue(a.String()) }

// String shows the id and what was wrong, never the secret.
func (a Added) String() string {
	if a.Err != nil {
		return "client " + shown(a.Client.ID) + ": " + a.Err.Error()
	}
	return "client " + shown(a.Client.ID)
}

// Patch is a change of a client: nil fields stay as they are, Grants replaces all of them.
type Patch struct {
	Description *string
	Enabled     *bool
	Grants      *[]Grant
	Revision    uint64 // 0: whatever it is now; else ErrChanged unless the client still has this revision (If-Match)
}

// checkID holds the rule of client ids. An id stands as a topic level in rules ("${client}") and in inboxes, so whatever
// could widen a rule is named for what it is.
func checkID(id string) *Fault {
	const rule = "an id is 1 to 64 characters of A-Z a-z 0-9 . _ -"
	switch {
	case id == "":
		return faultf("id", "is empty: %s", rule)
	case len(id) > maxID:
		return faultf("id", "%d bytes long, at most 64: %s", len(id), rule)
	case id == "." || id == "..":
		return faultf("id", "%q cannot stand in a web address: give it a letter or a digit", id)
	}
	for i, r := range id {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
			continue
		case r == '#' || r == '+':
			return faultf("id", "%q holds %q (byte %d), a wildcard of topic filters: %s", id, r, i, rule)
		case r == '/':
			return faultf("id", "%q holds '/' (byte %d), which separates topic levels: %s", id, i, rule)
		case r == 0:
			return faultf("id", "%q holds NUL (byte %d): %s", id, i, rule)
		case r == utf8.RuneError:
			return faultf("id", "%q is not UTF-8 at byte %d: %s", id, i, rule)
		}
		return faultf("id", "%q holds %q (byte %d): %s", id, r, i, rule)
	}
	return nil
}

func checkDescription(text string) *Fault {
	switch {
	case len(text) > maxDescription:
		return faultf("description", "%d bytes long, at most %d: shorten it", len(text), maxDescription)
	case !utf8.ValidString(text):
		return faultf("description", "is not UTF-8")
	case strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }):
		return faultf("description", "holds a control character: remove it")
	}
	return nil
}
