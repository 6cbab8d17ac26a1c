package bridge

import (
	"context"
	"errors"
	"sync"

	"mcpwire/jsonrpc"
)

// An outbox keeps messages until whoever owns it sends them, so that a client that does not read holds up nobody else. Its methods may be called by many goroutines at
// once.
type outbox struct {
	notify chan struct{} // has an element if there is something, or nothing more will come
	rec    recorder      // of the request that it belongs to

	mu     sync.Mutex
	queue  [][]byte
	bytes  int
	closed bool
}

// maxOutbox is how much may wait in an outbox, in bytes, besides the first message.
const maxOutbox = 8 << 20

// errSlowClient is why a message is not kept.
var errSlowClient = errors.New("the client does not read what it is sent")

func newOutbox() *outbox { return &outbox{notify: make(chan struct{}, 1)} }

// Send implements jsonrpc.Sender. It never waits.
func (o *outbox) Send(message []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return jsonrpc.ErrRequestEnded
	case o.bytes > 0 && o.bytes+len(message) > maxOutbox:
		return errSlowClient
	}
	o.queue = append(o.queue, append(make([]byte, 0, len(message)), message...))
	o.bytes += len(message) + 1
	signal(o.notify)
	return nil
}

// take returns what waits. close makes it the last.
func (o *outbox) take(last bool) [][]byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	queue := o.queue
	o.queue, o.bytes = nil, 0
	o.closed = o.closed || last
	return queue
}

// flush sends what waits to out. What cannot be sent is the client's to deal with.
func (cl *client) flush(o *outbox, out jsonrpc.Sender, last bool) {
	for _, message := range o.take(last) {
		if err := out.Send(message); err != nil {
			cl.undelivered(message, err)
		}
	}
}

// undelivered deals with a message that the request it belongs to could not bring: a question goes where there is no request, or is answered for the client.
func (cl *client) undelivered(message []byte, err error) {
	var m jsonrpc.Message
	if jsonrpc.Parse(message, &m, 0) != nil || m.Kind != jsonrpc.KindRequest {
		return
	}
	if cl.out != nil && cl.out.Send(message) == nil {
		return
	}
	frame := jsonrpc.AppendError(nil, m.ID, jsonrpc.Errorf(jsonrpc.CodeInternalError, "the client could not be asked: %v", err), false)
	refusal := new(jsonrpc.Message)
	if jsonrpc.Parse(frame, refusal, 0) == nil {
		cl.response(context.Background(), frame, refusal)
	}
}

// withOutbox returns an outlet that never waits, with a goroutine that sends to out until the client has ended. If it is full, the client is: it ends.
func (cl *client) withOutbox(out jsonrpc.Sender) jsonrpc.Sender {
	o := newOutbox()
	cl.flushed = make(chan struct{})
	cl.b.wg.Go(func() {
		defer close(cl.flushed)
		for {
			select {
			case <-o.notify:
				cl.flush(o, out, false)
			case <-cl.closeDone:
				cl.flush(o, out, true)
				return
			case <-cl.evict:
				o.take(true)
				return
			}
		}
	})
	return evictingOutbox{o, cl}
}

// evictingOutbox ends the client when its outbox is full.
type evictingOutbox struct {
	*outbox
	cl *client
}

// Send implements jsonrpc.Sender.
func (o evictingOutbox) Send(message []byte) error {
	err := o.outbox.Send(message)
	if errors.Is(err, errSlowClient) {
		o.cl.b.opts.Logger.Warn("a client is cut off, because it does not read")
		o.cl.evictOnce.Do(func() { close(o.cl.evict) })
		o.cl.cancel()
	}
	return err
}
