package rpc

import (
	"sync"

	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
)

// A batch collects the responses to the requests of one array, and sends them in one array.
type batch struct {
	mu sync.Mutex
	// remaining counts the requests without an outcome.
	remaining int
	// reply holds "[" and the responses so far.
	reply []byte
	// start is the offset of "[" in reply.
	start int
	// ended reports that the array is complete.
	ended bool
}

// add takes the response to one request. wanted is false if the request was canceled. add reports
// whether this was the last request and there is an array to send.
func (b *batch) add(c *Conn, response []byte, wanted bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return false
	}
	if wanted && len(response) > 0 {
		if b.reply == nil {
			b.reply = c.src.BeginFrame(nil)
			b.start = len(b.reply)
			b.reply = append(b.reply, '[')
		} else {
			b.reply = append(b.reply, ',')
		}
		b.reply = append(b.reply, response...)
	}
	if b.remaining--; b.remaining > 0 {
		return false
	}
	return b.completeLocked(c)
}

// complete completes the array although responses may be missing. It reports whether there is an
// array to send that was not complete before.
func (b *batch) complete(c *Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.ended && b.completeLocked(c)
}

func (b *batch) completeLocked(c *Conn) bool {
	b.ended = true
	if b.reply == nil {
		return false
	}
	b.reply = append(b.reply, ']')
	c.trace(jsonrpc.Outgoing, b.reply[b.start:])
	b.reply = c.src.FinishFrame(b.reply, 0)
	return true
}

var errNoBatches = &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "invalid request: this protocol revision has no batches; send each message on its own"}

// handleBatch handles an array of messages.
func (c *Conn) handleBatch(frame []byte) {
	if c.policy.Load().NoBatches {
		c.rejectBatch(frame)
		return
	}
	entries, err := rpcbatch.Parse(frame, c.opts.MaxDepth)
	if err != nil {
		c.rejectMessage(&jsonrpc.Message{}, err)
		return
	}
	if h, ok := c.handler.(BatchHandler); ok {
		if err := h.PrepareBatch(entries); err != nil {
			c.rejectMessage(&jsonrpc.Message{}, jsonrpc.ErrorOf(err))
			return
		}
	}
	// Count one for this function, so that the array is not sent before all members were seen.
	b := &batch{remaining: 1}
	for i := range entries {
		c.handleEntry(b, &entries[i])
	}
	if b.add(c, nil, false) {
		if err := c.w.put(&b.reply); err != nil {
			c.log.Debug("response not sent", "error", err)
		}
	}
}

// rejectBatch answers an array where batches do not exist. Text that is not JSON is a parse error
// first.
func (c *Conn) rejectBatch(frame []byte) {
	if _, err := rpcbatch.Parse(frame, c.opts.MaxDepth); err != nil && err.(*jsonrpc.Error).Code == jsonrpc.CodeParseError {
		c.rejectMessage(&jsonrpc.Message{}, err)
		return
	}
	c.rejectMessage(&jsonrpc.Message{}, errNoBatches)
}

func (c *Conn) handleEntry(b *batch, e *rpcbatch.Entry) {
	if e.Invalid != nil {
		c.log.Warn("invalid message in batch", "error", e.Invalid, "id", clip.String(e.ID, 100))
		if e.Kind == jsonrpc.KindResponse || e.Kind == jsonrpc.KindError {
			c.leader.wokeCaller = c.failMalformed(e.ID, e.Invalid) || c.leader.wokeCaller
			return
		}
		if c.mayRespond(e.ID) {
			b.expect()
			b.add(c, jsonrpc.AppendError(nil, e.ID, e.Invalid, !c.policy.Load().OmitNullID), true)
		}
		return
	}
	r := &Request{conn: c, Message: e.Message}
	switch e.Kind {
	case jsonrpc.KindNotification:
		if !c.inFlight.handleCancel(&e.Message) {
			c.inFlight.handleNotification(r, false)
		}
	case jsonrpc.KindRequest:
		if c.leader.dropRequest(r) {
			return
		}
		b.expect()
		r.batch = b
		if c.inFlight.contains(r.ID) {
			c.rejectRequest(r, errDuplicateID)
			return
		}
		if r.cost = r.prepare(); r.cost == Immediate {
			r.respond()
			b.add(c, r.reply, true)
			return
		}
		// Copy this member alone, so that a queued request does not keep the whole array.
		c.inFlight.enqueue(c.inFlight.copy(r, false))
	default:
		c.leader.wokeCaller = c.resolve(&e.Message) || c.leader.wokeCaller
	}
}

// expect adds one more expected response.
func (b *batch) expect() {
	b.mu.Lock()
	b.remaining++
	b.mu.Unlock()
}
