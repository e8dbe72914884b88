package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"text/tabwriter"
)

type auditCommand struct {
	List   auditList   `cmd:"" help:"Read the audit log, the newest entry first."`
	Verify auditVerify `cmd:"" help:"Check that no entry was changed, removed or exchanged."`
}

type auditList struct {
	From     string `help:"RFC 3339, epoch ms, or relative as -24h." placeholder:"TIME"`
	To       string `help:"The same; exclusive." placeholder:"TIME"`
	Category string `help:"client, user, token, session, setup, setting, key, topic or broker." placeholder:"WORD"`
	ID       string `name:"id" help:"What it was done to." placeholder:"ID"`
	Actor    string `help:"Who did it." placeholder:"NAME"`
	Result   string `enum:",ok,refused,failed" default:"" help:"ok, refused or failed." placeholder:"WORD"`
	Limit    int    `default:"100" help:"At most so many entries."`
}

type shownEntry struct {
	Seq  uint64 `json:"seq"`
	Time string `json:"time"`
	By   struct {
		Kind    string `json:"kind"`
		Name    string `json:"name"`
		Address string `json:"address"`
	} `json:"by"`
	Category string `json:"category"`
	Action   string `json:"action"`
	ID       string `json:"id"`
	Result   string `json:"result"`
	Detail   string `json:"detail"`
}

func (c auditList) Run(ctx context.Context, con console, g *globals) error {
	if c.Limit < 1 {
		return usageError{"--limit " + strconv.Itoa(c.Limit) + " is below 1"}
	}
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	q := url.Values{}
	for name, value := range map[string]string{"from": c.From, "to": c.To, "category": c.Category, "id": c.ID, "actor": c.Actor, "result": c.Result} {
		if value != "" {
			q.Set(name, value)
		}
	}
	all := []json.RawMessage{}
	for {
		q.Set("limit", strconv.Itoa(min(1000, c.Limit-len(all))))
		var page struct {
			Entries []json.RawMessage `json:"entries"`
			Next    string            `json:"next"`
		}
		if err := box.call(ctx, http.MethodGet, "/audit", q, nil, &page); err != nil {
			return err
		}
		all = append(all, page.Entries...)
		if page.Next == "" || len(all) >= c.Limit {
			break
		}
		q.Set("cursor", page.Next)
	}
	if g.JSON {
		return json.NewEncoder(con.out).Encode(map[string]any{"entries": all})
	}
	w := tabwriter.NewWriter(con.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SEQ\tTIME\tBY\tADDRESS\tWHAT\tID\tRESULT\tDETAIL")
	for _, raw := range all {
		var e shownEntry
		if err := json.Unmarshal(raw, &e); err != nil {
			return err
		}
		fmt.Fprintf(w, "%d\t%s\t%s %s\t%s\t%s %s\t%s\t%s\t%s\n", e.Seq, e.Time, e.By.Kind, e.By.Name, e.By.Address, e.Category, e.Action, e.ID, e.Result, e.Detail)
	}
	return w.Flush()
}

type auditVerify struct {
	Expect string `help:"SEQ:HASH noted earlier: that entry must still be there, and the same." placeholder:"SEQ:HASH"`
}

func (c auditVerify) Run(ctx context.Context, con console, g *globals) error {
	box, err := g.connect(con)
	if err != nil {
		return err
	}
	q := url.Values{}
	if c.Expect != "" {
		q.Set("expect", c.Expect)
	}
	var raw json.RawMessage
	if err := box.call(ctx, http.MethodGet, "/audit/verify", q, nil, &raw); err != nil {
		return err
	}
	var v struct {
		OK       bool   `json:"ok"`
		Entries  uint64 `json:"entries"`
		First    uint64 `json:"first"`
		Last     uint64 `json:"last"`
		Hash     string `json:"hash"`
		BrokenAt uint64 `json:"broken_at"`
		Why      string `json:"why"`
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	if g.JSON {
		if err := printRaw(con, raw); err != nil {
			return err
		}
	} else if v.OK {
		if _, err := fmt.Fprintf(con.out, "%d entries, %d to %d: each follows the one before it\nlast %d:%s\n", v.Entries, v.First, v.Last, v.Last, v.Hash); err != nil {
			return err
		}
	}
	if !v.OK {
		return errors.New("the audit log is broken at entry " + strconv.FormatUint(v.BrokenAt, 10) + ": " + v.Why +
			"; the entries before it hold; compare with a backup to see what was there")
	}
	return nil
}
