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

// Name implements [streamable.Nodes].
func (hn *handlerNodes) Name() string { return hn.n.id }

// Send implements [streamable.Nodes].
func (hn *handlerNodes) Send(ctx context.Context, node string, message []byte) error {
	_, err := hn.n.Request(ctx, node, hn.topic(), message)
	if errors.Is(err, ErrNoNode) {
		return fmt.Errorf("%w: %w", streamable.ErrNoNode, err)
	}
	return err
}

// Publish implements [streamable.Nodes].
func (hn *handlerNodes) Publish(ctx context.Context, message []byte) error {
	return hn.n.publish(ctx, hn.topic(), append([]byte(hn.n.id), message...))
}

// Receive implements [streamable.Nodes].
func (hn *handlerNodes) Receive(deliver func(message []byte)) (stop func(), err error) {
	// Neither kind of message is delivered after stop: streamable may be gone then.
	var mu sync.Mutex
	stopped := false
	deliverOne := func(message []byte) {
		mu.Lock()
		defer mu.Unlock()
		if !stopped {
			deliver(message)
		}
	}
	id := hn.n.id
	unsubscribe, err := hn.n.subscribe(hn.n.ctx, hn.topic(), func(data []byte) {
		if len(data) >= len(id) && string(data[:len(id)]) != id {
			deliverOne(data[len(id):])
		}
	})
	if err != nil {
		return nil, err
	}
	unhandle, err := hn.n.handle(hn.n.ctx, hn.topic(), func(_ context.Context, data []byte) ([]byte, error) {
		deliverOne(data)
		return nil, nil
	})
	if err != nil {
		unsubscribe()
		return nil, err
	}
	return func() {
		mu.Lock()
		stopped = true
		mu.Unlock()
		unsubscribe()
		unhandle()
	}, nil
}
