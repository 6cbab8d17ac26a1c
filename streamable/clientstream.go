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
	defaultRetry = time.Second // between a stream that broke and the next, if the server did not say
	minRetry     = 100 * time.Millisecond
	maxRetry     = time.Minute
	maxFailures  = 8                      // in a row, without progress, after which a stream is given up
	lingerTime   = 250 * time.Millisecond // that a server has to end a response behind its last event, so that the connection can be used again
)

// A clientStream is a sequence of events, which goes on over several HTTP responses if it can be resumed
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#resumability-and-redelivery).
type clientStream struct {
	f      *framer
	lastID string        // of the last event that had one; "" cannot be resumed
	retry  time.Duration // that the server wants to be waited; 0 if it did not say
	moved  bool          // the last response brought something that was new
	broke  bool          // it did not end as the server meant it to
	lost   error         // what was too large to be read in it
	last   time.Time     // when a stream that broke was last taken up again at once

	skipped func() // is called for what is too large; may be nil
}

// read takes the messages of one response, until that ends or take returns true.
func (s *clientStream) read(body io.Reader, take func(frame []byte) (done bool, err error)) (done bool, err error) {
	r := sse.NewReader(body, s.f.c.opts.MaxFrame)
	r.SetLastEventID(s.lastID)
	s.moved, s.broke, s.lost = false, false, nil
	defer func() { s.broke = !done && err != nil && !errors.Is(err, io.EOF) }()
	for {
		e, err := r.Read()
		if e.HasID && string(e.ID) != s.lastID {
			s.moved = true
		}
		if err == nil && e.HasID {
			s.lastID = r.LastEventID()
		}
		if large, ok := errors.AsType[*sse.TooLargeError](err); ok {
			s.f.log.Warn("event of a stream skipped", "error", large)
			s.lost, s.lastID = &jsonrpc.TooLargeError{Limit: s.f.c.opts.MaxFrame, Kind: jsonrpc.KindResponse}, r.LastEventID()
			if s.skipped != nil {
				s.skipped()
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
		s.moved = true
		if done, err := take(bytes.Clone(e.Data)); done || err != nil {
			return done, err
		}
	}
}

// delay is how long is waited before the stream is taken up again, after so many failures in a row. The first time after it broke, that is not at all: what retry means is how long
// a server wants to be left alone that has ended the stream itself
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#sending-messages-to-the-server), and the longer the wait, the more events there are to be kept. A stream that breaks
// all the time waits a little.
func (s *clientStream) delay(failures int) time.Duration {
	if s.broke {
		if failures == 0 {
			return max(0, minRetry-time.Since(s.last))
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
	if !sleepFor(ctx, d) {
		return false
	}
	if s.broke && failures == 0 {
		s.last = time.Now()
	}
	return true
}

// isAway reports whether an error says that the server is not there, though its machine, or one that stands before it, is.
func isAway(err error) bool {
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

// follow takes the answer out of a stream that began with body, and closes the bodies of the responses that it goes on in.
func (p *post) follow(body io.ReadCloser) error {
	s := &clientStream{f: p.f}
	defer func() { body.Close() }()
	take := func(frame []byte) (bool, error) { return p.take(frame, false) }
	for failures := 0; ; {
		done, err := s.read(body, take)
		if done {
			linger(body, p.cancel)
			return nil
		}
		if e, ok := errors.AsType[*jsonrpc.CallError](err); ok {
			return e
		}
		if s.lost != nil { // it was the answer, and would be as large the next time
			return unanswered(s.lost)
		}
		err = fmt.Errorf("the stream ended before the answer: %w", err)
		if p.modern || p.method == mcp.MethodInitialize {
			return unanswered(err)
		}
		body.Close() // there may be many
		resp, why := p.resume(s, &failures)
		if why != nil {
			return unanswered(&ResumeError{Err: err, Reason: why})
		}
		body, p.from = resp.Body, resp.Request.Context()
	}
}

// linger gives the server a moment to end a response that has nothing more of interest. cancel ends the request otherwise.
func linger(body io.Reader, cancel context.CancelFunc) {
	t := time.AfterFunc(lingerTime, cancel)
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
	if s.moved {
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
		if e, ok := errors.AsType[*jsonrpc.CallError](err); ok && (e.Fate == jsonrpc.FateRefused || e.Fate == jsonrpc.FateDenied) {
			return nil, err
		}
		if most := p.f.c.opts.AwayTimeout; most > 0 && isAway(err) && time.Since(broke)+s.delay(*failures+1) > most {
			return nil, err
		}
	}
}

// get opens a stream. The error is a *jsonrpc.CallError.
func (f *framer) get(ctx context.Context, lastID string) (*http.Response, error) {
	session := f.currentSession()
	h := f.c.legacyHeader(&session)
	h["Accept"] = valueStream
	if lastID != "" {
		h[headerLastID] = []string{lastID}
	}
	resp, err := f.c.send(ctx, http.MethodGet, f.c.url, h, nil)
	if err != nil {
		return nil, sendError(err)
	}
	if resp.StatusCode == http.StatusOK && mediaTypeOf(resp.Header) == mediaStream {
		if err := checkCoding(resp.Header); err != nil {
			resp.Body.Close()
			return nil, &jsonrpc.CallError{Err: err, Fate: jsonrpc.FateRefused}
		}
		return resp, nil
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		return nil, &jsonrpc.CallError{Err: fmt.Errorf("the server answered GET with something else than a stream: %w", &StatusError{StatusCode: resp.StatusCode}), Fate: jsonrpc.FateRefused}
	}
	return nil, readRefusal(resp, 0).callError()
}
