package bridge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/internal/translate"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A commons is a connection to the server that clients share. It outlives the last of them by Options.IdleTimeout.
type commons struct {
	b    *Bridge
	key  string
	user sharer
	idle *time.Timer

	caller string // who is charged for it: the one who came first; "" is nobody

	users int       // guarded by Bridge.mu, as is
	since time.Time // it has none
}

// A sharer is what a commons belongs to.
type sharer interface {
	// admit returns what a client of the era talks to.
	admit(cl *client, near Era) party
	// end ends the connection.
	end()
	// alive asks the server for a sign of life.
	alive(ctx context.Context) error
	// isUp reports whether there is a server to ask.
	isUp() bool
}

// sharedUp returns a connection that clients share and that there is now; nil if there is none.
func (b *Bridge) sharedUp() sharer {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.commons {
		if s.user.isUp() {
			return s.user
		}
	}
	return nil
}

// shareKey names the connection that a client shares: nobody else's, and only with those for whom a server must be told the same. A modern server is told it with each
// request, so that clients of both eras are together there; a legacy one was told it once, in the handshake.
func shareKey(cl *client, near, far Era, o opening) string {
	key := cl.owner + "\x00" + near.String() + "\x00" + far.String() + "\x00"
	switch {
	case far == EraModern:
		return cl.owner + "\x00" + far.String()
	case near == EraModern:
		return key + translate.ClientKey(o.frame)
	}
	params := era.Rewrite(nil, o.m.Params, func(m *jsonwire.Members) []byte {
		if m.KeyIs("_meta") {
			return nil
		}
		return m.Value()
	}, nil)
	sum := sha256.Sum256(jsonwire.AppendCompact(nil, params))
	return key + hex.EncodeToString(sum[:16])
}

// share has a client be one of those that share a connection. l is the line for it if there is none yet; nil is a new one.
func (b *Bridge) share(cl *client, near, far Era, o opening, l *line) party {
	key := shareKey(cl, near, far, o)
	b.mu.Lock()
	s := b.commons[key]
	if s == nil {
		if old := b.forlornLocked(cl.caller); old != nil {
			defer old.user.end()
		}
		if err := b.reserveLocked(cl.caller); err != nil {
			b.metrics.refused.Add(1)
			b.mu.Unlock()
			if l != nil {
				l.close()
			}
			return unreachable{why: err}
		}
		s = &commons{b: b, key: key, caller: cl.caller}
		s.idle = time.AfterFunc(b.opts.IdleTimeout, s.retire)
		s.user = b.newSharer(s, near, far, l)
		b.commons[key] = s
	} else if l != nil {
		defer l.close()
	}
	s.users++
	s.idle.Stop()
	b.mu.Unlock()
	return s.user.admit(cl, near)
}

// forlornLocked returns the connection that has been without clients for the longest, if there are as many as there may be, of all or of the caller, and forgets it: whoever says
// something else of himself each time would keep any number.
func (b *Bridge) forlornLocked(caller string) (oldest *commons) {
	all, own := b.overLocked(caller)
	if !all && !own {
		return nil
	}
	for _, s := range b.commons {
		if s.users == 0 && (!own || s.caller == caller) && (oldest == nil || s.since.Before(oldest.since)) {
			oldest = s
		}
	}
	if oldest != nil {
		oldest.idle.Stop()
		b.dropLocked(oldest)
	}
	return oldest
}

// dropLocked forgets a connection that clients shared.
func (b *Bridge) dropLocked(s *commons) {
	delete(b.commons, s.key)
	b.releaseLocked(s.caller)
}

// newSharer returns what a connection belongs to between these eras. It has a line of its own if l is nil.
func (b *Bridge) newSharer(s *commons, near, far Era, l *line) sharer {
	switch {
	case far == EraModern:
		return newTrunk(s, l)
	case near == EraModern:
		return b.newSharedTranslated(s, l)
	}
	return b.newSession(s, l)
}

// left notes that a client is gone.
func (s *commons) left() {
	s.b.mu.Lock()
	s.users--
	switch {
	case s.users > 0:
	case s.b.closed:
		defer s.user.end()
	default:
		s.since = time.Now()
		s.idle.Reset(s.b.opts.IdleTimeout)
	}
	s.b.mu.Unlock()
}

// retire ends what nobody has used for long.
func (s *commons) retire() {
	s.b.mu.Lock()
	if s.users > 0 || s.b.commons[s.key] != s {
		s.b.mu.Unlock()
		return
	}
	s.b.dropLocked(s)
	s.b.mu.Unlock()
	s.user.end()
}

// unintroduced is the party of clients of the legacy era that share a connection, until they have said what they are.
type unintroduced struct{ foreign }

func (unintroduced) request(c *call, _ []byte, _ *jsonrpc.Message) {
	if c.method == mcp.MethodPing {
		c.finish(jsonrpc.AppendResult(nil, c.id, []byte("{}")), c.bridged())
		return
	}
	c.fail(jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: initialize comes first"))
}
