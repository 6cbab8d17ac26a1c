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

// TestAsk runs one handler for each thing that can be asked, in all revisions.
//
// Spec: S101 S103 S105 S172 S173 S174 S175 S176
func TestAsk(t *testing.T) {
	elicit := func(c *server.Call) (string, error) {
		res, err := c.Elicit(c, "name", nameForm)
		if err != nil {
			return "", err
		}
		return res.Action + " " + string(res.Content), nil
	}
	for _, tt := range []struct {
		name   string
		fn     func(c *server.Call) (string, error)
		asked  []string // by revision; "" is the error below
		want   string
		lacked string // what the client is said to lack in older revisions
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
			return res.Action, nil
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
					want, wantAsked = "error: the client has not declared what is needed here: "+tt.lacked, nil
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

// TestInputRequiredResult shows the whole result that asks.
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

// askAll asks three things at once.
func askAll(c *server.Call) (string, error) {
	q := c.InputRequests()
	who, sum, where := q.Elicit("who", nameForm), q.Sample("sum", sum), q.Roots("where")
	if err := q.Wait(c); err != nil {
		return "", err
	}
	return fmt.Sprint(string(who.Value().Content), sum.Value().Model, len(where.Value())), nil
}

// TestAskSeveralAtOnce shows that questions that are put together are there together, and are answered by the keys they have.
func TestAskSeveralAtOnce(t *testing.T) {
	for _, revision := range []string{"2025-06-18", "2025-11-25", modern} {
		t.Run(revision, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := respond(t, withTool(t, nil, askAll), revision, everything)
				var all sync.WaitGroup
				all.Add(3)
				c.answer = func(_ context.Context, method, _ string) (string, error) {
					if revision != modern {
						all.Done()
						all.Wait() // until all three are there
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

// TestAskInTurn asks one thing after the other, which takes a round each; the handler runs once more each time.
//
// Spec: S107
func TestAskInTurn(t *testing.T) {
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

// TestAskIgnoringErrors shows that a handler that goes on after it was told to return is answered by its questions all the same.
func TestAskIgnoringErrors(t *testing.T) {
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

// TestDeclineIsAnAnswer shows that users who say no, or nothing, do not make a call fail.
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

// TestAskCancelled cancels a call whose client has yet to answer: the client hears that it need not.
func TestAskCancelled(t *testing.T) {
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

// TestAskWithOwnContext ends the wait by a context that the handler made, whether it stems from the call or not.
func TestAskWithOwnContext(t *testing.T) {
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

// TestAskRefused shows what becomes of a legacy client's error: it is none of this server's.
func TestAskRefused(t *testing.T) {
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
	if want := `error: sampling/createMessage "sum": the client refused: User rejected sampling request (-1)`; err != nil || got != want {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
}

// TestAskFailureCancelsTheOthers shows that nobody has to answer what nobody waits for.
func TestAskFailureCancelsTheOthers(t *testing.T) {
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
		if want := `error: roots/list "where": the client refused: no roots today (-32000)`; err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	})
}

// TestAskFromGoroutines asks from several goroutines of one handler.
func TestAskFromGoroutines(t *testing.T) {
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

// TestAskTooLate asks when the handler has returned.
func TestAskTooLate(t *testing.T) {
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

// TestPanicAfterAsking shows that a panic counts for more than questions.
func TestPanicAfterAsking(t *testing.T) {
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
