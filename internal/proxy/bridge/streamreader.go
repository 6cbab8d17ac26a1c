package bridge

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"

	"mcpwire/internal/era"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/jsonrpc"
)

// A StreamReader reads the messages of a client on a byte stream, splits batches, and refuses what
// must not be forwarded.
type StreamReader struct {
	Framer jsonrpc.Framer
	// Handle takes a message, which it owns. frame is the text of m; nil for a message of a batch.
	// For a request, and no other message, it must call answer once, from any goroutine, with nil
	// if there is no response.
	Handle func(frame []byte, m *jsonrpc.Message, answer func(response []byte))
	// Send sends a response to the client, or a batch of them.
	Send func(message []byte)
	// Refuse sends an error for a message that is not forwarded.
	Refuse func(message []byte)
	// Invalid gets each frame that is not forwarded. It may be nil.
	Invalid func(frame []byte)
	// Policy returns the policy of the negotiated revision: NoBatches and OmitNullID apply. Nil
	// means that the client may send batches.
	Policy func() rpc.Policy
	// Strict ends the input at the first invalid message, because a web page could make a browser
	// send an HTTP request with messages in it to a socket.
	Strict bool
	Logger *slog.Logger
}

// IsEnd reports if a read error is the end of the input.
func IsEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) }

// Read handles the messages of the client until its input ends, and returns the reason.
func (r *StreamReader) Read() error {
	for {
		frame, err := r.Framer.ReadFrame()
		if bad, ok := errors.AsType[*jsonrpc.FrameError](err); ok {
			large, tooLarge := errors.AsType[*jsonrpc.TooLargeError](err)
			if tooLarge && large.Kind != jsonrpc.KindInvalid || !r.Strict {
				r.refuseFrame(bad, large)
				continue
			}
		}
		if err != nil {
			return err
		}
		frame = compact(frame)
		if rpcbatch.Is(frame) {
			r.handleBatch(frame)
			continue
		}
		m := new(jsonrpc.Message)
		if err := jsonrpc.Parse(frame, m, 0); err != nil {
			r.invalid(frame)
			if m.Kind != jsonrpc.KindResponse && m.Kind != jsonrpc.KindError {
				r.refuse(m.ID, jsonrpc.ErrorOf(err))
			}
			if r.Strict && m.Kind == jsonrpc.KindInvalid {
				return err
			}
			continue
		}
		if err := era.CheckForwarded(frame, m); err != nil {
			r.refuseForwarding(frame, m, err, r.Refuse)
			continue
		}
		r.Handle(frame, m, r.answer)
	}
}

// answer sends a response, unless it is nil.
func (r *StreamReader) answer(response []byte) {
	if response != nil {
		r.Send(response)
	}
}

func (r *StreamReader) invalid(frame []byte) {
	if r.Invalid != nil {
		r.Invalid(frame)
	}
}

// refuse answers a message that could not be read.
func (r *StreamReader) refuse(id jsonrpc.ID, e *jsonrpc.Error) {
	r.Refuse(jsonrpc.AppendError(nil, id, e, !r.policy().OmitNullID))
}

func (r *StreamReader) policy() rpc.Policy {
	if r.Policy == nil {
		return rpc.Policy{}
	}
	return r.Policy()
}

// respond gives the server an error in place of a response, so that it does not wait.
func (r *StreamReader) respond(id jsonrpc.ID, e *jsonrpc.Error) {
	refusal := errorMessage(id, e)
	r.Handle(encodeMessage(refusal), refusal, nil)
}

// refuseFrame answers a frame that could not be read. large is nil unless it exceeds the limit.
func (r *StreamReader) refuseFrame(bad *jsonrpc.FrameError, large *jsonrpc.TooLargeError) {
	e := &jsonrpc.Error{Code: bad.Code, Message: bad.Reason}
	switch {
	case large == nil || large.Kind == jsonrpc.KindInvalid:
		r.refuse(nil, e)
	case large.Kind == jsonrpc.KindRequest:
		r.refuse(large.ID, e)
	case large.Kind != jsonrpc.KindNotification && len(large.ID) > 0:
		r.respond(large.ID, e)
	}
}

// refuseForwarding handles a message that must not be forwarded. refuse takes the response to a
// request.
func (r *StreamReader) refuseForwarding(frame []byte, m *jsonrpc.Message, err error, refuse func(response []byte)) {
	r.invalid(frame)
	switch e := jsonrpc.ErrorOf(err); m.Kind {
	case jsonrpc.KindRequest:
		refuse(jsonrpc.AppendError(nil, m.ID, e, false))
	case jsonrpc.KindNotification:
		r.Logger.Warn("notification of a client dropped", "error", e)
	default:
		r.respond(m.ID, e)
	}
}

// handleBatch handles the messages of a batch, and answers with a batch.
func (r *StreamReader) handleBatch(frame []byte) {
	entries, err := rpcbatch.Parse(frame, 0)
	if err == nil && r.policy().NoBatches {
		err = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: this protocol revision has no batches; send each message on its own")
	}
	if err != nil {
		r.invalid(frame)
		r.refuse(nil, jsonrpc.ErrorOf(err))
		return
	}
	answers := &batchResponse{pending: 1, send: r.Send}
	for i := range entries {
		e := &entries[i]
		var err error
		if e.Invalid == nil {
			err = era.CheckForwarded(nil, &e.Message)
		}
		switch {
		case e.Invalid != nil:
			answers.add(jsonrpc.AppendError(nil, e.ID, e.Invalid, false))
		case err != nil:
			r.refuseForwarding(encodeMessage(&e.Message), &e.Message, err, answers.add)
		default:
			if e.Kind == jsonrpc.KindRequest {
				answers.expect()
			}
			r.Handle(nil, &e.Message, answers.done)
		}
	}
	answers.done(nil)
}

// A batchResponse collects the responses to a batch.
type batchResponse struct {
	send func([]byte)

	mu      sync.Mutex
	pending int
	frame   []byte
}

// expect says that done will be called for a request.
func (b *batchResponse) expect() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pending++
}

func (b *batchResponse) add(answer []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.frame) == 0 {
		b.frame = append(b.frame, '[')
	} else {
		b.frame = append(b.frame, ',')
	}
	b.frame = append(b.frame, answer...)
}

// done adds a response, or none if answer is nil, and sends the batch after the last.
func (b *batchResponse) done(answer []byte) {
	if answer != nil {
		b.add(answer)
	}
	b.mu.Lock()
	b.pending--
	last := b.pending == 0 && len(b.frame) > 0
	text := append(b.frame, ']')
	b.mu.Unlock()
	if last {
		b.send(text)
	}
}
