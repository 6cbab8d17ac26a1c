package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"mcpwire/streamable"
)

// HandlerNodes returns what connects the streamable.Handler of this node to those of the others.
// The handlers of one endpoint have the same name, those of other endpoints another one.
func (n *Node) HandlerNodes(endpoint string) streamable.Nodes { return &handlerNodes{n, endpoint} }

// handlerNodes is a streamable.Nodes.
type handlerNodes struct {
	n        *Node
	endpoint string
}

func (hn *handlerNodes) topic() string { return "handler " + hn.endpoint }

func (hn *handlerNodes) Name() string { return hn.n.id }

// Request implements [streamable.Nodes]. A node that does not reply and is no longer a member does
// not exist.
func (hn *handlerNodes) Request(ctx context.Context, node string, message []byte) (reply []byte, err error) {
	reply, err = coordinator{hn.n}.Request(ctx, node, hn.topic(), message)
	silent := errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
	if errors.Is(err, ErrNoNode) || silent && !(coordinator{hn.n}).HasMember(node) {
		err = fmt.Errorf("%w: %w", streamable.ErrNoNode, err)
	}
	return reply, err
}

func (hn *handlerNodes) Publish(ctx context.Context, message []byte) error {
	return hn.n.publish(ctx, hn.topic(), append([]byte(hn.n.id), message...))
}

func (hn *handlerNodes) Receive(handle func(message []byte) (reply []byte)) (stop func(), err error) {
	// Neither kind of message is delivered after stop: streamable may be gone then.
	var mu sync.Mutex
	stopped := false
	handleOne := func(message []byte) (reply []byte, err error) {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return nil, ErrUnavailable
		}
		return handle(message), nil
	}
	id := hn.n.id
	unsubscribe, err := hn.n.subscribe(hn.n.ctx, hn.topic(), func(data []byte) {
		if len(data) >= len(id) && string(data[:len(id)]) != id {
			_, _ = handleOne(data[len(id):]) // nobody gets the reply
		}
	})
	if err != nil {
		return nil, err
	}
	unhandle, err := hn.n.handle(hn.n.ctx, hn.topic(), func(_ context.Context, data []byte) ([]byte, error) { return handleOne(data) })
	if err != nil {
		unsubscribe()
		return nil, err
	}
	stop = sync.OnceFunc(func() {
		mu.Lock()
		stopped = true
		mu.Unlock()
		unsubscribe()
		unhandle()
	})
	if err := hn.n.onClose(stop); err != nil {
		return nil, err
	}
	return stop, nil
}
