package rpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/test/pipes"
	"mcpwire/jsonrpc"
)

// overTransports runs f for each transport and framing.
func overTransports(t *testing.T, f func(t *testing.T, a, b jsonrpc.Framer)) {
	for _, transport := range pipes.Transports {
		for _, framing := range []jsonrpc.Framing{jsonrpc.FramingLine, jsonrpc.FramingHeader} {
			t.Run(fmt.Sprintf("%s, %v", transport.Name, framing), func(t *testing.T) {
				a, b := transport.Open(t)
				f(t, jsonrpc.NewFramer(a, &jsonrpc.FramerOptions{Framing: framing}), jsonrpc.NewFramer(b, nil))
			})
		}
	}
}

func TestConnOverTransports(t *testing.T) {
	overTransports(t, func(t *testing.T, fa, fb jsonrpc.Framer) {
		echo := HandlerFunc(func(ctx context.Context, r *Request) ([]byte, error) {
			if string(r.Method) == "back" { // calls back the caller
				return r.Conn().Call(ctx, "echo", r.Params)
			}
			return r.Params, nil
		})
		a, b := NewConn(fa, &Options{Handler: echo}), NewConn(fb, &Options{Handler: echo})
		var wg sync.WaitGroup
		wg.Go(func() { a.Run(context.Background()) })
		wg.Go(func() { b.Run(context.Background()) })
		for _, n := range []int{0, 1, 100, 70000, 300000} {
			params := []byte(`["` + strings.Repeat("x", n) + `"]`)
			for _, method := range []string{"echo", "back"} {
				got, err := a.Call(context.Background(), method, params)
				if err != nil || !bytes.Equal(got, params) {
					t.Fatalf("%s of %d bytes: got %d bytes and %v", method, n, len(got), err)
				}
			}
		}
		a.Close()
		wg.Wait()
		if err := a.Err(); err != nil {
			t.Errorf("a ended with %v", err)
		}
	})
}

// TestResponseTooLarge shows that a response above the limit fails its call before its end has
// arrived, and no other call.
func TestResponseTooLarge(t *testing.T) {
	head := func(id int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"text":"`, id) + strings.Repeat("x", 200)
	}
	tail := func(id int) string {
		return `{"result":{"text":"` + strings.Repeat("x", 200) + fmt.Sprintf(`"},"jsonrpc":"2.0","id":%d}`, id)
	}
	const rest = `"}}`
	tests := []struct {
		name   string
		calls  int
		first  string // first part of the response
		second string // rest of the response
		early  []int  // calls that fail after the first part
		failed []int  // calls that have failed after the rest
	}{
		{"id first", 3, head(2), rest, []int{2}, []int{2}},
		{"id last", 3, tail(2)[:150], tail(2)[150:], nil, []int{2}},
		{"id of no call", 3, head(9), rest, nil, nil},
		{"no id, one call", 1, `{"result":"` + strings.Repeat("x", 200), `"}`, nil, []int{1}},
		{"no id, several calls", 2, `{"result":"` + strings.Repeat("x", 200), `"}`, nil, nil},
		{"not JSON, one call", 1, strings.Repeat("x", 150), strings.Repeat("x", 150), nil, nil},
		{"notification, one call", 1, `{"method":"m","params":["` + strings.Repeat("x", 200), `"]}`, nil, nil},
	}
	for _, test := range tests {
		for _, framing := range []jsonrpc.Framing{jsonrpc.FramingLine, jsonrpc.FramingHeader} {
			t.Run(test.name+", "+framing.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					local, remote := pipes.Memory(0)
					c := NewConn(jsonrpc.NewFramer(local, &jsonrpc.FramerOptions{Framing: framing, MaxFrame: 100}), nil)
					go c.Run(context.Background())
					defer c.Close()
					var calls []*Pending
					for range test.calls {
						p, err := c.NewCall("m")
						if err == nil {
							err = p.Send(t.Context(), nil)
						}
						if err != nil {
							t.Fatal(err)
						}
						calls = append(calls, p)
					}
					send := func(text string) {
						io.WriteString(remote, text)
						synctest.Wait()
					}
					failed := func() (ids []int) {
						for i, p := range calls {
							if len(p.Done()) == 0 {
								continue
							}
							_, err := p.Result()
							if large, ok := errors.AsType[*jsonrpc.TooLargeError](err); !ok || large.Limit != 100 {
								t.Errorf("call %d: %v", i+1, err)
								continue
							}
							if lost, ok := errors.AsType[*jsonrpc.CallError](err); !ok || lost.Outcome != jsonrpc.OutcomeUnknown {
								t.Errorf("call %d: %v", i+1, err)
							}
							ids = append(ids, i+1)
						}
						return ids
					}
					first, second := test.first, test.second+"\n"
					if framing == jsonrpc.FramingHeader {
						whole := block(test.first + test.second)
						at := len(whole) - len(test.second)
						first, second = whole[:at], whole[at:]
					}
					send(first)
					if diff := cmp.Diff(test.early, failed()); diff != "" {
						t.Errorf("calls that failed before the end of the response (-want +got):\n%s", diff)
					}
					send(second)
					if diff := cmp.Diff(test.failed, failed()); diff != "" {
						t.Errorf("failed (-want +got):\n%s", diff)
					}
					// The connection continues.
					last := calls[len(calls)-1]
					if len(test.failed) == test.calls {
						last, _ = c.NewCall("m")
						last.Send(t.Context(), nil)
					}
					answer := result(last.ID().String(), "{}")
					if framing == jsonrpc.FramingHeader {
						send(block(answer))
					} else {
						send(answer + "\n")
					}
					if text, err := last.Wait(t.Context()); string(text) != "{}" || err != nil {
						t.Errorf("the next response: %q, %v", text, err)
					}
				})
			})
		}
	}
}

// TestRequestTooLarge shows that the error for a request above the limit has the request's id, for
// peers that ignore responses without one, and that a notification above the limit gets no
// response.
func TestRequestTooLarge(t *testing.T) {
	x := strings.Repeat("x", 200)
	for _, framing := range []jsonrpc.Framing{jsonrpc.FramingLine, jsonrpc.FramingHeader} {
		local, remote := pipes.Memory(0)
		for _, msg := range []string{request(5, "m", `["`+x+`"]`), notification("n", `["`+x+`"]`), request(6, "ping")} {
			if framing == jsonrpc.FramingHeader {
				io.WriteString(remote, block(msg))
			} else {
				io.WriteString(remote, msg+"\n")
			}
		}
		remote.Out.End(io.EOF)
		c := NewConn(jsonrpc.NewFramer(local, &jsonrpc.FramerOptions{Framing: framing, MaxFrame: 100}), &Options{Handler: pingHandler{}})
		if err := c.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		answers := jsonrpc.NewFramer(remote, nil)
		var got []string
		for frame, err := answers.ReadFrame(); err == nil; frame, err = answers.ReadFrame() {
			got = append(got, string(frame))
		}
		want := []string{failure("5", jsonrpc.CodeInvalidRequest, skipped(100), ""), result(6, "{}")}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", framing, diff)
		}
	}
}

// TestNewFramerIsSource shows that NewFramer returns a Source. The fast path of a connection needs
// one: it copies each frame of another Framer.
func TestNewFramerIsSource(t *testing.T) {
	local, _ := pipes.Memory(0)
	if _, ok := jsonrpc.NewFramer(local, nil).(Source); !ok {
		t.Error("jsonrpc.NewFramer returns no Source")
	}
}
