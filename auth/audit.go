package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"millrace/historian/kv"
)

// The audit log: who changed what and who signed in. Entries are numbered without gaps and each holds the hash of the one
// before it, so that a changed, missing or exchanged entry shows. An entry is written in the same batch as its change: there
// is neither a change without its entry nor an entry without its change, also after a kill.

const (
	auditPrefix = "auth/audit/"
	auditHead   = "auth/audit-head"
	// maxAuditState bounds Before and After of one entry; what is larger is kept as its hash and size.
	maxAuditState = 16 << 10
	// maxAuditText bounds the texts of one entry.
	maxAuditText = 512
)

// Kinds of actors.
const (
	ByUser   = "user"   // a person by session cookie or password
	ByToken  = "token"  // a personal access token
	ByClient = "client" // an API client
	ByLocal  = "local"  // the admin socket
	ByBox    = "box"    // the box itself
	ByNobody = "nobody" // not signed in
)

// Actor is the source of an entry: who, and from where.
type Actor struct {
	Kind    string `json:"kind" doc:"user, token, client, local (the admin socket), box or nobody"`
	Name    string `json:"name,omitempty" doc:"Of the user or client; of the token where it belongs to no user"`
	Token   string `json:"token,omitempty" doc:"Id of the personal access token the call came with"`
	Address string `json:"address,omitempty" doc:"Where the call came from"`
}

// Results of what an entry tells of.
const (
	ResultOK      = "ok"
	ResultRefused = "refused"
	ResultFailed  = "failed"
)

// Event is what an entry tells of. Before and After are marshalled as JSON and must hold no secret; nil leaves them out.
type Event struct {
	Category string // client, user, token, session, setup, key, topic, broker, setting …
	Action   string
	ID       string
	Result   string // ResultOK when empty
	Detail   string
	Before   any
	After    any

	by *Actor // where it is another's than the commit's
}

// Entry is one line of the audit log.
type Entry struct {
	Seq      uint64          `json:"seq" doc:"Place in the log, without gaps"`
	Time     time.Time       `json:"time"`
	By       Actor           `json:"by" doc:"Who did it, and from where"`
	Category string          `json:"category" doc:"client, user, token, session, setup, key, topic, broker …"`
	Action   string          `json:"action" doc:"What was done"`
	ID       string          `json:"id,omitempty" doc:"What it was done to"`
	Result   string          `json:"result" doc:"ok, refused or failed"`
	Detail   string          `json:"detail,omitempty"`
	Before   json.RawMessage `json:"before,omitempty" doc:"As it was, without secrets"`
	After    json.RawMessage `json:"after,omitempty" doc:"As it is now, without secrets"`
	Prev     string          `json:"prev" doc:"Hash of the entry before, SHA-256 in hex"`
	Hash     string          `json:"hash,omitempty" doc:"Hash of this entry"`
}

// auditRecord is an entry as stored: Body is what Hash is of, byte for byte.
type auditRecord struct {
	Version int             `json:"version"`
	Hash    string          `json:"hash"`
	Body    json.RawMessage `json:"body"`
}

// headRecord is where the log begins and ends. Anchor is the hash of the last entry that was let go, so that the first one
// kept still has something to hold on to.
type headRecord struct {
	Version int    `json:"version"`
	First   uint64 `json:"first"`
	Anchor  string `json:"anchor"`
	Last    uint64 `json:"last"` // First-1: empty
	Hash    string `json:"hash"`
	Bytes   int64  `json:"bytes"`
}

// chain is the log's state in memory. It is written by holders of Book.change only; mu lets others read.
type chain struct {
	mu   sync.Mutex
	head headRecord
}

func (c *chain) now() headRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.head
}

func auditKey(seq uint64) string { return fmt.Sprintf("%s%016x", auditPrefix, seq) }

var noHash = strings.Repeat("0", 2*sha256.Size)

// cut shortens a text of a peer to what an entry holds.
func cut(text string) string {
	if len(text) > maxAuditText {
		text = text[:maxAuditText] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// state is before or after as an entry keeps it.
func state(v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	text, err := json.Marshal(v)
	if err != nil || len(text) <= maxAuditState {
		return text, err
	}
	sum := sha256.Sum256(text)
	return json.Marshal(map[string]any{"bytes": len(text), "sha256": hex.EncodeToString(sum[:])})
}

// entries makes the operations that append events, and the head as it is after them. The caller holds change.
func (b *Book) entries(by Actor, events []Event) (ops []kv.Op, head headRecord, err error) {
	head = b.audit.now()
	now := b.o.Now().UTC().Truncate(time.Millisecond)
	for _, ev := range events {
		by := by
		if ev.by != nil {
			by = *ev.by
		}
		by.Name, by.Address = cut(by.Name), cut(by.Address)
		if ev.Result == "" {
			ev.Result = ResultOK
		}
		e := Entry{Seq: head.Last + 1, Time: now, By: by, Category: ev.Category, Action: ev.Action, ID: cut(ev.ID),
			Result: ev.Result, Detail: cut(ev.Detail), Prev: head.Hash}
		if e.Before, err = state(ev.Before); err != nil {
			return nil, head, fmt.Errorf("auth: audit of %s %s: %w", ev.Category, ev.Action, err)
		}
		if e.After, err = state(ev.After); err != nil {
			return nil, head, fmt.Errorf("auth: audit of %s %s: %w", ev.Category, ev.Action, err)
		}
		body, err := json.Marshal(e)
		if err != nil {
			return nil, head, fmt.Errorf("auth: audit of %s %s: %w", ev.Category, ev.Action, err)
		}
		sum := sha256.Sum256(body)
		op, err := set(auditKey(e.Seq), auditRecord{Version: recordVersion, Hash: hex.EncodeToString(sum[:]), Body: body})
		if err != nil {
			return nil, head, err
		}
		ops = append(ops, op)
		head.Last, head.Hash, head.Bytes = e.Seq, hex.EncodeToString(sum[:]), head.Bytes+int64(len(op.Value))
	}
	// The oldest entries go. Those of this very batch stay, however small the bound.
	for head.Bytes > b.o.Audit.MaxBytes && head.First+uint64(len(events)) <= head.Last {
		key := auditKey(head.First)
		value, ok, err := b.records.Get([]byte(key))
		if err != nil {
			return nil, head, fmt.Errorf("auth: reading %q: %w", key, err)
		}
		var r auditRecord
		if ok && json.Unmarshal(value, &r) == nil {
			head.Anchor = r.Hash
		}
		ops = append(ops, remove(key))
		head.First, head.Bytes = head.First+1, head.Bytes-int64(len(value))
	}
	op, err := set(auditHead, head)
	return append(ops, op), head, err
}

// commit stores ops and, in the same write, the entries that tell of them. The caller holds change.
func (b *Book) commit(by Actor, ops []kv.Op, events ...Event) error {
	more, head, err := b.entries(by, events)
	if err != nil {
		return err
	}
	if err := b.apply(append(ops[:len(ops):len(ops)], more...)); err != nil {
		return err
	}
	b.audit.mu.Lock()
	b.audit.head = head
	b.audit.mu.Unlock()
	b.metrics.audited.Add(float64(len(events)))
	b.metrics.auditBytes.Set(float64(head.Bytes))
	return nil
}

// note appends events that stand alone.
func (b *Book) note(by Actor, events ...Event) error {
	b.change.Lock()
	defer b.change.Unlock()
	if b.closed {
		return ErrClosed
	}
	return b.commit(by, nil, events...)
}

// readAudit finds the ends of the log. Without a readable head they are looked for: the log must go on, and Verify will say.
func (b *Book) readAudit() error {
	b.audit.head = headRecord{Version: recordVersion, First: 1, Anchor: noHash, Hash: noHash}
	value, ok, err := b.records.Get([]byte(auditHead))
	if err != nil {
		return fmt.Errorf("auth: reading the head of the audit log: %w", err)
	}
	if ok {
		return decode(auditHead, value, &b.audit.head)
	}
	found := 0
	head := &b.audit.head
	err = b.scan(auditPrefix, func(key string, value []byte) error {
		var r auditRecord
		var seq uint64
		if _, err := fmt.Sscanf(key[len(auditPrefix):], "%x", &seq); err != nil {
			return damaged(key, err)
		}
		if err := decode(key, value, &r); err != nil {
			return err
		}
		if found++; found == 1 {
			head.First = seq
		}
		head.Last, head.Hash, head.Bytes = seq, r.Hash, head.Bytes+int64(len(value))
		return nil
	})
	if found > 0 {
		b.log.Warn("the head of the audit log was missing; it goes on after the last entry found", "entries", found, "check", "millrace audit verify")
	}
	return err
}

// AuditQuery asks for entries. Zero fields admit everything.
type AuditQuery struct {
	From, To             time.Time // inclusive, exclusive
	Category, ID, Result string
	Actor                string // name of the actor
	Before               uint64 // entries below this number; 0: from the newest
	Limit                int    // at most this many, 1,000 when 0
}

// auditLook is how many entries one page looks at.
const auditLook = 20_000

func (q *AuditQuery) takes(e *Entry) bool {
	return (q.From.IsZero() || !e.Time.Before(q.From)) && (q.To.IsZero() || e.Time.Before(q.To)) &&
		(q.Category == "" || q.Category == e.Category) && (q.ID == "" || q.ID == e.ID) &&
		(q.Result == "" || q.Result == e.Result) && (q.Actor == "" || q.Actor == e.By.Name)
}

// Audit lists entries, the newest first. next is the Before of the next page, 0 when there is none; a page may be short, even
// empty, when few of the entries looked at match.
func (b *Book) Audit(q AuditQuery) (list []Entry, next uint64, err error) {
	if q.Limit <= 0 || q.Limit > 1000 {
		q.Limit = 1000
	}
	head := b.audit.now()
	seq := head.Last
	if q.Before > 0 && q.Before <= seq {
		seq = q.Before - 1
	}
	for looked := 0; seq >= head.First && seq > 0; seq-- {
		if looked++; looked > auditLook || len(list) == q.Limit {
			return list, seq + 1, nil
		}
		e, err := b.entry(seq)
		if errors.Is(err, errNoEntry) {
			continue // rotated away meanwhile; what is missing otherwise, Verify names
		}
		if err != nil {
			return nil, 0, err
		}
		if !q.From.IsZero() && e.Time.Before(q.From.Add(-time.Hour)) {
			return list, 0, nil // the clock may have stepped back a little, not for ever
		}
		if q.takes(&e) {
			list = append(list, e)
		}
	}
	return list, 0, nil
}

var errNoEntry = errors.New("auth: no such audit entry")

func (b *Book) entry(seq uint64) (e Entry, err error) {
	key := auditKey(seq)
	value, ok, err := b.records.Get([]byte(key))
	if err != nil {
		return e, fmt.Errorf("auth: reading %q: %w", key, err)
	}
	if !ok {
		return e, errNoEntry
	}
	var r auditRecord
	if err := decode(key, value, &r); err != nil {
		return e, err
	}
	if err := json.Unmarshal(r.Body, &e); err != nil {
		return e, damaged(key, err)
	}
	e.Hash = r.Hash
	return e, nil
}

// Verified is the outcome of checking the audit log.
type Verified struct {
	OK      bool   `json:"ok"`
	Entries uint64 `json:"entries" doc:"Entries checked"`
	First   uint64 `json:"first" doc:"Number of the first entry kept"`
	Last    uint64 `json:"last" doc:"Number of the last one"`
	Hash    string `json:"hash" doc:"Hash of the last one: noted elsewhere, it shows later that nothing was cut off"`
	// BrokenAt is the first entry that does not fit, 0: all fit.
	BrokenAt uint64 `json:"broken_at,omitempty" doc:"The first entry that does not fit"`
	Why      string `json:"why,omitempty" doc:"What is wrong with it"`
}

// Verify walks the whole log from its anchor and finds the first entry that does not fit. Changes go on meanwhile; what they
// append is not looked at.
func (b *Book) Verify() (Verified, error) { return b.VerifyAgainst(0, "") }

// VerifyAgainst is Verify, and entry seq must have the hash that was noted elsewhere: with that, a log that was cut off and
// written anew shows, too. An entry that has been let go since cannot be compared and counts as fitting. seq 0: nothing was noted.
func (b *Book) VerifyAgainst(seq uint64, hash string) (Verified, error) {
	v, err := b.verify(seq, hash)
	if err == nil && v.OK && seq > v.Last {
		v.OK, v.BrokenAt, v.Why = false, v.Last+1, "the log once had more entries: its end was cut off"
	}
	return v, err
}

func (b *Book) verify(noted uint64, hash string) (v Verified, err error) {
	head := b.audit.now()
	v = Verified{First: head.First, Last: head.Last, Hash: head.Hash}
	prev := head.Anchor
	broken := func(seq uint64, format string, args ...any) (Verified, error) {
		v.BrokenAt, v.Why = seq, fmt.Sprintf(format, args...)
		return v, nil
	}
	for seq := head.First; seq <= head.Last; seq++ {
		key := auditKey(seq)
		value, ok, err := b.records.Get([]byte(key))
		if err != nil {
			return v, fmt.Errorf("auth: reading %q: %w", key, err)
		}
		if !ok {
			if now := b.audit.now(); seq < now.First {
				seq, prev, v.First = now.First-1, now.Anchor, now.First // let go while we walked
				continue
			}
			return broken(seq, "the entry is missing")
		}
		var r auditRecord
		if err := json.Unmarshal(value, &r); err != nil {
			return broken(seq, "the record cannot be read: %v", err)
		}
		sum := sha256.Sum256(r.Body)
		var e Entry
		switch {
		case hex.EncodeToString(sum[:]) != r.Hash:
			return broken(seq, "the entry was changed: its hash is another")
		case json.Unmarshal(r.Body, &e) != nil || e.Seq != seq:
			return broken(seq, "the entry is another than its place says")
		case e.Prev != prev:
			return broken(seq, "the entry does not follow the one before it")
		case seq == noted && r.Hash != hash:
			return broken(seq, "the entry is another than the one that was noted")
		}
		prev = r.Hash
		v.Entries++
	}
	if prev != head.Hash {
		return broken(head.Last, "the last entry is another than the head of the log says")
	}
	v.OK = true
	return v, nil
}
