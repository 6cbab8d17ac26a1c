package intercept

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/cmd/internal/trace/live"
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
		want      Release
		after     time.Duration
	}{
		{"pass", []live.Decision{{ID: 1, Action: live.Pass, HoldResponse: true}}, false, Release{live.Decision{ID: 1, Action: live.Pass, HoldResponse: true}, "passed on after 1s", "passed"}, time.Second},
		{"edit", []live.Decision{{ID: 1, Action: live.Edit, Data: "{\n\"id\": 2}"}}, false, Release{live.Decision{ID: 1, Action: live.Edit, Data: `{"id":2}`}, "edited after 1s", "edited"}, time.Second},
		{"drop", []live.Decision{{ID: 1, Action: live.Drop}}, false, Release{live.Decision{ID: 1, Action: live.Drop}, "dropped after 1s", ""}, time.Second},
		{"delay", []live.Decision{{ID: 1, Action: live.Delay, DelayMS: 90_000}}, false, Release{live.Decision{Action: live.Pass}, "delayed for 1m31s", "delayed"}, 91 * time.Second},
		{"delay, then drop", []live.Decision{{ID: 1, Action: live.Delay, DelayMS: 90_000}, {ID: 1, Action: live.Drop}}, false, Release{live.Decision{ID: 1, Action: live.Drop}, "dropped after 2s", ""}, 2 * time.Second},
		{"keep", []live.Decision{{ID: 1, Action: live.Keep}, {ID: 1, Action: live.Keep}}, false, Release{live.Decision{Action: live.Pass}, "passed on after 47s because nobody decided about it", "timeout"}, 47 * time.Second},
		{"keep, then edit", []live.Decision{{ID: 1, Action: live.Keep}, {ID: 1, Action: live.Edit, Data: "{}"}}, false, Release{live.Decision{ID: 1, Action: live.Edit, Data: "{}"}, "edited after 2s", "edited"}, 2 * time.Second},
		{"answer", []live.Decision{{ID: 1, Action: live.Answer, Data: "{}"}}, false, Release{live.Decision{ID: 1, Action: live.Answer, Data: "{}"}, "answered by a viewer after 1s, and not forwarded", "answered"}, time.Second},
		{"timeout", nil, false, Release{live.Decision{Action: live.Pass}, "passed on after 45s because nobody decided about it", "timeout"}, 45 * time.Second},
		{"end", []live.Decision{{}}, true, Release{live.Decision{Action: live.Pass}, "passed on after 1s because the session ends", "timeout"}, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := New(nil, 0)
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
				got := b.Hold(request, stop)
				if diff := cmp.Diff(tt.want, got); diff != "" {
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
	b := New(nil, 0)
	bad, good := "tool:((", "tool:x"
	if err := b.Decide(&live.Decision{Filter: &bad}); err == nil || b.currentFilter() != nil {
		t.Errorf("a wrong filter: %v", err)
	}
	if err := b.Decide(&live.Decision{Filter: &good}); err != nil || b.currentFilter().String() != good {
		t.Errorf("a filter: %v", err)
	}
}

// TestHoldLimits checks the limits of what is held at a time and shown to viewers, and that Stop
// releases everything.
func TestHoldLimits(t *testing.T) {
	for _, tt := range []struct {
		name         string
		size, shown  int
		held, passed int
	}{
		{"messages", 10, 10, maxHeld, 6},
		{"bytes", 8 << 20, 0, 8, 3},
		{"shown", live.MaxHeldData, live.MaxHeldData, 5, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := New(nil, 0)
				var state *live.Intercepted
				b.Publish(func(s *live.Intercepted) { state = s })
				data := strings.Repeat("x", tt.shown)
				results := make(chan Release, tt.held+tt.passed)
				for range tt.held + tt.passed {
					go func() { results <- b.Hold(live.HeldMessage{Len: tt.size, Data: data}, nil) }()
				}
				synctest.Wait()
				if len(state.Messages) != tt.held || len(results) != tt.passed {
					t.Errorf("%d are held and %d passed, want %d and %d", len(state.Messages), len(results), tt.held, tt.passed)
				}
				for range tt.passed {
					if r := <-results; r.Action != live.Pass || !strings.Contains(r.Note, "too many") {
						t.Errorf("%+v", r)
					}
				}
				shown := 0
				for _, m := range state.Messages {
					shown += len(m.Data)
				}
				if want := min(tt.held*tt.shown, maxShownBytes); shown != want {
					t.Errorf("viewers get %d bytes, want %d", shown, want)
				}
				b.Stop()
				b.Stop()
				for range tt.held {
					if r := <-results; r.Action != live.Pass || !strings.Contains(r.Note, "the tap ends") {
						t.Errorf("%+v", r)
					}
				}
				if len(state.Messages) != 0 || b.heldBytes != 0 {
					t.Errorf("%d messages and %d bytes are held at the end", len(state.Messages), b.heldBytes)
				}
				if r := b.Hold(live.HeldMessage{}, nil); r.Action != live.Pass {
					t.Errorf("after the end: %+v", r)
				}
			})
		})
	}
}
