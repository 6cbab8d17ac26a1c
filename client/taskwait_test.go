package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Spec: T4 T43
func TestCallToolWaitsForTask(t *testing.T) {
	for _, tt := range []struct {
		revision string
		states   []string
		want     []string // what is asked besides the call, subscriptions aside
	}{
		{modernDate, []string{"working", "working", `completed ,"result":` + done}, []string{"get", "get", "get"}},
		{modernDate, []string{`completed ,"result":` + done}, []string{"get"}},
		{legacyDate, []string{"working", "working", "completed"}, []string{"get", "get", "get", "result"}},
		{legacyDate, []string{"input_required", "completed"}, []string{"get", "result", "get"}}, // the last tells what has become of it
	} {
		t.Run(tt.revision+" "+strings.Join(tt.states, " "), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := taskServer(t, tt.revision, tt.states...)
				c := s.dial(&Options{Tasks: true})
				known(t, c)
				s.takeSeen()
				began := time.Now()
				n, err := CallTool[int](t.Context(), c, "slow", nil)
				if n != 42 || err != nil {
					t.Errorf("got %d, %v", n, err)
				}
				var asked []string
				for _, line := range s.takeSeen() {
					if kind, ok := strings.CutPrefix(line, "tasks/"); ok {
						asked = append(asked, strings.TrimSuffix(kind, ` {"taskId":"t"}`))
					}
				}
				if diff := cmp.Diff(tt.want, asked); diff != "" {
					t.Errorf("asked (-want +got):\n%s", diff)
				}
				polls := time.Duration(slices.Index(append(asked, "result"), "result"))
				if took := time.Since(began); took < polls*time.Second || took >= polls*1200*time.Millisecond {
					t.Errorf("took %v for %d polls, want 1 to 1.2 s for each", took, polls)
				}
			})
		})
	}
}

func TestTaskEnds(t *testing.T) {
	is := func(code jsonrpc.Code) func(error) bool {
		return func(err error) bool { return errors.Is(err, &jsonrpc.Error{Code: code}) }
	}
	broken := func(err error) bool { _, ok := errors.AsType[*ProtocolError](err); return ok }
	for _, tt := range []struct {
		name, revision, state string
		result                answerer // of tasks/result
		isError               bool
		err                   func(error) bool
		ended                 bool
	}{
		{"completed", modernDate, `completed ,"result":` + done, nil, false, nil, true},
		{"the tool failed", modernDate, `completed ,"result":{"content":[],"isError":true}`, nil, true, nil, true},
		{"failed", modernDate, `failed ,"error":{"code":-32603,"message":"no"}`, nil, false, is(jsonrpc.CodeInternalError), true},
		{"cancelled", modernDate, `cancelled`, nil, false, func(err error) bool { return errors.Is(err, ErrTaskCanceled) }, true},
		{"without a result", modernDate, `completed`, nil, false, broken, false},
		{"without an error", modernDate, `failed ,"error":7`, nil, false, broken, false},
		{"unheard of", modernDate, `sleeping`, nil, false, broken, false},
		{"no task", modernDate, ` ,"x":1`, nil, false, broken, false},

		{"completed", legacyDate, `completed`, says(done), false, nil, true},
		{"the tool failed", legacyDate, `failed`, says(`{"content":[],"isError":true}`), true, nil, true},
		{"failed", legacyDate, `failed`, fails(jsonrpc.CodeInternalError), false, is(jsonrpc.CodeInternalError), true},
		{"cancelled", legacyDate, `cancelled`, nil, false, func(err error) bool { return errors.Is(err, ErrTaskCanceled) }, true},
	} {
		t.Run(tt.revision+" "+tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := taskServer(t, tt.revision, tt.state)
				s.answers["tasks/result"] = tt.result
				c := s.dial(&Options{Tasks: true})
				task, err := c.StartTool(t.Context(), "slow", nil)
				if err != nil {
					t.Fatal(err)
				}
				asked := 0
				for range 2 { // what has ended has ended
					result, err := task.Wait(t.Context())
					if tt.err == nil && (err != nil || result.IsError != tt.isError) || tt.err != nil && !tt.err(err) {
						t.Errorf("got %+v, %v", result, err)
					}
					if n := s.times("tasks/get"); tt.ended && asked > 0 && n != asked {
						t.Errorf("asked %d times, and again after the end: %d", asked, n)
					}
					asked = s.times("tasks/get")
				}
			})
		})
	}
}

// Spec: T49
func TestTaskQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask := func(keys ...string) string {
			var all []string
			for _, key := range keys {
				all = append(all, fmt.Sprintf(`%q:{"method":"elicitation/create","params":{"message":%[1]q,"requestedSchema":{"type":"object","properties":{}}}}`, key))
			}
			return `input_required ,"inputRequests":{` + strings.Join(all, ",") + `}`
		}
		s := taskServer(t, modernDate, ask("a", "b"), ask("a", "b"), ask("b", "c"), "working", `completed ,"result":`+done)
		var mu sync.Mutex
		var asked []string
		c := s.dial(&Options{Tasks: true, Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, p.Message)
			return &mcp.ElicitResult{Action: mcp.ElicitActionDecline}, nil
		}})
		if _, err := c.CallTool(t.Context(), "slow", nil); err != nil {
			t.Fatal(err)
		}
		slices.Sort(asked[:2])
		if want := []string{"a", "b", "c"}; !slices.Equal(asked, want) {
			t.Errorf("the user was asked %q, want %q", asked, want)
		}
		var updates []string
		for _, line := range s.takeSeen() {
			if strings.HasPrefix(line, "tasks/update") {
				updates = append(updates, line)
			}
		}
		if diff := cmp.Diff([]string{
			`tasks/update {"taskId":"t","inputResponses":{"a":{"action":"decline"},"b":{"action":"decline"}}}`,
			`tasks/update {"taskId":"t","inputResponses":{"c":{"action":"decline"}}}`,
		}, updates); diff != "" {
			t.Errorf("updates (-want +got):\n%s", diff)
		}
	})
}

func TestTaskQuestionRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := taskServer(t, modernDate, `input_required ,"inputRequests":{"a":{"method":"roots/list"}}`)
		refuse := true
		c := s.dial(&Options{Tasks: true, Roots: func(context.Context) ([]mcp.Root, error) {
			if refuse {
				return nil, errTest
			}
			return nil, nil
		}})
		task, err := c.StartTool(t.Context(), "slow", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := task.Wait(t.Context()); !errors.Is(err, errTest) {
			t.Errorf("got %v, want the handler's error", err)
		}
		refuse = false
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := task.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if n := s.times("tasks/update"); n != 1 {
			t.Errorf("answered %d times, want the question to be asked again, once", n)
		}
		if n := s.times("tasks/cancel"); n != 0 {
			t.Error("a task with a handle was cancelled")
		}
		if _, err := c.CallTool(t.Context(), "slow", nil, WithMaxTimeout(10*time.Second)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		synctest.Wait()
		if n := s.times("tasks/cancel"); n != 1 {
			t.Errorf("a task without a handle was cancelled %d times", n)
		}
	})
}

// Spec: T33 T51
func TestTaskIsGivenUp(t *testing.T) {
	for _, tt := range []struct {
		name string
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		opts []CallOption
		want func(error) bool
	}{
		{"context", func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Minute)
		}, nil,
			func(err error) bool { return errors.Is(err, context.DeadlineExceeded) }},
		{"longest time", context.WithCancel, []CallOption{WithMaxTimeout(time.Minute)},
			func(err error) bool {
				e, ok := errors.AsType[*TimeoutError](err)
				return ok && e.Max && e.After == time.Minute
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, revision := range []string{modernDate, legacyDate} {
				synctest.Test(t, func(t *testing.T) {
					s := taskServer(t, revision, "working")
					var cancelled atomic.Int32
					c := s.dial(&Options{Tasks: true, Trace: func(_ jsonrpc.Direction, message []byte) {
						if bytes.Contains(message, []byte("notifications/cancelled")) {
							cancelled.Add(1)
						}
					}})
					known(t, c)
					ctx, cancel := tt.ctx(t.Context())
					defer cancel()
					began := time.Now()
					if _, err := c.CallTool(ctx, "slow", nil, tt.opts...); !tt.want(err) || time.Since(began) != time.Minute {
						t.Errorf("after %v: got %v", time.Since(began), err)
					}
					synctest.Wait()
					if n := s.times("tasks/cancel"); n != 1 {
						t.Errorf("tasks/cancel was sent %d times", n)
					}
					if n := cancelled.Load(); n != 0 {
						t.Errorf("notifications/cancelled was sent %d times", n)
					}
				})
			}
		})
	}
}

// The calls that it takes to find out that a tool must be a task, and the list between them, have the time of one call.
func TestCallThatFindsOutAboutTaskIsGivenUp(t *testing.T) {
	const step = 40 * time.Second
	start := func(ctx context.Context, c *Client, opts ...CallOption) error {
		_, err := c.StartTool(ctx, "slow", nil, opts...)
		return err
	}
	call := func(ctx context.Context, c *Client, opts ...CallOption) error {
		_, err := c.CallTool(ctx, "slow", nil, opts...)
		return err
	}
	for _, tt := range []struct {
		name              string
		do                func(context.Context, *Client, ...CallOption) error
		call, list, asked time.Duration // how long the server takes for a call, a list, and a call for a task
		limit             time.Duration
		want              []string
	}{
		{"the first call", call, 2 * time.Minute, 0, 0, time.Minute, []string{"tools/call", "ended"}},
		{"the list", call, step, 25 * time.Second, 0, time.Minute, []string{"tools/call", "tools/list", "ended"}},
		{"the call for a task", call, step, 10 * time.Second, 12 * time.Second, time.Minute, []string{"tools/call", "tools/list", "tools/call", "tasks/cancel"}},
		{"the task", call, step, 10 * time.Second, 0, time.Minute, []string{"tools/call", "tools/list", "tools/call", "tasks/get", "tasks/cancel"}},
		{"the list of a start", start, 0, step, 0, 20 * time.Second, []string{"tools/list", "ended"}},
		{"the call of a start", start, 0, 25 * time.Second, 37 * time.Second, time.Minute, []string{"tools/list", "tools/call", "tasks/cancel"}},
	} {
		for _, byContext := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, by context %t", tt.name, byContext), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := taskServer(t, legacyDate, "working")
					takes := func(d time.Duration, answer answerer) answerer {
						return func(ctx context.Context, params string) (string, error) {
							if !sleep(ctx, d) {
								s.note("ended")
								return "", ctx.Err()
							}
							return answer(ctx, params)
						}
					}
					s.answers["tools/list"] = takes(tt.list, slowTool("required"))
					s.answers["tools/call"] = func(ctx context.Context, params string) (string, error) {
						if jsonwire.Lookup([]byte(params), "task") == nil {
							return takes(tt.call, fails(jsonrpc.CodeMethodNotFound))(ctx, params)
						}
						return takes(tt.asked, created(legacyDate))(ctx, params)
					}
					c := s.dial(nil)
					s.takeSeen()
					ctx, opts, is := t.Context(), []CallOption{WithMaxTimeout(tt.limit)}, func(err error) bool {
						e, ok := errors.AsType[*TimeoutError](err)
						return ok && e.Max && e.Method == mcp.MethodToolsCall && e.After == tt.limit
					}
					if byContext {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, tt.limit)
						defer cancel()
						opts, is = nil, func(err error) bool { return errors.Is(err, context.DeadlineExceeded) && !IsPeer(err) }
					}
					began := time.Now()
					if err := tt.do(ctx, c, opts...); !is(err) || time.Since(began) != tt.limit {
						t.Errorf("after %v: got %v", time.Since(began), err)
					}
					elapse(cancelTimeout)
					var got []string
					for _, line := range s.takeSeen() {
						method, _, _ := strings.Cut(line, " ")
						got = append(got, method)
					}
					if diff := cmp.Diff(tt.want, slices.Compact(got)); diff != "" {
						t.Errorf("sent (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

// Spec: T6
func TestTaskNews(t *testing.T) {
	for _, revision := range []string{modernDate, legacyDate} {
		for _, heard := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s heard %t", revision, heard), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					wish := `"pollInterval`
					s := taskServer(t, revision)
					s.answers["tasks/get"] = inTurn(
						says(strings.Replace(taskText(revision, "working"), wish, `"x":0,`+wish, 1)),
						says(strings.NewReplacer("1000", "60000").Replace(taskText(revision, "working"))),
						says(taskText(revision, `completed ,"result":`+done)),
					)
					l := &listenServer{fakeServer: s, open: make(chan string, 1)}
					s.answers["subscriptions/listen"] = l.listen
					c := s.dial(&Options{Tasks: true})
					known(t, c)
					finished := make(chan time.Duration)
					go func() {
						began := time.Now()
						if _, err := c.CallTool(t.Context(), "slow", nil); err != nil {
							t.Error(err)
						}
						finished <- time.Since(began)
					}()
					elapse(10 * time.Second) // it is in the long wait now
					switch {
					case !heard:
					case revision == modernDate:
						id := <-l.open
						l.tell(id, "tasks", `,"taskId":"another","status":"working"`)
						synctest.Wait()
						if n := s.times("tasks/get"); n != 2 {
							t.Errorf("news of another task has it asked: %d times", n)
						}
						l.tell(id, "tasks", `,"taskId":"t","status":"completed"`)
					default:
						s.notify("notifications/tasks/status", taskText(revision, "completed"))
					}
					took := <-finished
					if soon := took < 11*time.Second; soon != heard {
						t.Errorf("took %v", took)
					}
					synctest.Wait()
					if len(c.subs.modern) != 0 || len(c.subs.legacy) != 0 {
						t.Error("it is still subscribed")
					}
				})
			})
		}
	}
}

func TestTaskNewsNotGiven(t *testing.T) {
	for _, tt := range []struct {
		name   string
		listen answerer
		want   int
	}{
		{"refused", fails(jsonrpc.CodeMethodNotFound), 1},
		{"not honoured", nil, 1},
		{"ended", says(`{"resultType":"complete"}`), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := taskServer(t, modernDate)
				states := []string{"working", "working", `completed ,"result":` + done}
				s.answers["tasks/get"] = taskStates(modernDate, append(states, states...)...)
				if s.answers["subscriptions/listen"] = tt.listen; tt.listen == nil {
					l := &listenServer{fakeServer: s, open: make(chan string, 10), honoured: "{}"}
					s.answers["subscriptions/listen"] = l.listen
				}
				c := s.dial(&Options{Tasks: true})
				for range 2 {
					if _, err := c.CallTool(t.Context(), "slow", nil); err != nil {
						t.Error(err)
					}
				}
				if n := s.times("subscriptions/listen"); n != tt.want {
					t.Errorf("listened %d times, want that it is given up", n)
				}
			})
		})
	}
}

// Spec: C79
func TestTaskPace(t *testing.T) {
	for _, tt := range []struct {
		wish        time.Duration
		first, last time.Duration // bounds without chance
	}{
		{0, initialTaskPoll, maxDefaultTaskPoll},
		{time.Nanosecond, minTaskPoll, minTaskPoll},
		{3 * time.Second, 3 * time.Second, 3 * time.Second},
		{time.Hour, maxTaskPoll, maxTaskPoll},
	} {
		var pace pollBackoff
		for i := range 100 {
			least := tt.first
			if i > 20 {
				least = tt.last
			}
			if d := pace.next(tt.wish); d < least || d >= tt.last*12/10 {
				t.Fatalf("wish %v: wait %d is %v, want %v to %v", tt.wish, i, d, least, tt.last*12/10)
			}
		}
	}
}

// A server that has no wish is asked less and less often, until something changes.
func TestTaskPaceBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Time
		states := []string{"a", "a", "a", "a", "a", "b", "b"}
		s := taskServer(t, modernDate)
		s.answers["tasks/get"] = func(context.Context, string) (string, error) {
			asked = append(asked, time.Now())
			if len(asked) > len(states) {
				return taskText(modernDate, `completed ,"result":`+done), nil
			}
			return `{"resultType":"complete","taskId":"t","status":"working","statusMessage":"` + states[len(asked)-1] + `"}`, nil
		}
		c := s.dial(&Options{Tasks: true})
		if _, err := c.Task("t").Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := 1; i < len(asked); i++ {
			want := initialTaskPoll
			for k := i - 1; k > 0 && states[k] == states[k-1]; k-- {
				want = want * 3 / 2
			}
			if wait := asked[i].Sub(asked[i-1]); wait < want || wait >= want*12/10 {
				t.Errorf("wait %d: got %v, want %v to %v", i, wait, want, want*12/10)
			}
		}
	})
}
