package streamable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/auth"
	"mcpwire/internal/era"
	"mcpwire/internal/net/httpserve"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// The flow of a POST is:
//
//	Handler.ServeHTTP     accessPolicy.check rejects a foreign Host or Origin; Options.Guard
//	                      requires a token
//	Handler.serve         chooses by HTTP method: servePost, serveGet or serveDelete
//	Handler.servePost     admission: admit gives the request a slot, or rejects it
//	postRequest.serve     body: checks Content-Type and Accept, readBody reads it, Delivery.Parse
//	                      parses it; NDJSON goes to serveNDJSON, an array to serveBatch
//	  isModern            era: chooses serveModern or serveLegacy
//	  serveModern         checkHeaders compares headers and body; subscriptions go to
//	                      serveSubscription, other requests to serveModernRequest
//	  serveLegacy         initialize goes to serveInitialize; acquireSession finds the session of
//	                      other messages, or takes it over from another process;
//	                      deliverOneWay delivers notifications and responses, perhaps to another
//	                      process, and serveLegacyRequest handles requests
//	  both                requests: admitRequest applies their limits, allowed asks Options.Scopes
//	  peer.deliverRequest deliver: runs the server's handler and returns the response
//	  response.end        response: JSON, or the last event if Send or a keep-alive made it a
//	                      stream; legacy requests end with stream.finish, which stores events
//	postRequest.release   release: frees the slot, and reset puts the memory back

// A postRequest is one POST with its memory, which later requests usually reuse.
type postRequest struct {
	h      *Handler
	w      http.ResponseWriter
	r      *http.Request
	accept acceptedTypes

	requester

	slot slot
	// state tells abort how to respond: postStateNew and so on.
	state atomic.Uint32
	// batch has the batch's messages. It is nil for a single message.
	batch []rpcbatch.Entry

	// readAt is the clock's time when the body was read. If one read was enough, it is the time
	// before that read.
	readAt time.Duration
	body   []byte
	// delivery has the message of the body, unless that is a batch.
	delivery rpc.Delivery
	response response
	// stream carries the response to a legacy request. It is nil until the first one, and reused
	// unless it became an event stream, which others may refer to.
	stream *stream
	answer []byte
	// referenced means that a function or a goroutine may still use the postRequest after the HTTP
	// request was served. It must not be reused.
	referenced bool
}

// States of a postRequest.
const (
	postStateNew    = iota // nothing can be answered yet
	postStateModern        // the response answers it
	postStateLegacy        // the stream answers it
)

// markAbortable notes that abort can answer the request from now on.
func (pr *postRequest) markAbortable(state uint32) {
	pr.state.Store(state)
	if pr.h.admission.aborting.Load() {
		pr.abort()
	}
}

// abort implements aborter.
func (pr *postRequest) abort() {
	switch pr.state.Load() {
	case postStateModern:
		pr.response.endWhen(pr.errorResponse(errAborted), errAborted, true)
	case postStateLegacy:
		pr.stream.finish(pr.errorResponse(errAborted), errAborted, true)
	}
}

// errAborted answers a request that is still pending when shutdown stops waiting. Its handler may
// go on.
var errAborted = jsonrpc.Errorf(jsonrpc.CodeInternalError, "the server is shutting down and no longer waits for this request; it may have been executed")

// errorResponse returns the error as response to the message, or to each request of the batch.
func (pr *postRequest) errorResponse(e *jsonrpc.Error) []byte {
	if pr.batch == nil {
		return jsonrpc.AppendError(nil, pr.id(), e, false)
	}
	var all [][]byte
	for i := range pr.batch {
		if entry := &pr.batch[i]; entry.Invalid == nil && entry.Kind == jsonrpc.KindRequest {
			all = append(all, jsonrpc.AppendError(nil, entry.ID, e, false))
		}
	}
	return appendBatch(nil, all)
}

// maxReusedBuffer is the largest buffer that is reused, in bytes.
const maxReusedBuffer = 64 << 10

func (h *Handler) newPostRequest(w http.ResponseWriter, r *http.Request) *postRequest {
	pr, _ := h.posts.Get().(*postRequest)
	if pr == nil {
		pr = new(postRequest)
	}
	pr.h, pr.w, pr.r, pr.accept = h, w, r, parseAccept(r)
	pr.requester = requesterOf(r)
	return pr
}

// release runs when the HTTP request has been served.
func (pr *postRequest) release() {
	if pr.slot.release() && !pr.referenced {
		pr.reset()
	}
}

// reset returns the memory to the pool.
func (pr *postRequest) reset() {
	h := pr.h
	if !pr.response.reset() {
		return
	}
	pr.h, pr.w, pr.r, pr.requester, pr.slot = nil, nil, nil, requester{}, slot{}
	pr.batch = nil
	pr.state.Store(postStateNew)
	if pr.stream != nil && !pr.stream.reset() {
		pr.stream = nil
	}
	if cap(pr.body) > maxReusedBuffer {
		pr.delivery = rpc.Delivery{} // it aliases the body
	} else {
		d := &pr.delivery
		d.Message, d.Sender, d.Lifetime, d.Untracked, d.AllowDeferred = nil, nil, nil, false, false
	}
	pr.body, pr.answer = shrink(pr.body), shrink(pr.answer)
	h.posts.Put(pr)
}

// id returns the id of the message, and nil for a batch.
func (pr *postRequest) id() jsonrpc.ID {
	if pr.delivery.Message == nil {
		return nil
	}
	return pr.delivery.Message.ID
}

// shrink returns an empty buffer that reuses b unless b is large.
func shrink(b []byte) []byte {
	if cap(b) > maxReusedBuffer {
		return nil
	}
	return b[:0]
}

// setReadDeadline sets the read deadline. Most ResponseWriters implement it, which avoids
// allocating a controller.
func (pr *postRequest) setReadDeadline(t time.Time) error {
	if d, ok := pr.w.(interface{ SetReadDeadline(time.Time) error }); ok {
		return d.SetReadDeadline(t)
	}
	return http.NewResponseController(pr.w).SetReadDeadline(t)
}

// beginResponse returns the response. The caller must end or stop it before the HTTP request has
// been served.
func (pr *postRequest) beginResponse() *response {
	rs := &pr.response
	rs.begin(pr.h, pr.w, pr.r, pr.accept)
	return rs
}

// beginStream returns the stream that carries the response of a legacy request over out. If
// notifyDetach is set, detached is closed when out must end.
func (pr *postRequest) beginStream(s *session, out *response, notifyDetach bool) (st *stream, detached chan struct{}) {
	if pr.stream == nil {
		pr.stream = new(stream)
	}
	st = pr.stream
	st.session, st.out, st.done, st.orphaned, st.requestID = s, out, false, false, nil
	if pr.batch == nil {
		st.requestID = pr.delivery.Message.ID
	}
	if notifyDetach {
		st.detached = make(chan struct{})
	}
	return st, st.detached
}

// withIdentity returns ctx with the caller's identity.
func (pr *postRequest) withIdentity(ctx context.Context) context.Context {
	return pr.h.withIdentity(ctx, pr.r, pr.principal)
}

// reserveUnread reserves budget for the response, or replaces the response by an error. The caller
// calls release after the write.
func (pr *postRequest) reserveUnread(ctx context.Context, err error) (release func(), _ error) {
	n := len(pr.answer)
	if n <= maxWrite {
		return func() {}, err
	}
	b, caller := &pr.h.admission.unread, pr.slot.callerID
	if !b.acquire(ctx, caller, n) {
		pr.h.opts.Logger.Warn("response dropped: too many are unread", "bytes", n)
		pr.answer = pr.errorResponse(errUnread)
		return func() {}, errUnread
	}
	return func() { b.release(caller, n) }, err
}

// A requester has what a request says about its sender.
type requester struct {
	// versions are the protocol versions in the header. Nil means none.
	versions []string
	// principal is nil for an anonymous request.
	principal *auth.Principal
}

func requesterOf(r *http.Request) requester {
	return requester{versions: r.Header[headerVersion], principal: auth.PrincipalOf(r.Context())}
}

func (h *Handler) servePost(w http.ResponseWriter, r *http.Request) {
	pr := h.newPostRequest(w, r)
	defer pr.release()
	if h.admit(&pr.slot, w, r, pr.requester, pr) {
		pr.serve()
	}
}

// serve handles the body of a POST: a message, or a batch from clients that may send one.
func (pr *postRequest) serve() {
	h, w, r := pr.h, pr.w, pr.r
	kind := bodyTypeOf(r)
	switch {
	case isEncoded(r):
		w.Header().Set("Accept-Encoding", "identity")
		writeError(w, http.StatusUnsupportedMediaType, jsonrpc.CodeInvalidRequest, "the body must not be compressed")
		return
	case kind == mediaLines && h.opts.NDJSON:
		h.serveNDJSON(w, r, &pr.slot)
		return
	case kind != mediaJSON:
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
	if rpcbatch.Is(pr.body) {
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

// rejectNotification rejects a notification that a relay must not forward because its peer would
// drop it.
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

// isModern reports whether a message belongs to the modern era: its metadata names a version, or,
// without metadata, a header does.
func (pr *postRequest) isModern(named bool) bool {
	h := pr.h
	switch {
	case h.modern == nil:
		return false
	case named || len(h.legacy) == 0:
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
	} // otherwise the server reports the missing metadata, or, to initialize, its versions
	if e != nil {
		writeErrorID(w, http.StatusBadRequest, m.ID, e)
		return
	}
	switch {
	case m.Kind == jsonrpc.KindNotification:
		h.modern.deliverNotification(pr.withIdentity(r.Context()), pr.body, m)
		w.WriteHeader(http.StatusAccepted)
	case m.Kind != jsonrpc.KindRequest:
		writeError(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "clients send no responses in this revision")
	case pr.slot.admitRequest().write(w), !h.allowed(w, r, m):
	case string(m.Method) == mcp.MethodSubscriptionsListen:
		pr.serveSubscription()
	default:
		pr.serveModernRequest(r.Context())
	}
}

// missingVersionError returns the error of a message that names no version though its revision
// requires one.
func (h *Handler) missingVersionError() *jsonrpc.Error {
	return headerMismatch("header MCP-Protocol-Version is missing: this server speaks %v", h.backend.Revisions())
}

// serveModernRequest handles a modern request, which ends with ctx.
func (pr *postRequest) serveModernRequest(ctx context.Context) {
	rs := pr.beginResponse()
	pr.markAbortable(postStateModern)
	rs.startKeepAliveAt(nil, pr.readAt)
	returned := false
	defer func() {
		if !returned { // the handler ended the goroutine
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
		return // don't report success
	}
	release, err := pr.reserveUnread(ctx, err)
	defer release()
	clientGone := ctx.Err() != nil // nobody reads what is written
	sent := rs.end(pr.answer, err)
	pr.delivery.ReportSent(sent && !clientGone)
}

// serveSubscription answers subscriptions/listen with a stream that lasts as long as the client's
// authorization.
func (pr *postRequest) serveSubscription() {
	if pr.h.refuseStream(pr.w, pr.accept, http.StatusNotImplemented, pr.id()) || pr.slot.stand().write(pr.w) {
		return
	}
	ss := &standingStream{h: pr.h, slot: &pr.slot, response: pr.h.newResponse(pr.w, pr.r, pr.accept)}
	defer ss.served()
	ss.subscribe(pr)
}

// withIdentity returns ctx with the identity of the caller. p is the principal of ctx.
func (h *Handler) withIdentity(ctx context.Context, r *http.Request, p *auth.Principal) context.Context {
	if p == nil && !h.needsAddress {
		return ctx
	}
	if p == nil {
		return h.backend.WithIdentity(ctx, "", h.clientAddress(r))
	}
	return h.backend.WithIdentity(ctx, p.ID(), "")
}

// callerID returns the id of the principal p of r, or the network address if p is nil.
func (h *Handler) callerID(r *http.Request, p *auth.Principal) string {
	if p != nil {
		if id := p.ID(); id != "" {
			return id
		}
	}
	return h.clientAddress(r)
}

// clientAddress returns the network address of the client, see [networkOf].
func (h *Handler) clientAddress(r *http.Request) string {
	if h.opts.ClientAddr != nil {
		if addr := h.opts.ClientAddr(r); addr.IsValid() {
			return networkOf(addr)
		}
	}
	return peerAddress(r)
}

// principalIDOf returns the id of the principal, or "".
func principalIDOf(r *http.Request) string {
	return auth.PrincipalOf(r.Context()).ID()
}

// peerAddress returns the address of the connection, without the port. For IPv6 it returns the
// network, since one host usually has all its addresses.
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

// networkOf returns the address that limits apply to: an IPv4 address or an IPv6 network.
func networkOf(addr netip.Addr) string {
	if addr = addr.Unmap().WithZone(""); addr.Is4() {
		return addr.String()
	}
	network, _ := addr.Prefix(networkBits) // an error means more bits than an address has
	return network.String()
}

// networkBits is the length of the IPv6 prefix that names a host's network (RFC 4291, section
// 2.5.4).
const networkBits = 64

// allowed reports whether the caller has the scopes that the request needs. If not, it has answered
// the request.
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

// authorize returns an error if the caller lacks scopes for the request.
func (h *Handler) authorize(ctx context.Context, m *jsonrpc.Message) error {
	return auth.Require(ctx, h.opts.Scopes(string(m.Method), string(subjectOf(m)))...)
}

// serveBatch answers an array of messages, which only one revision allows.
func (pr *postRequest) serveBatch() {
	entries, err := rpcbatch.Parse(pr.body, 0)
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

// serveLegacyBatch answers an array of messages with an array of responses.
func (pr *postRequest) serveLegacyBatch(entries []rpcbatch.Entry) {
	h, w, r := pr.h, pr.w, pr.r
	s := h.acquireSession(w, r, pr.requester, pr.slot.callerID)
	if s == nil {
		return
	}
	defer s.release()
	if f := s.features.Load(); f == nil || !f.Batches {
		writeError(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "this revision has no batches")
		return
	}
	answers := 0
	for i := range entries {
		e := &entries[i]
		if e.Invalid != nil || e.Kind == jsonrpc.KindRequest {
			answers++
		}
		if e.Invalid == nil && !h.allowed(w, r, &e.Message) {
			return
		}
	}
	if answers == 0 {
		ctx := pr.withIdentity(r.Context())
		issued := true
		for i := range entries {
			issued = s.deliverOneWay(ctx, nil, &entries[i].Message) && issued
		}
		writeOneWay(w, issued)
		return
	}
	if pr.slot.admitRequest().write(w) || pr.slot.admitBatch(answers-1).write(w) {
		return
	}
	pr.serveLegacyRequest(s, entries)
}

// deliverBatch handles the messages concurrently, but starts each after the one before is prepared.
// It appends the array of responses to dst, or nothing if all requests were canceled.
func (s *session) deliverBatch(ctx context.Context, st *stream, entries []rpcbatch.Entry, dst []byte) []byte {
	answers := make([][]byte, len(entries))
	var wg sync.WaitGroup
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Invalid != nil:
			answers[i] = jsonrpc.AppendError(nil, e.ID, e.Invalid, false)
		case e.Kind == jsonrpc.KindRequest:
			placed := make(chan struct{})
			place := sync.OnceFunc(func() { close(placed) })
			wg.Go(func() {
				defer place()
				d := &rpc.Delivery{Message: &e.Message, Sender: st, Lifetime: s.ctx, Batch: true, OnPrepared: place}
				answers[i], _ = s.deliverRequest(ctx, nil, d, nil)
			})
			if _, ok := s.peer.(serverConn); ok { // a relay decides on the order itself
				<-placed
			}
		default:
			s.deliverOneWay(ctx, nil, &e.Message)
		}
	}
	wg.Wait()
	return appendBatch(dst, answers)
}

// appendBatch appends the array of the responses that are not empty, or nothing if all are.
func appendBatch(dst []byte, responses [][]byte) []byte {
	responses = slices.DeleteFunc(responses, func(r []byte) bool { return len(r) == 0 })
	if len(responses) == 0 {
		return dst
	}
	return append(append(append(dst, '['), bytes.Join(responses, comma)...), ']')
}

var comma = []byte{','}

// bodyTypeOf returns the media type that the Content-Type declares, or "" if that is invalid or its
// charset is not UTF-8. Compare the whole type, since pages can send types that merely contain the
// name without a preflight request.
func bodyTypeOf(r *http.Request) string {
	values := r.Header["Content-Type"]
	if len(values) != 1 {
		return ""
	}
	if values[0] == mediaJSON {
		return mediaJSON
	}
	media, params, err := mime.ParseMediaType(values[0])
	if charset, ok := params["charset"]; err != nil || ok && !strings.EqualFold(charset, "utf-8") {
		return ""
	}
	return media
}

// isEncoded reports whether the body is compressed or encoded in another way.
func isEncoded(r *http.Request) bool {
	values, ok := r.Header["Content-Encoding"]
	return ok && (len(values) != 1 || !strings.EqualFold(values[0], "identity"))
}

// minBodyBuffer is the size of the first buffer for a body of unknown length, in bytes.
const minBodyBuffer = 512

// readBody reads the body. Beyond Limits.MaxBody, the error is a *[http.MaxBytesError]. For a body
// of known length, readBody reads into one buffer of that size, and no further than the declared
// length.
func (pr *postRequest) readBody() (err error) {
	h, r := pr.h, pr.r
	limit := h.opts.Limits.MaxBody
	if r.ContentLength > int64(limit) {
		return &http.MaxBytesError{Limit: int64(limit)}
	}
	// net/http removes the deadline itself at the end of an HTTP/1 body, because it reads on to
	// detect that the client disconnects.
	pr.readAt = h.clock.elapsed()
	if r.ContentLength != 0 && pr.setReadDeadline(h.clock.base.Add(pr.readAt+h.opts.Timeouts.Body)) == nil {
		defer func() {
			if err != nil || r.ProtoMajor != 1 {
				pr.setReadDeadline(time.Time{})
			}
		}()
	}
	b := pr.body[:0]
	size := int(r.ContentLength) + 1 // one more, to see the end without growing
	if n := min(size, maxReusedBuffer); n > cap(b) {
		b = make([]byte, 0, n) // no more before the client has sent anything
	}
	defer func() { pr.body = bytes.TrimPrefix(b, bom) }()
	for reads := 1; ; reads++ {
		if len(b) == cap(b) {
			b = append(make([]byte, 0, max(min(size, 8*cap(b)), 2*cap(b), minBodyBuffer)), b...)
		}
		n, err := r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case len(b) > limit:
			return &http.MaxBytesError{Limit: int64(limit)}
		case err != nil && err != io.EOF:
			return err
		case err != nil:
			if reads > 1 { // the body arrived slowly
				pr.readAt = h.clock.elapsed()
			}
			httpserve.MarkBodyRead(pr.w, r)
			return nil
		}
	}
}

// writeBodyError responds to a body that could not be read.
func (h *Handler) writeBodyError(w http.ResponseWriter, r *http.Request, err error) {
	if r.ProtoMajor == 1 {
		w.Header()["Connection"] = closeConnection // the rest need not be read
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok { // or of a middleware
		writeError(w, http.StatusRequestEntityTooLarge, jsonrpc.CodeInvalidRequest, fmt.Sprintf("body of more than %d bytes", large.Limit))
		return
	}
	h.opts.Logger.Debug("body not read", "error", err)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		writeError(w, http.StatusRequestTimeout, jsonrpc.CodeInvalidRequest, "the body did not arrive in time")
		return
	}
	writeError(w, http.StatusBadRequest, jsonrpc.CodeInvalidRequest, "the body does not match its header or its chunks, or ends early")
}

// acceptedTypes has the response types that a client accepts.
type acceptedTypes struct{ json, stream bool }

// parseAccept reads the Accept headers. A client without one accepts both types.
func parseAccept(r *http.Request) acceptedTypes {
	values := r.Header["Accept"]
	if len(values) == 0 || len(values) == 1 && (values[0] == "application/json, text/event-stream" || values[0] == "*/*") {
		return acceptedTypes{json: true, stream: true}
	}
	var a, not acceptedTypes // a named type overrules a matching range
	var any, anyText, anyApplication bool
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			media, params, _ := strings.Cut(part, ";")
			accept := !hasZeroWeight(params)
			switch strings.ToLower(strings.Trim(media, " \t")) {
			case "*/*":
				any = any || accept
			case "text/*":
				anyText = anyText || accept
			case "application/*":
				anyApplication = anyApplication || accept
			case mediaJSON:
				a.json, not.json = a.json || accept, !accept
			case mediaStream:
				a.stream, not.stream = a.stream || accept, !accept
			}
		}
	}
	a.json = a.json || (any || anyApplication) && !not.json
	a.stream = a.stream || (any || anyText) && !not.stream
	return a
}

// hasZeroWeight reports whether the parameters of a media range contain a weight of 0.
func hasZeroWeight(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		key, value, _ := strings.Cut(strings.Trim(p, " \t"), "=")
		if strings.EqualFold(key, "q") {
			return strings.Trim(value, "0.") == "" && strings.HasPrefix(value, "0")
		}
	}
	return false
}

// serveNDJSON serves a body of lines, each a message, like standard input: the responses are lines
// too, written as soon as they are ready. Both eras work. A session ends with the body. Each
// request is checked for its scopes.
func (h *Handler) serveNDJSON(w http.ResponseWriter, r *http.Request, s *slot) {
	if s.stand().write(w) {
		return
	}
	rc := http.NewResponseController(w)
	rc.EnableFullDuplex() // HTTP/2 is always full duplex
	rc.SetReadDeadline(time.Time{})
	w.Header().Set("Content-Type", mediaLines)
	w.Header()["Cache-Control"] = noStore
	w.Header()["X-Accel-Buffering"] = noBuffering
	w.WriteHeader(http.StatusOK)
	rc.Flush()
	ctx, cancel := withExpiry(r.Context())
	defer cancel()
	// Reading stops. Pending requests are still answered, but the client cannot respond to theirs.
	defer context.AfterFunc(h.closed, cancel)()
	deadlineSet := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(deadlineSet)
		rc.SetReadDeadline(time.Now())
	})
	defer func() {
		if !stop() {
			<-deadlineSet // the response must not be used after that
		}
	}()
	b := &ndjsonBody{h: h, r: r, w: w, rc: rc}
	if err := h.srv.Serve(h.withIdentity(ctx, r, auth.PrincipalOf(ctx)), b.framer()); err != nil {
		h.opts.Logger.Debug("lines", "error", err)
	}
	b.Close()
}

// An ndjsonBody joins the two bodies of a request to one byte stream.
type ndjsonBody struct {
	h  *Handler
	r  *http.Request
	w  http.ResponseWriter
	rc *http.ResponseController

	mu     sync.Mutex
	closed bool
}

func (b *ndjsonBody) Read(p []byte) (int, error) { return b.r.Body.Read(p) }

func (b *ndjsonBody) Write(p []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return 0, io.ErrClosedPipe
	}
	for n < len(p) {
		part := p[n:min(n+maxWrite, len(p))]
		b.rc.SetWriteDeadline(time.Now().Add(b.h.opts.Timeouts.Write))
		m, err := b.w.Write(part)
		n += m
		if err != nil {
			return n, err
		}
	}
	if err = b.rc.Flush(); errors.Is(err, http.ErrNotSupported) {
		b.h.warnUnflushed(b.w)
		err = nil
	}
	b.rc.SetWriteDeadline(time.Time{}) // an HTTP/2 deadline ends the stream even without a write
	return n, err
}

// Close makes a pending Read return.
func (b *ndjsonBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		b.rc.SetReadDeadline(time.Now())
		b.rc.SetWriteDeadline(time.Time{})
	}
	return nil
}

// framer returns a Framer for the lines, which checks scopes if Options.Scopes is set.
func (b *ndjsonBody) framer() jsonrpc.Framer {
	f := jsonrpc.NewFramer(b, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine, MaxFrame: b.h.opts.Limits.MaxBody})
	if b.h.opts.Scopes == nil {
		return f
	}
	return &scopedFramer{Framer: f, body: b}
}

// A scopedFramer answers requests whose caller lacks scopes.
type scopedFramer struct {
	jsonrpc.Framer
	body *ndjsonBody
}

// ReadFrame implements [jsonrpc.Framer].
func (f *scopedFramer) ReadFrame() ([]byte, error) {
	for {
		frame, err := f.Framer.ReadFrame()
		if err != nil {
			return nil, err
		}
		rejections := f.rejections(frame)
		if len(rejections) == 0 {
			return frame, nil
		}
		for _, e := range rejections {
			// The writer of the connection may run: it writes whole lines too.
			if _, err := f.body.Write(append(e, '\n')); err != nil {
				return nil, err
			}
		}
	}
}

// rejections returns error responses to all requests in a frame if the caller lacks scopes for one
// of them. It ignores frames that cannot be parsed, which the server rejects.
func (f *scopedFramer) rejections(frame []byte) (answers [][]byte) {
	entries := make([]rpcbatch.Entry, 1)
	if rpcbatch.Is(frame) {
		entries, _ = rpcbatch.Parse(frame, 0)
	} else if jsonrpc.Parse(frame, &entries[0].Message, 0) != nil {
		return nil
	}
	rejected := false
	for i := range entries {
		m := &entries[i].Message
		if entries[i].Invalid != nil || m.Kind != jsonrpc.KindRequest {
			continue
		}
		e := jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "not forwarded: another message of the batch was rejected")
		if err := f.body.h.authorize(f.body.r.Context(), m); err != nil {
			rejected = true
			e = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "forbidden: %v", err)
		}
		answers = append(answers, jsonrpc.AppendError(nil, m.ID, e, false))
	}
	if !rejected {
		return nil
	}
	return answers
}

// withExpiry returns a context that ends when the token of ctx's principal expires, with the cause
// [auth.ErrExpired]. It is for streams and other work that outlives a request. Without a principal
// or an expiry, it ends with ctx. The caller must call cancel.
func withExpiry(ctx context.Context) (_ context.Context, cancel context.CancelFunc) {
	if p := auth.PrincipalOf(ctx); p != nil && !p.Expires.IsZero() {
		return context.WithDeadlineCause(ctx, p.Expires, auth.ErrExpired)
	}
	return context.WithCancel(ctx)
}
