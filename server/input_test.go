package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// nameForm is a form with one field.
var nameForm = &mcp.ElicitRequestParams{
	Message:         "Who?",
	RequestedSchema: json.RawMessage(`{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}`),
}

const (
	nameFormText = `"message":"Who?","requestedSchema":{"properties":{"name":{"type":"string"}},"required":["name"],"type":"object"}`
	alice        = `{"action":"accept","content":{"name":"Alice"}}`
	four         = `{"role":"assistant","content":{"type":"text","text":"4"},"model":"m","stopReason":"endTurn"}`
	home         = `{"roots":[{"uri":"file:///home","name":"home"}]}`
)

var sum = &mcp.CreateMessageRequestParams{
	Messages:  []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.SamplingContent{mcp.TextContent{Text: "2+2?"}}}},
	MaxTokens: 10,
}

const sumText = `"maxTokens":10,"messages":[{"content":{"text":"2+2?","type":"text"},"role":"user"}]`

var answers = map[string]string{"elicitation/create": alice, "sampling/createMessage": four, "roots/list": home}

// TestInput runs one handler for each kind of input request, in all revisions.
//
// Spec: S101 S103 S105 S172 S173 S174 S175 S176
func TestInput(t *testing.T) {
	elicit := func(c *server.Call) (string, error) {
		res, err := c.Elicit(c, "name", nameForm)
		if err != nil {
			return "", err
		}
		return string(res.Action) + " " + string(res.Content), nil
	}
	for _, tt := range []struct {
		name   string
		fn     func(c *server.Call) (string, error)
		asked  []string // input requests by revision; empty for the error below
		want   string
		lacked string // capability in the error of older revisions
	}{
		{"form", elicit, []string{"", "",
			`elicitation/create {` + nameFormText + `}`,
			`elicitation/create {` + nameFormText + `}`,
			`elicitation/create {` + nameFormText + `}`,
		}, `accept {"name":"Alice"}`, "elicitation by form"},
		{"form with a mode", func(c *server.Call) (string, error) {
			p := *nameForm
			p.Mode = mcp.ElicitModeForm
			res, err := c.Elicit(c, "name", &p)
			if err != nil {
				return "", err
			}
			return string(res.Content), nil
		}, []string{"", "",
			`elicitation/create {` + nameFormText + `}`,
			`elicitation/create {` + strings.Replace(nameFormText, `,`, `,"mode":"form",`, 1) + `}`,
			`elicitation/create {` + strings.Replace(nameFormText, `,`, `,"mode":"form",`, 1) + `}`,
		}, `{"name":"Alice"}`, "elicitation by form"},
		{"page", func(c *server.Call) (string, error) {
			res, err := c.Elicit(c, "page", &mcp.ElicitRequestParams{Mode: "url", Message: "Log in", URL: "https://example.com/login?s=1", ElicitationID: "e1"})
			if err != nil {
				return "", err
			}
			return string(res.Action), nil
		}, []string{"", "", "",
			`elicitation/create {"elicitationId":"e1","message":"Log in","mode":"url","url":"https://example.com/login?s=1"}`,
			`elicitation/create {"message":"Log in","mode":"url","url":"https://example.com/login?s=1"}`,
		}, "accept", "elicitation by URL"},
		{"sampling", func(c *server.Call) (string, error) {
			res, err := c.Sample(c, "sum", sum)
			if err != nil {
				return "", err
			}
			return fmt.Sprint(res.Content, res.StopReason), nil
		}, repeat(5, `sampling/createMessage {`+sumText+`}`), fmt.Sprint(mcp.SamplingContent{mcp.TextContent{Text: "4"}}, "endTurn"), ""},
		{"roots", func(c *server.Call) (string, error) {
			roots, err := c.Roots(c, "roots")
			if err != nil {
				return "", err
			}
			return roots[0].Name + " " + roots[0].URI, nil
		}, repeat(5, "roots/list"), "home file:///home", ""},
	} {
		for i, revision := range allRevisions {
			t.Run(tt.name+"/"+revision, func(t *testing.T) {
				c := respond(t, withTool(t, nil, tt.fn), revision, everything)
				c.answer = fixed(answers)
				want, wantAsked := tt.want, []string{tt.asked[i]}
				if tt.asked[i] == "" {
					want, wantAsked = "error: the client has not declared a required capability: "+tt.lacked, nil
				}
				got, err := c.tool()
				if err != nil || got != want {
					t.Errorf("got %q, %v; want %q", got, err, want)
				}
				if diff := cmp.Diff(wantAsked, c.takeAsked()); diff != "" {
					t.Errorf("asked (-want +got):\n%s", diff)
				}
				if revision == modern && c.rounds != 1 {
					t.Errorf("%d rounds", c.rounds)
				}
			})
		}
	}
}

func repeat(n int, s string) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = s
	}
	return all
}

// TestInputRequiredResult checks the complete result with input requests.
//
// Spec: S103 S104 S105
func TestInputRequiredResult(t *testing.T) {
	c := respond(t, withTool(t, nil, askAll), modern, everything)
	r, err := c.request(t.Context(), "tools/call", callT)
	if err != nil {
		t.Fatal(err)
	}
	if r.RequestState == nil || strings.Trim(r.state(), "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		t.Errorf("request state %q", r.state())
	}
	want := canonical(t, `{"inputRequests":{`+
		`"who":{"method":"elicitation/create","params":{`+nameFormText+`}},`+
		`"sum":{"method":"sampling/createMessage","params":{`+sumText+`}},`+
		`"where":{"method":"roots/list","params":{}}},`+
		`"requestState":"STATE","resultType":"input_required","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"}}}`)
	if diff := cmp.Diff(want, canonical(t, strings.Replace(r.Text, r.state(), "STATE", 1))); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

// askAll sends three input requests at once.
func askAll(c *server.Call) (string, error) {
	q := c.InputRequests()
	who, sum, where := q.Elicit("who", nameForm), q.Sample("sum", sum), q.Roots("where")
	if err := q.Wait(c); err != nil {
		return "", err
	}
	return fmt.Sprint(string(who.Value().Content), sum.Value().Model, len(where.Value())), nil
}

// TestInputConcurrently shows that concurrent input requests are sent in one result, and that
// responses are matched by key.
func TestInputConcurrently(t *testing.T) {
	for _, revision := range []string{"2025-06-18", "2025-11-25", modern} {
		t.Run(revision, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := respond(t, withTool(t, nil, askAll), revision, everything)
				var all sync.WaitGroup
				all.Add(3)
				c.answer = func(_ context.Context, method, _ string) (string, error) {
					if revision != modern {
						all.Done()
						all.Wait() // until all three are pending
					}
					return answers[method], nil
				}
				got, err := c.tool()
				if want := `{"name":"Alice"}m1`; err != nil || got != want {
					t.Errorf("got %q, %v; want %q", got, err, want)
				}
				if revision == modern && c.rounds != 1 {
					t.Errorf("%d rounds, want 1", c.rounds)
				}
			})
		})
	}
}

// TestInputInSequence sends input requests one after the other. Each takes a round, and a further
// run of the handler.
//
// Spec: S107
func TestInputInSequence(t *testing.T) {
	for _, revision := range []string{"2025-06-18", modern} {
		runs := 0
		c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
			runs++
			who, err := c.Elicit(c, "who", nameForm)
			if err != nil {
				return "", err
			}
			roots, err := c.Roots(c, "roots")
			if err != nil {
				return "", err
			}
			return string(who.Content) + roots[0].URI, nil
		}), revision, everything)
		c.answer = fixed(answers)
		got, err := c.tool()
		if want := `{"name":"Alice"}file:///home`; err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", revision, got, err, want)
		}
		if want := map[bool]int{true: 3, false: 1}[revision == modern]; runs != want {
			t.Errorf("%s: the handler ran %d times, want %d", revision, runs, want)
		}
	}
}

// TestInputIgnoringErrors shows that input requests are sent even if the handler ignores
// ErrInputRequired.
func TestInputIgnoringErrors(t *testing.T) {
	for name, returned := range map[string]error{
		"a result": nil, "an error": errors.New("x"), "a protocol error": jsonrpc.Errorf(-32000, "x"), "the error, wrapped": fmt.Errorf("x: %w", server.ErrInputRequired),
	} {
		c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
			res, err := c.Elicit(c, "who", nameForm)
			if err == nil {
				return string(res.Content), nil
			}
			if !errors.Is(err, server.ErrInputRequired) {
				t.Error(err)
			}
			if _, err := c.Roots(c, "roots"); !errors.Is(err, server.ErrInputRequired) {
				t.Error(err)
			}
			return "too early", returned
		}), modern, everything)
		r, err := c.request(t.Context(), "tools/call", callT)
		if err != nil || r.ResultType != "input_required" || r.keys() != "roots who" {
			t.Errorf("%s: %v, %+v", name, err, r)
			continue
		}
		r, err = c.request(t.Context(), "tools/call", retry(callT, `{"who":`+alice+`}`, r.state()))
		if err != nil || r.text() != `{"name":"Alice"}` {
			t.Errorf("%s: %v, %+v", name, err, r)
		}
	}
}

// TestDeclineIsAnAnswer shows that a call does not fail if the user declines or dismisses an
// elicitation.
//
// Spec: S193
func TestDeclineIsAnAnswer(t *testing.T) {
	for _, revision := range []string{"2025-06-18", "2025-11-25", modern} {
		for _, action := range []string{"decline", "cancel"} {
			c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
				res, err := c.Elicit(c, "who", nameForm)
				if err != nil {
					return "", err
				}
				typed, err := server.Elicit[struct{ Name string }](c, "typed", "Who?")
				if err != nil {
					return "", err
				}
				return fmt.Sprint(res.Action, string(res.Content), typed.Action, typed.Accepted(), typed.Value), nil
			}), revision, everything)
			c.answer = fixed(map[string]string{"elicitation/create": `{"action":"` + action + `","content":{"name":"Bob","Name":"Bob"}}`})
			got, err := c.tool()
			if want := fmt.Sprint(action, "", action, false, struct{ Name string }{}); err != nil || got != want {
				t.Errorf("%s, %s: got %q, %v; want %q", revision, action, got, err, want)
			}
		}
	}
}

// TestInputCanceled cancels a call with a pending input request: the input request is canceled too.
func TestInputCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed atomic.Pointer[error]
		c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
			_, err := c.Elicit(c, "who", nameForm)
			failed.Store(&err)
			return "", err
		}), "2025-11-25", everything)
		gone := make(chan error, 1)
		c.answer = func(ctx context.Context, _, _ string) (string, error) {
			<-ctx.Done()
			gone <- ctx.Err()
			return "", ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			cancel()
		}()
		if _, err := c.request(ctx, "tools/call", callT); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := <-gone; err != context.Canceled {
			t.Error(err)
		}
		synctest.Wait()
		if err := failed.Load(); err == nil || !errors.Is(*err, context.Canceled) {
			t.Errorf("Elicit: %v", err)
		}
	})
}

// TestInputWithOwnContext ends the wait with a context of the handler, derived from the call's
// context or not.
func TestInputWithOwnContext(t *testing.T) {
	for _, base := range []func(c *server.Call) context.Context{
		func(c *server.Call) context.Context { return c },
		func(*server.Call) context.Context { return context.Background() },
	} {
		synctest.Test(t, func(t *testing.T) {
			c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
				ctx, cancel := context.WithCancel(base(c))
				go func() {
					synctest.Wait()
					cancel()
				}()
				if _, err := c.Elicit(ctx, "who", nameForm); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if _, err := c.Elicit(ctx, "again", nameForm); !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				return "gave up", nil
			}), "2025-11-25", everything)
			c.answer = func(ctx context.Context, _, _ string) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			}
			if got, err := c.tool(); err != nil || got != "gave up" {
				t.Errorf("got %q, %v", got, err)
			}
			if n := len(c.takeAsked()); n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

// TestInputRejected shows that an error of a legacy client reaches the handler, and is not returned
// as the server's own.
func TestInputRejected(t *testing.T) {
	c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
		_, err := c.Sample(c, "sum", sum)
		if e, ok := errors.AsType[*server.InputError](err); !ok || !e.Refused || !errors.Is(e.Err, &jsonrpc.Error{Code: -1}) || e.Key != "sum" {
			t.Errorf("%#v", err)
		}
		return "", err
	}), "2025-06-18", everything)
	c.answer = func(context.Context, string, string) (string, error) {
		return "", jsonrpc.Errorf(-1, "User rejected sampling request")
	}
	got, err := c.tool()
	if want := `error: sampling/createMessage "sum": the client rejected it: User rejected sampling request (-1)`; err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

// TestInputFailureCancelsOthers shows that when an input request fails, the others are canceled.
func TestInputFailureCancelsOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := respond(t, withTool(t, nil, askAll), "2025-06-18", everything)
		c.answer = func(ctx context.Context, method, _ string) (string, error) {
			if method == "roots/list" {
				synctest.Wait()
				return "", jsonrpc.Errorf(-32000, "no roots today")
			}
			<-ctx.Done()
			return "", ctx.Err()
		}
		got, err := c.tool()
		if want := `error: roots/list "where": the client rejected it: no roots today (-32000)`; err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	})
}

// TestInputFromGoroutines sends input requests from several goroutines of one handler.
func TestInputFromGoroutines(t *testing.T) {
	for _, revision := range []string{"2025-06-18", modern} {
		c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
			var wg sync.WaitGroup
			texts := make([]string, 20)
			errs := make([]error, len(texts))
			for i := range texts {
				wg.Go(func() {
					res, err := c.Elicit(c, fmt.Sprint("key ", i), nameForm)
					if err == nil {
						texts[i] = string(res.Content)
					}
					errs[i] = err
				})
			}
			wg.Wait()
			return strings.Join(texts, ""), errors.Join(errs...)
		}), revision, everything)
		c.answer = fixed(answers)
		got, err := c.tool()
		if want := strings.Repeat(`{"name":"Alice"}`, 20); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", revision, got, err, want)
		}
		if n := len(c.takeAsked()); n != 20 {
			t.Errorf("%s: %d questions", revision, n)
		}
	}
}

// TestInputAfterResponse sends an input request after the handler has returned.
func TestInputAfterResponse(t *testing.T) {
	for _, revision := range []string{"2025-06-18", modern} {
		var kept *server.Call
		c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
			kept = c
			_, err := c.Roots(c, "roots")
			return "", err
		}), revision, everything)
		c.answer = fixed(answers)
		if _, err := c.tool(); err != nil {
			t.Fatal(err)
		}
		c.takeAsked()
		if _, err := kept.Elicit(context.Background(), "late", nameForm); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", revision, err)
		}
		if _, err := server.Once(kept, "late", func(context.Context) (int, error) { t.Error("ran"); return 0, nil }); !errors.Is(err, jsonrpc.ErrRequestEnded) {
			t.Errorf("%s: %v", revision, err)
		}
		if asked := c.takeAsked(); asked != nil {
			t.Errorf("%s: %q", revision, asked)
		}
	}
}

// TestPanicAfterInput shows that a panic takes precedence over input requests.
func TestPanicAfterInput(t *testing.T) {
	c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
		if _, err := c.Elicit(c, "who", nameForm); err == nil {
			t.Error("no error")
		}
		panic("ouch")
	}), modern, everything)
	if _, err := c.request(t.Context(), "tools/call", callT); code(err) != jsonrpc.CodeInternalError {
		t.Error(err)
	}
}

// TestInputUndeclared sends input requests that clients have not declared.
//
// Spec: S106 S163 S172
func TestInputUndeclared(t *testing.T) {
	page := func(c *server.Call) error {
		_, err := c.ElicitURL(c, "k", "m", "https://example.com")
		return err
	}
	form := func(c *server.Call) error { _, err := c.Elicit(c, "k", nameForm); return err }
	sample := func(c *server.Call) error { _, err := c.Sample(c, "k", sum); return err }
	withTools := func(c *server.Call) error {
		p := *sum
		p.Tools = []mcp.Tool{{Name: "x", InputSchema: json.RawMessage(`{"type":"object"}`)}}
		_, err := c.Sample(c, "k", &p)
		return err
	}
	all := func(c *server.Call) error {
		q := c.InputRequests()
		q.Elicit("a", nameForm)
		q.ElicitURL("b", "m", "https://example.com")
		q.Sample("c", sum)
		q.Roots("d")
		return q.Wait(c)
	}
	for _, tt := range []struct {
		name, caps string
		ask        func(c *server.Call) error
		required   string // data of the modern error; empty for no error
		lacked     string
	}{
		{"form", `{}`, form, `{"elicitation":{"form":{}}}`, "elicitation by form"},
		{"form of a client with pages", `{"elicitation":{"url":{}}}`, form, `{"elicitation":{"form":{}}}`, "elicitation by form"},
		{"form, null", `{"elicitation":null}`, form, `{"elicitation":{"form":{}}}`, "elicitation by form"},
		{"form, empty capability", `{"elicitation":{}}`, form, "", ""},
		{"form, with a page", `{"elicitation":{"form":{},"url":{}}}`, form, "", ""},
		{"page", `{"elicitation":{}}`, page, `{"elicitation":{"url":{}}}`, "elicitation by URL"},
		{"page of a client with forms", `{"elicitation":{"form":{}}}`, page, `{"elicitation":{"url":{}}}`, "elicitation by URL"},
		{"page, declared", `{"elicitation":{"url":{}}}`, page, "", ""},
		{"sampling", `{"roots":{}}`, sample, `{"sampling":{}}`, "sampling"},
		{"sampling, declared", `{"sampling":{}}`, sample, "", ""},
		{"tools", `{"sampling":{}}`, withTools, `{"sampling":{"tools":{}}}`, "sampling with tools"},
		{"tools, declared", `{"sampling":{"tools":{}}}`, withTools, "", ""},
		{"roots", `{}`, func(c *server.Call) error { _, err := c.Roots(c, "k"); return err }, `{"roots":{}}`, "roots"},
		{"several", `{"sampling":{}}`, all, `{"elicitation":{"form":{},"url":{}},"roots":{}}`, "elicitation by form, elicitation by URL, roots"},
		{"required input first", `{"sampling":{}}`, func(c *server.Call) error {
			return c.Require(server.Roots, server.Sampling, server.SamplingTools)
		}, `{"roots":{},"sampling":{"tools":{}}}`, "roots, sampling with tools"},
	} {
		for _, revision := range []string{"2025-11-25", modern} {
			t.Run(tt.name+"/"+revision, func(t *testing.T) {
				c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
					err := tt.ask(c)
					unsupported, is := errors.AsType[*server.UnsupportedError](err)
					if is != (tt.lacked != "") || is && len(unsupported.Missing) == 0 {
						t.Errorf("%v", err)
					}
					return "done", err
				}), revision, tt.caps)
				c.answer = func(_ context.Context, method, params string) (string, error) {
					if strings.Contains(params, `"url"`) {
						return `{"action":"accept"}`, nil
					}
					return answers[method], nil
				}
				got, err := c.tool()
				e, _ := errors.AsType[*jsonrpc.Error](err)
				switch {
				case tt.lacked == "":
					if err != nil || got != "done" {
						t.Errorf("got %q, %v", got, err)
					}
					return
				case len(c.takeAsked()) > 0:
					t.Error("the client was asked")
				case revision != modern:
					if want := "error: the client has not declared a required capability: " + tt.lacked; err != nil || got != want {
						t.Errorf("got %q, %v; want %q", got, err, want)
					}
				case e == nil || e.Code != mcp.CodeMissingRequiredClientCapability || string(e.Data) != `{"requiredCapabilities":`+tt.required+`}`:
					t.Errorf("got %q, %v with data %s", got, err, dataOf(e))
				}
			})
		}
	}
}

func dataOf(e *jsonrpc.Error) string {
	if e == nil {
		return ""
	}
	return string(e.Data)
}

// TestOptionalInput shows that a handler can continue without an input that the client does not
// support.
func TestOptionalInput(t *testing.T) {
	for _, revision := range allRevisions {
		c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
			if c.Supports(server.Sampling) {
				t.Error("sampling is supported")
			}
			if _, err := c.Sample(c, "k", sum); err != nil {
				if _, ok := errors.AsType[*server.UnsupportedError](err); ok {
					return "without", nil
				}
			}
			return "with", nil
		}), revision, `{}`)
		if got, err := c.tool(); err != nil || got != "without" {
			t.Errorf("%s: got %q, %v", revision, got, err)
		}
	}
}

// TestInvalidInputRequests makes invalid input requests. The server sends none of the input
// requests of that round.
//
// Spec: S173 S174 S176 S183 S184
func TestInvalidInputRequests(t *testing.T) {
	page := func(url string) func(q *server.InputRequests) {
		return func(q *server.InputRequests) { q.ElicitURL("k", "m", url) }
	}
	form := func(schema string) func(q *server.InputRequests) {
		return func(q *server.InputRequests) {
			q.Elicit("k", &mcp.ElicitRequestParams{Message: "m", RequestedSchema: []byte(schema)})
		}
	}
	for _, tt := range []struct {
		name, want string
		add        func(q *server.InputRequests)
	}{
		{"no key", "needs a key", func(q *server.InputRequests) { q.Roots("") }},
		{"a key with invalid UTF-8", "needs a key", func(q *server.InputRequests) { q.Roots("\xff") }},
		{"a key twice", "duplicate key", func(q *server.InputRequests) { q.Roots("x"); q.Roots("x") }},
		{"no params", "needs params", func(q *server.InputRequests) { q.Elicit("k", nil) }},
		{"no message", "needs a message", func(q *server.InputRequests) { q.ElicitURL("k", "", "https://example.com") }},
		{"unknown mode", "mode", func(q *server.InputRequests) {
			q.Elicit("k", &mcp.ElicitRequestParams{Mode: "voice", Message: "m", RequestedSchema: nameForm.RequestedSchema})
		}},
		{"no schema", "requestedSchema", func(q *server.InputRequests) { q.Elicit("k", &mcp.ElicitRequestParams{Message: "m"}) }},
		{"task", "task", func(q *server.InputRequests) {
			p := *nameForm
			p.Task = &mcp.TaskMetadata{}
			q.Elicit("k", &p)
		}},
		{"schema is no JSON", "invalid JSON", form(`{`)},
		{"schema of an array", "root", form(`{"type":"array"}`)},
		{"schema is true", "root", form(`true`)},
		{"no properties", "properties", form(`{"type":"object"}`)},
		{"nested object", "only fields for", form(`{"type":"object","properties":{"a":{"type":"object"}}}`)},
		{"array of numbers", "only fields for", form(`{"type":"object","properties":{"a":{"type":"array","items":{"type":"number"}}}}`)},
		{"field is true", "only fields for", form(`{"type":"object","properties":{"a":true}}`)},
		{"field of two types", "only fields for", form(`{"type":"object","properties":{"a":{"type":["string","null"]}}}`)},
		{"broken keyword", "minLength", form(`{"type":"object","properties":{"a":{"type":"string","minLength":"x"}}}`)},
		{"no URL", "url", page("")},
		{"relative URL", "https", page("/login")},
		{"script", "https", page("javascript:alert(1)")},
		{"no host", "https", page("https:///x")},
		{"no host but a port", "https", page("https://:80/x")},
		{"http over a network", "this machine", page("http://example.com")},
		{"http to a name that begins with localhost", "this machine", page("http://localhost.example.com")},
		{"malformed URL", "url", page("https://exa mple.com/%zz")},
		{"URL with a space", "percent-encoded", page("https://example.com/a b")},
		{"URL beyond ASCII", "percent-encoded", page("https://example.com/é")},
		{"credentials", "password", page("https://user:pass@example.com")},
		{"form of a non-struct", "struct", func(q *server.InputRequests) { server.Form[int](q, "k", "m") }},
		{"form with a nested struct", "only fields for", func(q *server.InputRequests) { server.Form[struct{ A struct{ B int } }](q, "k", "m") }},
		{"form with a channel", "chan", func(q *server.InputRequests) { server.Form[struct{ A chan int }](q, "k", "m") }},
		{"no sampling params", "needs params", func(q *server.InputRequests) { q.Sample("k", nil) }},
	} {
		for _, revision := range []string{"2025-11-25", modern} {
			asked := withTool(t, nil, func(c *server.Call) (string, error) {
				q := c.InputRequests()
				q.Roots("other")
				tt.add(q)
				err := q.Wait(c)
				if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, server.ErrInputRequired) {
					t.Errorf("%s, %s: %v, want one with %q", tt.name, revision, err, tt.want)
				}
				if err := q.Wait(c); err != nil {
					t.Errorf("%s, %s: nothing was added, but %v", tt.name, revision, err)
				}
				return "done", nil
			})
			c := respond(t, asked, revision, everything)
			if got, err := c.tool(); err != nil || got != "done" || len(c.takeAsked()) > 0 {
				t.Errorf("%s, %s: got %q, %v", tt.name, revision, got, err)
			}
		}
	}
}

// TestTooManyInputRequests exceeds the limit of input requests of a call.
func TestTooManyInputRequests(t *testing.T) {
	c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
		q := c.InputRequests()
		for i := range 65 {
			q.Roots(fmt.Sprint(i))
		}
		return "", q.Wait(c)
	}), modern, everything)
	if got, err := c.tool(); err != nil || !strings.Contains(got, "more than 64 input requests") {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestInputResponseMissing shows that an input request without a response times out, and is
// canceled at the client.
//
// Spec: S193
func TestInputResponseMissing(t *testing.T) {
	for _, tt := range []struct {
		opts server.Options
		want time.Duration
	}{
		{server.Options{}, 10 * time.Minute},
		{server.Options{Input: server.InputOptions{StateTTL: time.Minute}}, time.Minute},
		{server.Options{Limits: server.Limits{HandlerTimeout: time.Second}}, time.Second},
		{server.Options{Input: server.InputOptions{StateTTL: time.Second}, Limits: server.Limits{HandlerTimeout: time.Hour}}, time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := respond(t, withTool(t, &tt.opts, func(c *server.Call) (string, error) {
				_, err := c.Elicit(c, "who", nameForm)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%+v: %v", tt.opts, err)
				}
				return "gave up", nil
			}), "2025-11-25", everything)
			gone := make(chan struct{})
			c.answer = func(ctx context.Context, _, _ string) (string, error) {
				defer close(gone)
				<-ctx.Done()
				return "", ctx.Err()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
			defer cancel()
			began := time.Now()
			if r, err := c.request(ctx, "tools/call", callT); err != nil || r.text() != "gave up" {
				t.Fatalf("%+v, %v", r, err)
			}
			<-gone
			if took := time.Since(began); took != tt.want {
				t.Errorf("gave up after %v, want %v", took, tt.want)
			}
		})
	}
}

// TestInputWithOtherContext sends an input request with a context that is not derived from the
// call's, and expects the error of this context.
func TestInputWithOtherContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if _, err := c.Elicit(ctx, "who", nameForm); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			return "gave up", nil
		}), "2025-11-25", everything)
		c.answer = func(ctx context.Context, _, _ string) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}
		if got, err := c.tool(); err != nil || got != "gave up" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

// TestConnectionEndsDuringInput shows that an input request fails if the input ends before its
// response.
func TestConnectionEndsDuringInput(t *testing.T) {
	for name, ask := range map[string]func(*server.Call) (string, error){
		"one input request": func(c *server.Call) (string, error) { return "", errorOf(c.Elicit(c, "who", nameForm)) },
		"several":           askAll,
	} {
		failed := make(chan error, 1)
		srv := withTool(t, nil, func(c *server.Call) (string, error) {
			text, err := ask(c)
			failed <- err
			return text, err
		})
		must(t, srv.Serve(context.Background(), &feed{[]string{
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` + everything + `,"clientInfo":{"name":"c","version":"1"}}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":` + callT + `}`,
		}}))
		if err := <-failed; !errors.Is(err, jsonrpc.ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// brittle panics when it decodes a text that begins with x.
type brittle string

func (b *brittle) UnmarshalText(text []byte) error {
	if strings.HasPrefix(string(text), "x") {
		panic("ouch")
	}
	*b = brittle(text)
	return nil
}

func (b brittle) MarshalText() ([]byte, error) { return []byte(b), nil }

// TestPanicInAnswer has a type that panics when it decodes an answer: only the request fails,
// however it was asked and with any number of input requests.
func TestPanicInAnswer(t *testing.T) {
	type form struct{ Name brittle }
	for _, revision := range []string{"2025-11-25", modern} {
		for _, n := range []int{1, 2} {
			c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
				q := c.InputRequests()
				name := server.Form[form](q, "name", "Who?")
				if n > 1 {
					q.Roots("roots")
				}
				if err := q.Wait(c); err != nil {
					return "", err
				}
				return string(name.Value().Value.Name), nil
			}), revision, everything)
			for value, want := range map[string]jsonrpc.Code{"good": 0, "xbad": jsonrpc.CodeInternalError} {
				c.answer = fixed(map[string]string{"elicitation/create": `{"action":"accept","content":{"Name":"` + value + `"}}`, "roots/list": home})
				if got, err := c.tool(); code(err) != want || want == 0 && (err != nil || got != value) {
					t.Errorf("%s, %d input requests, %s: got %q, %v", revision, n, value, got, err)
				}
			}
		}
	}
}
