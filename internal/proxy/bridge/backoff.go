package bridge

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/wait"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A backoff decides when an upstream connects again. Its methods may be called by many goroutines
// at once.
type backoff struct {
	mu sync.Mutex
	// usable says that the current or last connection could take messages.
	usable bool
	// failures counts the connections in a row that answered no request.
	failures int
	// everAnswered says that some connection had a response.
	everAnswered bool
	// recoveryCalls holds the keys of requests whose responses reset failures; nil if failures is
	// reset.
	recoveryCalls map[string]struct{}
	// err is the error of the last connection; nil before its end.
	err error
	// next is the earliest time of the next attempt.
	next time.Time
}

// maxRecoveryCalls limits recoveryCalls.
const maxRecoveryCalls = 1024

// maxEagerFailures is the number of failures in a row after which the upstream does not reconnect
// for wantsConnection alone.
const maxEagerFailures = 8

// setUsable says whether the connection takes messages.
func (b *backoff) setUsable(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.usable = on
}

// last returns the earliest time of the next attempt, and the error of the last connection, as
// clients may see it.
func (b *backoff) last() (next time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.next, b.err
}

// isEager reports if the upstream may connect without a message to send.
func (b *backoff) isEager() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures < maxEagerFailures
}

// failed records the end of a connection. visible is err as clients may see it. It returns the
// earliest time of the next attempt, and reports if messages may wait for it.
func (b *backoff) failed(o *Options, err, visible error) (next time.Time, mayWait bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures++
	pause := wait.Backoff(o.MinBackoff, o.MaxBackoff, b.failures, rand.Float64())
	b.next, b.err = time.Now().Add(pause), visible
	b.recoveryCalls = map[string]struct{}{}
	return b.next, b.usable || b.everAnswered && !errors.Is(err, errServerChanged)
}

// sent records a message of a client that is about to be sent.
func (b *backoff) sent(it queuedMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.recoveryCalls != nil && len(b.recoveryCalls) < maxRecoveryCalls && it.id != nil && stringOf(jsonwire.Lookup(it.frame, "method")) != mcp.MethodInitialize {
		b.recoveryCalls[it.id.Key()] = struct{}{}
	}
}

// answered records a response. The response to a client's request that this connection sent after
// failures resets the backoff. A handshake does not, because a server may fail after it each time.
func (b *backoff) answered(id jsonrpc.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.everAnswered = true
	if b.recoveryCalls == nil {
		return
	}
	if _, ok := b.recoveryCalls[id.Key()]; ok {
		b.failures, b.recoveryCalls = 0, nil
	}
}

// reset says that a connection was stable.
func (b *backoff) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures, b.recoveryCalls = 0, nil
}
