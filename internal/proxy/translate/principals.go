package translate

import (
	"maps"
	"time"

	"mcpwire/internal/base/sparse"
	"mcpwire/jsonrpc"
)

// Principals remembers which principals use a legacy session, to find the one whose call caused a
// request of the server that names no call. The zero value is ready to use. It is not safe for
// concurrent use.
type Principals struct {
	// first is the first principal; several says that there was another one.
	first         string
	used, several bool
	// gaveUp has, for principals that gave up calls, when the server has certainly ended them. If
	// it is full, the server is not trusted to have ended any call before unclear.
	gaveUp  map[string]time.Time
	unclear time.Time
}

const (
	// maxGaveUp limits the principals in Principals.gaveUp.
	maxGaveUp = 1024
	// givenUpTime is how long a server may run a call that was given up.
	givenUpTime = 5 * time.Minute
)

// Use records that a principal uses the session.
func (p *Principals) Use(id string) {
	if !p.used {
		p.first, p.used = id, true
	}
	p.several = p.several || id != p.first
}

// GiveUp records that a call of a principal has no response yet, and that nobody waits for it.
func (p *Principals) GiveUp(id string, now time.Time) {
	if len(p.gaveUp) >= maxGaveUp {
		maps.DeleteFunc(p.gaveUp, func(_ string, until time.Time) bool { return now.After(until) })
	}
	if len(p.gaveUp) >= maxGaveUp {
		p.unclear = now.Add(givenUpTime)
		return
	}
	sparse.Set(&p.gaveUp, id, now.Add(givenUpTime))
}

// Lost records that the session is lost, with all calls.
func (p *Principals) Lost() { p.gaveUp, p.unclear = nil, time.Time{} }

// Cause returns the principal whose call caused a request of the server. pending are the principals
// of the calls in flight. It reports false if another principal's call may be the cause.
func (p *Principals) Cause(pending map[string]bool, now time.Time) (id string, ok bool) {
	if !p.several {
		return p.first, true
	}
	if len(pending) != 1 || now.Before(p.unclear) {
		return "", false
	}
	for id = range pending {
	}
	for other, until := range p.gaveUp {
		if other != id && now.Before(until) {
			return "", false
		}
	}
	return id, true
}

// ErrUnknownCause refuses a request of a server that may belong to the call of another principal.
var ErrUnknownCause = jsonrpc.Errorf(jsonrpc.CodeInternalError, "isolation: shared cannot tell whose call this request belongs to: a server that asks its users needs isolation: principal")
