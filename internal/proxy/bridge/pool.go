package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/translate"
)

// A sharedUpstream is an upstream that clients share. After the last of them it stays open for
// Options.IdleTimeout.
type sharedUpstream struct {
	*upstream
	key       string
	idleTimer *time.Timer

	// caller is the first client's, and is charged in limits; "" means that none is.
	caller string

	// clients counts the clients. Bridge.mu guards it and idleSince.
	clients int
	// idleSince is the time when clients became 0.
	idleSince time.Time
}

// anyShared returns a shared upstream that is connected, or nil.
func (b *Bridge) anyShared() *sharedUpstream {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.pool {
		if s.isUp() {
			return s
		}
	}
	return nil
}

// shareKey returns the key of the upstream for a client. Different principals never have the same
// key. For a modern server the key is the same for both eras. For a legacy server it depends on
// what the handshake says about the client.
func shareKey(cl *client, clientEra, serverEra Era, o clientMessage) string {
	key := cl.principalID + "\x00" + clientEra.String() + "\x00" + serverEra.String() + "\x00"
	switch {
	case serverEra == EraModern:
		return cl.principalID + "\x00" + serverEra.String()
	case clientEra == EraModern:
		return key + translate.ClientKey(o.frame)
	}
	params := era.Rewrite(nil, o.m.Params, era.Without("_meta"), nil)
	sum := sha256.Sum256(jsonwire.AppendCompact(nil, params))
	return key + hex.EncodeToString(sum[:16])
}

// joinShared returns the forwarder of a client on a shared upstream. If that does not exist, it
// creates it on up, or on a new upstream if up is nil.
func (b *Bridge) joinShared(cl *client, clientEra, serverEra Era, o clientMessage, up *upstream) forwarder {
	key := shareKey(cl, clientEra, serverEra, o)
	b.mu.Lock()
	s := b.pool[key]
	if s == nil {
		if old := b.evictIdleLocked(cl.caller); old != nil {
			defer old.close()
		}
		if err := b.servers.reserve(cl.caller); err != nil {
			b.metrics.rejected.Add(1)
			b.mu.Unlock()
			if up != nil {
				up.close()
			}
			return unreachable(err)
		}
		if up == nil && b.spare != nil && b.spare.principal() == cl.principalID {
			up, b.spare = b.spare, nil
		}
		if up == nil {
			up = b.newUpstream()
		}
		up.setPrincipal(cl.principalID)
		s = &sharedUpstream{upstream: up, key: key, caller: cl.caller}
		s.idleTimer = time.AfterFunc(b.opts.IdleTimeout, s.expire)
		s.setCodecs(clientEra, serverEra)
		b.pool[key] = s
	} else if up != nil {
		defer up.close()
	}
	s.clients++
	s.idleTimer.Stop()
	b.mu.Unlock()
	return s.attach(cl, clientEra)
}

// evictIdleLocked removes and returns the shared upstream that was idle longest, if a limit is
// reached, of the caller or of all. Otherwise a client that keeps changing its description could
// keep any number of upstreams.
func (b *Bridge) evictIdleLocked(caller string) (oldest *sharedUpstream) {
	all, own := b.servers.overLimit(caller)
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

// removeSharedLocked removes a shared upstream.
func (b *Bridge) removeSharedLocked(s *sharedUpstream) {
	delete(b.pool, s.key)
	b.servers.release(s.caller)
}

// setCodecs prepares the upstream for clients of an era.
func (s *sharedUpstream) setCodecs(clientEra, serverEra Era) {
	switch {
	case serverEra == EraModern:
		s.mux()
	case clientEra == EraModern:
		s.own.chooseAllIDs()
		t := s.b.newModernTranslator(s.upstream)
		t.shared = s
		s.setCodec(t, nil)
	default:
		p := newPassthrough(s.upstream, true)
		p.shared, p.session = s, &sharedSession{p: p}
		s.setCodec(p, nil)
	}
}

func (s *sharedUpstream) attach(cl *client, clientEra Era) forwarder {
	switch only := s.router.soleCodec().(type) {
	case *passthrough:
		only.addClient(cl)
		return only
	case *translator:
		only.addClient(cl)
		return only
	}
	if clientEra == EraLegacy {
		t := s.b.newTranslator(s.upstream, translate.NewLegacyToModern(&translate.Options{IDs: &s.own.last}), EraModern)
		t.muxed = s
		t.addClient(cl)
		t.mu.Lock() // the upstream may use t at once
		t.closed = s.router.addTranslator(t)
		t.mu.Unlock()
		return t
	}
	p := s.router.modernClients(func() *passthrough {
		p := newPassthrough(s.upstream, true)
		p.shared = s
		return p
	})
	p.addClient(cl)
	return p
}

// close ends the upstream and everything that is pending on it.
func (s *sharedUpstream) close() {
	for _, c := range s.router.codecs() {
		c.close()
	}
	s.upstream.close()
}

// release removes a client.
func (s *sharedUpstream) release() {
	s.b.mu.Lock()
	s.clients--
	switch {
	case s.clients > 0:
	case s.b.closed:
		defer s.close()
	default:
		s.idleSince = time.Now()
		s.idleTimer.Reset(s.b.opts.IdleTimeout)
	}
	s.b.mu.Unlock()
}

// expire ends an upstream that was idle too long.
func (s *sharedUpstream) expire() {
	s.b.mu.Lock()
	if s.clients > 0 || s.b.pool[s.key] != s {
		s.b.mu.Unlock()
		return
	}
	s.b.removeSharedLocked(s)
	s.b.mu.Unlock()
	s.close()
}
