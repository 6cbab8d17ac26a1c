package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// answering returns options whose handlers answer everything.
func answering() Options {
	return Options{
		Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			switch p.Message {
			case "decline":
				return &mcp.ElicitResult{Action: mcp.ElicitActionDecline, Content: json.RawMessage(`{"a":1}`)}, nil
			case "fail":
				return nil, errors.New("no screen")
			case "nothing":
				return nil, nil
			}
			return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: json.RawMessage(`{"answer":` + fmt.Sprintf("%q", p.Message) + `}`)}, nil
		},
		ElicitModes: ElicitForm | ElicitURL,
		Sample: func(_ context.Context, p *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
			switch p.SystemPrompt {
			case "refuse":
				return nil, ErrRefused
			case "fail":
				return nil, errors.New("a secret")
			case "error":
				return nil, jsonrpc.Errorf(-5, "model is down")
			case "nothing":
				return nil, nil
			case "panic":
				panic("oh")
			}
			return &mcp.CreateMessageResult{Role: mcp.RoleAssistant, Content: mcp.SamplingContent{mcp.TextContent{Text: "t"}}, Model: "m"}, nil
		},
		SampleTools: true,
		Roots: func(context.Context) ([]mcp.Root, error) {
			return []mcp.Root{{URI: "file:///a", Name: "A"}}, nil
		},
	}
}

const (
	askForm   = `{"method":"elicitation/create","params":{"message":"name?","requestedSchema":{"type":"object","properties":{}}}}`
	askURL    = `{"method":"elicitation/create","params":{"mode":"url","message":"go","url":"https://example.com"}}`
	askSample = `{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5}}`
	askRoots  = `{"method":"roots/list"}`

	isForm   = `{"action":"accept","content":{"answer":"name?"}}`
	isURL    = `{"action":"accept"}`
	isSample = `{"role":"assistant","content":{"type":"text","text":"t"},"model":"m"}`
	isRoots  = `{"roots":[{"uri":"file:///a","name":"A"}]}`
)

// required is an InputRequiredResult.
func required(members string) string { return `{"resultType":"input_required",` + members + `}` }

// TestInputRounds: what a modern server asks for is answered in a request that is the same but for its id, the answers, and the state, which is echoed
// byte for byte and for one round.
// Spec: C69 C70 C71 C72 C73 C74 C75
func TestInputRounds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		result string // of the first request
		want   string // that the second has besides
	}{
		{"form", required(`"inputRequests":{"k":` + askForm + `}`), `"inputResponses":{"k":` + isForm + `}`},
		{"url", required(`"inputRequests":{"k":` + askURL + `}`), `"inputResponses":{"k":` + isURL + `}`},
		{"sampling", required(`"inputRequests":{"k":` + askSample + `}`), `"inputResponses":{"k":` + isSample + `}`},
		{"roots", required(`"inputRequests":{"k":` + askRoots + `}`), `"inputResponses":{"k":` + isRoots + `}`},
		{"with state", required(`"inputRequests":{"k":` + askRoots + `},"requestState":"a\u0062\/\ud83d \"<"`), `"inputResponses":{"k":` + isRoots + `},"requestState":"a\u0062\/\ud83d \"<"`},
		{"several, odd keys", required(`"inputRequests":{"b":` + askURL + `,"":` + askForm + `,"a\u0062\"":` + askRoots + `,"1":` + askSample + `}`),
			`"inputResponses":{"b":` + isURL + `,"":` + isForm + `,"a\u0062\"":` + isRoots + `,"1":` + isSample + `}`},
		{"state alone", required(`"requestState":""`), `"requestState":""`},
		{"state and no questions", required(`"inputRequests":{ },"requestState":"x"`), `"requestState":"x"`},
		{"state and null", required(`"inputRequests":null,"requestState":"x"`), `"requestState":"x"`},
		{"declined", required(`"inputRequests":{"k":` + strings.Replace(askForm, "name?", "decline", 1) + `}`), `"inputResponses":{"k":{"action":"decline"}}`},
		{"failed", required(`"inputRequests":{"k":` + strings.Replace(askForm, "name?", "fail", 1) + `}`), `"inputResponses":{"k":{"action":"cancel"}}`},
		{"nothing", required(`"inputRequests":{"k":` + strings.Replace(askForm, "name?", "nothing", 1) + `}`), `"inputResponses":{"k":{"action":"cancel"}}`},
	} {
		for _, method := range []string{"tools/call", "prompts/get", "resources/read"} {
			t.Run(tt.name+", "+method, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					opts := answering()
					c := dial(t, &opts, func(s *script) {
						s.discovers()
						first := s.expect(method)
						s.answer(first, tt.result)
						second := s.expect(method)
						s.answer(second, required(`"inputRequests":{"other":`+askRoots+`}`))
						third := s.expect(method)
						s.answer(third, `{"resultType":"complete","done":true}`)
						for i, m := range []message{second, third} {
							want := strings.TrimSuffix(strings.TrimPrefix(first.line, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,`, first.ID)), "}}") +
								"," + []string{tt.want, `"inputResponses":{"other":` + isRoots + `}`}[i] + "}}"
							if m.line != fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,%s`, i+3, want) {
								s.t.Errorf("round %d\ngot  %s\nwant %s", i+2, m.line, want)
							}
						}
						if after := s.expect(method); memberOf(s.t, string(after.Params), "inputResponses") != "" || memberOf(s.t, string(after.Params), "requestState") != "" {
							s.t.Errorf("answers of one call went into another: %s", after.line)
						} else {
							s.answer(after, `{"resultType":"complete","done":true}`)
						}
						s.expectEnd()
					})
					for rounds := 2; rounds >= 0; rounds -= 2 {
						r := &request{method: method, params: []byte(`{"name":"n","x":[1]}`)}
						got, err := c.roundTrip(t.Context(), r)
						if err != nil || memberOf(t, string(got), "done") != "true" || r.inputRounds != rounds {
							t.Errorf("got %s, %v after %d rounds", got, err, r.inputRounds)
						}
					}
				})
			})
		}
	}
}

// TestInputErrors: questions that the client cannot, or must not, answer end the call.
// Spec: C114 C98
func TestInputErrors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		result string
		opts   func(*Options)
		want   string
		check  func(error) bool
	}{
		{name: "nothing to do", result: required(`"x":1`), want: "neither inputRequests nor requestState", check: is[*ProtocolError]},
		{name: "no object", result: required(`"inputRequests":[]`), want: "inputRequests is no object", check: is[*ProtocolError]},
		{name: "no string", result: required(`"requestState":{}`), want: "requestState is no string", check: is[*ProtocolError]},
		{name: "no request", result: required(`"inputRequests":{"k":1}`), want: `"k" is no object`, check: is[*ProtocolError]},
		{name: "no method", result: required(`"inputRequests":{"k":{}}`), want: `"k" is no object`, check: is[*ProtocolError]},
		{name: "params no object", result: required(`"inputRequests":{"k":{"method":"roots/list","params":[]}}`), want: `"k" is no object`, check: is[*ProtocolError]},
		{name: "unknown", result: required(`"inputRequests":{"k":{"method":"ping"}}`), want: "method not found: ping", check: is[*ProtocolError]},
		{name: "params", result: required(`"inputRequests":{"k":{"method":"elicitation/create","params":{"message":1}}}`), want: "message", check: is[*ProtocolError]},
		{name: "odd mode", result: required(`"inputRequests":{"k":{"method":"elicitation/create","params":{"mode":"smell","message":"x"}}}`), want: `mode "smell"`, check: is[*ProtocolError]},
		{name: "too many", result: required(`"inputRequests":{"k":` + askRoots + strings.Repeat(`,"k":`+askRoots, maxInputRequests) + `}`), want: "more than 100", check: is[*ProtocolError]},
		{name: "no elicitation", result: required(`"inputRequests":{"k":` + askForm + `}`), opts: func(o *Options) { o.Elicit = nil }, want: "client.Options.Elicit", check: is[*ProtocolError]},
		{name: "no form", result: required(`"inputRequests":{"k":` + askForm + `}`), opts: func(o *Options) { o.ElicitModes = ElicitURL }, want: "client.Options.ElicitModes", check: is[*ProtocolError]},
		{name: "no url", result: required(`"inputRequests":{"k":` + askURL + `}`), opts: func(o *Options) { o.ElicitModes = 0 }, want: "client.Options.ElicitModes", check: is[*ProtocolError]},
		{name: "no sampling", result: required(`"inputRequests":{"k":` + askSample + `}`), opts: func(o *Options) { o.Sample = nil }, want: "client.Options.Sample", check: is[*ProtocolError]},
		{name: "no tools", result: required(`"inputRequests":{"k":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5,"tools":[]}}}`), opts: func(o *Options) { o.SampleTools = false },
			want: "client.Options.SampleTools", check: is[*ProtocolError]},
		{name: "no tool choice", result: required(`"inputRequests":{"k":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5,"toolChoice":{"mode":"auto"}}}}`), opts: func(o *Options) { o.SampleTools = false },
			want: "client.Options.SampleTools", check: is[*ProtocolError]},
		{name: "no roots", result: required(`"inputRequests":{"k":` + askRoots + `}`), opts: func(o *Options) { o.Roots = nil }, want: "client.Options.Roots", check: is[*ProtocolError]},
		{name: "refused", result: asksSample("refuse"), want: "sampling/createMessage: refused by the user", check: func(err error) bool { return is[*InputError](err) && errors.Is(err, ErrRefused) }},
		{name: "failed", result: asksSample("fail"), want: "a secret", check: is[*InputError]},
		{name: "failed like a peer", result: asksSample("error"), want: "model is down", check: is[*InputError]},
		{name: "nothing", result: asksSample("nothing"), want: "returned nothing", check: is[*InputError]},
		{name: "panic", result: asksSample("panic"), want: "panicked: oh", check: func(err error) bool { return is[*InputError](err) && is[*jsonrpc.PanicError](err) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := answering()
				if tt.opts != nil {
					tt.opts(&opts)
				}
				c := dial(t, &opts, func(s *script) {
					s.discovers()
					s.answer(s.expect("tools/call"), tt.result)
					s.answer(s.expect("tools/call"), `{}`)
					s.expectEnd()
				})
				err := c.Call(t.Context(), "tools/call", nil, nil, WithRetry())
				if err == nil || !strings.HasPrefix(err.Error(), "call tools/call: ") || !strings.Contains(err.Error(), tt.want) || !tt.check(err) || IsPeer(err) {
					t.Errorf("got %v (%T), want %q", err, err, tt.want)
				}
				if err := c.Call(t.Context(), "tools/call", nil, nil); err != nil {
					t.Errorf("the next call: %v", err)
				}
			})
		})
	}
}

func asksSample(system string) string {
	return required(`"inputRequests":{"k":{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":5,"systemPrompt":"` + system + `"}}}`)
}

// TestInputBounds: rounds are bounded, requests without questions wait longer each time, and the bounds of the call hold for handlers.
func TestInputBounds(t *testing.T) {
	bubble := func(name string, test func(t *testing.T)) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
	bubble("rounds", func(t *testing.T) {
		opts := answering()
		opts.MaxRounds = 3
		c := dial(t, &opts, func(s *script) {
			s.discovers()
			for range 4 {
				s.answer(s.expect("tools/call"), required(`"inputRequests":{"k":`+askRoots+`}`))
			}
			s.expectEnd()
		})
		if err := c.Call(t.Context(), "tools/call", nil, nil); !errors.Is(err, ErrTooManyRounds) || IsPeer(err) {
			t.Errorf("got %v", err)
		}
	})
	bubble("back-off", func(t *testing.T) {
		c := dial(t, nil, func(s *script) {
			s.discovers()
			last, gap := time.Now(), time.Duration(0)
			for i := range 10 {
				s.answer(s.expect("tools/call"), required(`"requestState":"x"`))
				if i > 0 {
					now := time.Since(last)
					if least := 100 * time.Millisecond << (i - 1) / 2; now < min(least, 2500*time.Millisecond) || now > 5*time.Second {
						s.fail("round %d came after %v", i, now)
					}
					gap = max(gap, now)
				}
				last = time.Now()
			}
			s.answer(s.expect("tools/call"), "{}")
			s.expectEnd()
		})
		if err := c.Call(t.Context(), "tools/call", nil, nil); err != nil {
			t.Error(err)
		}
	})
	for _, tt := range []struct {
		name string
		opt  CallOption
		ends time.Duration
	}{
		{"a handler may take longer than an answer", WithTimeout(time.Second), 0},
		{"but not than the call", WithMaxTimeout(time.Minute), time.Minute},
	} {
		bubble(tt.name, func(t *testing.T) {
			opts := Options{Roots: func(ctx context.Context) ([]mcp.Root, error) {
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(time.Hour):
					return nil, nil
				}
			}}
			c := dial(t, &opts, func(s *script) {
				s.discovers()
				s.answer(s.expect("tools/call"), required(`"inputRequests":{"k":`+askRoots+`}`))
				if tt.ends == 0 {
					s.answer(s.expect("tools/call"), "{}")
				}
				s.expectEnd()
			})
			began := time.Now()
			err := c.Call(t.Context(), "tools/call", nil, nil, tt.opt)
			e, _ := errors.AsType[*TimeoutError](err)
			if d := time.Since(began); tt.ends == 0 && err != nil || tt.ends > 0 && (d != tt.ends || e == nil || !e.Max) {
				t.Errorf("got %v after %v", err, d)
			}
		})
	}
	for _, tt := range []struct {
		name   string
		opt    CallOption
		handle time.Duration
		answer time.Duration // after that
		want   time.Duration // 0 is success
	}{
		{"a legacy server does not answer while it waits for a handler", WithTimeout(time.Second), time.Hour, 900 * time.Millisecond, 0},
		{"but then it has to", WithTimeout(time.Second), time.Hour, 2 * time.Second, time.Hour + time.Second},
		{"and the bound of the call holds", WithMaxTimeout(time.Minute), time.Hour, 0, time.Minute},
	} {
		bubble(tt.name, func(t *testing.T) {
			opts := Options{Revisions: onlyLegacy, Roots: func(ctx context.Context) ([]mcp.Root, error) {
				elapse(tt.handle)
				return nil, nil
			}}
			c := dial(t, &opts, func(s *script) {
				s.opening(mcp.Revision20250618)
				m := s.expect("tools/call")
				s.ask("1", askRoots)
				if tt.handle > tt.want {
					if tt.want > 0 {
						s.expect("notifications/cancelled")
					}
				}
				s.expectResult("1")
				elapse(tt.answer)
				s.answer(m, "{}")
				if tt.want > tt.handle {
					s.expect("notifications/cancelled")
				}
				s.expectEnd()
			})
			began := time.Now()
			err := c.Call(t.Context(), "tools/call", nil, nil, tt.opt)
			if d := time.Since(began); (err == nil) != (tt.want == 0) || tt.want > 0 && d != tt.want {
				t.Errorf("got %v after %v", err, d)
			}
			elapse(2 * time.Hour)
		})
	}
	bubble("many at once", func(t *testing.T) {
		var handlers gauge
		opts := Options{Roots: func(ctx context.Context) ([]mcp.Root, error) {
			defer handlers.enter()()
			if FromContext(ctx) == nil {
				t.Error("the handler does not know its client")
			}
			elapse(time.Second)
			return nil, nil
		}}
		var requests []string
		for i := range 20 {
			requests = append(requests, fmt.Sprintf(`"%d":%s`, i, askRoots))
		}
		c := dial(t, &opts, func(s *script) {
			s.discovers()
			s.answer(s.expect("tools/call"), required(`"inputRequests":{`+strings.Join(requests, ",")+`}`))
			m := s.expect("tools/call")
			if n := strings.Count(m.line, `{"roots":[]}`); n != 20 {
				s.fail("%d answers: %s", n, m.line)
			}
			s.answer(m, "{}")
			s.expectEnd()
		})
		if err := c.Call(t.Context(), "tools/call", nil, nil); err != nil || handlers.most != maxConcurrentInputs {
			t.Errorf("%v, %d handlers at once", err, handlers.most)
		}
	})
	bubble("cancelled while a handler runs", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		opts := Options{Roots: func(ctx context.Context) ([]mcp.Root, error) {
			cancel()
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		c := dial(t, &opts, func(s *script) {
			s.discovers()
			s.answer(s.expect("tools/call"), required(`"inputRequests":{"k":`+askRoots+`}`))
			s.expectEnd()
		})
		if err := c.Call(ctx, "tools/call", nil, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}
