package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"mcpwire/server"
)

// Request implements [coordination.Node].
func (n coordinator) Request(ctx context.Context, node, topic string, data []byte) ([]byte, error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	reply, err := n.backend.Bus().Request(ctx, node, n.key("request", topic), append([]byte{format}, data...))
	if err != nil {
		return nil, fmt.Errorf("request %s of node %.20q: %w", topic, node, callError(ctx, err))
	}
	reply, err = payload(reply)
	if err != nil || len(reply) == 0 {
		return nil, errors.Join(err, fmt.Errorf("request %s of node %.20q: invalid reply", topic, node))
	}
	if reply[0] == replyError {
		return nil, errors.New(string(reply[1:]))
	}
	return reply[1:], nil
}

// The second byte of a reply.
const (
	replyOK = iota
	replyError
)

// Handle implements [coordination.Node].
func (n coordinator) Handle(ctx context.Context, topic string, handle func(ctx context.Context, data []byte) ([]byte, error)) error {
	stop, err := n.handle(ctx, topic, handle)
	if err != nil {
		return err
	}
	return n.onClose(stop)
}

// handle is Handle of a coordinator until stop is called.
func (n *Node) handle(ctx context.Context, topic string, handle func(ctx context.Context, data []byte) ([]byte, error)) (stop func(), err error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	stop, err = n.backend.Bus().Handle(ctx, n.id, n.key("request", topic), func(ctx context.Context, data []byte) []byte {
		ctx, cancel := bound(ctx)
		defer cancel()
		data, err := payload(data)
		var reply []byte
		if err == nil {
			reply, err = handle(ctx, data)
		}
		if err != nil {
			return append([]byte{format, replyError}, err.Error()...)
		}
		return append([]byte{format, replyOK}, reply...)
	})
	if err != nil {
		return nil, fmt.Errorf("handle %s: %w", topic, callError(ctx, err))
	}
	return stop, nil
}

// subscribe calls deliver for each message of a topic until stop is called, or the node is closed.
func (n *Node) subscribe(ctx context.Context, topic string, deliver func(data []byte)) (stop func(), err error) {
	ctx, cancel := bound(ctx)
	defer cancel()
	stop, err = n.backend.Bus().Subscribe(ctx, n.key("topic", topic), func(data []byte) {
		data, err := payload(data)
		if err != nil {
			n.opts.Logger.Error("a message is invalid", "topic", topic, "error", err)
			return
		}
		deliver(data)
	})
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", topic, callError(ctx, err))
	}
	return stop, nil
}

func (n *Node) publish(ctx context.Context, topic string, data []byte) error {
	ctx, cancel := bound(ctx)
	defer cancel()
	err := n.backend.Bus().Publish(ctx, n.key("topic", topic), append([]byte{format}, data...))
	if err != nil {
		n.unpublished.Add(1)
		return fmt.Errorf("publish to %s: %w", topic, callError(ctx, err))
	}
	return nil
}

// serverBus is a server.Bus.
type serverBus struct{ n *Node }

// Bus returns a bus for the servers of all nodes. See server.Options.
func (n *Node) Bus() server.Bus { return serverBus{n} }

const serverTopic = "server"

func (b serverBus) Publish(ctx context.Context, message []byte) error {
	return b.n.publish(ctx, serverTopic, message)
}

func (b serverBus) Subscribe(ctx context.Context, deliver func(message []byte)) error {
	stop, err := b.n.subscribe(ctx, serverTopic, deliver)
	if err != nil {
		return err
	}
	defer stop()
	return b.n.await(ctx, nil)
}

// signals tell waiting goroutines of all nodes that a record has changed. A signal may be lost.
type signals struct {
	n *Node

	mu sync.Mutex
	// waiting has channels that are closed by the next signal, by key.
	waiting map[string]*signal
}

type signal struct {
	ch      chan struct{}
	waiters int
}

const signalTopic = "signal"

func newSignals(ctx context.Context, n *Node) (*signals, error) {
	s := &signals{n: n, waiting: make(map[string]*signal)}
	stop, err := n.subscribe(ctx, signalTopic, func(data []byte) { s.wake(string(data)) })
	if err != nil {
		return nil, err
	}
	return s, n.onClose(stop)
}

// send signals a key. It does not fail: whoever waits for a signal also looks from time to time.
func (s *signals) send(ctx context.Context, key string) {
	s.wake(key)
	if err := s.n.publish(ctx, signalTopic, []byte(key)); err != nil {
		s.n.opts.Logger.Debug("other nodes do not learn of a change at once", "error", err)
	}
}

func (s *signals) wake(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sig := s.waiting[key]; sig != nil {
		delete(s.waiting, key)
		close(sig.ch)
	}
}

// wait returns a channel that the next signal closes. done must be called.
func (s *signals) wait(key string) (ch <-chan struct{}, done func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sig := s.waiting[key]
	if sig == nil {
		sig = &signal{ch: make(chan struct{})}
		s.waiting[key] = sig
	}
	sig.waiters++
	return sig.ch, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if sig.waiters--; sig.waiters == 0 && s.waiting[key] == sig {
			delete(s.waiting, key)
		}
	}
}
