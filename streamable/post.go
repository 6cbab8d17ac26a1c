package streamable

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"mcpwire/auth"
	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// servePost serves a POST.
func (h *Handler) servePost(w http.ResponseWriter, r *http.Request) {
	x := h.newExchange(w, r)
	var ok bool
	if x.caller, x.n, ok = h.enter(w, r, x.asker, &x.pending, x); !ok {
		x.recycle()
		return
	}
	defer x.served()
	x.post()
}

// post takes what a client posts: a message, or a batch from clients that may send one.
func (x *exchange) post() {
	h, w, r := x.h, x.w, x.r
	kind := kindOf(r)
	switch {
	case encoded(r):
		w.Header().Set("Accept-Encoding", "identity")
		refuse(w, http.StatusUnsupportedMediaType, jsonrpc.CodeInvalidRequest, "the body must not be compressed")
		return
	case kind == bodyNDJSON && h.opts.NDJSON:
		h.lines(w, r, x.caller)
		return
	case kind != bodyJSON:
		refuse(w, http.StatusUnsupportedMediaType, jsonrpc.CodeInvalidRequest, "the Content-Type must be application/json")
		return
	}
	if !x.takes.json && !x.takes.stream {
		refuse(w, http.StatusNotAcceptable, jsonrpc.CodeInvalidRequest, "the Accept header must allow application/json and text/event-stream")
		return
	}
	if err := x.readBody(); err != nil {
		h.refuseBody(w, r, err)
		return
	}
	if jsonrpc.IsBatch(x.body) {
		x.postBatch()
		return
	}
	err := x.delivery.Parse(x.body, 0)
	m := x.delivery.Message
	if err != nil {
		refuseID(w, http.StatusBadRequest, m.ID, jsonrpc.ErrorOf(err))
		return
	}
	if h.refusesNotification(w, x.body, m) {
		return
	}
	version, named := versionOf(m)
	if x.isModern(named) {
		x.postModern(version)
	} else {
		x.postLegacy()
	}
}

// refusesNotification answers a notification that a relay must not forward, which its peer would drop.
func (h *Handler) refusesNotification(w http.ResponseWriter, frame []byte, m *jsonrpc.Message) bool {
	if !h.forwards || m.Kind != jsonrpc.KindNotification {
		return false
	}
	err := era.CheckForwarded(frame, m)
	if err != nil {
		refuseID(w, http.StatusBadRequest, nil, jsonrpc.ErrorOf(err))
	}
	return err != nil
}

// isModern reports whether a message belongs to the modern era: because its metadata names a version, or, if it has none, because a header does.
func (x *exchange) isModern(named bool) bool {
	h := x.h
	switch {
	case h.modern == nil:
		return false
	case named || h.legacy == nil:
		return true
	case len(x.versions) == 0:
		return false
	}
	revision, ok := mcp.ParseRevision(x.versions[0])
	return ok && revision.Modern() || !ok && x.r.Header[headerSession] == nil
}

// postModern answers a message of a revision without sessions.
func (x *exchange) postModern(version []byte) {
	h, w, r, m := x.h, x.w, x.r, x.delivery.Message
	var e *jsonrpc.Error
	if version != nil {
		e = checkHeaders(r.Header, m, version)
	} else if x.versions == nil && string(m.Method) != mcp.MethodInitialize {
		e = h.versionless()
	} // else it is told that the metadata lack one, or, if it is the handshake, which versions there are
	if e != nil {
		refuseID(w, http.StatusBadRequest, m.ID, e)
		return
	}
	switch {
	case m.Kind == jsonrpc.KindNotification:
		h.modern.notify(x.onBehalf(r.Context()), x.body, m)
		w.WriteHeader(http.StatusAccepted)
	case m.Kind != jsonrpc.KindRequest:
		refuse(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "clients have nothing to answer in this revision")
	case !x.takesRequests(), !h.allowed(w, r, m):
	case string(m.Method) == mcp.MethodSubscriptionsListen:
		x.listen()
	default:
		x.deliver(r.Context())
	}
}

// versionless is the error of a message that does not name its version anywhere, and is of none that need not.
func (h *Handler) versionless() *jsonrpc.Error {
	return mismatch("header MCP-Protocol-Version is missing: this server speaks %v", h.srv.Revisions())
}

// deliver has a modern request answered, as one that ends with ctx.
func (x *exchange) deliver(ctx context.Context) {
	p := x.respond()
	x.begun(exchangeModern)
	p.keepWarmSince(nil, x.at)
	returned := false
	defer func() {
		if !returned { // the handler has ended the goroutine
			p.fail(x.id())
			p.stop()
			x.delivery.Sent(false)
		}
	}()
	x.delivery.Outlet, x.delivery.Free = p, true
	var err error
	x.answer, err = x.h.modern.deliver(x.onBehalf(ctx), x.body, &x.delivery, x.answer[:0])
	returned = true
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), auth.ErrExpired) {
		p.stop()
		x.delivery.Sent(false)
		return // the client is not to hear that all went well
	}
	done, err := x.makeRoom(ctx, err)
	defer done()
	gone := ctx.Err() != nil // what is written all the same is read by nobody
	sent := p.end(x.answer, err)
	x.delivery.Sent(sent && !gone)
}

// listen answers subscriptions/listen, by a stream that lasts as long as the client's authorization.
func (x *exchange) listen() {
	if !x.takes.stream {
		refuse(x.w, http.StatusNotAcceptable, jsonrpc.CodeInvalidRequest, "the Accept header must allow text/event-stream")
		return
	}
	leave, ok := x.h.enterStream(x.w, x.caller)
	if !ok {
		return
	}
	x.h.release(&x.pending) // it is a stream from now on
	l := &listener{h: x.h, caller: x.caller, p: x.h.respond(x.w, x.r, x.takes), leave: leave}
	defer func() { x.held = l.served() }()
	l.subscribe(x)
}

// onBehalf returns the context of a request with what is known of its caller. p is ctx's principal.
func (h *Handler) onBehalf(ctx context.Context, r *http.Request, p *auth.Principal) context.Context {
	if p == nil && !h.limits {
		return ctx
	}
	if p == nil {
		return h.srv.OnBehalfOf(ctx, "", h.addressOf(r), nil, nil)
	}
	return h.srv.OnBehalfOf(ctx, p.ID(), "", p.Scopes, p)
}

// callerOf names whose requests they are: those of a principal, or of a network address. p is the
// principal of r.
func (h *Handler) callerOf(r *http.Request, p *auth.Principal) string {
	if p != nil {
		if id := p.ID(); id != "" {
			return id
		}
	}
	return h.addressOf(r)
}

// addressOf returns the network address of the client, see [addressOf].
func (h *Handler) addressOf(r *http.Request) string {
	if h.opts.ClientAddr != nil {
		if addr := h.opts.ClientAddr(r); addr.IsValid() {
			return networkOf(addr)
		}
	}
	return addressOf(r)
}

// ownerOf returns the id of the principal, "" if there is none.
func ownerOf(r *http.Request) string {
	return auth.PrincipalOf(r.Context()).ID()
}

// addressOf returns the address of the peer, without the port. Of IPv6 it is the network, since who has one address has all in it.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	if strings.IndexByte(host, ':') < 0 {
		return host
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	return networkOf(addr)
}

// networkOf returns what counts as one address.
func networkOf(addr netip.Addr) string {
	if addr = addr.Unmap().WithZone(""); addr.Is4() {
		return addr.String()
	}
	network, err := addr.Prefix(networkBits)
	if err != nil {
		return addr.String()
	}
	return network.String()
}

// networkBits is how many bits of an IPv6 address name the network that a host is in (RFC 4291, section 2.5.4).
const networkBits = 64

// allowed asks whether the caller has the scopes that the request needs, and answers it if not.
func (h *Handler) allowed(w http.ResponseWriter, r *http.Request, m *jsonrpc.Message) bool {
	if h.opts.Scopes == nil || m.Kind != jsonrpc.KindRequest {
		return true
	}
	if err := h.authorize(r.Context(), m); err != nil {
		auth.Deny(w, r, err)
		return false
	}
	return true
}

// authorize says what the caller lacks for the request; nil if nothing.
func (h *Handler) authorize(ctx context.Context, m *jsonrpc.Message) error {
	return auth.Require(ctx, h.opts.Scopes(string(m.Method), string(subjectOf(m)))...)
}

// postBatch answers an array of messages, which only one revision has.
func (x *exchange) postBatch() {
	entries, err := jsonrpc.ParseBatch(x.body, 0)
	if err != nil {
		refuseID(x.w, http.StatusBadRequest, nil, jsonrpc.ErrorOf(err))
		return
	}
	for i := range entries {
		if _, named := versionOf(&entries[i].Message); x.isModern(named) {
			refuse(x.w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "this revision has no batches")
			return
		}
	}
	x.legacyBatch(entries)
}
