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
	pr := h.newPostRequest(w, r)
	var ok bool
	if pr.caller, pr.inFlight, ok = h.admitHTTP(w, r, pr.requester, &pr.admission, pr); !ok {
		pr.reset()
		return
	}
	defer pr.release()
	pr.serve()
}

// serve takes what a client posts: a message, or a batch from clients that may send one.
func (pr *postRequest) serve() {
	h, w, r := pr.h, pr.w, pr.r
	kind := bodyKindOf(r)
	switch {
	case isEncoded(r):
		w.Header().Set("Accept-Encoding", "identity")
		writeError(w, http.StatusUnsupportedMediaType, jsonrpc.CodeInvalidRequest, "the body must not be compressed")
		return
	case kind == bodyNDJSON && h.opts.NDJSON:
		h.serveNDJSON(w, r, pr.caller)
		return
	case kind != bodyJSON:
		writeError(w, http.StatusUnsupportedMediaType, jsonrpc.CodeInvalidRequest, "the Content-Type must be application/json")
		return
	}
	if !pr.accept.json && !pr.accept.stream {
		writeError(w, http.StatusNotAcceptable, jsonrpc.CodeInvalidRequest, "the Accept header must allow application/json and text/event-stream")
		return
	}
	if err := pr.readBody(); err != nil {
		h.writeBodyError(w, r, err)
		return
	}
	if jsonrpc.IsBatch(pr.body) {
		pr.serveBatch()
		return
	}
	err := pr.delivery.Parse(pr.body, 0)
	m := pr.delivery.Message
	if err != nil {
		writeErrorID(w, http.StatusBadRequest, m.ID, jsonrpc.ErrorOf(err))
		return
	}
	if h.rejectNotification(w, pr.body, m) {
		return
	}
	version, named := versionOf(m)
	if pr.isModern(named) {
		pr.serveModern(version)
	} else {
		pr.serveLegacy()
	}
}

// rejectNotification answers a notification that a relay must not forward, which its peer would drop.
func (h *Handler) rejectNotification(w http.ResponseWriter, frame []byte, m *jsonrpc.Message) bool {
	if !h.isRelay || m.Kind != jsonrpc.KindNotification {
		return false
	}
	err := era.CheckForwarded(frame, m)
	if err != nil {
		writeErrorID(w, http.StatusBadRequest, nil, jsonrpc.ErrorOf(err))
	}
	return err != nil
}

// isModern reports whether a message belongs to the modern era: because its metadata names a version, or, if it has none, because a header does.
func (pr *postRequest) isModern(named bool) bool {
	h := pr.h
	switch {
	case h.modern == nil:
		return false
	case named || h.legacy == nil:
		return true
	case len(pr.versions) == 0:
		return false
	}
	revision, ok := mcp.ParseRevision(pr.versions[0])
	return ok && revision.Modern() || !ok && pr.r.Header[headerSession] == nil
}

// serveModern answers a message of a revision without sessions.
func (pr *postRequest) serveModern(version []byte) {
	h, w, r, m := pr.h, pr.w, pr.r, pr.delivery.Message
	var e *jsonrpc.Error
	if version != nil {
		e = checkHeaders(r.Header, m, version)
	} else if pr.versions == nil && string(m.Method) != mcp.MethodInitialize {
		e = h.missingVersionError()
	} // else it is told that the metadata lack one, or, if it is the handshake, which versions there are
	if e != nil {
		writeErrorID(w, http.StatusBadRequest, m.ID, e)
		return
	}
	switch {
	case m.Kind == jsonrpc.KindNotification:
		h.modern.deliverNotification(pr.withIdentity(r.Context()), pr.body, m)
		w.WriteHeader(http.StatusAccepted)
	case m.Kind != jsonrpc.KindRequest:
		writeError(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "clients have nothing to answer in this revision")
	case !pr.admitRequest(), !h.allowed(w, r, m):
	case string(m.Method) == mcp.MethodSubscriptionsListen:
		pr.serveSubscription()
	default:
		pr.serveModernRequest(r.Context())
	}
}

// missingVersionError is the error of a message that does not name its version anywhere, and is of none that need not.
func (h *Handler) missingVersionError() *jsonrpc.Error {
	return headerMismatch("header MCP-Protocol-Version is missing: this server speaks %v", h.srv.Revisions())
}

// serveModernRequest has a modern request answered, as one that ends with ctx.
func (pr *postRequest) serveModernRequest(ctx context.Context) {
	rs := pr.beginResponse()
	pr.markAbortable(postStateModern)
	rs.startKeepAliveAt(nil, pr.readAt)
	returned := false
	defer func() {
		if !returned { // the handler has ended the goroutine
			rs.fail(pr.id())
			rs.stop()
			pr.delivery.ReportSent(false)
		}
	}()
	pr.delivery.Sender, pr.delivery.Untracked = rs, true
	var err error
	pr.answer, err = pr.h.modern.deliverRequest(pr.withIdentity(ctx), pr.body, &pr.delivery, pr.answer[:0])
	returned = true
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), auth.ErrExpired) {
		rs.stop()
		pr.delivery.ReportSent(false)
		return // the client is not to hear that all went well
	}
	release, err := pr.reserveUnread(ctx, err)
	defer release()
	clientGone := ctx.Err() != nil // what is written all the same is read by nobody
	sent := rs.end(pr.answer, err)
	pr.delivery.ReportSent(sent && !clientGone)
}

// serveSubscription answers subscriptions/listen, by a stream that lasts as long as the client's authorization.
func (pr *postRequest) serveSubscription() {
	if !pr.accept.stream {
		writeError(pr.w, http.StatusNotAcceptable, jsonrpc.CodeInvalidRequest, "the Accept header must allow text/event-stream")
		return
	}
	release, ok := pr.h.admitStream(pr.w, pr.caller)
	if !ok {
		return
	}
	pr.h.releaseAdmission(&pr.admission) // it is a stream from now on
	ss := &standingStream{h: pr.h, caller: pr.caller, response: pr.h.newResponse(pr.w, pr.r, pr.accept), release: release}
	defer func() { pr.hijacked = ss.done() }()
	ss.subscribe(pr)
}

// withIdentity returns the context of a request with what is known of its caller. p is ctx's principal.
func (h *Handler) withIdentity(ctx context.Context, r *http.Request, p *auth.Principal) context.Context {
	if p == nil && !h.needsAddress {
		return ctx
	}
	if p == nil {
		return h.srv.WithIdentity(ctx, "", h.clientAddress(r), nil, nil)
	}
	return h.srv.WithIdentity(ctx, p.ID(), "", p.Scopes, p)
}

// callerID names whose requests they are: those of a principal, or of a network address. p is the
// principal of r.
func (h *Handler) callerID(r *http.Request, p *auth.Principal) string {
	if p != nil {
		if id := p.ID(); id != "" {
			return id
		}
	}
	return h.clientAddress(r)
}

// clientAddress returns the network address of the client, see [addressOf].
func (h *Handler) clientAddress(r *http.Request) string {
	if h.opts.ClientAddr != nil {
		if addr := h.opts.ClientAddr(r); addr.IsValid() {
			return networkOf(addr)
		}
	}
	return peerAddress(r)
}

// principalIDOf returns the id of the principal, "" if there is none.
func principalIDOf(r *http.Request) string {
	return auth.PrincipalOf(r.Context()).ID()
}

// peerAddress returns the address of the peer, without the port. Of IPv6 it is the network, since who has one address has all in it.
func peerAddress(r *http.Request) string {
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

// serveBatch answers an array of messages, which only one revision has.
func (pr *postRequest) serveBatch() {
	entries, err := jsonrpc.ParseBatch(pr.body, 0)
	if err != nil {
		writeErrorID(pr.w, http.StatusBadRequest, nil, jsonrpc.ErrorOf(err))
		return
	}
	for i := range entries {
		if _, named := versionOf(&entries[i].Message); pr.isModern(named) {
			writeError(pr.w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "this revision has no batches")
			return
		}
	}
	pr.serveLegacyBatch(entries)
}
