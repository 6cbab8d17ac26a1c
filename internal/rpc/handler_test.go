package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/test/pipes"
	"mcpwire/jsonrpc"

	"github.com/google/go-cmp/cmp"
)

// Spec: S6 S8 S12 C5 C8
func TestAnswers(t *testing.T) {
	m := methods{
		"nothing":  func(context.Context, *Request) (string, error) { return "", nil },
		"nothing!": func(context.Context, *Request) (string, error) { return "", nil },
		"fail":     func(context.Context, *Request) (string, error) { return "", errors.New("secret") },
		"fail!":    func(context.Context, *Request) (string, error) { return "partial", errors.New("secret") },
		"own": func(context.Context, *Request) (string, error) {
			return "", &jsonrpc.Error{Code: 1, Message: "own", Data: []byte("[\n1]")}
		},
		"bad data": func(context.Context, *Request) (string, error) {
			return "", &jsonrpc.Error{Code: 1, Message: "bad", Data: []byte("}\n{")}
		},
		"nil error":  func(context.Context, *Request) (string, error) { return "", (*jsonrpc.Error)(nil) },
		"panic":      func(context.Context, *Request) (string, error) { panic("secret") },
		"panic!":     func(context.Context, *Request) (string, error) { panic("secret") },
		"nil deref":  func(_ context.Context, r *Request) (string, error) { return string((*r.batch).reply), nil },
		"panic type": func(context.Context, *Request) (string, error) { panic(&customError{}) },
		"timeout":    func(context.Context, *Request) (string, error) { return "", context.DeadlineExceeded },
		"goexit nil": func(context.Context, *Request) (string, error) { panic(nil) },
		"conn": func(_ context.Context, r *Request) (string, error) {
			return fmt.Sprint(r.Conn() != nil, r.InBatch()), nil
		},
	}
	exception := func(name string) string { return `{"exception":"` + name + `"}` }
	tests := []struct {
		name string
		send string
		want string // empty if there is no response
	}{
		{"result", request(1, "echo", `{"a": [1]}`), result(1, `{"a": [1]}`)},
		{"id as sent", request(`"a\u0062"`, "echo", `[]`), result(`"a\u0062"`, `[]`)},
		{"id beyond 2^53", request("9007199254740993", "echo", `[]`), result("9007199254740993", `[]`)},
		{"id 2^63", request("9223372036854775808", "ping!"), result("9223372036854775808", `{}`)},
		{"id -0", request("-0", "echo", "[]"), result("-0", "[]")},
		{"immediate", request(1, "ping!"), result(1, `{}`)},
		{"no result", request(1, "nothing"), result(1, `null`)},
		{"no result, immediate", request(1, "nothing!"), result(1, `null`)},
		{"unknown method", request(1, "no\nsuch"), failure(1, jsonrpc.CodeMethodNotFound, "method not found: no\nsuch", "")},
		{"long unknown method", request(1, strings.Repeat("x", 200)), failure(1, jsonrpc.CodeMethodNotFound, "method not found: "+strings.Repeat("x", 100)+"…", "")},
		{"error", request(1, "fail"), failure(1, jsonrpc.CodeInternalError, "internal error", "")},
		{"error, immediate", request(1, "fail!"), failure(1, jsonrpc.CodeInternalError, "internal error", "")},
		{"custom error", request(1, "own"), failure(1, 1, "own", "[1]")},
		{"error with invalid data", request(1, "bad data"), failure(1, 1, "bad", "")},
		{"nil pointer in a non-nil error", request(1, "nil error"), failure(1, jsonrpc.CodeInternalError, "internal error", exception("jsonrpc.Error"))},
		{"panic", request(1, "panic"), failure(1, jsonrpc.CodeInternalError, "internal error", exception("panic"))},
		{"panic, immediate", request(1, "panic!"), failure(1, jsonrpc.CodeInternalError, "internal error", exception("panic"))},
		{"panic with an error", request(1, "panic type"), failure(1, jsonrpc.CodeInternalError, "internal error", exception("rpc.customError"))},
		{"runtime panic", request(1, "nil deref"), failure(1, jsonrpc.CodeInternalError, "internal error", exception("runtime.errorString"))},
		{"panic with nil", request(1, "goexit nil"), failure(1, jsonrpc.CodeInternalError, "internal error", exception("runtime.PanicNilError"))},
		{"panic in Prepare", request(1, "panic in Prepare"), failure(1, jsonrpc.CodeInternalError, "internal error", exception("panic"))},
		{"time out", request(1, "timeout"), failure(1, jsonrpc.CodeInternalError, "request timed out", exception("context.deadlineExceededError"))},
		{"accessors of the request", request(1, "conn"), result(1, `true false`)},

		{"notification", notification("echo"), ""},
		{"notification, immediate", notification("ping!"), ""},
		{"unknown notification", notification("no such"), ""},
		{"notification that fails", notification("fail"), ""},
		{"notification that panics", notification("panic"), ""},
		{"notification that panics, immediate", notification("panic!"), ""},
		{"notification that panics in Prepare", notification("panic in Prepare"), ""},
		{"cancellation of an unknown id", cancelOf(5), ""},
		{"cancellation without an id", notification("$/cancelRequest"), ""},
		{"cancellation of an invalid id", cancelOf(`{"a":[]}`), ""},
		{"result for an unknown id", result(1, "{}"), ""},
		{"error for an unknown id", failure(1, 1, "x", ""), ""},
		{"error without id", `{"jsonrpc":"2.0","error":{"code":1,"message":"x"}}`, ""},

		{"not JSON", `{"jsonrpc":`, parseFailure(`{"jsonrpc":`)},
		{"not a message", `1`, failure("null", jsonrpc.CodeInvalidRequest, "invalid request: not an object", "")},
		{"invalid with an id", `{"jsonrpc":"2.0","id":"x"}`, failure(`"x"`, jsonrpc.CodeInvalidRequest, "invalid request: member method is missing", "")},
		{"invalid notification", `{"jsonrpc":"1.0","method":"echo"}`, failure("null", jsonrpc.CodeInvalidRequest, `invalid request: jsonrpc must be "2.0"`, "")},
		{"id null", request("null", "echo"), failure("null", jsonrpc.CodeInvalidRequest, "invalid request: id must be a string or an integer, not null", "")},
		{"id twice", `{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}`, failure("null", jsonrpc.CodeInvalidRequest, "invalid request: member id appears twice", "")},
		{"invalid response", `{"jsonrpc":"2.0","id":1,"result":1,"error":1}`, ""},
		{"invalid response without id", `{"jsonrpc":"2.0","result":1}`, ""},
	}
	everyMode(t, func(t *testing.T, p *peer) {
		for range 3 { // the cost estimate may change after the first run
			for _, test := range tests {
				p.send(test.send)
				got := strings.Join(p.received(), "\n")
				if want := test.want; got != want {
					t.Errorf("%s:\ngot  %s\nwant %s", test.name, got, want)
				}
			}
		}
		p.logged("secret")
		p.logged("response matches no request")
	}, Options{}, m)
}

// Spec: S6
func TestOmitNullID(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		p.send(`1`)
		p.want(`{"jsonrpc":"2.0","error":{"code":-32600,"message":"invalid request: not an object"}}`)
		p.send(request("null", "echo"))
		p.want(`{"jsonrpc":"2.0","error":{"code":-32600,"message":"invalid request: id must be a string or an integer, not null"}}`)
		p.send(`[1]`)
		p.want(`[{"jsonrpc":"2.0","error":{"code":-32600,"message":"invalid request: not an object"}}]`)
		p.conn.SetPolicy(Policy{})
		p.send(`1`)
		p.want(failure("null", jsonrpc.CodeInvalidRequest, "invalid request: not an object", ""))
	}, Options{Policy: Policy{OmitNullID: true}}, nil)
}

func TestNoHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local, remote := pipes.Memory(0)
		c := NewConn(jsonrpc.NewFramer(local, nil), nil)
		p := &peer{t: t, conn: c, link: remote, run: make(chan error, 1)}
		p.start(context.Background())
		p.send(request(1, "x"), notification("x"))
		p.want(failure(1, jsonrpc.CodeMethodNotFound, "method not found: x", ""))
		c.Close()
	})
}

func TestHandlerFunc(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := map[string]string{"two lines": "{\n\"a\":\n1}", "bad": "{", "empty": "", "two": "1 2"}
		local, remote := pipes.Memory(0)
		c := NewConn(jsonrpc.NewFramer(local, nil), &Options{Handler: HandlerFunc(func(_ context.Context, r *Request) ([]byte, error) {
			return []byte(results[string(r.Method)]), nil
		})})
		p := &peer{t: t, conn: c, link: remote, run: make(chan error, 1)}
		p.start(context.Background())
		for method, want := range map[string]string{
			"two lines": result(1, `{"a":1}`),
			"empty":     result(1, `null`),
			"bad":       failure(1, jsonrpc.CodeInternalError, "internal error", `{"exception":"jsonwire.SyntaxError"}`),
			"two":       failure(1, jsonrpc.CodeInternalError, "internal error", `{"exception":"jsonwire.SyntaxError"}`),
		} {
			p.send(request(1, method))
			p.want(want)
		}
		c.Close()
	})
}

// TestAnswersInAnyOrder shows that each response is sent when its handler ends, with the id of its
// request.
//
// Spec: S6
func TestAnswersInAnyOrder(t *testing.T) {
	sleep := func(ctx context.Context, r *Request) (string, error) {
		ms, _ := r.Param("ms")
		d, err := time.ParseDuration(string(ms) + "ms")
		elapse(d)
		return string(ms), err
	}
	everyMode(t, func(t *testing.T, p *peer) {
		p.send(request(1, "sleep", `{"ms":300}`), request(2, "sleep", `{"ms":100}`), request(`"2"`, "sleep", `{"ms":200}`), request(3, "ping!"))
		elapse(50 * time.Millisecond)
		p.want(result(3, "{}"))
		elapse(300 * time.Millisecond)
		p.want(result(2, "100"), result(`"2"`, "200"), result(1, "300"))
	}, Options{}, methods{"sleep": sleep})
}

func TestDuplicateIDs(t *testing.T) {
	const twice = "invalid request: a request with this id is still in flight"
	everyMode(t, func(t *testing.T, p *peer) {
		p.send(request(1, "wait"), request(`"a\u0062"`, "wait"), request(7, "ping!"))
		p.pause()
		p.want(result(7, "{}"))
		p.send(request(1, "echo", "[]"))
		p.want(failure(1, jsonrpc.CodeInvalidRequest, twice, ""))
		p.send(request(1, "ping!"))
		p.want(failure(1, jsonrpc.CodeInvalidRequest, twice, ""))
		p.send(request(`"ab"`, "echo", "[]"))
		p.want(failure(`"ab"`, jsonrpc.CodeInvalidRequest, twice, ""))
		p.send("[" + request(1, "ping!") + "," + request(1, "echo", "[]") + "]")
		p.want("[" + failure(1, jsonrpc.CodeInvalidRequest, twice, "") + "," + failure(1, jsonrpc.CodeInvalidRequest, twice, "") + "]")
		p.send(request(`"1"`, "ping!"), request(7, "ping!"))
		p.want(result(`"1"`, "{}"), result(7, "{}"))
		p.open()
		p.wantAnyOrder(result(1, `"waited"`), result(`"a\u0062"`, `"waited"`))
		p.send(request(1, "ping!")) // the id is free again
		p.want(result(1, "{}"))
	}, Options{}, nil)
}

// TestLargeFrames shows that a frame that is too large to copy is handed over to its request.
func TestLargeFrames(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		var want []string
		var frames []string
		for i := range 8 {
			text := fmt.Sprintf(`["%s"]`, strings.Repeat(string(rune('a'+i)), 60<<10+i*1000))
			frames = append(frames, request(i, "echo", text), request(fmt.Sprintf(`"%d"`, i), "late", text), notification("echo", text))
			want = append(want, result(i, text), result(fmt.Sprintf(`"%d"`, i), text))
		}
		for range 2 {
			p.send(frames...)
			elapse(time.Second)
			p.wantAnyOrder(want...)
		}
	}, Options{}, methods{"late": func(_ context.Context, r *Request) (string, error) {
		elapse(100 * time.Millisecond)
		return string(r.Params), nil
	}})
}

// TestPipeline sends ten thousand pings between slow calls.
func TestPipeline(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		var want, frames []string
		for i := range 10000 {
			switch {
			case i%500 == 0:
				frames = append(frames, request(i, "slow"))
				want = append(want, result(i, `"slow"`))
			case i%3 == 0:
				frames = append(frames, request(i, "echo", fmt.Sprintf("[%d]", i)))
				want = append(want, result(i, fmt.Sprintf("[%d]", i)))
			default:
				frames = append(frames, request(i, "ping!"))
				want = append(want, result(i, "{}"))
			}
		}
		p.send(frames...)
		elapse(30 * time.Second)
		p.wantAnyOrder(want...)
	}, Options{}, nil)
}

// TestTraceOption shows that Options.Trace gets each message unchanged and without framing.
func TestTraceOption(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	o := Options{CallTimeout: time.Second, Trace: func(dir jsonrpc.Direction, message []byte) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, []string{"> ", "< "}[dir]+string(message))
	}}
	everyMode(t, func(t *testing.T, p *peer) {
		p.greet()
		seen = nil
		step := func(send string, want ...string) {
			t.Helper()
			want = append([]string{"> " + send}, want...)
			p.send(send)
			p.received()
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(want, seen); diff != "" {
				t.Errorf("trace of %s (-want +got):\n%s", send, diff)
			}
			seen = nil
		}
		step(request(1, "ping!"), "< "+result(1, "{}"))
		step(request(1, "echo", "[]"), "< "+result(1, "[]"))
		step(request(1, "no such"), "< "+failure(1, jsonrpc.CodeMethodNotFound, "method not found: no such", ""))
		step(notification("echo"))
		step(result(1, "{}"))
		step("{", "< "+parseFailure("{"))
		step("["+request(1, "ping!")+","+notification("echo")+",1]", "< ["+result(1, "{}")+","+failure("null", jsonrpc.CodeInvalidRequest, "invalid request: not an object", "")+"]")
		step("[]", "< "+failure("null", jsonrpc.CodeInvalidRequest, "invalid request: empty batch", ""))
		p.conn.Notify(t.Context(), "n", nil)
		p.conn.Call(t.Context(), "m", nil)
		if diff := cmp.Diff([]string{"< " + notification("n"), "< " + request(1, "m"), "< " + cancelOf(1)}, seen); diff != "" {
			t.Errorf("trace of what this side sends (-want +got):\n%s", diff)
		}
	}, o, nil)
}

func TestReason(t *testing.T) {
	for params, want := range map[string]string{
		`{"reason":"a\u0062"}`: "ab", `{"reason":5}`: "", `{}`: "", `[]`: "", `{"reason":"` + strings.Repeat("x", 200) + `"}`: strings.Repeat("x", 100) + "…",
	} {
		if got := CancelReason(parsed(t, notification("n", params)), "reason"); got != want {
			t.Errorf("%s: got %q, want %q", params, got, want)
		}
	}
}

// TestPingAllocatesNothing shows that a request that the leader handles allocates nothing.
func TestPingAllocatesNothing(t *testing.T) {
	local, remote := pipes.Memory(0)
	c := NewConn(jsonrpc.NewFramer(local, nil), &Options{Handler: pingHandler{}})
	done := make(chan error)
	go func() { done <- c.Run(context.Background()) }()
	ping := []byte(request(1, "ping") + "\n")
	buf := make([]byte, 1000)
	if n := testing.AllocsPerRun(1000, func() {
		remote.Write(ping)
		if _, err := remote.Read(buf); err != nil {
			t.Fatal(err)
		}
	}); n >= 1 {
		t.Errorf("%v allocations", n)
	}
	remote.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

type customError struct{}

func (*customError) Error() string { return "cannot open /etc/passwd" }

type pingHandler struct{}

func (pingHandler) Prepare(*Request) *CostEstimate { return Immediate }

func (pingHandler) Handle(_ *Request, dst []byte) ([]byte, error) { return append(dst, "{}"...), nil }

// TestLogIsShort shows that the log truncates texts of the peer.
func TestLogIsShort(t *testing.T) {
	everyMode(t, func(t *testing.T, p *peer) {
		long := strings.Repeat("x", 100000)
		p.send(`{"jsonrpc":"2.0","id":"`+long+`"}`, result(`"`+long+`"`, "{}"), request(1, "fail", `["`+long+`"]`), cancelOf(`"`+long+`"`), "["+`{"jsonrpc":"2.0","id":"`+long+`"}`+"]")
		p.received()
		p.logged("x…")
		if n := len(p.log.String()); n > 2000 {
			t.Errorf("%d bytes were logged", n)
		}
	}, Options{}, methods{"fail": func(context.Context, *Request) (string, error) { return "", errors.New("x") }})
}

// TestBadFrames shows that an invalid frame gets an error and that the connection continues.
func TestBadFrames(t *testing.T) {
	ping, pong := request(1, "ping"), result(1, "{}")
	tooLarge := failure("null", jsonrpc.CodeInvalidRequest, skipped(100), "")
	broken := func(reason string) string { return failure("null", jsonrpc.CodeParseError, reason, "") }
	tests := []struct {
		name   string
		stream string
		header bool
		want   []string
	}{
		{"oversize line", strings.Repeat("x", 200000) + "\n" + ping + "\n", false, []string{tooLarge, pong}},
		{"oversize last line", ping + "\n" + strings.Repeat("x", 101), false, []string{pong, tooLarge}},
		{"many", strings.Repeat(strings.Repeat("x", 101)+"\n", 1000) + ping, false, append(slices.Repeat([]string{tooLarge}, 1000), pong)},
		{"oversize block", block(ping) + block(strings.Repeat("x", 200000)) + block(ping), true, []string{pong, tooLarge, pong}},
		{"bad header", "Content-Length: -1\r\n\r\n" + block(ping), true, []string{broken(`bad frame header: Content-Length "-1" is not a length in bytes`), pong}},
		{"empty body", block("") + block(ping), true, []string{parseFailure(""), pong}},
		{"cut off", block(ping) + block(ping)[:30], true, []string{pong, broken("the input ended within a frame: Content-Length is larger than the body")}},
	}
	for _, test := range tests {
		for _, foreign := range []bool{false, true} {
			local, remote := pipes.Memory(0)
			remote.Write([]byte(test.stream))
			remote.Out.End(io.EOF)
			f := jsonrpc.NewFramer(local, &jsonrpc.FramerOptions{MaxFrame: 100})
			p := &peer{t: t, wire: "line"}
			if test.header {
				p.wire = "header"
			}
			if foreign {
				f = struct{ jsonrpc.Framer }{f}
			}
			if err := NewConn(f, &Options{Handler: pingHandler{}}).Run(context.Background()); err != nil {
				t.Errorf("%s: Run returned %v", test.name, err)
			}
			var got []string
			for left := remote.In.Take(); len(left) > 0; {
				msg, rest, ok := p.cut(left)
				if !ok {
					t.Fatalf("%s: cannot read %q", test.name, left)
				}
				got, left = append(got, msg), rest
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.name, diff)
			}
		}
	}
}

func TestWithParams(t *testing.T) {
	for _, tt := range []struct{ frame, params, want, err string }{
		{`{"jsonrpc":"2.0","id":"a\u0062","method":"m\n","params":{"a":1}}`, `{"a":2,"b":[1, 2]}`, `{"a":2,"b":[1, 2]}`, ""},
		{`{"jsonrpc":"2.0","id":7,"method":"m"}`, " {\n\"a\":2}", `{"a":2}`, ""},
		{`{"jsonrpc":"2.0","method":"m","params":[]}`, `{"a":2}`, `{"a":2}`, ""},
		{`{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":1}}`, "null", "", ""},
		{`{"jsonrpc":"2.0","id":7,"method":"m"}`, `7`, "", "an object or an array"},
		{`{"jsonrpc":"2.0","id":7,"method":"m"}`, `{"a":2`, "", "params"},
		{`{"jsonrpc":"2.0","id":7,"method":"m"}`, `{},"id":8`, "", "params"},
		{`{"jsonrpc":"2.0","id":7,"method":"m"}`, `{"a":{"a":{"a":{"a":2}}}}`, "", "too deeply"},
	} {
		c := NewConn(noFramer{}, &Options{MaxDepth: 4})
		r := &Request{conn: c}
		if err := jsonrpc.Parse([]byte(tt.frame), &r.Message, 0); err != nil {
			t.Fatal(err)
		}
		n, err := r.WithParams([]byte(tt.params))
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) || jsonrpc.ErrorOf(err).Code != jsonrpc.CodeInternalError {
				t.Errorf("WithParams(%s): %v, want an internal error about %q", tt.params, err, tt.err)
			}
			continue
		case err != nil:
			t.Errorf("WithParams(%s): %v", tt.params, err)
			continue
		}
		if string(n.Params) != tt.want || n.Kind != r.Kind || string(n.ID) != string(r.ID) || string(n.Method) != string(r.Method) || n.Conn() != c {
			t.Errorf("WithParams(%s): %s %s %q %s", tt.params, n.Kind, n.ID, n.Method, n.Params)
		}
		if v, ok := n.Param("a"); strings.Contains(tt.want, `"a"`) && (!ok || string(v) != "2") {
			t.Errorf("WithParams(%s): param a is %s", tt.params, v)
		}
	}
}

// noFramer is a Framer for connections that do not run.
type noFramer struct{}

func (noFramer) ReadFrame() ([]byte, error) { return nil, nil }
func (noFramer) WriteFrame([]byte) error    { return nil }
func (noFramer) Close() error               { return nil }

func TestPresume(t *testing.T) {
	for _, tt := range []struct {
		d    time.Duration
		fast bool
	}{{0, true}, {maxInlineCost, true}, {maxInlineCost + 1, false}} {
		p := new(CostEstimate)
		p.Seed(tt.d)
		if p.fast() != tt.fast {
			t.Errorf("Presume(%v): fast is %v", tt.d, p.fast())
		}
		for range 2 {
			p.recordOverrun()
		}
		if p.fast() {
			t.Errorf("Presume(%v): fast after two overruns", tt.d)
		}
	}
}
