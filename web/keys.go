package web

import (
	"context"
	"net/http"
	"time"

	"millrace/auth"
)

// Keys are the keys of the box, without their secret halves.
type Keys struct {
	Master  *MasterKey   `json:"master" doc:"Seals secrets at rest; null: they are stored as they are"`
	Signing []SigningKey `json:"signing" doc:"Sign access tokens, the newest first"`
}

// MasterKey is the key that secrets are sealed by.
type MasterKey struct {
	ID   string `json:"id"`
	File string `json:"file" doc:"Where it is kept"`
}

// SigningKey signs access tokens, or still verifies them.
type SigningKey struct {
	KID     string    `json:"kid"`
	Created time.Time `json:"created"`
	Signs   bool      `json:"signs" doc:"false: verifies what it has signed, until that has expired"`
}

func (w *Web) keys() Keys {
	k := Keys{Signing: []SigningKey{}}
	if v := w.parts.Book.Vault(); v != nil {
		id, file := v.Master()
		k.Master = &MasterKey{id, file}
	}
	for _, p := range w.parts.Book.PublicKeys() {
		k.Signing = append(k.Signing, SigningKey{p.KID, p.Created, p.Signs})
	}
	return k
}

func (w *Web) addKeys() {
	by := rule{role: auth.RoleAdmin}
	type nothing struct{}
	type keysOut struct{ Body Keys }
	register(w, route{method: http.MethodGet, path: "/keys", id: "list-keys", tag: "Keys", rule: by, summary: "List the box's keys", doc: "Never a secret half."},
		func(context.Context, *caller, *nothing) (*keysOut, error) { return &keysOut{w.keys()}, nil })

	type rotateIn struct {
		Body struct {
			Key string `json:"key" enum:"master,signing" doc:"master seals secrets at rest, signing signs access tokens"`
		} `nameHint:"KeyRotation"`
	}
	register(w, route{method: http.MethodPost, path: "/keys/rotate", id: "rotate-key", tag: "Keys", rule: by, conflicts: []int{409}, summary: "Make a new key",
		doc: "master: everything is sealed anew and the key file written anew; copy it away again. signing: what the old key has signed stays good until it expires."},
		func(_ context.Context, c *caller, in *rotateIn) (*keysOut, error) {
			rotate := w.as(c).RotateMaster
			if in.Body.Key == "signing" {
				rotate = w.as(c).RotateSigning
			}
			if err := rotate(); err != nil {
				return nil, err
			}
			return &keysOut{w.keys()}, nil
		})

	type removeIn struct {
		KID string `path:"kid" doc:"The key's id" maxLength:"64"`
	}
	register(w, route{method: http.MethodDelete, path: "/keys/signing/{kid}", id: "remove-key", tag: "Keys", rule: by, missing: true, status: http.StatusNoContent,
		summary: "End a signing key", doc: "And with it, at once, every token it has signed. The next token makes a new key if need be."},
		func(_ context.Context, c *caller, in *removeIn) (*nothing, error) {
			return nil, w.as(c).RemoveSigning(in.KID)
		})
}
