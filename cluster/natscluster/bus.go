package natscluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"

	"mcpwire/cluster"
	"mcpwire/internal/base/coordination"
)

const (
	// busyHeader marks the reply of a node that handles too many requests.
	busyHeader = "Mcpwire-Busy"
	// maxPending and maxPendingBytes limit the messages that wait for one subscription, and
	// maxHandling the concurrent requests of one handler. See cluster.Bus.
	maxPending      = 4096
	maxPendingBytes = 32 << 20
	maxHandling     = 256
)

// bus is the bus of a Backend: NATS without JetStream.
type bus struct{ b *Backend }

func (b bus) topic(topic string) string { return b.b.opts.Prefix + ".t." + topic }

func (b bus) request(node, topic string) string { return b.b.opts.Prefix + ".n." + node + "." + topic }

// Publish implements [cluster.Bus].
func (b bus) Publish(ctx context.Context, topic string, data []byte) error {
	if err := cmp.Or(ctx.Err(), coordination.CheckKey(topic), coordination.CheckValue(data)); err != nil {
		return err
	}
	return mapError(ctx, b.b.nc.Publish(b.topic(topic), data))
}

// A subscription delivers messages until it is stopped.
type subscription struct {
	b   *Backend
	sub *nats.Subscription
	// mu is held while a message is delivered.
	mu      sync.Mutex
	stopped bool
}

// Subscribe implements [cluster.Bus].
func (b bus) Subscribe(ctx context.Context, topic string, deliver func([]byte)) (stop func(), err error) {
	if err := cmp.Or(ctx.Err(), coordination.CheckKey(topic)); err != nil {
		return nil, err
	}
	return b.subscribe(ctx, b.topic(topic), func(m *nats.Msg) { deliver(m.Data) })
}

// subscribe calls deliver for each message, one at a time.
func (b bus) subscribe(ctx context.Context, subject string, deliver func(*nats.Msg)) (stop func(), err error) {
	s := &subscription{b: b.b}
	s.sub, err = b.b.nc.Subscribe(subject, func(m *nats.Msg) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.stopped {
			deliver(m)
		}
	})
	if err != nil {
		return nil, mapError(ctx, err)
	}
	b.b.mu.Lock()
	b.b.subscriptions[s] = struct{}{}
	b.b.mu.Unlock()
	if err = s.sub.SetPendingLimits(maxPending, maxPendingBytes); err == nil {
		err = b.b.nc.FlushWithContext(ctx)
	}
	if err != nil {
		s.stop()
		return nil, mapError(ctx, err)
	}
	return s.stop, nil
}

// stop ends the subscription and waits for deliver.
func (s *subscription) stop() {
	s.b.mu.Lock()
	if _, ok := s.b.subscriptions[s]; ok {
		delete(s.b.subscriptions, s)
		s.b.lost += s.dropped()
	}
	s.b.mu.Unlock()
	_ = s.sub.Unsubscribe() // fails only if the connection is closed, or after another stop
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

// dropped returns the number of messages that were dropped because too many waited.
func (s *subscription) dropped() uint64 {
	n, err := s.sub.Dropped()
	if err != nil {
		return 0 // it is closed
	}
	return uint64(n)
}

// Lost returns the number of messages that subscriptions have dropped. It is an optional method of a
// [cluster.Backend].
func (b *Backend) Lost() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	lost := b.lost
	for s := range b.subscriptions {
		lost += s.dropped()
	}
	return lost
}

// Request implements [cluster.Bus].
func (b bus) Request(ctx context.Context, node, topic string, data []byte) ([]byte, error) {
	if err := cmp.Or(ctx.Err(), coordination.CheckKey(node, topic), coordination.CheckValue(data)); err != nil {
		return nil, err
	}
	m, err := b.b.nc.RequestWithContext(ctx, b.request(node, topic), data)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, cluster.ErrNoNode
	case err != nil:
		return nil, mapError(ctx, err)
	case m.Header.Get(busyHeader) != "":
		return nil, fmt.Errorf("%w: the node handles too many requests", cluster.ErrUnavailable)
	}
	return m.Data, nil
}

// Handle implements [cluster.Bus].
func (b bus) Handle(ctx context.Context, node, topic string, handle func(context.Context, []byte) []byte) (stop func(), err error) {
	if err := cmp.Or(ctx.Err(), coordination.CheckKey(node, topic)); err != nil {
		return nil, err
	}
	handling, cancel := context.WithCancel(context.Background())
	running := make(chan struct{}, maxHandling)
	var wg sync.WaitGroup // Go is called only by deliver
	respond := func(m *nats.Msg, reply *nats.Msg) {
		if err := m.RespondMsg(reply); err != nil {
			b.b.opts.Logger.Debug("a reply is lost", "error", err)
		}
	}
	unsubscribe, err := b.subscribe(ctx, b.request(node, topic), func(m *nats.Msg) {
		select {
		case running <- struct{}{}:
			wg.Go(func() {
				defer func() { <-running }()
				respond(m, &nats.Msg{Data: handle(handling, m.Data)})
			})
		default:
			respond(m, &nats.Msg{Header: nats.Header{busyHeader: {"1"}}})
		}
	})
	if err != nil {
		cancel()
		return nil, err
	}
	return func() {
		unsubscribe()
		cancel()
		wg.Wait()
	}, nil
}
