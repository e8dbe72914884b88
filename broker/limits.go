package broker

import (
	"net/netip"
	"sync"
	"time"
)

// limits keeps one peer from costing the others: connections a second per door, and bans of a minute for client
// identifiers that flap and for sources that guess.
type limits struct {
	flapping tallies // take-overs and protocol errors, by API client and MQTT client identifier
	signIn   tallies // failed sign-ins, by source address and the client named
}

const (
	tallyWindow = time.Minute
	tallyParts  = 6 // of the window, each counted for itself
	banTime     = time.Minute
	maxTallies  = 16384 // rows of one table, some 2 MB
	tallySample = 8     // rows looked at for one to displace
	fewestTold  = 100   // connections a second beyond the rate that are at least told why
)

// tallyKey names who is counted. Both halves matter: a peer can name another's half, not both.
type tallyKey struct{ of, id string }

// tally counts one key's events over the last minute.
type tally struct {
	part   int64 // number of the newest part of the window
	counts [tallyParts]uint32
	until  int64 // ns, end of the ban; 0 = none
}

// tallies is one bounded table of them. When it is full, the row of a few that was touched longest ago makes room; a ban is
// never displaced. Safe for concurrent use; mu is a leaf.
type tallies struct {
	most uint32 // events in a minute that begin a ban; 0 = off

	mu        sync.Mutex
	rows      map[tallyKey]*tally
	bans      int
	begun     uint64
	displaced uint64
}

func (t *tallies) init(most int) {
	t.most, t.rows = uint32(most), map[tallyKey]*tally{}
}

func partOf(now time.Time) int64 { return now.UnixNano() / int64(tallyWindow/tallyParts) }

// banned says whether the key is banned now.
func (t *tallies) banned(k tallyKey, now time.Time) bool {
	if t.most == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	row := t.rows[k]
	if row == nil || row.until == 0 {
		return false
	}
	if left := row.until - now.UnixNano(); left > 0 && left <= int64(banTime) { // more: the clock was set back
		return true
	}
	t.bans--
	delete(t.rows, k)
	return false
}

// note counts an event; begins says that it began a ban.
func (t *tallies) note(k tallyKey, now time.Time) (begins bool) {
	if t.most == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	row := t.rows[k]
	if row == nil {
		if len(t.rows) >= maxTallies && !t.displace() {
			return false
		}
		row = &tally{part: partOf(now)}
		t.rows[k] = row
	}
	if row.until != 0 {
		return false
	}
	row.turn(partOf(now))
	row.counts[row.part%tallyParts]++
	sum := uint32(0)
	for _, n := range row.counts {
		sum += n
	}
	if sum < t.most {
		return false
	}
	row.until = now.Add(banTime).UnixNano()
	t.bans++
	t.begun++
	return true
}

// turn forgets what has left the window.
func (r *tally) turn(part int64) {
	if part-r.part >= tallyParts || part < r.part { // all of it, or the clock was set back
		r.counts = [tallyParts]uint32{}
		r.part = part
	}
	for r.part < part {
		r.part++
		r.counts[r.part%tallyParts] = 0
	}
}

// displace makes room for one row. The caller holds mu.
func (t *tallies) displace() bool {
	var oldest tallyKey
	found, at, looked := false, int64(0), 0
	for k, row := range t.rows { // in random order
		if row.until == 0 && (!found || row.part < at) {
			found, oldest, at = true, k, row.part
		}
		if looked++; looked >= tallySample && found {
			break
		}
	}
	if found {
		delete(t.rows, oldest)
		t.displaced++
	}
	return found
}

// sweep drops the rows that say nothing any more.
func (t *tallies) sweep(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	part, ns := partOf(now), now.UnixNano()
	for k, row := range t.rows {
		switch {
		case row.until != 0 && row.until <= ns:
			t.bans--
			delete(t.rows, k)
		case row.until == 0 && part-row.part >= tallyParts:
			delete(t.rows, k)
		}
	}
}

// tallyFigures are what metrics show of a table.
type tallyFigures struct {
	rows, bans       int
	begun, displaced uint64
}

func (t *tallies) figures() tallyFigures {
	t.mu.Lock()
	defer t.mu.Unlock()
	return tallyFigures{len(t.rows), t.bans, t.begun, t.displaced}
}

// sourceOf is what a peer's address counts as: its host, and of IPv6 the network a site has to itself.
func sourceOf(address string) string {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return address // a Unix socket
	}
	host := at.Addr().Unmap()
	if host.Is6() {
		if net, err := host.WithZone("").Prefix(64); err == nil {
			return net.String()
		}
	}
	return host.String()
}

// gate is a bucket of connections that fills with rate per second and holds one second's worth.
type gate struct {
	rate  float64 // 0 = always open
	mu    sync.Mutex
	level float64
	at    time.Time
}

func newGate(rate int) *gate { return &gate{rate: float64(rate), level: float64(rate)} }

// pass takes one from the bucket.
func (g *gate) pass(now time.Time) bool {
	if g.rate == 0 {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if since := now.Sub(g.at).Seconds(); since > 0 {
		g.level = min(g.rate, g.level+since*g.rate)
	}
	g.at = now
	if g.level < 1 {
		return false
	}
	g.level--
	return true
}

// knocked is what a door says to one more connection.
type knocked int

const (
	knockEnter  knocked = iota
	knockTold           // it is told at its CONNECT, which costs no sign-in
	knockClosed         // not even that
)

// knock asks the door's gates. A TLS connection beyond the rate is closed before its handshake, which is what a storm would
// cost; a stream's peer is told over HTTP.
func (d *door) knock(now time.Time) knocked {
	switch {
	case d.enter.pass(now):
		return knockEnter
	case d.kind == doorTCP && d.tell.pass(now):
		return knockTold
	}
	return knockClosed
}

// noteFlap counts a protocol error of a client identifier; a take-over is counted where it happens.
func (b *Broker) noteFlap(client, id string) {
	if b.limits.flapping.note(tallyKey{client, id}, b.now()) {
		b.logFlap(client, id)
	}
}

func (b *Broker) logFlap(client, id string) {
	b.log.Warn("a client identifier is banned for a minute: too many take-overs and protocol errors; do two devices use it?",
		"client", client, "mqtt_id", id)
}

// noteFailure counts a failed sign-in.
func (b *Broker) noteFailure(k tallyKey) {
	if b.limits.signIn.note(k, b.now()) {
		b.log.Warn("a source is banned for a minute from signing in as this client: too many failures", "source", k.of, "client", k.id)
	}
}

// sweepTallies is called by the watchdog.
func (b *Broker) sweepTallies(now time.Time) {
	last, ns := b.swept.Load(), now.UnixNano()
	if since := ns - last; since >= 0 && since < int64(tallyWindow/tallyParts) || !b.swept.CompareAndSwap(last, ns) {
		return
	}
	b.limits.flapping.sweep(now)
	b.limits.signIn.sweep(now)
}

// flaps are the ends that say a device and the box do not understand each other.
func flaps(code byte) bool {
	switch code {
	case codeMalformed, codeProtocol, codeAliasInvalid, codeTooLarge, codeTooMany:
		return true
	}
	return false
}

// SignInBanned says whether sign-ins as a client from that peer are refused at present, whatever the protocol.
func (b *Broker) SignInBanned(address, client string) bool {
	return b.limits.signIn.banned(tallyKey{sourceOf(address), client}, b.now())
}

// SignInFailed counts a sign-in that failed elsewhere.
func (b *Broker) SignInFailed(address, client string) {
	b.noteFailure(tallyKey{sourceOf(address), client})
}
