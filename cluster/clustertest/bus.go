package clustertest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"mcpwire/cluster"
	"mcpwire/internal/base/coordination"
)

// A message is a text that one of the nodes got.
type message struct{ at, text string }

// warmUp sends probes until both nodes got one.
func (s *suite) warmUp(got <-chan message, probe func()) {
	s.Helper()
	seen := map[string]bool{}
	s.eventually(func() string {
		probe()
		for {
			select {
			case m := <-got:
				seen[m.at] = true
				continue
			default:
			}
			if len(seen) < 2 {
				return fmt.Sprintf("messages reach %v only", seen)
			}
			return ""
		}
	})
}

func testBus(s *suite) {
	topic := s.key()
	got := make(chan message, 1000)
	stops := map[string]func(){}
	for name, b := range map[string]cluster.Backend{"a": s.a, "b": s.b} {
		stop, err := b.Bus().Subscribe(s.ctx, topic, func(data []byte) { got <- message{name, string(data)} })
		if err != nil {
			s.Fatal(err)
		}
		defer stop()
		stops[name] = stop
	}
	publish := func(b cluster.Backend, topic, text string) {
		s.Helper()
		if err := b.Bus().Publish(s.ctx, topic, []byte(text)); err != nil {
			s.Fatal(err)
		}
	}
	s.warmUp(got, func() { publish(s.a, topic, "probe") })
	const total = 50
	for i := range total {
		publish(s.a, topic+".below", "another topic")
		publish(s.a, topic, fmt.Sprint(i))
	}
	next := map[string]int{}
	receive := func() message {
		for {
			select {
			case m := <-got:
				if m.text != "probe" {
					return m
				}
			case <-time.After(waitTimeout):
				s.Fatalf("messages are lost: got %v", next)
			}
		}
	}
	for range 2 * total {
		m := receive()
		if m.text != fmt.Sprint(next[m.at]) {
			s.Fatalf("%s got %q, want %d", m.at, m.text, next[m.at])
		}
		next[m.at]++
	}
	stops["b"]()
	stops["b"]()
	publish(s.b, topic, "last")
	if m := receive(); m != (message{"a", "last"}) {
		s.Errorf("got %v", m)
	}
	select {
	case m := <-got:
		s.Errorf("got %v", m)
	default:
	}
}

// warmUpRequests waits until the requests of both nodes are handled.
func (s *suite) warmUpRequests(node, topic string) {
	s.Helper()
	for _, b := range []cluster.Backend{s.a, s.b} {
		s.eventually(func() string {
			ctx, cancel := context.WithTimeout(s.ctx, coordination.CallTimeout)
			defer cancel()
			if _, err := b.Bus().Request(ctx, node, topic, nil); err != nil {
				return fmt.Sprintf("a request of a node that handles it: %v", err)
			}
			return ""
		})
	}
}

func testRequest(s *suite) {
	node, topic := rand.Text(), s.key()
	request := func(b cluster.Backend, text string) (string, error) {
		ctx, cancel := context.WithTimeout(s.ctx, coordination.CallTimeout)
		defer cancel()
		reply, err := b.Bus().Request(ctx, node, topic, []byte(text))
		return string(reply), err
	}
	wantNone := func(what string) {
		s.Helper()
		for _, b := range []cluster.Backend{s.a, s.b} {
			began := time.Now()
			_, err := request(b, "x")
			s.wantError(what, err, cluster.ErrNoNode)
			if d := time.Since(began); d > coordination.CallTimeout/2 {
				s.Errorf("%s: the error took %v", what, d)
			}
		}
	}
	wantNone("a node that never was")
	hold, ended := make(chan struct{}), make(chan struct{})
	stop, err := s.b.Bus().Handle(s.ctx, node, topic, func(ctx context.Context, data []byte) []byte {
		if string(data) == "wait" {
			close(hold)
			<-ctx.Done()
			close(ended)
		}
		return append([]byte("reply to "), data...)
	})
	if err != nil {
		s.Fatal(err)
	}
	defer stop()
	s.warmUpRequests(node, topic)
	large := strings.Repeat("0123456789abcdef", coordination.MaxValue/16-1)
	for _, text := range []string{"1", "", large} {
		for _, b := range []cluster.Backend{s.a, s.b} {
			if got, err := request(b, text); err != nil || got != "reply to "+text {
				s.Errorf("request %.10q: got %.20q, %v", text, got, err)
			}
		}
	}
	_, err = s.a.Bus().Request(s.ctx, node, topic, []byte(large+strings.Repeat("x", 17)))
	s.wantError("a request that is too large", err, cluster.ErrTooLarge)
	ctx, cancel := context.WithCancel(s.ctx)
	result := make(chan error, 1)
	go func() {
		_, err := s.a.Bus().Request(ctx, node, topic, []byte("wait"))
		result <- err
	}()
	<-hold
	cancel()
	s.wantError("a request whose context ended", <-result, context.Canceled)
	stop()
	select {
	case <-ended:
	default:
		s.Error("stop returned before the handler")
	}
	s.eventually(func() string {
		if _, err := request(s.a, "x"); !errors.Is(err, cluster.ErrNoNode) {
			return fmt.Sprintf("a request after stop: %v", err)
		}
		return ""
	})
	wantNone("a node that has stopped")
}

// handlersAtOnce is how many requests of a handler may run at once, see [cluster.Bus].
const handlersAtOnce = 256

// testOverload checks that a request to an overloaded node fails at once.
func testOverload(s *suite) {
	node, topic := rand.Text(), s.key()
	started, hold := make(chan struct{}, handlersAtOnce+1), make(chan struct{})
	stop, err := s.b.Bus().Handle(s.ctx, node, topic, func(context.Context, []byte) []byte {
		started <- struct{}{}
		<-hold
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	defer stop()
	var wg sync.WaitGroup
	s.eventually(func() string { // one handler blocks as soon as requests reach the node
		ctx, cancel := context.WithTimeout(s.ctx, 100*time.Millisecond)
		defer cancel()
		if _, err := s.a.Bus().Request(ctx, node, topic, nil); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Sprintf("the request is not handled: %v", err)
		}
		return ""
	})
	for range handlersAtOnce - 1 {
		wg.Go(func() {
			if _, err := s.a.Bus().Request(s.ctx, node, topic, nil); err != nil {
				s.Error(err)
			}
		})
	}
	for range handlersAtOnce {
		<-started
	}
	ctx, cancel := context.WithTimeout(s.ctx, coordination.CallTimeout)
	defer cancel()
	_, err = s.a.Bus().Request(ctx, node, topic, nil)
	s.wantError("a request of a busy node", err, cluster.ErrUnavailable)
	close(hold)
	wg.Wait()
}
