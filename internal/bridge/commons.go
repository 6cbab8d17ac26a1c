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
type sharedUpstream struct {
	b         *Bridge
	key       string
	handler   sharedHandler
	idleTimer *time.Timer

	caller string // who is charged for it: the one who came first; "" is nobody

	clients   int       // guarded by Bridge.mu, as is
	idleSince time.Time // it has none
}

// A sharer is what a commons belongs to.
type sharedHandler interface {
	// attach returns what a client of the era talks to.
	attach(cl *client, near Era) forwarder
	// close ends the connection.
	close()
	// ping asks the server for a sign of life.
	ping(ctx context.Context) error
	// isUp reports whether there is a server to ask.
	isUp() bool
}

// anyShared returns a connection that clients share and that there is now; nil if there is none.
func (b *Bridge) anyShared() sharedHandler {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.pool {
		if s.handler.isUp() {
			return s.handler
		}
	}
	return nil
}

// shareKey names the connection that a client shares: nobody else's, and only with those for whom a server must be told the same. A modern server is told it with each
// request, so that clients of both eras are together there; a legacy one was told it once, in the handshake.
func shareKey(cl *client, clientEra, serverEra Era, o clientMessage) string {
	key := cl.principalID + "\x00" + clientEra.String() + "\x00" + serverEra.String() + "\x00"
	switch {
	case serverEra == EraModern:
		return cl.principalID + "\x00" + serverEra.String()
	case clientEra == EraModern:
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

// joinShared has a client be one of those that share a connection. l is the line for it if there is none yet; nil is a new one.
func (b *Bridge) joinShared(cl *client, clientEra, serverEra Era, o clientMessage, up *upstream) forwarder {
	key := shareKey(cl, clientEra, serverEra, o)
	b.mu.Lock()
	s := b.pool[key]
	if s == nil {
		if old := b.evictIdleLocked(cl.caller); old != nil {
			defer old.handler.close()
		}
		if err := b.reserveLocked(cl.caller); err != nil {
			b.metrics.rejected.Add(1)
			b.mu.Unlock()
			if up != nil {
				up.close()
			}
			return unreachable{why: err}
		}
		s = &sharedUpstream{b: b, key: key, caller: cl.caller}
		s.idleTimer = time.AfterFunc(b.opts.IdleTimeout, s.expire)
		s.handler = b.newSharedHandler(s, clientEra, serverEra, up)
		b.pool[key] = s
	} else if up != nil {
		defer up.close()
	}
	s.clients++
	s.idleTimer.Stop()
	b.mu.Unlock()
	return s.handler.attach(cl, clientEra)
}

// evictIdleLocked returns the connection that has been without clients for the longest, if there are as many as there may be, of all or of the caller, and forgets it: whoever says
// something else of himself each time would keep any number.
func (b *Bridge) evictIdleLocked(caller string) (oldest *sharedUpstream) {
	all, own := b.overLimitLocked(caller)
	if !all && !own {
		return nil
	}
	for _, s := range b.pool {
		if s.clients == 0 && (!own || s.caller == caller) && (oldest == nil || s.idleSince.Before(oldest.idleSince)) {
			oldest = s
		}
	}
	if oldest != nil {
		oldest.idleTimer.Stop()
		b.removeSharedLocked(oldest)
	}
	return oldest
}

// removeSharedLocked forgets a connection that clients shared.
func (b *Bridge) removeSharedLocked(s *sharedUpstream) {
	delete(b.pool, s.key)
	b.releaseLocked(s.caller)
}

// newSharedHandler returns what a connection belongs to between these eras. It has a line of its own if l is nil.
func (b *Bridge) newSharedHandler(s *sharedUpstream, clientEra, serverEra Era, up *upstream) sharedHandler {
	switch {
	case serverEra == EraModern:
		return newMux(s, up)
	case clientEra == EraModern:
		return b.newSharedTranslator(s, up)
	}
	return b.newSharedSession(s, up)
}

// release notes that a client is gone.
func (s *sharedUpstream) release() {
	s.b.mu.Lock()
	s.clients--
	switch {
	case s.clients > 0:
	case s.b.closed:
		defer s.handler.close()
	default:
		s.idleSince = time.Now()
		s.idleTimer.Reset(s.b.opts.IdleTimeout)
	}
	s.b.mu.Unlock()
}

// expire ends what nobody has used for long.
func (s *sharedUpstream) expire() {
	s.b.mu.Lock()
	if s.clients > 0 || s.b.pool[s.key] != s {
		s.b.mu.Unlock()
		return
	}
	s.b.removeSharedLocked(s)
	s.b.mu.Unlock()
	s.handler.close()
}

// uninitialized is the party of clients of the legacy era that share a connection, until they have said what they are.
type uninitialized struct{ wrongEra }

func (uninitialized) request(c *call, _ []byte, _ *jsonrpc.Message) {
	if c.method == mcp.MethodPing {
		c.finish(jsonrpc.AppendResult(nil, c.id, []byte("{}")), c.bridgeProvenance())
		return
	}
	c.fail(jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: initialize comes first"))
}
