package streamable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/net/neterror"
	"mcpwire/internal/net/sse"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A clientSession is the state of a legacy session. It is immutable once set, except for its end.
type clientSession struct {
	// id is the id that the server assigned, or "".
	id string
	// version is the negotiated version header. It is nil before.
	version []string
	// gone is the reason if the server has forgotten the session.
	gone error
	// listenStarted means that a goroutine keeps the GET stream open.
	listenStarted bool
	// mayRequest means that the server may send requests.
	mayRequest bool

	// listening is closed when the server knows the client's stream for its requests. It is nil if
	// calls need not wait for that.
	listening <-chan struct{}
}

// maxSessionIDBytes limits the id of a session, in bytes.
const maxSessionIDBytes = 4096

func (f *framer) currentSession() clientSession {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.session
}

// legacyHeader returns the header of a request in the session.
func (t *Transport) legacyHeader(s *clientSession) http.Header {
	h := t.header(6)
	if s.id != "" {
		h[headerSession] = []string{s.id}
	}
	if s.version != nil {
		h[headerVersion] = s.version
	}
	return h
}

// setSessionID stores the id that the server assigned to a new session.
func (f *framer) setSessionID(h http.Header) error {
	id := h.Get(headerSession)
	if len(id) > maxSessionIDBytes || !isVisibleASCII(id) {
		return &jsonrpc.CallError{Err: errors.New("the session id of the server is not visible ASCII, or too long"), Outcome: jsonrpc.OutcomeRejected}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.session.id = id
	return nil
}

// setNegotiated stores the version that the server chose.
func (f *framer) setNegotiated(m *jsonrpc.Message) {
	version := jsonwire.Text(jsonwire.Lookup(m.Result, "protocolVersion"))
	if version == "" || !era.PlainHeaderValue(version) || len(version) > len(valueModern[0]) {
		return // the client is going to reject it
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.session.version = []string{version}
}

// loseSession ends the connection because the server has forgotten the session, as the status
// says. Pending requests get drainTimeout to end. It returns the error of the request that was
// rejected for that reason.
func (f *framer) loseSession(status *StatusError) *jsonrpc.CallError {
	gone := fmt.Errorf("the server refuses the session with %w: %w", status, jsonrpc.ErrClosed)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.session.gone == nil {
		f.session.gone = gone
		if len(f.pending) == 0 {
			f.finishLocked(gone)
		} else {
			f.wg.Go(func() {
				wait.Sleep(f.ctx, drainTimeout)
				f.finish(gone)
			})
		}
	}
	return &jsonrpc.CallError{Err: gone, Outcome: jsonrpc.OutcomeUnprocessed}
}

// endSession tells the server that the session has ended. It ignores a refusal.
func (f *framer) endSession() {
	s := f.currentSession()
	if s.id == "" || s.gone != nil {
		return
	}
	ctx, cancel := context.WithTimeout(f.baseCtx, closeTimeout)
	defer cancel()
	resp, err := f.transport.send(ctx, http.MethodDelete, f.transport.url, f.transport.legacyHeader(&s), nil)
	if err != nil {
		f.log.Debug("session not ended", "error", sendError(err))
		return
	}
	defer resp.Body.Close()
	drainBody(resp.Body)
}

// listenTimeout limits how long the first calls of a session wait for the GET stream, on which the
// server may send requests. Servers drop such messages without a stream; and some begin their
// response to GET only with the first message. Calls that cannot cause server requests do not wait.
const listenTimeout = time.Second

// prepareListenLocked returns a channel to close when the server knows the GET stream, and lets
// calls wait for that if they need it. It returns nil if no stream is needed.
func (f *framer) prepareListenLocked() chan<- struct{} {
	if f.session.listenStarted || f.closed != nil || f.transport.opts.NoListening || f.sse != nil {
		return nil
	}
	f.session.listenStarted = true
	listening := make(chan struct{})
	if f.session.mayRequest {
		f.session.listening = listening
	}
	return listening
}

// startListening opens the GET stream of a new session, and closes listening when the server has
// responded or listenTimeout has passed.
func (f *framer) startListening(listening chan<- struct{}) {
	answered := make(chan struct{})
	f.wg.Go(func() { f.listen(answered) })
	f.wg.Go(func() {
		defer close(listening)
		select {
		case <-answered:
		case <-time.After(listenTimeout):
		case <-f.done:
		}
	})
}

// listen keeps the GET stream open while the server offers one. It closes answered at the first
// response.
func (f *framer) listen(answered chan<- struct{}) {
	reportGap := func() { f.enqueue(inbound{err: jsonrpc.ErrGap}) }
	s := &clientStream{f: f, onSkip: reportGap}
	offered, missed := false, false
	markAnswered := sync.OnceFunc(func() { close(answered) })
	for failures := 0; ; {
		resp, err := f.get(f.baseCtx, s.lastID)
		markAnswered()
		switch {
		case f.ctx.Err() != nil:
			return
		case err == nil:
			offered = true
			if missed && !s.resumable() { // from now on nothing is missed
				reportGap()
			}
			began := time.Now()
			from := resp.Request.Context()
			s.read(resp.Body, func(frame []byte) (done bool, err error) {
				f.enqueue(inbound{frame: frame, from: from})
				return f.ctx.Err() != nil, nil
			})
			resp.Body.Close()
			missed = true
			// A stream that lasted is not a failure, even without messages.
			if s.progressed || time.Since(began) >= maxRetry {
				failures = 0
			} else {
				failures++
			}
			if !s.resumable() {
				s.lastID = ""
			}
		case !f.keepListening(err, &offered, s):
			return
		default:
			failures++
		}
		if failures >= maxFailures {
			f.log.Warn("pausing the server's GET stream: no messages arrive", "error", err)
			failures = maxFailures - 1
			if !wait.Sleep(f.ctx, maxRetry) {
				return
			}
			continue
		}
		if !s.pause(f.ctx, failures, err) {
			return
		}
	}
}

// keepListening reports whether to repeat the GET after an error: most servers without a stream say
// so in various ways.
func (f *framer) keepListening(err error, offered *bool, s *clientStream) bool {
	e, _ := errors.AsType[*jsonrpc.CallError](err)
	status, answered := errors.AsType[*StatusError](err)
	switch {
	case answered && status.StatusCode == http.StatusNotFound && f.currentSession().id != "" && (*offered || f.isSessionGone()),
		answered && status.StatusCode == http.StatusBadRequest && f.currentSession().id != "" && *offered && f.isSessionGone():
		f.loseSession(status)
		return false
	case s.lastID != "" && e.Outcome == jsonrpc.OutcomeRejected:
		s.lastID = "" // resuming may be the problem
		return true
	case e.Outcome == jsonrpc.OutcomeRejected || e.Outcome == jsonrpc.OutcomeDenied:
		f.log.Debug("the server has no GET stream", "error", err)
		return false
	}
	return true
}

// isSessionRejected reports whether the rejection of a message means that the server has forgotten
// the session. The protocol's status for that is 404. Many servers, such as those that follow the
// examples of the TypeScript SDK, respond with 400 and without the request's id, as to any invalid
// request. Then isSessionGone asks the server.
func (f *framer) isSessionRejected(r *httpError, id string) bool {
	switch r.status.StatusCode {
	case http.StatusNotFound:
		return !r.isMethodNotFound()
	case http.StatusBadRequest:
		return !r.answersID(id) && f.isSessionGone()
	}
	return false
}

// isSessionGone asks the server whether it still knows the session, by a ping: 404 may also mean
// that the server has no stream, and 400 anything. 400 counts only in a session that has worked:
// then only the session can be wrong with the ping.
func (f *framer) isSessionGone() bool {
	s := f.currentSession()
	if s.gone != nil {
		return true
	}
	ctx, cancel := context.WithTimeout(f.baseCtx, oneWayTimeout)
	defer cancel()
	h := f.transport.legacyHeader(&s)
	h["Content-Type"], h["Accept"] = valueJSON, valueAccept
	id := jsonrpc.StringID("still open")
	ping := jsonrpc.AppendRequest(nil, id, mcp.MethodPing, nil)
	resp, err := f.transport.send(ctx, http.MethodPost, f.transport.url, h, ping)
	if err != nil {
		return false // a call will find out
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound && (resp.StatusCode != http.StatusBadRequest || !f.sessionServed.Load()) {
		return false
	}
	r := readHTTPError(resp)
	return !r.isMethodNotFound() && !r.answersID(id.String())
}

var errSSEEnded = fmt.Errorf("the stream of responses has ended: %w", jsonrpc.ErrClosed)

// Limits of streams.
const (
	// Delay before a stream is resumed, unless the server sets it.
	defaultRetry = time.Second
	minRetry     = 100 * time.Millisecond
	maxRetry     = time.Minute
	// Failures in a row without progress after which a stream is abandoned.
	maxFailures = 8
	// Time for a server to end a response after its last event, so that the connection can be
	// reused.
	lingerTimeout = 250 * time.Millisecond
)

// A clientStream is a sequence of events, which continues over several HTTP responses if it can be
// resumed
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery).
type clientStream struct {
	f *framer
	// lastID is the last event id. A stream with "" cannot be resumed.
	lastID string
	// retry is the delay that the server requested, or 0.
	retry time.Duration
	// progressed means that the last response contained something new.
	progressed bool
	// interrupted means that the last response broke off.
	interrupted bool
	// tooLargeErr is the error of an event that was too large.
	tooLargeErr error
	// resumedAt is the time when a broken stream was last resumed at once.
	resumedAt time.Time

	// onSkip is called for an event that is too large. It may be nil.
	onSkip func()
}

// read reads the events of one response until it ends or handle returns true or an error.
func (s *clientStream) read(body io.Reader, handle func(frame []byte) (done bool, err error)) (done bool, err error) {
	r := sse.NewReader(body, s.f.transport.opts.MaxFrame)
	r.SetLastEventID(s.lastID)
	s.progressed, s.interrupted, s.tooLargeErr = false, false, nil
	defer func() { s.interrupted = !done && err != nil && !errors.Is(err, io.EOF) }()
	for {
		e, err := r.Read()
		if e.HasID && string(e.ID) != s.lastID {
			s.progressed = true
		}
		if err == nil && e.HasID {
			s.lastID = r.LastEventID()
		}
		if large, ok := errors.AsType[*sse.TooLargeError](err); ok {
			s.f.log.Warn("stream event skipped", "error", large)
			s.tooLargeErr, s.lastID = &jsonrpc.TooLargeError{Limit: s.f.transport.opts.MaxFrame, Kind: jsonrpc.KindResponse}, r.LastEventID()
			if s.onSkip != nil {
				s.onSkip()
			}
			continue
		}
		if err != nil {
			return false, err
		}
		if e.HasRetry {
			s.retry = min(max(e.Retry, minRetry), maxRetry)
		}
		if len(e.Data) == 0 || e.Name != "" {
			continue
		}
		s.progressed = true
		if done, err := handle(bytes.Clone(e.Data)); done || err != nil {
			return done, err
		}
	}
}

// delay returns the delay before the stream is resumed, after a number of failures in a row. The
// first time after a break it is 0, or a little if the stream breaks all the time: retry is meant
// for streams that the server ends itself
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#sending-messages-to-the-server),
// and a longer wait means more events to store.
func (s *clientStream) delay(failures int) time.Duration {
	if s.interrupted {
		if failures == 0 {
			return max(0, minRetry-time.Since(s.resumedAt))
		}
		failures--
	}
	d := s.retry
	if d == 0 {
		d = defaultRetry
	}
	for range failures {
		d = min(2*d, maxRetry)
	}
	return d
}

// pause waits for delay, or longer if the server that refused the last attempt requested it. It
// reports false if ctx ended first.
func (s *clientStream) pause(ctx context.Context, failures int, refused error) bool {
	d := s.delay(failures)
	if e, ok := errors.AsType[*jsonrpc.CallError](refused); ok {
		d = max(d, min(e.RetryAfter, maxRetry))
	}
	if !wait.Sleep(ctx, d) {
		return false
	}
	if s.interrupted && failures == 0 {
		s.resumedAt = time.Now()
	}
	return true
}

// isUnavailable reports whether the error means that the server is down, though its machine or a
// proxy in front is up.
func isUnavailable(err error) bool {
	if status, ok := errors.AsType[*StatusError](err); ok {
		return status.StatusCode >= 500
	}
	return neterror.IsRefused(err)
}

// resumable reports whether the server can resume the stream after the last event.
func (s *clientStream) resumable() bool {
	return s.lastID != "" && !strings.ContainsFunc(s.lastID, func(r rune) bool { return r < ' ' || r > '~' })
}

// readStream reads the response from a stream that begins with body, and resumes it if necessary.
// It closes all bodies.
func (p *post) readStream(body io.ReadCloser) error {
	s := &clientStream{f: p.f}
	defer func() { body.Close() }()
	handle := func(frame []byte) (bool, error) { return p.handleMessage(frame, false) }
	for failures := 0; ; {
		done, err := s.read(body, handle)
		if done {
			linger(body, p.cancel)
			return nil
		}
		if e, ok := errors.AsType[*jsonrpc.CallError](err); ok {
			return e
		}
		// The response was too large, and would be again.
		if s.tooLargeErr != nil {
			return lostError(s.tooLargeErr)
		}
		err = fmt.Errorf("the stream ended before the response: %w", err)
		if p.modern || p.method == mcp.MethodInitialize {
			return lostError(err)
		}
		body.Close() // there may be many
		resp, reason := p.resume(s, &failures)
		if reason != nil {
			// The reason may belong to another HTTP request than the call's.
			return lostError(fmt.Errorf("%w; it could not be resumed: %v", err, reason))
		}
		body, p.from = resp.Body, resp.Request.Context()
	}
}

// linger gives the server a moment to end a finished response, and then calls cancel.
func linger(body io.Reader, cancel context.CancelFunc) {
	t := time.AfterFunc(lingerTimeout, cancel)
	defer t.Stop()
	drainBody(body)
}

var (
	errNotResumable = errors.New("its events have no ids")
	errNoProgress   = errors.New("it ended repeatedly, without any event in between")
)

// resume asks the server to resume a broken stream. It returns the response, or the reason for the
// failure.
func (p *post) resume(s *clientStream, failures *int) (*http.Response, error) {
	if !s.resumable() {
		return nil, errNotResumable
	}
	if s.progressed {
		*failures = 0
	} else {
		*failures++
	}
	broke := time.Now()
	err := errNoProgress
	for ; ; *failures++ {
		if *failures >= maxFailures {
			return nil, err
		}
		if !s.pause(p.ctx, *failures, err) {
			return nil, p.ctx.Err()
		}
		var resp *http.Response
		if resp, err = p.f.get(p.ctx, s.lastID); err == nil {
			return resp, nil
		}
		if e, ok := errors.AsType[*jsonrpc.CallError](err); ok && (e.Outcome == jsonrpc.OutcomeRejected || e.Outcome == jsonrpc.OutcomeDenied) {
			return nil, err
		}
		if most := p.f.transport.opts.UnavailableTimeout; most > 0 && isUnavailable(err) && time.Since(broke)+s.delay(*failures+1) > most {
			return nil, err
		}
	}
}

// get opens a stream. The error is a *jsonrpc.CallError.
func (f *framer) get(ctx context.Context, lastID string) (*http.Response, error) {
	session := f.currentSession()
	h := f.transport.legacyHeader(&session)
	h["Accept"] = valueStream
	if lastID != "" {
		h[headerLastID] = []string{lastID}
	}
	resp, err := f.transport.send(ctx, http.MethodGet, f.transport.url, h, nil)
	if err != nil {
		return nil, sendError(err)
	}
	if resp.StatusCode == http.StatusOK && mediaTypeOf(resp.Header) == mediaStream {
		if err := checkContentEncoding(resp.Header); err != nil {
			resp.Body.Close()
			return nil, &jsonrpc.CallError{Err: err, Outcome: jsonrpc.OutcomeRejected}
		}
		return resp, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		return nil, &jsonrpc.CallError{Err: fmt.Errorf("the server's response to GET is not a stream: %w", &StatusError{StatusCode: resp.StatusCode}), Outcome: jsonrpc.OutcomeRejected}
	}
	return nil, readHTTPError(resp).callError()
}

// endpointTimeout limits the wait for the endpoint event. Servers whose GET stream is not HTTP+SSE
// never send it.
const endpointTimeout = 5 * time.Second

// With the HTTP+SSE transport of 2024-11-05, the client posts messages to one URL, the endpoint,
// and one stream has all messages of the server
// (https://modelcontextprotocol.io/specification/2024-11-05/basic/transports#http-with-sse).

// currentSSE returns the endpoint, or nil if the server does not speak HTTP+SSE.
func (f *framer) currentSSE() *url.URL {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sse
}

// mayBeSSE reports whether a server that only knows HTTP+SSE may have rejected initialize this way.
func (p *post) mayBeSSE(r *httpError) bool {
	switch r.status.StatusCode {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
	default:
		return false
	}
	return !p.f.transport.opts.NoSSE && (r.message == nil || !era.IsModernError(r.message.Err()) && r.message.Err().Code != jsonrpc.CodeMethodNotFound)
}

// openSSE tries to open an HTTP+SSE stream, and returns the endpoint. It returns nil on failure.
func (f *framer) openSSE(ctx context.Context) *url.URL {
	streamCtx, cancel := context.WithCancel(f.baseCtx) // the stream outlasts the request
	stop := context.AfterFunc(ctx, cancel)
	timer := time.AfterFunc(endpointTimeout, cancel)
	var endpoint *url.URL
	resp, err := f.get(streamCtx, "")
	var reader *sse.Reader
	if err == nil {
		reader = sse.NewReader(resp.Body, f.transport.opts.MaxFrame)
		endpoint, err = f.readEndpoint(reader)
	}
	if !stop() || !timer.Stop() || err != nil {
		if resp != nil {
			resp.Body.Close()
		}
		cancel()
		f.log.Debug("the server does not support HTTP+SSE either", "error", err)
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed != nil {
		resp.Body.Close()
		cancel()
		return nil
	}
	f.sse = endpoint
	f.wg.Go(func() {
		defer cancel()
		defer resp.Body.Close()
		f.readSSE(reader, resp.Request.Context())
	})
	return endpoint
}

// readEndpoint reads the endpoint event.
func (f *framer) readEndpoint(r *sse.Reader) (*url.URL, error) {
	for {
		e, err := r.Read()
		switch {
		case err != nil:
			return nil, err
		case len(e.Data) == 0:
			continue
		case e.Name != "endpoint":
			return nil, fmt.Errorf("the first event is %.40q, but must be endpoint", e.Name)
		}
		to, err := f.transport.url.Parse(strings.TrimSpace(string(e.Data)))
		switch {
		case err != nil:
			return nil, errors.New("the endpoint is not a URL")
		case !sameOrigin(to, f.transport.url) || to.User != nil:
			return nil, errors.New("the endpoint is not at the same origin")
		}
		to.Fragment, to.RawFragment = "", ""
		return to, nil
	}
}

// readSSE receives the messages of the stream. The connection ends with it.
func (f *framer) readSSE(r *sse.Reader, from context.Context) {
	for {
		e, err := r.Read()
		if large, ok := errors.AsType[*sse.TooLargeError](err); ok {
			// The call is unknown: a FrameError without an id fails the only pending call.
			f.enqueue(inbound{err: &jsonrpc.FrameError{
				Code: jsonrpc.CodeInvalidRequest, Reason: large.Error(),
				Err: &jsonrpc.TooLargeError{Limit: f.transport.opts.MaxFrame, Kind: jsonrpc.KindResponse},
			}, from: from})
			continue
		}
		if err != nil {
			f.finish(fmt.Errorf("%w (%w)", errSSEEnded, err))
			return
		}
		if len(e.Data) > 0 && e.Name == "" {
			f.enqueue(inbound{frame: append([]byte(nil), e.Data...), from: from})
		}
	}
}

// roundTripSSE posts a request. Its response arrives on the stream.
func (p *post) roundTripSSE(endpoint *url.URL) error {
	h := p.f.transport.header(2)
	h["Content-Type"], h["Accept"] = valueJSON, valueAccept
	p.sent.Store(true)
	resp, err := p.f.transport.send(p.ctx, http.MethodPost, endpoint, h, p.body)
	if err != nil {
		return sendError(err)
	}
	defer resp.Body.Close()
	p.from = resp.Request.Context()
	if resp.StatusCode/100 == 2 {
		linger(resp.Body, p.cancel)
		return nil
	}
	r := readHTTPError(resp)
	if resp.StatusCode == http.StatusNotFound && !r.isMethodNotFound() && p.method != mcp.MethodInitialize {
		return p.f.loseSession(r.status) // though its stream has not ended yet
	}
	return p.completeHTTPError(r)
}
