package web

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"millrace/auth"
)

// AuditFilter are the query parameters of GET /audit. (Exported, because the REST library skips what is not.)
type AuditFilter struct {
	From     string `query:"from" doc:"RFC 3339, epoch ms, or relative as -24h; inclusive"`
	To       string `query:"to" doc:"The same; exclusive"`
	Category string `query:"category" doc:"client, user, token, session, setup, setting, key, topic, broker" maxLength:"64"`
	ID       string `query:"id" doc:"What it was done to" maxLength:"1024"`
	Actor    string `query:"actor" doc:"Name of who did it" maxLength:"128"`
	Result   string `query:"result" enum:"ok,refused,failed" doc:"How it ended"`
	Limit    int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Entries of one page"`
	Cursor   string `query:"cursor" doc:"The next of the page before" maxLength:"32"`
}

func (f *AuditFilter) query(now time.Time) (q auth.AuditQuery, err error) {
	q = auth.AuditQuery{Category: f.Category, ID: f.ID, Actor: f.Actor, Result: f.Result, Limit: f.Limit}
	for _, end := range []struct {
		field, text string
		into        *time.Time
	}{{"from", f.From, &q.From}, {"to", f.To, &q.To}} {
		if end.text == "" {
			continue
		}
		ns, ok := parseMoment(end.text, now)
		if !ok {
			return q, invalid(end.field, end.field+" is no time", "send RFC 3339, milliseconds since 1970, or as -24h")
		}
		*end.into = time.Unix(0, ns)
	}
	if f.Cursor != "" {
		if q.Before, err = strconv.ParseUint(f.Cursor, 36, 64); err != nil || q.Before == 0 {
			return q, invalid("cursor", "the cursor is none of ours", "begin without one")
		}
	}
	return q, nil
}

func (w *Web) addAudit() {
	by := rule{role: auth.RoleAdmin}
	type auditOut struct {
		Body struct {
			Entries []auth.Entry `json:"entries" doc:"The newest first"`
			Next    string       `json:"next" doc:"Cursor of the next page, or empty; a page may hold fewer than limit and yet not be the last"`
		} `nameHint:"AuditPage"`
	}
	register(w, route{method: http.MethodGet, path: "/audit", id: "list-audit", tag: "Audit", rule: by, summary: "Read the audit log",
		doc: "Who changed what, who signed in and who tried to. Every entry holds the hash of the one before it."},
		func(ctx context.Context, _ *caller, in *AuditFilter) (*auditOut, error) {
			q, err := in.query(w.now())
			if err != nil {
				return nil, err
			}
			if err := w.reads.enter(ctx); err != nil {
				return nil, err
			}
			defer w.reads.leave()
			list, next, err := w.parts.Book.Audit(q)
			if err != nil {
				return nil, err
			}
			out := &auditOut{}
			out.Body.Entries = append([]auth.Entry{}, list...)
			if next > 0 {
				out.Body.Next = strconv.FormatUint(next, 36)
			}
			return out, nil
		})

	type verifyIn struct {
		Expect string `query:"expect" doc:"SEQ:HASH noted earlier: that entry must still be there, and the same" maxLength:"128"`
	}
	type verifyOut struct{ Body auth.Verified }
	register(w, route{method: http.MethodGet, path: "/audit/verify", id: "verify-audit", tag: "Audit", rule: by, summary: "Check the audit log",
		doc: "Walks the whole log and names the first entry that does not fit the one before it."},
		func(ctx context.Context, _ *caller, in *verifyIn) (*verifyOut, error) {
			var seq uint64
			text, hash, ok := strings.Cut(in.Expect, ":")
			if in.Expect != "" {
				var err error
				if seq, err = strconv.ParseUint(text, 10, 64); err != nil || seq == 0 || !ok {
					return nil, invalid("expect", "expect is not SEQ:HASH", "send what an earlier check gave as last and hash, as in 12:9f86…")
				}
			}
			if err := w.reads.enter(ctx); err != nil {
				return nil, err
			}
			defer w.reads.leave()
			v, err := w.parts.Book.VerifyAgainst(seq, hash)
			return &verifyOut{v}, err
		})
}
