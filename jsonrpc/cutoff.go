package jsonrpc

import (
	"fmt"
	"time"
)

// A DrainError is what [Conn.Run] returns if requests were still being handled, or were queued,
// when the time to drain was over.
type DrainError struct {
	// Requests is how many were cut off. Each was answered with the error CutOff, if the peer
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

// CutOff is the error for a request that was not finished when its server had had the time d to
// shut down. It may have taken effect.
func CutOff(d time.Duration) *Error {
	return Errorf(CodeInternalError, "shutting down: the request was not finished within %v", d)
}

// An abandoned request is one that was cut off.
type abandoned struct {
	id    ID
	batch *batch
}

// cutOff cancels all requests that are running or queued, answers them, and returns how many there
// were. Nobody waits for the peer to read the answers.
func (c *Conn) cutOff() int {
	cut := c.table.cutOff()
	e := CutOff(c.opts.DrainTimeout)
	for _, a := range cut {
		switch {
		case !c.mayAnswer(a.id):
		case a.batch != nil:
			if a.batch.add(c, AppendError(nil, a.id, e, true), true) {
				c.postAnswer(a.batch.reply)
			}
		default:
			buf := c.src.begin(nil)
			start := len(buf)
			buf = c.traced(AppendError(buf, a.id, e, true), start)
			c.postAnswer(c.src.finish(buf, 0))
		}
	}
	for _, a := range cut {
		if a.batch != nil && a.batch.end(c) {
			c.postAnswer(a.batch.reply)
		}
	}
	return len(cut)
}

func (c *Conn) postAnswer(frame []byte) {
	if err := c.w.post(&frame); err != nil {
		c.log.Debug("answer not sent", "error", err)
	}
}

// cutOff does what cancelAll does, and returns the requests that are owed an answer.
func (t *table) cutOff() (cut []abandoned) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for r := range t.listed.all() {
		r.cut = true
		cut = append(cut, abandoned{r.ID.Clone(), r.batch})
	}
	t.cancelAllLocked()
	return cut
}
