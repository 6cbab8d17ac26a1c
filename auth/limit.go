package auth

import (
	"cmp"
	"crypto/sha256"
	"net/netip"
	"sync"
	"time"

	"mcpwire/internal/base/defaults"
)

// A FailureLimit limits how many tokens may fail. Beyond it, requests are answered with status 429
// without checking their tokens. Requests without a token do not count, nor do failures because of
// a missing scope or an unavailable issuer. The zero FailureLimit means the defaults.
type FailureLimit struct {
	// PerAddress limits the failures of one client address in a Window. An IPv6 network of 64 bits
	// counts as one address. Zero means 60, negative means unlimited. A recently valid token is
	// always checked, so that others behind the same address cannot lock its owner out.
	PerAddress int
	// PerToken limits how often the same invalid token is checked; after that it is rejected
	// unchecked. Zero means 10, negative means unlimited. Repetitions do not count for the address.
	PerToken int
	// Window is the period for counting failures. Zero means a minute. Failures expire gradually
	// over the Window.
	Window time.Duration
}

// maxTracked limits each of the remembered addresses, failed tokens and valid tokens.
const maxTracked = 10_000

// A failureLimiter counts failures.
type failureLimiter struct {
	// perAddress and perToken are negative for no limit.
	perAddress, perToken float64
	window               time.Duration

	mu           sync.Mutex
	addresses    recentCache[netip.Prefix, failureLevel]
	failedTokens recentCache[[sha256.Size]byte, failureLevel]
	goodTokens   recentCache[[sha256.Size]byte, struct{}]
}

// A failureLevel is the level of a leaky bucket that drains its capacity in one window.
type failureLevel struct {
	failures float64
	at       time.Time
}

func newFailureLimiter(o *FailureLimit) *failureLimiter {
	if o == nil {
		o = &FailureLimit{}
	}
	l := &failureLimiter{perAddress: float64(cmp.Or(o.PerAddress, 60)), perToken: float64(cmp.Or(o.PerToken, 10)), window: o.Window}
	defaults.IfNotPositive(&l.window, time.Minute)
	l.addresses.max, l.failedTokens.max, l.goodTokens.max = maxTracked, maxTracked, maxTracked
	return l
}

// networkOf returns the network that counts as one address.
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

// wait returns how long a client must wait until its token is checked again, or 0. bad means that
// the token has failed too often: it is not checked, and the client should learn that it needs
// another one. Clients with many concurrent requests send a revoked token with all of them.
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

// currentLevel returns the level at the time now.
func (l *failureLimiter) currentLevel(v failureLevel, limit float64, now time.Time) float64 {
	return max(v.failures-limit*float64(now.Sub(v.at))/float64(l.window), 0)
}

// untilAllowed returns the time until another failure is allowed.
func (l *failureLimiter) untilAllowed(v failureLevel, limit float64, now time.Time) time.Duration {
	if limit < 0 {
		return 0
	}
	over := l.currentLevel(v, limit, now) + 1 - limit
	if over <= 1e-6 { // rounding error
		return 0
	}
	return max(time.Duration(over/limit*float64(l.window)), 1)
}

// addFailure counts a failure. tokenToo counts it against the token too. A wrong proof does not,
// since it may come from someone who has only seen the token.
func (l *failureLimiter) addFailure(addr netip.Addr, token [sha256.Size]byte, tokenToo bool) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	_, again := l.failedTokens.get(token) // a repeated token is not another guess
	if p, ok := networkOf(addr); ok && l.perAddress >= 0 && !(tokenToo && again) {
		v, _ := l.addresses.get(p)
		l.addresses.put(p, failureLevel{l.currentLevel(v, l.perAddress, now) + 1, now}, 0)
	}
	if tokenToo {
		l.goodTokens.remove(token)
		if l.perToken >= 0 {
			v, _ := l.failedTokens.get(token)
			l.failedTokens.put(token, failureLevel{l.currentLevel(v, l.perToken, now) + 1, now}, 0)
		}
	}
}

// addSuccess remembers a valid token.
func (l *failureLimiter) addSuccess(token [sha256.Size]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.goodTokens.get(token); !ok {
		l.goodTokens.put(token, struct{}{}, 0)
	}
}
