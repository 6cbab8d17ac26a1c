package server_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/server"
)

// TestAnswerNeverComes asks legacy clients that do not answer: nobody waits for ever, and the client hears that it need not answer any more.
//
// Spec: S193
func TestAnswerNeverComes(t *testing.T) {
	for _, tt := range []struct {
		opts server.Options
		want time.Duration
	}{
		{server.Options{}, 10 * time.Minute},
		{server.Options{StateTTL: time.Minute}, time.Minute},
		{server.Options{HandlerTimeout: time.Second}, time.Second},
		{server.Options{StateTTL: time.Second, HandlerTimeout: time.Hour}, time.Hour},
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

// TestAskWithForeignDeadline asks with a context that does not stem from the call: the error is that of this context.
func TestAskWithForeignDeadline(t *testing.T) {
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

// TestConnectionEndsWhileAsking has the input end before the client has answered: no answer can come any more.
func TestConnectionEndsWhileAsking(t *testing.T) {
	for name, ask := range map[string]func(*server.Call) (string, error){
		"one question": func(c *server.Call) (string, error) { return "", errorOf(c.Elicit(c, "who", nameForm)) },
		"several":      askAll,
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

// brittle cannot read what begins with an x.
type brittle string

func (b *brittle) UnmarshalText(text []byte) error {
	if strings.HasPrefix(string(text), "x") {
		panic("ouch")
	}
	*b = brittle(text)
	return nil
}

func (b brittle) MarshalText() ([]byte, error) { return []byte(b), nil }

// TestPanicInAnswer has a type panic that reads an answer: that fails the one request, whichever way and however many things were asked.
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
					t.Errorf("%s, %d questions, %s: got %q, %v", revision, n, value, got, err)
				}
			}
		}
	}
}
