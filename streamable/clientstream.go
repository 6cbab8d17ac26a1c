package streamable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"mcpwire/internal/neterror"
	"mcpwire/internal/sse"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Bounds of streams.
const (
	defaultRetry  = time.Second // between a stream that broke and the next, if the server did not say
	minRetry      = 100 * time.Millisecond
	maxRetry      = time.Minute
	maxFailures   = 8                      // in a row, without progress, after which a stream is given up
	lingerTimeout = 250 * time.Millisecond // that a server has to end a response behind its last event, so that the connection can be used again
)

// A clientStream is a sequence of events, which goes on over several HTTP responses if it can be resumed
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery).
type clientStream struct {
	f           *framer
	lastID      string        // of the last event that had one; "" cannot be resumed
	retry       time.Duration // that the server wants to be waited; 0 if it did not say
	progressed  bool          // the last response brought something that was new
	interrupted bool          // it did not end as the server meant it to
	tooLargeErr error         // what was too large to be read in it
	resumedAt   time.Time     // when a stream that broke was last taken up again at once

	onSkip func() // is called for what is too large; may be nil
}

// read takes the messages of one response, until that ends or take returns true.
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
			s.f.log.Warn("event of a stream skipped", "error", large)
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

// delay is how long is waited before the stream is taken up again, after so many failures in a row. The first time after it broke, that is not at all: what retry means is how long
// a server wants to be left alone that has ended the stream itself
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#sending-messages-to-the-server), and the longer the wait, the more events there are to be kept. A stream that breaks
// all the time waits a little.
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

// pause waits as long, and at least so long as a server that refused the last attempt wants. It reports whether ctx did not end before.
func (s *clientStream) pause(ctx context.Context, failures int, refused error) bool {
	d := s.delay(failures)
	if e, ok := errors.AsType[*jsonrpc.CallError](refused); ok {
		d = max(d, min(e.RetryAfter, maxRetry))
	}
	if !sleep(ctx, d) {
		return false
	}
	if s.interrupted && failures == 0 {
		s.resumedAt = time.Now()
	}
	return true
}

// isUnavailable reports whether an error says that the server is not there, though its machine, or one that stands before it, is.
func isUnavailable(err error) bool {
	if status, ok := errors.AsType[*StatusError](err); ok {
		return status.StatusCode >= 500
	}
	return neterror.IsRefused(err)
}

// resumable reports whether the server can be asked to go on behind the last event.
func (s *clientStream) resumable() bool {
	for i := range len(s.lastID) {
		if s.lastID[i] < ' ' || s.lastID[i] > '~' {
			return false
		}
	}
	return s.lastID != ""
}

// readStream takes the answer out of a stream that began with body, and closes the bodies of the responses that it goes on in.
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
		if s.tooLargeErr != nil { // it was the answer, and would be as large the next time
			return lostError(s.tooLargeErr)
		}
		err = fmt.Errorf("the stream ended before the answer: %w", err)
		if p.modern || p.method == mcp.MethodInitialize {
			return lostError(err)
		}
		body.Close() // there may be many
		resp, reason := p.resume(s, &failures)
		if reason != nil {
			return lostError(&ResumeError{Err: err, Reason: reason})
		}
		body, p.from = resp.Body, resp.Request.Context()
	}
}

// linger gives the server a moment to end a response that has nothing more of interest. cancel ends the request otherwise.
func linger(body io.Reader, cancel context.CancelFunc) {
	t := time.AfterFunc(lingerTimeout, cancel)
	defer t.Stop()
	drainBody(body)
}

// A ResumeError is what a [*jsonrpc.CallError] wraps when the stream that was to bring a legacy answer ended before it, and could not be resumed.
type ResumeError struct {
	// Err says how the stream ended.
	Err error
	// Reason says why it was not resumed. It is, or wraps, a [*StatusError] if the server refused; Unwrap does not lead to it, since it answers another HTTP request than the call's.
	Reason error
}

func (e *ResumeError) Error() string {
	return fmt.Sprintf("%v; it could not be resumed: %v", e.Err, e.Reason)
}

// Unwrap returns Err.
func (e *ResumeError) Unwrap() error { return e.Err }

var (
	errNotResumable = errors.New("its events have no ids")
	errNoProgress   = errors.New("it ended again and again, without any event in between")
)

// resume asks the server to go on with a stream that broke. It returns the response, or why there is none.
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
		return nil, &jsonrpc.CallError{Err: fmt.Errorf("the server answered GET with something else than a stream: %w", &StatusError{StatusCode: resp.StatusCode}), Outcome: jsonrpc.OutcomeRejected}
	}
	return nil, readHTTPError(resp, 0).callError()
}
