package streamable

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"mcpwire/auth"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// post takes what a client posts: a message, or a batch from clients that may send one. It reports whether a goroutine goes on with it, which has to leave then.
func (h *Handler) post(w http.ResponseWriter, r *http.Request) (goesOn bool) {
	kind := kindOf(r)
	switch {
	case encoded(r):
		w.Header().Set("Accept-Encoding", "identity")
		refuse(w, http.StatusUnsupportedMediaType, jsonrpc.CodeInvalidRequest, "the body must not be compressed")
		return false
	case kind == bodyNDJSON && h.opts.NDJSON:
		h.lines(w, r)
		return false
	case kind != bodyJSON:
		refuse(w, http.StatusUnsupportedMediaType, jsonrpc.CodeInvalidRequest, "the Content-Type must be application/json")
		return false
	}
	x := h.newExchange(w, r)
	defer func() {
		goesOn = x.kept || x.held
		x.recycle()
	}()
	if !x.takes.json && !x.takes.stream {
		refuse(w, http.StatusNotAcceptable, jsonrpc.CodeInvalidRequest, "the Accept header must allow application/json and text/event-stream")
		return false
	}
	if err := x.readBody(); err != nil {
		h.refuseBody(w, r, err)
		return false
	}
	if jsonrpc.IsBatch(x.body) {
		x.postBatch()
		return false
	}
	err := x.delivery.Parse(x.body, 0)
	m := x.delivery.Message
	if err != nil {
		refuseID(w, http.StatusBadRequest, m.ID, jsonrpc.ErrorOf(err))
		return false
	}
	version, named := versionOf(m)
	if x.isModern(named) {
		x.postModern(version)
	} else {
		x.postLegacy()
	}
	return false
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
	case !h.takesRequests(w), !h.allowed(w, r, m):
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
	p.keepWarmSince(nil, x.at)
	returned := false
	defer func() {
		if !returned { // the handler has ended the goroutine
			p.fail(x.id())
			p.stop()
		}
	}()
	x.delivery.Outlet, x.delivery.Free = p, true
	var err error
	x.answer, err = x.h.modern.deliver(x.onBehalf(ctx), x.body, &x.delivery, x.answer[:0])
	returned = true
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), auth.ErrExpired) {
		p.stop()
		return // the client is not to hear that all went well
	}
	p.end(x.answer, err)
}

// listen answers subscriptions/listen, by a stream that lasts as long as the client's authorization.
func (x *exchange) listen() {
	if !x.takes.stream {
		refuse(x.w, http.StatusNotAcceptable, jsonrpc.CodeInvalidRequest, "the Accept header must allow text/event-stream")
		return
	}
	leave, ok := x.h.enterStream(x.w, x.r)
	if !ok {
		return
	}
	l := &listener{h: x.h, p: x.h.respond(x.w, x.r, x.takes), leave: leave}
	defer func() { x.held = l.served() }()
	l.subscribe(x)
}

// onBehalf returns the context of a request with what is known of its caller. p is ctx's principal.
func (h *Handler) onBehalf(ctx context.Context, r *http.Request, p *auth.Principal) context.Context {
	if p == nil && !h.limits {
		return ctx
	}
	if p == nil {
		return h.srv.OnBehalfOf(ctx, "", addressOf(r), nil, nil)
	}
	return h.srv.OnBehalfOf(ctx, p.ID(), "", p.Scopes, p)
}

// callerOf names whose requests they are: those of a principal, or of a network address.
func callerOf(r *http.Request) string {
	if id := ownerOf(r); id != "" {
		return id
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
	if addr = addr.Unmap(); addr.Is4() {
		return addr.String()
	}
	network, err := addr.WithZone("").Prefix(networkBits)
	if err != nil {
		return host
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
