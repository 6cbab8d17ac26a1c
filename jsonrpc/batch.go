package jsonrpc

import "sync"

// A batch collects the answers of the requests that came in one array, and sends them in one.
type batch struct {
	mu    sync.Mutex
	left  int    // requests without a verdict yet
	reply []byte // "[" and the answers so far
	start int    // of "[" in reply
	ended bool   // the array is complete
}

// add takes the answer of one request; owed is false when it was cancelled. It reports whether that was the last one and there is an array to
// send.
func (b *batch) add(c *Conn, answer []byte, owed bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false
	}
	if owed && len(answer) > 0 {
		if b.reply == nil {
			b.reply = c.src.begin(nil)
			b.start = len(b.reply)
			b.reply = append(b.reply, '[')
		} else {
			b.reply = append(b.reply, ',')
		}
		b.reply = append(b.reply, answer...)
	}
	if b.left--; b.left > 0 {
		return false
	}
	return b.endLocked(c)
}

// end completes the array though answers may be missing, and reports whether there is one to send,
// and has not been.
func (b *batch) end(c *Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.ended && b.endLocked(c)
}

func (b *batch) endLocked(c *Conn) bool {
	b.ended = true
	if b.reply == nil {
		return false
	}
	b.reply = append(b.reply, ']')
	if c.opts.Trace != nil {
		c.opts.Trace(Outgoing, b.reply[b.start:])
	}
	b.reply = c.src.finish(b.reply, 0)
	return true
}

var errNoBatches = &Error{Code: CodeInvalidRequest, Message: "invalid request: this protocol revision has no batches; send each message on its own"}

// takeBatch deals with an array of messages.
func (c *Conn) takeBatch(frame []byte) {
	if c.has(policyNoBatches) {
		c.refuseBatch(frame)
		return
	}
	entries, err := ParseBatch(frame, c.opts.MaxDepth)
	if err != nil {
		c.reject(&Message{}, err)
		return
	}
	if h, ok := c.handler.(BatchHandler); ok {
		if err := h.PrepareBatch(entries); err != nil {
			c.reject(&Message{}, ErrorOf(err))
			return
		}
	}
	b := &batch{left: 1} // one for this function, so that the array is not sent before all members were seen
	for i := range entries {
		c.takeEntry(b, &entries[i])
	}
	if b.add(c, nil, false) {
		if err := c.w.put(&b.reply); err != nil {
			c.log.Debug("answer not sent", "error", err)
		}
	}
}

// refuseBatch answers an array where there are no batches; but what is no JSON is that first of all.
func (c *Conn) refuseBatch(frame []byte) {
	if _, err := ParseBatch(frame, c.opts.MaxDepth); err != nil && err.(*Error).Code == CodeParseError {
		c.reject(&Message{}, err)
		return
	}
	c.reject(&Message{}, errNoBatches)
}

func (c *Conn) takeEntry(b *batch, e *Entry) {
	if e.Invalid != nil {
		c.log.Warn("bad message in batch", "error", e.Invalid, "id", clip(e.ID))
		if e.Kind == KindResponse || e.Kind == KindError {
			c.woke = c.calls.reject(e.ID, e.Invalid) || c.woke
			return
		}
		if c.mayAnswer(e.ID) {
			b.expect()
			b.add(c, AppendError(nil, e.ID, e.Invalid, !c.has(policyOmitNullID)), true)
		}
		return
	}
	r := &Request{conn: c, Message: e.Message}
	switch e.Kind {
	case KindNotification:
		if !c.takeCancel(&e.Message) {
			c.takeNotification(r, e.raw)
		}
	case KindRequest:
		if c.drop(r) {
			return
		}
		b.expect()
		r.batch = b
		if c.table.has(r.ID) {
			c.answer(r, errDuplicateID)
			return
		}
		if r.pace = r.prepare(); r.pace == Immediate {
			r.respond()
			b.add(c, r.reply, true)
			return
		}
		c.enqueue(c.own(r, e.raw)) // a copy of this member alone, so that one that waits does not keep the whole array
	default:
		c.woke = c.calls.deliver(&e.Message, c.log) || c.woke
	}
}

// expect announces one more answer.
func (b *batch) expect() {
	b.mu.Lock()
	b.left++
	b.mu.Unlock()
}
