package jsonrpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// A CallError is what a call fails with that its transport could not bring to an answer, while the connection goes on: over HTTP, each call is a request of
// its own. A Framer returns one from ReadFrame; [Pending.Result] and [Conn.Call] wrap it. It never comes from the peer's JSON-RPC side: that is an *[Error].
type CallError struct {
	ID         ID            // of the call that fails
	Err        error         // why; never nil
	Outcome    Outcome       // what became of the request
	RetryAfter time.Duration // that the peer wants the next attempt to wait; 0 if it did not say
}

func (e *CallError) Error() string { return fmt.Sprintf("%v: %v", e.Outcome, e.Err) }

// Unwrap returns Err.
func (e *CallError) Unwrap() error { return e.Err }

// A Outcome tells whether a request that got no answer has been carried out, which decides whether it may be sent again.
type Outcome uint8

// The fates.
const (
	OutcomeUnknown     Outcome = iota // it may have been: only what is safe to repeat may be sent again
	OutcomeUnprocessed                // it was not, and may be if it is sent again
	OutcomeRejected                   // it was not, and would not be the next time
	OutcomeDenied                     // it was not: the peer does not trust this side, or this side does not trust the peer
)

func (o Outcome) String() string {
	switch o {
	case OutcomeUnprocessed:
		return "not carried out"
	case OutcomeRejected:
		return "refused"
	case OutcomeDenied:
		return "denied"
	}
	return "no answer"
}

// A MessageTransport is a [Framer] that takes each message by itself, as one whose messages are HTTP requests does. What ReadFrame has returned belongs to the reader: it is not written to
// any more, and need not be copied.
type MessageTransport interface {
	Framer
	// OnResponse is called before the other methods. Answers to requests may be handed to answer, by many goroutines at once, rather than come by ReadFrame, which takes a wake-up more. A
	// frame that is handed over is not changed any more. The error says that it is no response.
	OnResponse(answer func(frame []byte) error)
	// Post is WriteFrame for many goroutines at once, and does not wait for the peer. ctx is that of whoever sends the message: its values go along, its end means nothing. An error
	// means that this message was not sent, and no other will be.
	Post(ctx context.Context, msg []byte) error
}

// handleResponse takes an answer that does not come by ReadFrame.
func (c *Conn) handleResponse(frame []byte) error {
	if c.opts.Trace != nil {
		c.opts.Trace(Incoming, frame)
	}
	var m Message
	if err := Parse(frame, &m, c.opts.MaxDepth); err != nil {
		return err
	}
	if m.Kind != KindResponse && m.Kind != KindError {
		return ErrMalformed
	}
	c.calls.resolve(&m, c.log)
	return nil
}

// ErrGap is what ReadFrame of a [Framer] returns when messages that the peer sent of itself may have been missed. The next call reads on.
var ErrGap = errors.New("messages may have been missed")

// failTransport makes the call that e is about fail. It reports whether there was one.
func (t *callTable) failTransport(e *CallError) bool {
	var p *Pending
	if id, ok := t.numberOf(e.ID); ok {
		p = t.remove(id)
	}
	if p == nil {
		return false // nobody waits for it any more
	}
	p.err = e
	close(p.done)
	return true
}

// failTooLarge makes the only call under way fail, whose answer was too large to be read and told no id. Of several, nobody can tell which it is: they go on
// until their contexts end. It reports whether a call failed.
func (t *callTable) failTooLarge(e *TooLargeError, log *slog.Logger) bool {
	sent := t.sent()
	if len(sent) != 1 {
		log.Warn("an answer was too large to be read, and its id is not known: the call that it belongs to goes on waiting", "calls", len(sent), "limit", e.Limit)
		return false
	}
	return t.failTransport(&CallError{ID: sent[0].ID(), Err: e, Outcome: OutcomeUnknown})
}
