package streamable

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A clientSession is what ties the requests of a legacy connection together. It does not change once there is one, but for its end.
type clientSession struct {
	id            string   // that the server gave; "" if it keeps none
	version       []string // that the two sides agreed on; nil before that
	gone          bool     // the server does not know it any more
	listenStarted bool     // there is a goroutine that listens to the server
	mayAsk        bool     // the server may ask for something

	listening <-chan struct{} // closed when the server knows that somebody listens to its questions; nil if that is of no interest
}

// maxSessionIDBytes bounds the id of a session, in bytes.
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

// setSessionID notes the id that the server gave a new session.
func (f *framer) setSessionID(h http.Header) error {
	id := h.Get(headerSession)
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' || i >= maxSessionIDBytes {
			return &jsonrpc.CallError{Err: errors.New("the server gave the session an id that is no visible ASCII, or too long"), Outcome: jsonrpc.OutcomeRejected}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.session.id = id
	return nil
}

// setNegotiated notes the version that the server has chosen.
func (f *framer) setNegotiated(m *jsonrpc.Message) {
	version := jsonwire.Text(jsonwire.Lookup(m.Result, "protocolVersion"))
	if version == "" || !era.PlainHeaderValue(version) || len(version) > len(valueModern[0]) {
		return // the client is not going to agree
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.session.version = []string{version}
}

// loseSession ends the connection, since the server does not know its session any more. Other requests that are under way get a moment to end by themselves.
func (f *framer) loseSession() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.session.gone {
		return
	}
	f.session.gone = true
	if len(f.pending) == 0 {
		f.finishLocked(errSessionGone)
		return
	}
	f.wg.Go(func() {
		sleep(f.ctx, drainTimeout)
		f.finish(errSessionGone)
	})
}

// endSession tells the server that the session is not needed any more. It need not agree to that.
func (f *framer) endSession() {
	s := f.currentSession()
	if s.id == "" || s.gone {
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

// listenTimeout is how long the first calls of a session wait for the stream that the server's questions about them may come on. Servers drop what they have
// to say while there is none; and some do not begin to answer before they have something. Calls that no questions can come of do not wait.
const listenTimeout = time.Second

// prepareListenLocked returns what to close when the server knows that somebody listens, and lets calls wait for that if it matters; nil if nobody is to listen.
func (f *framer) prepareListenLocked() chan<- struct{} {
	if f.session.listenStarted || f.closing || f.transport.opts.NoListening || f.sse != nil {
		return nil
	}
	f.session.listenStarted = true
	listening := make(chan struct{})
	if f.session.mayAsk {
		f.session.listening = listening
	}
	return listening
}

// startListening has a goroutine take what the server says of itself, and closes listens when the server knows, or seems not to tell. It is called once the session has begun.
func (f *framer) startListening(listening chan<- struct{}) {
	answered := make(chan struct{})
	f.wg.Go(func() { f.listen(answered) })
	f.wg.Go(func() {
		defer close(listening)
		timer := time.NewTimer(listenTimeout)
		defer timer.Stop()
		select {
		case <-answered:
		case <-timer.C:
		case <-f.done:
		}
	})
}

// listen keeps a stream open for what the server says of itself, as long as it offers one. It closes answered when that is known.
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
			if missed && !s.resumable() { // from now on nothing is
				reportGap()
			}
			began := time.Now()
			s.read(resp.Body, f.enqueueFrames(resp.Request.Context()))
			resp.Body.Close()
			missed = true
			if s.progressed || time.Since(began) >= maxRetry { // one that lasted is no failure, though there was nothing to say
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
			f.log.Warn("the server's own stream is given up for a while: it brings nothing", "error", err)
			failures = maxFailures - 1
			if !sleep(f.ctx, maxRetry) {
				return
			}
			continue
		}
		if !s.pause(f.ctx, failures, err) {
			return
		}
	}
}

// keepListening reports whether it is worth asking again after an error: most servers that have no stream say so, in various ways.
func (f *framer) keepListening(err error, offered *bool, s *clientStream) bool {
	e, _ := errors.AsType[*jsonrpc.CallError](err)
	status, answered := errors.AsType[*StatusError](err)
	switch {
	case answered && status.StatusCode == http.StatusNotFound && f.currentSession().id != "" && (*offered || f.isSessionGone()),
		answered && status.StatusCode == http.StatusBadRequest && f.currentSession().id != "" && *offered && f.isSessionGone():
		f.loseSession()
		return false
	case s.lastID != "" && e.Outcome == jsonrpc.OutcomeRejected:
		s.lastID = "" // perhaps it was that which the server cannot do
		return true
	case e.Outcome == jsonrpc.OutcomeRejected || e.Outcome == jsonrpc.OutcomeDenied:
		f.log.Debug("the server has no stream of its own", "error", err)
		return false
	}
	return true
}

// isSessionRejected reports whether a refusal of a message in a session says that the server no longer knows the session. The protocol has 404 for that. Many servers, those that
// follow the examples of the TypeScript SDK for one, answer 400 instead, as for any other bad request, without the request's id. Then the server is asked.
func (f *framer) isSessionRejected(r *httpError, id string) bool {
	switch r.status.StatusCode {
	case http.StatusNotFound:
		return !r.isMethodNotFound()
	case http.StatusBadRequest:
		return !r.answersID(id) && f.isSessionGone()
	}
	return false
}

// isSessionGone asks whether the server still knows the session: 404 may also mean that it has no stream, and 400 anything, and this once nobody else may ask for long. 400 counts
// only in a session that has worked: nothing is wrong with the question then but the session.
func (f *framer) isSessionGone() bool {
	s := f.currentSession()
	if s.gone {
		return true
	}
	ctx, cancel := context.WithTimeout(f.baseCtx, oneWayTimeout)
	defer cancel()
	h := f.transport.legacyHeader(&s)
	h["Content-Type"], h["Accept"] = valueJSON, valueAccept
	id := jsonrpc.StringID("still there")
	ping := jsonrpc.AppendRequest(nil, id, mcp.MethodPing, nil)
	resp, err := f.transport.send(ctx, http.MethodPost, f.transport.url, h, ping)
	if err != nil {
		return false // a call will find out
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound && (resp.StatusCode != http.StatusBadRequest || !f.sessionServed.Load()) {
		return false
	}
	r := readHTTPError(resp, 0)
	return !r.isMethodNotFound() && !r.answersID(id.String())
}

// enqueueFrames passes on what the server says of itself.
func (f *framer) enqueueFrames(from context.Context) func(frame []byte) (bool, error) {
	return func(frame []byte) (bool, error) {
		f.enqueue(inbound{frame: frame, from: from})
		return f.ctx.Err() != nil, nil
	}
}

var errSSEEnded = fmt.Errorf("the stream that brings the answers has ended: %w", jsonrpc.ErrClosed)
