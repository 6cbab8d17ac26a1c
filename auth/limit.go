package auth

import (
	"crypto/sha256"
	"net/netip"
	"sync"
	"time"
)

// A FailureLimit says how many tokens may fail. Beyond it, requests are answered with the status 429 and their tokens not looked at. Requests without a
// token do not count, nor do those that fail because a scope is missing or an issuer does not answer. The zero FailureLimit has the defaults.
type FailureLimit struct {
	// PerAddress is how many failures one client address may have in a Window, an IPv6 network of 64 bits counting as one address; 0 means 60, less
	// than 0 any number. A token that was good lately is looked at in any case, so that others behind the same address cannot lock its owner out.
	PerAddress int
	// PerToken is how many times the same token is looked at although it is not good, and refused without a look after that; 0 means 10, less than 0 any
	// number. That it is sent again does not count for the address.
	PerToken int
	// Window is in which the failures are counted; 0 means a minute. After it all are forgiven, after a part of it the same part.
	Window time.Duration
}

// maxTracked is how many addresses, tokens that failed and tokens that were good are remembered, each.
const maxTracked = 10_000

// A failureLimiter counts failures.
type failureLimiter struct {
	perAddress, perToken float64 // less than 0: no limit
	window               time.Duration

	mu           sync.Mutex
	addresses    recentCache[netip.Prefix, failureLevel]
	failedTokens recentCache[[sha256.Size]byte, failureLevel]
	goodTokens   recentCache[[sha256.Size]byte, struct{}]
}

// A level is how full a bucket is that loses what it may hold in one window.
type failureLevel struct {
	failures float64
	at       time.Time
}

func newFailureLimiter(o *FailureLimit) *failureLimiter {
	if o == nil {
		o = &FailureLimit{}
	}
	l := &failureLimiter{perAddress: float64(o.PerAddress), perToken: float64(o.PerToken), window: o.Window}
	if o.PerAddress == 0 {
		l.perAddress = 60
	}
	if o.PerToken == 0 {
		l.perToken = 10
	}
	if l.window <= 0 {
		l.window = time.Minute
	}
	l.addresses.max, l.failedTokens.max, l.goodTokens.max = maxTracked, maxTracked, maxTracked
	return l
}

// networkOf returns what counts as one address.
func networkOf(addr netip.Addr) (netip.Prefix, bool) {
	addr = addr.Unmap().WithZone("")
	if !addr.IsValid() {
		return netip.Prefix{}, false
	}
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	p, err := addr.Prefix(bits)
	return p, err == nil
}

// wait returns how long a client has to wait until a token of its is looked at again; 0 if it need not. A token that has failed too often is known to be
// bad: it is not looked at, but the client is to hear that it needs another one, and not that it should come again with this one. Clients with many
// requests under way send a token that has just been revoked with all of them.
func (l *failureLimiter) wait(addr netip.Addr, token [sha256.Size]byte) (_ time.Duration, bad bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if v, ok := l.failedTokens.get(token); ok && l.untilAllowed(v, l.perToken, now) > 0 {
		return 0, true
	}
	if _, ok := l.goodTokens.get(token); ok {
		return 0, false
	}
	if p, ok := networkOf(addr); ok {
		if v, ok := l.addresses.get(p); ok {
			return l.untilAllowed(v, l.perAddress, now), false
		}
	}
	return 0, false
}

// currentLevel returns a level as it is now.
func (l *failureLimiter) currentLevel(v failureLevel, limit float64, now time.Time) float64 {
	return max(v.failures-limit*float64(now.Sub(v.at))/float64(l.window), 0)
}

// untilAllowed returns how long it takes until another failure has room.
func (l *failureLimiter) untilAllowed(v failureLevel, limit float64, now time.Time) time.Duration {
	if limit < 0 {
		return 0
	}
	over := l.currentLevel(v, limit, now) + 1 - limit
	if over <= 1e-6 { // what the division leaves
		return 0
	}
	return max(time.Duration(over/limit*float64(l.window)), 1)
}

// addFailure counts a failure. That the token itself is at fault counts against it; a wrong proof does not, since it may come from someone who has seen the
// token.
func (l *failureLimiter) addFailure(addr netip.Addr, token [sha256.Size]byte, tokenToo bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	_, again := l.failedTokens.get(token) // a token that fails again is no other guess
	if p, ok := networkOf(addr); ok && l.perAddress >= 0 && !(tokenToo && again) {
		v, _ := l.addresses.get(p)
		l.addresses.put(p, failureLevel{l.currentLevel(v, l.perAddress, now) + 1, now})
	}
	if tokenToo {
		l.goodTokens.remove(token)
		if l.perToken >= 0 {
			v, _ := l.failedTokens.get(token)
			l.failedTokens.put(token, failureLevel{l.currentLevel(v, l.perToken, now) + 1, now})
		}
	}
}

// addSuccess remembers a good token.
func (l *failureLimiter) addSuccess(token [sha256.Size]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.goodTokens.get(token); !ok {
		l.goodTokens.put(token, struct{}{})
	}
}

// recentCache is a map that forgets what was not used lately when it has grown too large. It holds at most max entries and never fewer than the max/2 that
// were used last. It has no lock.
type recentCache[K comparable, V any] struct {
	max               int
	current, previous map[K]V // an entry is in one of the two; old goes when now is full
}

func (r *recentCache[K, V]) get(k K) (V, bool) {
	if v, ok := r.current[k]; ok {
		return v, true
	}
	v, ok := r.previous[k]
	if ok {
		r.put(k, v)
	}
	return v, ok
}

func (r *recentCache[K, V]) put(k K, v V) {
	if _, ok := r.current[k]; !ok && len(r.current) >= max(r.max/2, 1) {
		r.current, r.previous = nil, r.current
	}
	if r.current == nil {
		r.current = make(map[K]V)
	}
	delete(r.previous, k)
	r.current[k] = v
}

func (r *recentCache[K, V]) remove(k K) {
	delete(r.current, k)
	delete(r.previous, k)
}
