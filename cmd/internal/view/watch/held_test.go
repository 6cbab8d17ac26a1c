package watch_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/cmd/internal/view/watch"
)

// TestHeld shows the messages that a tap holds, and sends it decisions.
func TestHeld(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "live")
	var decided []live.Decision
	var p *tap
	held := &live.Intercepted{Filter: "tool:a", TimeoutMS: 60_000, Messages: []live.HeldMessage{{ID: 1, Dir: "c2s", Method: "tools/call", Data: "{}", Len: 2}}}
	none := &live.Intercepted{Filter: "tool:a", TimeoutMS: 60_000, Messages: []live.HeldMessage{}}
	p = startTap(t, dir, "", &live.Options{Decide: func(d *live.Decision) error {
		decided = append(decided, *d)
		if d.ID != 1 {
			return errors.New("the message is no longer held")
		}
		go p.server.PublishIntercepted(none)
		return nil
	}})
	p.server.PublishIntercepted(held)
	p.call(1)
	h := running(t, &watch.Options{SocketDir: dir, NoRules: true})
	is := func(want *live.Intercepted) func(*trace.Model) bool {
		return func(*trace.Model) bool {
			list := h.Sources()
			return len(list) == 1 && list[0].ID == p.ID() && cmp.Equal(want, list[0].Intercepted)
		}
	}
	await(t, h, "the held message", is(held))
	if err := h.Decide(t.Context(), p.ID(), &live.Decision{ID: 2, Action: live.Drop}); !errors.Is(err, live.ErrDecision) {
		t.Errorf("another message: %v", err)
	}
	if err := h.Decide(t.Context(), p.ID(), &live.Decision{ID: 1, Action: live.Edit, Data: "{}"}); err != nil {
		t.Error(err)
	}
	await(t, h, "the release", is(none))
	if err := h.Decide(t.Context(), "other", &live.Decision{ID: 1}); !errors.Is(err, watch.ErrNoIntercept) {
		t.Errorf("another capture: %v", err)
	}
	p.stop()
	await(t, h, "the end of the tap", is(nil))
	want := []live.Decision{{ID: 2, Action: live.Drop}, {ID: 1, Action: live.Edit, Data: "{}"}}
	if diff := cmp.Diff(want, decided); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
}
