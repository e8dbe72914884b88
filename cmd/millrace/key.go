package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"text/tabwriter"
)

type keyCommand struct {
	List   keyList   `cmd:"" help:"List the box's keys; never a secret half."`
	Rotate keyRotate `cmd:"" help:"Make a new master key, which seals secrets at rest, or with --signing a new key for access tokens."`
	Remove keyRemove `cmd:"" help:"End a signing key, and at once every access token it has signed."`
}

type shownKeys struct {
	Master *struct {
		ID   string `json:"id"`
		File string `json:"file"`
	} `json:"master"`
	Signing []struct {
		KID     string `json:"kid"`
		Created string `json:"created"`
		Signs   bool   `json:"signs"`
	} `json:"signing"`
}

type keyList struct{}

func (keyList) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := box.call(ctx, http.MethodGet, "/keys", nil, nil, &raw); err != nil {
		return err
	}
	if g.JSON {
		return printRaw(con, raw)
	}
	var k shownKeys
	if err := json.Unmarshal(raw, &k); err != nil {
		return err
	}
	w := tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tID\tWHERE OR SINCE\t")
	if k.Master != nil {
		fmt.Fprintf(w, "master\t%s\t%s\t\n", k.Master.ID, k.Master.File)
	}
	for _, s := range k.Signing {
		what := "verifies"
		if s.Signs {
			what = "signs"
		}
		fmt.Fprintf(w, "signing\t%s\t%s\t%s\n", s.KID, s.Created, what)
	}
	return w.Flush()
}

type keyRotate struct {
	Signing bool `help:"The key that signs access tokens; what the old one has signed stays good until it expires."`
}

func (c keyRotate) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	which := "master"
	if c.Signing {
		which = "signing"
	}
	var raw json.RawMessage
	if err := box.call(ctx, http.MethodPost, "/keys/rotate", nil, map[string]string{"key": which}, &raw); err != nil {
		return err
	}
	if g.JSON {
		return printRaw(con, raw)
	}
	var k shownKeys
	if err := json.Unmarshal(raw, &k); err != nil {
		return err
	}
	if c.Signing {
		for _, s := range k.Signing {
			if s.Signs {
				_, err = fmt.Fprintf(con.out, "access tokens are signed by %s from now on\n", s.KID)
			}
		}
		return err
	}
	_, err = fmt.Fprintf(con.out, "secrets are sealed by %s from now on\nCopy %s to where you keep its copy: an older copy opens nothing any more.\n", k.Master.ID, k.Master.File)
	return err
}

type keyRemove struct {
	KID string `arg:"" name:"kid" help:"Id of the signing key, from key list."`
}

func (c keyRemove) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	return box.call(ctx, http.MethodDelete, "/keys/signing/"+url.PathEscape(c.KID), nil, nil, nil)
}
