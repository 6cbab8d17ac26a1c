package conn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/rpc"
	"mcpwire/internal/test/pipes"
	"mcpwire/jsonrpc"
)

// A peer is the other end of a connection under test.
type peer struct {
	t    *testing.T
	conn *Conn
	end  pipes.End
	// receives the error of Run
	run chan error
}

// newPeer runs a connection with a peer in a synctest bubble until the test ends.
func newPeer(t *testing.T, h Handler, opts *Options) *peer {
	local, remote := pipes.Memory(0)
	p := &peer{t: t, conn: New(jsonrpc.NewFramer(local, nil), h, opts), end: remote, run: make(chan error, 1)}
	go func() { p.run <- p.conn.Run(t.Context()) }()
	t.Cleanup(func() { p.conn.Close() })
	return p
}

// send sends messages to the connection.
func (p *peer) send(messages ...string) {
	io.WriteString(p.end, strings.Join(messages, "\n")+"\n")
}

// want waits until the connection is idle, and checks the messages that it has sent.
func (p *peer) want(messages ...string) {
	p.t.Helper()
	synctest.Wait()
	got := strings.Split(strings.TrimSuffix(string(p.end.In.Take()), "\n"), "\n")
	if diff := cmp.Diff(messages, got); diff != "" {
		p.t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// methods is a Handler that calls a function by method name.
func methods(m map[string]Handler) Handler {
	return func(ctx context.Context, c *Conn, msg *jsonrpc.Message) ([]byte, error) {
		if h := m[string(msg.Method)]; h != nil {
			return h(ctx, c, msg)
		}
		return nil, jsonrpc.MethodNotFound(string(msg.Method))
	}
}

func TestAnswers(t *testing.T) {
	h := methods(map[string]Handler{
		"echo":    func(_ context.Context, _ *Conn, m *jsonrpc.Message) ([]byte, error) { return m.Params, nil },
		"nothing": func(context.Context, *Conn, *jsonrpc.Message) ([]byte, error) { return nil, nil },
		"lines":   func(context.Context, *Conn, *jsonrpc.Message) ([]byte, error) { return []byte("[\n1]"), nil },
		"no JSON": func(context.Context, *Conn, *jsonrpc.Message) ([]byte, error) { return []byte("{"), nil },
		"own":     func(context.Context, *Conn, *jsonrpc.Message) ([]byte, error) { return nil, jsonrpc.Errorf(5, "own") },
		"panic":   func(context.Context, *Conn, *jsonrpc.Message) ([]byte, error) { panic("secret") },
	})
	internal := func(exception string) string {
		return `"error":{"code":-32603,"message":"internal error","data":{"exception":"` + exception + `"}}`
	}
	for _, tt := range []struct{ method, want string }{
		{"echo", `"result":[7]`},
		{"nothing", `"result":null`},
		{"lines", `"result":[1]`},
		{"no JSON", internal("jsonwire.SyntaxError")},
		{"own", `"error":{"code":5,"message":"own"}`},
		{"panic", internal("panic")},
		{"other", `"error":{"code":-32601,"message":"method not found: other"}`},
	} {
		for _, goroutines := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, goroutines=%v", tt.method, goroutines), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := newPeer(t, h, &Options{Goroutines: goroutines})
					for range 10 { // repeats until the method is known to be fast
						p.send(`{"jsonrpc":"2.0","id":"a","method":"` + tt.method + `","params":[7]}`)
						p.want(`{"jsonrpc":"2.0","id":"a",` + tt.want + `}`)
					}
				})
			})
		}
	}
}

func TestNilHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t, nil, nil)
		p.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		p.want(`{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"method not found: m"}}`)
	})
}

// TestNotify shows that a notification with the context of a request is sent before the response,
// and rejected after it.
func TestNotify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept context.Context
		p := newPeer(t, func(ctx context.Context, c *Conn, m *jsonrpc.Message) ([]byte, error) {
			kept = ctx
			derived, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			return nil, errors.Join(c.Notify(ctx, "progress", []byte("[1]")), c.Notify(derived, "progress", []byte("[2]")))
		}, nil)
		p.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		progress := func(n int) string { return fmt.Sprintf(`{"jsonrpc":"2.0","method":"progress","params":[%d]}`, n) }
		p.want(progress(1), progress(2), `{"jsonrpc":"2.0","id":1,"result":null}`)
		if err := p.conn.Notify(kept, "progress", nil); !errors.Is(err, jsonrpc.ErrRequestEnded) {
			t.Errorf("after the response: %v, want %v", err, jsonrpc.ErrRequestEnded)
		}
		if err := p.conn.Notify(context.Background(), "news", nil); err != nil {
			t.Error(err)
		}
		p.want(`{"jsonrpc":"2.0","method":"news"}`)

		// The context of another connection's request has no effect.
		q := newPeer(t, nil, nil)
		if err := q.conn.Notify(kept, "news", nil); err != nil {
			t.Error(err)
		}
		q.want(`{"jsonrpc":"2.0","method":"news"}`)
	})
}

func TestCancel(t *testing.T) {
	for _, tt := range []struct {
		name   string
		opts   Options
		notice string // the params, for id 1
	}{
		{"default", Options{}, `{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`},
		{"method", Options{CancelMethod: "stop"}, `{"jsonrpc":"2.0","method":"stop","params":{"id":1}}`},
		{"both", Options{CancelMethod: "stop", CancelMember: "a\"b"}, `{"jsonrpc":"2.0","method":"stop","params":{"a\"b":1}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := make(chan error, 1)
				p := newPeer(t, func(ctx context.Context, c *Conn, m *jsonrpc.Message) ([]byte, error) {
					<-ctx.Done()
					ended <- ctx.Err()
					return nil, ctx.Err()
				}, &tt.opts)
				p.send(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
				synctest.Wait()
				p.send(tt.notice)
				if err := <-ended; err != context.Canceled {
					t.Errorf("the request's context ended with %v", err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := p.conn.Call(ctx, "m", nil); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Call: %v", err)
				}
				p.want(`{"jsonrpc":"2.0","id":1,"method":"m"}`, tt.notice)
			})
		})
	}
}

func TestOptions(t *testing.T) {
	const request = `{"jsonrpc":"2.0","id":1,"method":"m","params":[[]]}`
	const failed = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":`
	wait := func(ctx context.Context, _ *Conn, _ *jsonrpc.Message) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	var mu sync.Mutex
	var traced []string
	for _, tt := range []struct {
		name string
		opts Options
		send []string
		want string
	}{
		{"RequestTimeout", Options{RequestTimeout: time.Second}, []string{request}, failed + `"request timed out","data":{"exception":"context.deadlineExceededError"}}}`},
		{"MaxDepth", Options{MaxDepth: 2}, []string{request}, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error: invalid JSON at byte 47: nested too deeply"}}`},
		{"NoBatches", Options{NoBatches: true}, []string{"[" + request + "]"}, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"invalid request: this protocol revision has no batches; send each message on its own"}}`},
		{"MaxInFlight, MaxQueueBytes", Options{MaxInFlight: 1, MaxQueueBytes: 1}, []string{request, strings.Replace(request, "1", "2", 1), strings.Replace(request, "1", "3", 1)},
			`{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"overloaded: 1 requests are in flight and 1 bytes are queued"}}`},
		{"MaxInFlightBytes", Options{MaxInFlightBytes: 1, MaxQueueBytes: 1}, []string{request, strings.Replace(request, "1", "2", 1), strings.Replace(request, "1", "3", 1)},
			`{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"overloaded: 1 requests are in flight and 1 bytes are queued"}}`},
		{"Trace", Options{RequestTimeout: 1, Trace: func(dir jsonrpc.Direction, message []byte) {
			mu.Lock()
			defer mu.Unlock()
			traced = append(traced, fmt.Sprint(dir, " ", string(message)))
		}}, []string{request}, failed + `"request timed out","data":{"exception":"context.deadlineExceededError"}}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeer(t, wait, &tt.opts)
				p.send(tt.send...)
				<-time.After(time.Minute)
				p.want(tt.want)
			})
		})
	}
	if want := []string{"0 " + request, "1 " + failed + `"request timed out","data":{"exception":"context.deadlineExceededError"}}}`}; !cmp.Equal(want, traced) {
		t.Errorf("Trace saw %q, want %q", traced, want)
	}
	t.Run("CallTimeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPeer(t, nil, &Options{CallTimeout: time.Second})
			if _, err := p.conn.Call(t.Context(), "m", nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Call: %v", err)
			}
		})
	})
	t.Run("DrainTimeout", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPeer(t, wait, &Options{DrainTimeout: time.Minute})
			p.send(request)
			synctest.Wait()
			p.end.Out.End(io.EOF)
			want := jsonrpc.DrainError{Requests: 1, After: time.Minute}
			if late, ok := errors.AsType[*jsonrpc.DrainError](<-p.run); !ok || *late != want {
				t.Errorf("Run: %v, want %v", late, &want)
			}
			if err := p.conn.Err(); !errors.As(err, new(*jsonrpc.DrainError)) {
				t.Errorf("Err: %v", err)
			}
			<-p.conn.Done()
		})
	})
	t.Run("MaxPendingBytes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newPeer(t, nil, &Options{MaxPendingBytes: 100})
			p.end.In.Limit = 1
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			var err error
			for n := 0; err == nil && n < 100; n++ {
				err = p.conn.Notify(ctx, "a notification to a peer that does not read", nil)
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Notify: %v", err)
			}
		})
	})
}

func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t, nil, nil)
		if err := p.conn.Notify(t.Context(), "bye", nil); err != nil {
			t.Fatal(err)
		}
		p.conn.Flush(t.Context())
		p.conn.Close()
		p.want(`{"jsonrpc":"2.0","method":"bye"}`)
		if _, err := p.conn.Call(t.Context(), "m", nil); !errors.Is(err, jsonrpc.ErrClosed) {
			t.Errorf("Call after Close: %v", err)
		}
	})
}

// TestMethodsAreBounded shows that a peer that invents methods does not use unlimited memory.
func TestMethodsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeer(t, methods(nil), nil)
		for n := range 10 * maxMethods {
			p.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m%[1]d"}`, n))
		}
		synctest.Wait()
		p.conn.Close()
		if n := len(p.conn.costs); n == 0 || n > maxMethods {
			t.Errorf("%d methods are known, limit %d", n, maxMethods)
		}
	})
}

// direct is a Handler of internal/rpc that does the same work as Conn with the Handler of this
// test.
type direct struct{ cost rpc.CostEstimate }

func (d *direct) Prepare(*rpc.Request) *rpc.CostEstimate { return &d.cost }

func (d *direct) Handle(r *rpc.Request, dst []byte) ([]byte, error) {
	ctx := new(rpc.Context)
	r.InitContext(ctx, rpc.Trace{})
	return rpc.AppendResult(dst, r.Params)
}

func echo(_ context.Context, _ *Conn, m *jsonrpc.Message) ([]byte, error) { return m.Params, nil }

// TestRequestAllocations shows that a request allocates no more than with internal/rpc alone.
func TestRequestAllocations(t *testing.T) {
	measure := func(run func(context.Context, jsonrpc.Framer) error) float64 {
		local, remote := pipes.Memory(0)
		ended := make(chan error, 1)
		go func() { ended <- run(context.Background(), jsonrpc.NewFramer(local, nil)) }()
		request := []byte(`{"jsonrpc":"2.0","id":1,"method":"echo","params":{"text":"hello"}}` + "\n")
		buf := make([]byte, 1000)
		const rounds = 2000
		var before, after runtime.MemStats
		for n := range 2 * rounds {
			if n == rounds {
				runtime.ReadMemStats(&before)
			}
			remote.Write(request)
			if _, err := remote.Read(buf); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		remote.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return float64(after.Mallocs-before.Mallocs) / rounds
	}
	// The garbage collector empties pools at times, more often on a busy machine. A request that
	// allocates more would do so in every measurement.
	var got, want float64
	for range 3 {
		// No request is run by the reading goroutine, since the decision depends on timing.
		want = measure(func(ctx context.Context, f jsonrpc.Framer) error {
			return rpc.NewConn(f, &rpc.Options{Handler: new(direct), Goroutines: true}).Run(ctx)
		})
		got = measure(func(ctx context.Context, f jsonrpc.Framer) error {
			return New(f, echo, &Options{Goroutines: true}).Run(ctx)
		})
		if got <= want+0.7 {
			return
		}
	}
	t.Errorf("%.2f allocations, internal/rpc alone %.2f", got, want)
}

// BenchmarkRequest sends one request after the other over a pipe in memory.
func BenchmarkRequest(b *testing.B) {
	for _, goroutines := range []bool{false, true} {
		b.Run(fmt.Sprintf("goroutines=%v", goroutines), func(b *testing.B) {
			local, remote := pipes.Memory(0)
			c := New(jsonrpc.NewFramer(local, nil), echo, &Options{Goroutines: goroutines})
			go c.Run(context.Background())
			defer c.Close()
			request := []byte(`{"jsonrpc":"2.0","id":1,"method":"echo","params":{"text":"hello"}}` + "\n")
			buf := make([]byte, 1000)
			b.ReportAllocs()
			b.SetBytes(int64(len(request)))
			for b.Loop() {
				remote.Write(request)
				if _, err := remote.Read(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
