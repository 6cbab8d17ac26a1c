package middleware

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"mcpwire/jsonrpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tag is a middleware that puts its name around the params and the result.
func tag(name string) Func {
	return func(next Handler) Handler {
		return func(ctx context.Context, m *Message) (json.RawMessage, error) {
			other := *m
			other.Params = json.RawMessage(string(m.Params) + ">" + name)
			result, err := next(ctx, &other)
			return json.RawMessage(string(result) + "<" + name), err
		}
	}
}

func TestChain(t *testing.T) {
	end := func(_ context.Context, m *Message) (json.RawMessage, error) {
		if m.Method == "fail" {
			return nil, errors.New("no")
		}
		return json.RawMessage("(" + string(m.Params) + ")"), nil
	}
	own := func(next Handler) Handler {
		return func(ctx context.Context, m *Message) (json.RawMessage, error) {
			return next(ctx, &Message{Method: m.Method})
		}
	}
	twice := func(next Handler) Handler {
		return func(ctx context.Context, m *Message) (json.RawMessage, error) {
			first, _ := next(ctx, m)
			second, err := next(ctx, m)
			return json.RawMessage(string(first) + string(second)), err
		}
	}
	for _, tt := range []struct {
		name   string
		list   []Func
		method string
		want   string
		err    string
	}{
		{"empty", nil, "m", "(p)", ""},
		{"order", []Func{tag("a"), tag("b")}, "m", "(p>a>b)<b<a", ""},
		{"an error", []Func{tag("a")}, "fail", "<a", "no"},
		{"twice", []Func{twice, tag("b")}, "m", "(p>b)<b(p>b)<b", ""},
		{"a new Message", []Func{own}, "m", "", "passed a new Message"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := Message{Direction: jsonrpc.Outgoing, Method: tt.method, Params: json.RawMessage("p")}
			result, err := NewChain(tt.list...).Run(t.Context(), m, end)
			if diff := cmp.Diff(tt.want, string(result)); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got error %v, want %q", err, tt.err)
			}
		})
	}
}

// TestChainWaits shows that Run does not return while end runs, that concurrent calls of next run
// one after another, and that a call after the return fails, also after a panic.
func TestChainWaits(t *testing.T) {
	for _, panics := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			running, ran := 0, 0
			end := func(context.Context, *Message) (json.RawMessage, error) {
				if running++; running > 1 {
					t.Error("the end runs twice at once")
				}
				<-time.After(time.Second)
				running--
				ran++
				return nil, nil
			}
			var late Handler
			chain := NewChain(func(next Handler) Handler {
				late = next
				return func(ctx context.Context, m *Message) (json.RawMessage, error) {
					for range 3 {
						go next(ctx, m)
					}
					synctest.Wait()
					<-time.After(1500 * time.Millisecond) // runs during the second call
					if panics {
						panic("on request")
					}
					return nil, nil
				}
			})
			var kept *Message
			func() {
				defer func() {
					if (recover() != nil) != panics {
						t.Errorf("panics: %t", !panics)
					}
				}()
				chain.Run(t.Context(), Message{Method: "m"}, func(ctx context.Context, m *Message) (json.RawMessage, error) {
					kept = m
					return end(ctx, m)
				})
			}()
			if running != 0 || ran < 2 {
				t.Errorf("Run returned while the end ran: %d run, %d have", running, ran)
			}
			synctest.Wait()
			before := ran
			if _, err := late(t.Context(), kept); !errors.Is(err, errNextAfterReturn) || !strings.HasPrefix(err.Error(), "m: ") {
				t.Errorf("a late call of next: %v", err)
			}
			if ran != before {
				t.Error("a late call of next ran the end")
			}
		})
	}
}

// TestRunAllocates checks that a message costs one allocation, apart from what the middleware and
// the end of the chain need.
func TestRunAllocates(t *testing.T) {
	chain := NewChain(func(next Handler) Handler { return next })
	end := func(context.Context, *Message) (json.RawMessage, error) { return nil, nil }
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() { chain.Run(ctx, Message{Method: "m"}, end) }); n > 1 {
		t.Errorf("%v allocations, want at most 1", n)
	}
}
