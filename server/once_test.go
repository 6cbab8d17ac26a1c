package server_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// TestOnce has a side effect between two input requests, which happens once in both eras.
func TestOnce(t *testing.T) {
	type receipt struct {
		Number int       `json:"number"`
		At     time.Time `json:"at"`
		hidden string
	}
	for _, revision := range []string{"2025-06-18", modern} {
		orders, runs := 0, 0
		c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
			runs++
			if _, err := c.Roots(c, "before"); err != nil {
				return "", err
			}
			got, err := server.Once(c, "order", func(context.Context) (receipt, error) {
				orders++
				return receipt{orders, time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC), "x"}, nil
			})
			if err != nil {
				return "", err
			}
			if got.hidden != "" {
				t.Error("the first run returns an unexported field, which later runs cannot return")
			}
			if _, err := c.Roots(c, "between"); err != nil {
				return "", err
			}
			if _, err := c.Roots(c, "after"); err != nil {
				return "", err
			}
			return fmt.Sprint(got.Number, got.At.Unix()), nil
		}), revision, everything)
		c.answer = fixed(answers)
		got, err := c.tool()
		if want := "1 1795219200"; err != nil || got != want || orders != 1 {
			t.Errorf("%s: got %q, %v after %d orders; want %q after 1", revision, got, err, orders, want)
		}
		if want := map[bool]int{true: 4, false: 1}[revision == modern]; runs != want {
			t.Errorf("%s: %d runs, want %d", revision, runs, want)
		}
		if _, err := c.tool(); err != nil || orders != 2 {
			t.Errorf("%s: %d orders after another call, %v", revision, orders, err)
		}
	}
}

// TestOnceFails shows that a failed function is called again.
func TestOnceFails(t *testing.T) {
	for _, revision := range []string{"2025-06-18", modern} {
		tries := 0
		c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
			for {
				n, err := server.Once(c, "k", func(context.Context) (int, error) {
					if tries++; tries == 1 {
						return 0, errors.New("not yet")
					}
					return tries, nil
				})
				if err == nil {
					_, err = c.Roots(c, "roots")
					return fmt.Sprint(n), err
				}
			}
		}), revision, everything)
		c.answer = fixed(answers)
		if got, err := c.tool(); err != nil || got != "2" || tries != 2 {
			t.Errorf("%s: got %q, %v after %d calls", revision, got, err, tries)
		}
	}
}

// TestOnceWithInput has an input request in the function: it is called again with the answer, and
// not after that.
func TestOnceWithInput(t *testing.T) {
	done := 0
	c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
		who, err := server.Once(c, "who", func(ctx context.Context) (string, error) {
			res, err := c.Elicit(ctx, "who", nameForm)
			if err != nil {
				return "", err
			}
			done++
			return string(res.Content), nil
		})
		if err != nil {
			return "", err
		}
		return who, errorOf(c.Roots(c, "roots"))
	}), modern, everything)
	c.answer = fixed(answers)
	if got, err := c.tool(); err != nil || got != `{"name":"Alice"}` || done != 1 {
		t.Errorf("got %q, %v; done %d times", got, err, done)
	}
}

// TestOnceConcurrently calls Once with one key from many goroutines.
func TestOnceConcurrently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran atomic.Int32
		c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					n, err := server.Once(c, "k", func(context.Context) (int32, error) {
						synctest.Wait() // until all others wait
						return ran.Add(1), nil
					})
					if n != 1 || err != nil {
						t.Errorf("%d, %v", n, err)
					}
				})
			}
			wg.Wait()
			return "done", nil
		}), modern, everything)
		if got, err := c.tool(); err != nil || got != "done" || ran.Load() != 1 {
			t.Errorf("got %q, %v; ran %d times", got, err, ran.Load())
		}
	})
}

// TestOnceWaits shows that the wait for another goroutine's function ends when the context ends or
// the function panics.
func TestOnceWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
			release := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				server.Once(c, "k", func(context.Context) (int, error) { <-release; panic("ouch") })
			})
			synctest.Wait()
			ctx, cancel := context.WithCancel(c)
			cancel()
			if _, err := server.Once(ctx, "k", askOne); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			wg.Go(func() {
				if _, err := server.Once(c, "k", askOne); err == nil || !strings.Contains(err.Error(), "panicked") {
					t.Error(err)
				}
			})
			synctest.Wait()
			close(release)
			wg.Wait()
			n, err := server.Once(c, "k", askOne)
			return fmt.Sprint(n), err
		}), modern, everything)
		if got, err := c.tool(); err != nil || got != "1" {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

func askOne(context.Context) (int, error) { return 1, nil }

type notUTF8 struct{}

func (notUTF8) MarshalJSON() ([]byte, error) { return []byte("\"\xff\""), nil }

// TestOnceInvalidValues returns values that cannot be encoded as JSON.
func TestOnceInvalidValues(t *testing.T) {
	c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
		for i, err := range []error{
			errorOf(server.Once(c, "a", func(context.Context) (float64, error) { return math.NaN(), nil })),
			errorOf(server.Once(c, "b", func(context.Context) (chan int, error) { return nil, nil })),
			errorOf(server.Once(c, "c", func(context.Context) (notUTF8, error) { return notUTF8{}, nil })),
			errorOf(server.Once(c, "d", func(context.Context) (error, error) { return errors.New("x"), nil })),
		} {
			if err == nil || !strings.Contains(err.Error(), "cannot be stored") {
				t.Errorf("%d: %v", i, err)
			}
		}
		if err := errorOf(server.Once(c, "\xff", askOne)); err == nil {
			t.Error("a key with invalid UTF-8 was accepted")
		}
		if err := errorOf(server.Once(c, "e", askOne)); err != nil {
			t.Error(err)
		}
		if err := errorOf(server.Once(c, "e", func(context.Context) (string, error) { return "", nil })); err == nil {
			t.Error("a number was remembered as a string")
		}
		return "done", nil
	}), modern, everything)
	if got, err := c.tool(); err != nil || got != "done" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestOnceOutsideOfCalls shows that the function is called without a Call.
func TestOnceOutsideOfCalls(t *testing.T) {
	if n, err := server.Once(t.Context(), "k", askOne); n != 1 || err != nil {
		t.Error(n, err)
	}
	if _, err := server.Elicit[struct{ A string }](t.Context(), "k", "m"); err == nil {
		t.Error("asked nobody")
	}
}

// TestInputInOtherMethods sends input requests from methods that allow them and from others.
//
// Spec: S102
func TestInputInOtherMethods(t *testing.T) {
	for _, revision := range []string{"2025-06-18", "2025-11-25", modern} {
		srv := server.MustNew("test", "1", nil)
		ask := func(ctx context.Context) (string, error) {
			c := server.CallOf(ctx)
			if n, err := server.Once(ctx, "n", askOne); n != 1 || err != nil {
				t.Error(n, err)
			}
			res, err := c.Elicit(ctx, "who", nameForm)
			if err != nil {
				return "", err
			}
			return string(res.Content), nil
		}
		if err := server.AddResource(srv, mcp.Resource{URI: "test:r", Name: "r"}, ask); err != nil {
			t.Fatal(err)
		}
		cannot := func(ctx context.Context) error {
			if _, err := ask(ctx); err == nil || !strings.HasPrefix(err.Error(), "input requests are only possible in") {
				t.Errorf("%v", err)
			}
			return jsonrpc.Errorf(7, "cannot")
		}
		complete := server.Complete("x", func(ctx context.Context, _ server.CompleteRequest) ([]string, error) { return nil, cannot(ctx) })
		get := func(ctx context.Context, _ map[string]string) (string, error) { return ask(ctx) }
		err := server.AddPrompt(srv, mcp.Prompt{Name: "p", Arguments: []mcp.PromptArgument{{Name: "x"}}}, get, complete)
		if err != nil {
			t.Fatal(err)
		}
		method := func(ctx context.Context, _ struct{}) (struct{}, error) { return struct{}{}, cannot(ctx) }
		if err := server.AddMethod(srv, "com.example/ask", method); err != nil {
			t.Fatal(err)
		}
		c := respond(t, srv, revision, everything)
		c.answer = fixed(answers)
		r, err := c.call("resources/read", `{"uri":"test:r"}`)
		if err != nil || !strings.Contains(r.Text, `"text":"{\"name\":\"Alice\"}"`) {
			t.Errorf("%s: %+v, %v", revision, r, err)
		}
		r, err = c.call("prompts/get", `{"name":"p"}`)
		if err != nil || !strings.Contains(r.Text, `"text":"{\"name\":\"Alice\"}"`) {
			t.Errorf("%s: %+v, %v", revision, r, err)
		}
		for method, params := range map[string]string{
			"com.example/ask":     `{}`,
			"completion/complete": `{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"x","value":""}}`,
		} {
			if _, err := c.call(method, params); code(err) != 7 {
				t.Errorf("%s, %s: %v", revision, method, err)
			}
		}
		if n := len(c.takeAsked()); n != 2 {
			t.Errorf("%s: asked %d times", revision, n)
		}
	}
}

// TestResourceWithInputIsNotCached checks that a result with input requests has no caching hints,
// and that a result that depends on an answer has a TTL of zero.
func TestResourceWithInputIsNotCached(t *testing.T) {
	runs := 0
	c := respond(t, careful(t, nil, &runs), modern, everything)
	const read = `{"uri":"test:r"}`
	first, err := c.request(t.Context(), "resources/read", read)
	if err != nil || first.ResultType != "input_required" || first.TTLMs != nil || strings.Contains(first.Text, "cacheScope") {
		t.Fatalf("%+v, %v", first, err)
	}
	r, err := c.request(t.Context(), "resources/read", retry(read, who, first.state()))
	if err != nil || r.TTLMs == nil || *r.TTLMs != 0 || !strings.Contains(r.Text, `"cacheScope":"private"`) {
		t.Errorf("%+v, %v", r, err)
	}
}
