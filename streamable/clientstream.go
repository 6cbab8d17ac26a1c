package streamable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"time"

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
	lost   error         // what was too large to be read in it

	skipped func() // is called for what is too large; may be nil
}

// read takes the messages of one response, until that ends or take returns true.
func (s *clientStream) read(body io.Reader, take func(frame []byte) (done bool, err error)) (done bool, err error) {
	r := sse.NewReader(body, s.f.c.opts.MaxFrame)
	r.SetLastEventID(s.lastID)
	s.moved, s.lost = false, nil
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
			s.lost, s.lastID = errAnswerTooLarge, r.LastEventID()
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

// delay is how long is waited before the stream is taken up again, after so many failures in a row.
func (s *clientStream) delay(failures int) time.Duration {
	d := s.retry
	if d == 0 {
		d = defaultRetry
	}
	for range failures {
		d = min(2*d, maxRetry)
	}
	return d
}

// pause waits as long.
func (s *clientStream) pause(ctx context.Context, failures int) bool {
	return sleepFor(ctx, s.delay(failures))
}

// isAway reports whether an error says that the server is not there, though its machine, or one that stands before it, is.
func isAway(err error) bool {
	if status, ok := errors.AsType[*StatusError](err); ok {
		return status.StatusCode >= 500
	}
	return errors.Is(err, syscall.ECONNREFUSED)
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
		if s.lost != nil {
			err = s.lost
		}
		err = unanswered(fmt.Errorf("the stream ended before the answer: %w", err))
		if p.modern || p.method == mcp.MethodInitialize {
			return err
		}
		body.Close() // there may be many
		resp, why := p.resume(s, &failures)
		if why != nil {
			return fmt.Errorf("%w (%w)", err, why)
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

var errNotResumable = errors.New("it cannot be resumed: its events have no ids")

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
	for ; ; *failures++ {
		if *failures >= maxFailures {
			return nil, errors.New("and again, without any event in between")
		}
		if !s.pause(p.ctx, *failures) {
			return nil, p.ctx.Err()
		}
		resp, err := p.f.get(p.ctx, s.lastID)
		if err == nil {
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
