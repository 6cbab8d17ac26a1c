package tap

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/trace/filter"
	"mcpwire/internal/trace/live"
)

func mustFilter(t *testing.T, text string) *filter.Filter {
	t.Helper()
	f, err := filter.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestHold checks how a held message is released, and when.
func TestHold(t *testing.T) {
	request := live.HeldMessage{Dir: "c2s", Method: "tools/call", RequestID: "1", Data: `{"id":1}`, Len: 8}
	for _, tt := range []struct {
		name      string
		decisions []live.Decision // one a second
		stop      bool            // after the decisions
		want      release
		after     time.Duration
	}{
		{"pass", []live.Decision{{ID: 1, Action: live.Pass, HoldResponse: true}}, false, release{live.Decision{ID: 1, Action: live.Pass, HoldResponse: true}, "passed on after 1s", "passed"}, time.Second},
		{"edit", []live.Decision{{ID: 1, Action: live.Edit, Data: "{\n\"id\": 2}"}}, false, release{live.Decision{ID: 1, Action: live.Edit, Data: `{"id":2}`}, "edited after 1s", "edited"}, time.Second},
		{"drop", []live.Decision{{ID: 1, Action: live.Drop}}, false, release{live.Decision{ID: 1, Action: live.Drop}, "dropped after 1s", ""}, time.Second},
		{"delay", []live.Decision{{ID: 1, Action: live.Delay, DelayMS: 90_000}}, false, release{live.Decision{Action: live.Pass}, "delayed for 1m31s", "delayed"}, 91 * time.Second},
		{"delay, then drop", []live.Decision{{ID: 1, Action: live.Delay, DelayMS: 90_000}, {ID: 1, Action: live.Drop}}, false, release{live.Decision{ID: 1, Action: live.Drop}, "dropped after 2s", ""}, 2 * time.Second},
		{"answer", []live.Decision{{ID: 1, Action: live.Answer, Data: "{}"}}, false, release{live.Decision{ID: 1, Action: live.Answer, Data: "{}"}, "answered by a viewer after 1s, and not forwarded", "answered"}, time.Second},
		{"timeout", nil, false, release{live.Decision{Action: live.Pass}, "passed on after 1m0s because nobody decided about it", "timeout"}, time.Minute},
		{"end", []live.Decision{{}}, true, release{live.Decision{Action: live.Pass}, "passed on after 1s because the session ends", "timeout"}, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBreakpoints(nil, 0)
				var states []int
				b.Publish(func(s *live.Intercepted) { states = append(states, len(s.Messages)) })
				stop := make(chan struct{})
				go func() {
					for _, d := range tt.decisions {
						time.Sleep(time.Second)
						if err := b.Decide(&d); err != nil {
							t.Error(err)
						}
						synctest.Wait()
					}
					if tt.stop {
						close(stop)
					}
				}()
				begin := time.Now()
				got := b.hold(request, stop)
				if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(release{})); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if took := time.Since(begin); took != tt.after {
					t.Errorf("released after %s, want %s", took, tt.after)
				}
				if states[0] != 0 || states[1] != 1 || states[len(states)-1] != 0 {
					t.Errorf("published numbers of messages: %v", states)
				}
				if err := b.Decide(&live.Decision{ID: 1, Action: live.Pass}); err == nil {
					t.Error("a released message can be decided about")
				}
			})
		})
	}
}

func TestDecideRejects(t *testing.T) {
	request := live.HeldMessage{Dir: "c2s", RequestID: "1", Data: "{}", Len: 2}
	response := live.HeldMessage{Dir: "s2c", RequestID: "1", Response: true, Data: "{}", Len: 2}
	long := live.HeldMessage{Dir: "c2s", RequestID: "1", Len: live.MaxHeldData + 1}
	for _, tt := range []struct {
		message live.HeldMessage
		d       live.Decision
		want    string
	}{
		{request, live.Decision{Action: "jump"}, "unknown"},
		{request, live.Decision{Action: live.Delay}, "a delay is"},
		{request, live.Decision{Action: live.Delay, DelayMS: live.MaxDelayMS + 1}, "a delay is"},
		{request, live.Decision{Action: live.Edit, Data: "{\n"}, "line breaks"},
		{request, live.Decision{Action: live.Edit, Data: "{"}, ""},
		{request, live.Decision{Action: live.Edit, Data: strings.Repeat("x", live.MaxHeldData+1)}, "too long"},
		{request, live.Decision{Action: live.Answer, Data: "{"}, "not valid JSON"},
		{response, live.Decision{Action: live.Answer, Data: "{}"}, "only a request"},
		{live.HeldMessage{Dir: "c2s", Data: "{}", Len: 2}, live.Decision{Action: live.Answer, Data: "{}"}, "only a request"},
		{long, live.Decision{Action: live.Edit, Data: "{}"}, "too long to be edited"},
		{long, live.Decision{Action: live.Drop}, ""},
	} {
		err := checkDecision(&tt.d, &tt.message)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.d, err, tt.want)
		}
	}
	b := NewBreakpoints(nil, 0)
	bad, good := "tool:((", "tool:x"
	if err := b.Decide(&live.Decision{Filter: &bad}); err == nil || b.currentFilter() != nil {
		t.Errorf("a wrong filter: %v", err)
	}
	if err := b.Decide(&live.Decision{Filter: &good}); err != nil || b.currentFilter().String() != good {
		t.Errorf("a filter: %v", err)
	}
}
