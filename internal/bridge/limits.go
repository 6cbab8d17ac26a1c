package bridge

import (
	"net/http"
	"time"

	"mcpwire/streamable"
)

// serverCounts counts the connections to the server that clients, or what they share, have or may make. The zero value is ready to use. It is guarded by the Bridge's lock.
type serverCounts struct {
	all int
	by  map[string]int // by caller
}

// reserveLocked counts a connection to the server for a caller, "" for one who is not limited, unless there are too many.
func (b *Bridge) reserveLocked(caller string) *streamable.RejectedError {
	n := &b.servers
	switch {
	case caller != "" && n.by[caller] >= b.opts.MaxServersPerCaller:
		return rejected(http.StatusTooManyRequests, "too many sessions with this server for one caller: end one, or wait until one has expired")
	case n.all >= b.opts.MaxServers, b.linesUp.Load() >= 2*int64(b.opts.MaxServers): // those that are ending count too
		return rejected(http.StatusServiceUnavailable, "too many sessions with this server")
	}
	n.all++
	if caller != "" {
		if n.by == nil {
			n.by = map[string]int{}
		}
		n.by[caller]++
	}
	return nil
}

// releaseLocked takes back what reserveLocked did.
func (b *Bridge) releaseLocked(caller string) {
	n := &b.servers
	n.all--
	if caller == "" {
		return
	}
	if n.by[caller]--; n.by[caller] <= 0 {
		delete(n.by, caller)
	}
}

// overLocked reports for whom another connection to the server would be too many: all, or the caller.
func (b *Bridge) overLocked(caller string) (all, own bool) {
	return b.servers.all >= b.opts.MaxServers, caller != "" && b.servers.by[caller] >= b.opts.MaxServersPerCaller
}

// sessionsRetry is how long a client is asked to wait for room for its session.
const sessionsRetry = 10 * time.Second

func rejected(status int, why string) *streamable.RejectedError {
	return &streamable.RejectedError{Status: status, RetryAfter: sessionsRetry, Reason: why}
}
