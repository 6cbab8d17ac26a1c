package jsonrpc

import (
	"fmt"
	"time"
)

// A DrainError is what [Conn.Run] returns if requests were still being handled, or were queued,
// when the time to drain was over.
type DrainError struct {
	// Requests is how many were cut off. Each was answered with the error ShuttingDown, if the peer
	// still reads.
	Requests int
	// After is the time that they had.
	After time.Duration
	// Cause says why the connection ended. It is nil at the end of input.
	Cause error
}

func (e *DrainError) Error() string {
	text := fmt.Sprintf("%d requests were cut off %v after the end of input", e.Requests, e.After)
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *DrainError) Unwrap() error { return e.Cause }

// ShuttingDown is the error for a request that was not finished when its server had had the time d to
// shut down. It may have taken effect.
func ShuttingDown(d time.Duration) *Error {
	return Errorf(CodeInternalError, "shutting down: the request was not finished within %v", d)
}

// An abandoned request is one that was cut off.
type abortedRequest struct {
	id    ID
	batch *batch
}

// abortRequests cancels all requests that are running or queued, answers them, and returns how many there
// were. Nobody waits for the peer to read the answers.
func (c *Conn) abortRequests() int {
	aborted := c.inFlight.abortRequests()
	e := ShuttingDown(c.opts.DrainTimeout)
	for _, a := range aborted {
		switch {
		case !c.mayRespond(a.id):
		case a.batch != nil:
			if a.batch.add(c, AppendError(nil, a.id, e, true), true) {
				c.postResponse(a.batch.reply)
			}
		default:
			buf := c.src.begin(nil)
			start := len(buf)
			buf = c.traceOutgoing(AppendError(buf, a.id, e, true), start)
			c.postResponse(c.src.finish(buf, 0))
		}
	}
	for _, a := range aborted {
		if a.batch != nil && a.batch.complete(c) {
			c.postResponse(a.batch.reply)
		}
	}
	return len(aborted)
}

func (c *Conn) postResponse(frame []byte) {
	if err := c.w.post(&frame); err != nil {
		c.log.Debug("answer not sent", "error", err)
	}
}

// abortRequests does what cancelAll does, and returns the requests that are owed an answer.
func (f *inFlight) abortRequests() (aborted []abortedRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for r := range f.requests.all() {
		r.aborted = true
		aborted = append(aborted, abortedRequest{r.ID.Clone(), r.batch})
	}
	f.cancelAllLocked()
	return aborted
}
