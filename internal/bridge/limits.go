package bridge

import (
	"net/http"
	"time"

	"mcpwire/streamable"
)

// serverCounts counts the connections to the server that clients, or what they share, have or may make. The zero value is ready to use. It is guarded by the Bridge's lock.
type serverCounts struct {
	total    int
	byCaller map[string]int // by caller
}

// reserveLocked counts a connection to the server for a caller, "" for one who is not limited, unless there are too many.
func (b *Bridge) reserveLocked(caller string) *streamable.RejectedError {
	n := &b.servers
	switch {
	case caller != "" && n.byCaller[caller] >= b.opts.MaxServersPerCaller:
		return newRejectedError(http.StatusTooManyRequests, "too many sessions with this server for one caller: end one, or wait until one has expired")
	case n.total >= b.opts.MaxServers, b.openConnections.Load() >= 2*int64(b.opts.MaxServers): // those that are ending count too
		return newRejectedError(http.StatusServiceUnavailable, "too many sessions with this server")
	}
	n.total++
	if caller != "" {
		if n.byCaller == nil {
			n.byCaller = map[string]int{}
		}
		n.byCaller[caller]++
	}
	return nil
}

// flushLocked takes back what reserveLocked did.
func (b *Bridge) releaseLocked(caller string) {
	n := &b.servers
	n.total--
	if caller == "" {
		return
	}
	if n.byCaller[caller]--; n.byCaller[caller] <= 0 {
		delete(n.byCaller, caller)
	}
}

// overLimitLocked reports for whom another connection to the server would be too many: all, or the caller.
func (b *Bridge) overLimitLocked(caller string) (all, own bool) {
	return b.servers.total >= b.opts.MaxServers, caller != "" && b.servers.byCaller[caller] >= b.opts.MaxServersPerCaller
}

// sessionRetryAfter is how long a client is asked to wait for room for its session.
const sessionRetryAfter = 10 * time.Second

func newRejectedError(status int, why string) *streamable.RejectedError {
	return &streamable.RejectedError{Status: status, RetryAfter: sessionRetryAfter, Reason: why}
}
