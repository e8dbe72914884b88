package auth

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"millrace/historian/kv"
)

// Book holds every API client and token, all of them in memory and each change in the record store before it counts. Safe
// for concurrent use; reading never waits for a disk.
type Book struct {
	o       Options
	log     *slog.Logger
	records Records
	hash    *hasher
	key     []byte // of hash
	// unsealed: something was stored without a vault
	unsealed bool
	metrics  *metrics
	nobody   *entry // whom a sign-in of an unknown id is compared with

	passwords *passwords
	lock      *lockout
	audit     chain
	tallies   tallies
	setUp     setUp

	change sync.Mutex   // held over a whole change, its fsync included; taken before mu
	mu     sync.RWMutex // guards what is below; never held over a write
	// Written with both locks held: a holder of either may read.
	clients  map[string]*entry
	tokens   map[digest]*token
	signing  map[string]*signingKey // by kid
	users    map[string]*account    // by folded name
	sessions map[digest]*session
	plant    string
	closed   bool
}

// Open reads all clients and tokens. The store stays the caller's and must outlive the Book. A store without a key gets one.
// A record that is newer than this program or damaged is an error of one line.
func Open(store Records, o Options) (*Book, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.Workspaces = slices.Clone(o.Workspaces)
	b := &Book{
		o: o, log: o.Log.With("part", "auth"), records: store,
		clients: map[string]*entry{}, tokens: map[digest]*token{}, signing: map[string]*signingKey{}, nobody: &entry{},
		users: map[string]*account{}, sessions: map[digest]*session{}, lock: newLockout(o.Now),
	}
	o.Random(b.nobody.hash[:])
	for _, read := range []func() error{b.readClients, b.readUsers, b.readTokens, b.readSigning, b.readSessions, b.readPlant, b.readAudit} {
		if err := read(); err != nil {
			return nil, err
		}
	}
	key, err := b.readKey()
	if err != nil {
		return nil, err
	}
	b.key, b.hash = key, newHasher(key)
	if b.metrics, err = newMetrics(o.Registry); err != nil {
		return nil, fmt.Errorf("auth: metrics: %w", err)
	}
	b.passwords = newPasswords(o.Random, b.metrics)
	b.metrics.clients.Set(float64(len(b.clients)))
	b.metrics.users.Set(float64(len(b.users)))
	b.metrics.sessions.Set(float64(len(b.sessions)))
	head := b.audit.now()
	b.metrics.auditBytes.Set(float64(head.Bytes))
	if err := b.sealOld(); err != nil {
		b.metrics.release()
		return nil, err
	}
	b.setUp.prepare(o.Random, b.hasAdmin())
	b.log.Info("opened", "clients", len(b.clients), "tokens", len(b.tokens), "users", len(b.users), "audit_last", head.Last, "audit_hash", head.Hash)
	return b, nil
}

// Close ends the Book: changes give ErrClosed from now on and nobody signs in. Policies held by sessions stay as they are.
// The store is not closed. Closing twice is fine.
func (b *Book) Close() error {
	b.change.Lock()
	defer b.change.Unlock()
	if b.closed {
		return nil
	}
	err := b.settle()
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.metrics.release()
	return err
}

// Clients lists all clients by id.
func (b *Book) Clients() []Client {
	b.mu.RLock()
	entries := make([]*entry, 0, len(b.clients))
	for _, e := range b.clients {
		entries = append(entries, e)
	}
	b.mu.RUnlock()
	slices.SortFunc(entries, func(x, y *entry) int { return strings.Compare(x.client.ID, y.client.ID) })
	list := make([]Client, len(entries))
	for i, e := range entries {
		list[i] = e.client.clone()
	}
	return list
}

// Client returns one client, or ErrNotFound.
func (b *Book) Client(id string) (Client, error) {
	b.mu.RLock()
	e, ok := b.clients[id]
	b.mu.RUnlock()
	if !ok {
		return Client{}, ErrNotFound
	}
	return e.client.clone(), nil
}

// readClients fills clients from the store.
func (b *Book) readClients() error {
	strangers := 0
	err := b.scan(clientPrefix, func(key string, value []byte) error {
		var r clientRecord
		if err := decode(key, value, &r); err != nil {
			return err
		}
		if err := r.check(key); err != nil {
			return err
		}
		if !slices.Contains(b.o.Workspaces, r.Workspace) {
			strangers++
		}
		e := entryOf(&r)
		e.enter()
		b.clients[r.ID] = e
		return nil
	})
	if strangers > 0 {
		b.log.Warn("clients belong to workspaces that are not configured", "clients", strangers, "setting", "uns.workspaces")
	}
	return err
}

// readTokens fills tokens from the store.
func (b *Book) readTokens() error {
	return b.scan(tokenPrefix, func(key string, value []byte) error {
		var r tokenRecord
		if err := decode(key, value, &r); err != nil {
			return err
		}
		if err := r.check(key); err != nil {
			return err
		}
		t := &token{
			Token: Token{ID: r.ID, Name: r.Name, Owner: r.Owner, Role: r.Role, Metrics: r.Metrics || r.Scoped == 0, Created: r.Created, Expires: r.Expires},
			hash:  digest(r.Hash),
		}
		b.standFor(t)
		b.tokens[t.hash] = t
		return nil
	})
}

// readKey returns the key of all hashes and makes it in an empty store.
func (b *Book) readKey() ([]byte, error) {
	value, ok, err := b.records.Get([]byte(keyRecord))
	if err != nil {
		return nil, fmt.Errorf("auth: reading the key of the hashes: %w", err)
	}
	if !ok {
		return b.makeKey()
	}
	var r boxKey
	if err := decode(keyRecord, value, &r); err != nil {
		return nil, err
	}
	b.unsealed = b.unsealed || r.Seal == ""
	if r.Key, err = b.openSealed(r.Seal, keyRecord, r.Key); err != nil {
		return nil, err
	}
	if len(r.Key) != keySize {
		return nil, damaged(keyRecord, fmt.Errorf("the key has %d bytes instead of %d", len(r.Key), keySize))
	}
	return r.Key, nil
}

func (b *Book) makeKey() ([]byte, error) {
	// A new key would silently void every secret there is.
	if n := len(b.clients) + len(b.tokens) + len(b.sessions); n > 0 {
		return nil, fmt.Errorf("auth: record %q is missing while %d clients and tokens need it: restore a backup", keyRecord, n)
	}
	key := make([]byte, keySize)
	b.o.Random(key)
	op, err := b.keyOp(nil, key)
	if err != nil {
		return nil, err
	}
	return key, b.apply([]kv.Op{op})
}

// scan calls fn for every record under prefix until one gives an error.
func (b *Book) scan(prefix string, fn func(key string, value []byte) error) error {
	var failed error
	err := b.records.Scan([]byte(prefix), func(key, value []byte) bool {
		failed = fn(string(key), value)
		return failed == nil
	})
	if failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("auth: reading records under %q: %w", prefix, err)
	}
	return nil
}

func (b *Book) apply(ops []kv.Op) error {
	if err := b.records.Apply(ops...); err != nil {
		return fmt.Errorf("auth: storing the change: %w", err)
	}
	return nil
}
