package auth

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// Guessing is slowed per account and source: who guesses at one account from one address waits longer and longer, and the
// account's owner, elsewhere, does not notice. A source that fails with many accounts waits with all of them.
const (
	freeTries       = 5                // failures of an account from one source before it waits
	freeSourceTries = 50               // failures of a source, over all accounts
	firstWait       = 2 * time.Second  // doubled by every further failure
	longestWait     = 15 * time.Minute // of an account and source
	forgetAfter     = time.Hour        // without a further failure
	maxTries        = 16_384           // pairs and sources remembered; full: one touched long ago goes
)

// LockedError says that a sign-in was not looked at, and when it will be.
type LockedError struct{ Wait time.Duration }

// Error implements error.
func (e *LockedError) Error() string {
	return fmt.Sprintf("auth: too many failed sign-ins: try again in %s", e.Wait.Round(time.Second))
}

type try struct{ account, source string } // account "": the source over all accounts

type tries struct {
	n     int
	last  time.Time
	until time.Time
}

// lockout counts failed sign-ins of people. Safe for concurrent use.
type lockout struct {
	now func() time.Time
	mu  sync.Mutex
	of  map[try]*tries
}

func newLockout(now func() time.Time) *lockout { return &lockout{now: now, of: map[try]*tries{}} }

// sourceOf is whom failures from an address are counted against: the host, and of IPv6 its network of 64 bits.
func sourceOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if ip := net.ParseIP(host); ip != nil && ip.To4() == nil {
		return ip.Mask(net.CIDRMask(64, 128)).String()
	}
	return host
}

// shared says that many people may come from a source, so that it is not made to wait as a whole: a proxy on this machine.
func shared(source string) bool {
	ip := net.ParseIP(source)
	return ip == nil || ip.IsLoopback()
}

// enter counts an attempt as failed before it is looked at, so that a hundred at once are not a hundred for free. wait above
// zero: it must not be looked at. After success, call forget.
func (l *lockout) enter(account, address string) (wait time.Duration) {
	source := sourceOf(address)
	keys := []try{{account, source}}
	if !shared(source) {
		keys = append(keys, try{"", source})
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	for _, k := range keys {
		t := l.of[k]
		if t == nil {
			continue
		}
		if now.Sub(t.last) > forgetAfter && now.After(t.until) {
			delete(l.of, k)
			continue
		}
		wait = max(wait, t.until.Sub(now))
	}
	if wait > 0 {
		return wait
	}
	for i, k := range keys {
		t := l.of[k]
		if t == nil {
			l.makeRoom()
			t = &tries{}
			l.of[k] = t
		}
		t.n, t.last = t.n+1, now
		free := freeTries
		if i == 1 {
			free = freeSourceTries
		}
		if over := t.n - free; over >= 0 {
			t.until = now.Add(backOff(over))
		}
	}
	return 0
}

// backOff doubles with every failure over the free ones.
func backOff(over int) time.Duration {
	if over > 20 {
		return longestWait
	}
	return min(firstWait<<over, longestWait)
}

// forget is called after a success: the account is its owner's from there, and the source has one failure less.
func (l *lockout) forget(account, address string) {
	source := sourceOf(address)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.of, try{account, source})
	if t := l.of[try{"", source}]; t != nil {
		if t.n--; t.n < freeSourceTries {
			t.until = time.Time{}
		}
	}
}

// withdraw takes an attempt back that was not looked at after all.
func (l *lockout) withdraw(account, address string) {
	source := sourceOf(address)
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, free := range map[try]int{{account, source}: freeTries, {"", source}: freeSourceTries} {
		if t := l.of[k]; t != nil {
			if t.n--; t.n < free {
				t.until = time.Time{}
			}
		}
	}
}

// forgive lets an account be tried again from everywhere: an administrator has given it a new password.
func (l *lockout) forgive(account string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.of {
		if k.account == account {
			delete(l.of, k)
		}
	}
}

// makeRoom drops one entry when there are too many: of some at random, the one touched longest ago.
func (l *lockout) makeRoom() {
	if len(l.of) < maxTries {
		return
	}
	var oldest try
	looked := 0
	for k, t := range l.of {
		if looked == 0 || t.last.Before(l.of[oldest].last) {
			oldest = k
		}
		if looked++; looked == 64 {
			break
		}
	}
	delete(l.of, oldest)
}
