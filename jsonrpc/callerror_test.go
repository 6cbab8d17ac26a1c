package jsonrpc

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
)

// A scriptFramer brings what a test puts into in.
type scriptFramer struct {
	in   chan any // a []byte or an error
	out  chan []byte
	done chan struct{}
}

func (f *scriptFramer) ReadFrame() ([]byte, error) {
	select {
	case v := <-f.in:
		if err, ok := v.(error); ok {
			return nil, err
		}
		return v.([]byte), nil
	case <-f.done:
		return nil, io.EOF
	}
}

func (f *scriptFramer) WriteFrame(msg []byte) error {
	f.out <- append([]byte(nil), msg...)
	return nil
}

func (f *scriptFramer) Close() error {
	close(f.done)
	return nil
}

// A courier lets the reader keep its frames.
type nopTransport struct{ *scriptFramer }

func (nopTransport) OnResponse(func([]byte) error) {}

func (c nopTransport) Post(_ context.Context, msg []byte) error { return c.WriteFrame(msg) }

// TestCallError: one call fails, the others and the connection do not.
func TestCallError(t *testing.T) {
	for _, gives := range []bool{false, true} {
		s := &scriptFramer{in: make(chan any), out: make(chan []byte, 4), done: make(chan struct{})}
		var f Framer = s
		if gives {
			f = nopTransport{s}
		}
		c := NewConn(f, nil)
		go c.Run(t.Context())
		var calls []*Pending
		for range 2 {
			p, err := c.NewCall("m")
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Send(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			<-s.out
			calls = append(calls, p)
		}
		why := errors.New("why")
		s.in <- &CallError{ID: ID("77"), Err: why}
		s.in <- &CallError{ID: calls[0].ID(), Err: why, Outcome: OutcomeUnprocessed}
		_, err := calls[0].Wait(t.Context())
		var e *Error
		if lost, ok := errors.AsType[*CallError](err); !ok || lost.Outcome != OutcomeUnprocessed || !errors.Is(err, why) || errors.Is(err, ErrClosed) || errors.As(err, &e) {
			t.Errorf("the call that failed: %v", err)
		}
		frame := []byte(`{"jsonrpc":"2.0","id":2,"result":{"a":1}}`)
		s.in <- frame
		result, err := calls[1].Wait(t.Context())
		clear(frame)
		if string(result) != `{"a":1}` || err != nil {
			t.Errorf("the other call: %s, %v", result, err)
		}
		c.Close()
	}
}

// A recordingTransport is a MessageTransport that a test looks into.
type recordingTransport struct {
	*scriptFramer
	answer func([]byte) error
	posted []string
	values []any
	err    error
}

type transportKey struct{}

func (c *recordingTransport) OnResponse(answer func([]byte) error) { c.answer = answer }

func (c *recordingTransport) Post(ctx context.Context, msg []byte) error {
	if c.err != nil {
		return c.err
	}
	c.posted = append(c.posted, string(msg))
	c.values = append(c.values, ctx.Value(transportKey{}))
	return nil
}

// TestCourier: messages go one by one, in order, with the context of their sender, on its goroutine; answers may come past ReadFrame; what cannot be posted was not sent.
func TestCourier(t *testing.T) {
	f := &recordingTransport{scriptFramer: &scriptFramer{in: make(chan any), done: make(chan struct{})}}
	gaps := make(chan struct{}, 1)
	c := NewConn(f, &Options{MaxDepth: 4, OnGap: func() { gaps <- struct{}{} }})
	run := make(chan error)
	go func() { run <- c.Run(t.Context()) }()
	f.in <- ErrGap
	<-gaps
	ctx := context.WithValue(t.Context(), transportKey{}, "mine")
	p, err := c.NewCall("m")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Send(ctx, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Notify(ctx, "n", nil); err != nil {
		t.Fatal(err)
	}
	want := []string{`{"jsonrpc":"2.0","id":1,"method":"m"}`, `{"jsonrpc":"2.0","method":"n"}`}
	if !slices.Equal(f.posted, want) || !slices.Equal(f.values, []any{"mine", "mine"}) {
		t.Errorf("posted %q with %v, want %q", f.posted, f.values, want)
	}
	for _, bad := range []string{`{`, `{"jsonrpc":"2.0","id":1,"method":"x"}`, `{"jsonrpc":"2.0","id":1,"result":[[[[[]]]]]}`} {
		if f.answer([]byte(bad)) == nil {
			t.Errorf("%s was taken for an answer", bad)
		}
	}
	if err := f.answer([]byte(`{"jsonrpc":"2.0","id":1,"result":{"a":1}}`)); err != nil {
		t.Error(err)
	}
	if result, err := p.Wait(t.Context()); string(result) != `{"a":1}` || err != nil {
		t.Errorf("the call: %s, %v", result, err)
	}
	f.err = errors.New("no more")
	p, err = c.NewCall("m")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Send(ctx, nil); !errors.Is(err, ErrClosed) || !errors.Is(err, f.err) {
		t.Errorf("Send: %v, want that the connection is closed", err)
	}
	if err := <-run; !errors.Is(err, f.err) {
		t.Errorf("Run: %v", err)
	}
}

func TestFate(t *testing.T) {
	for fate, want := range map[Outcome]string{OutcomeUnknown: "no answer: x", OutcomeUnprocessed: "not carried out: x", OutcomeRejected: "refused: x", OutcomeDenied: "denied: x"} {
		if got := (&CallError{Outcome: fate, Err: errors.New("x")}).Error(); got != want {
			t.Errorf("%d: %q, want %q", fate, got, want)
		}
	}
}
