package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

// tourTimeout limits how long a tour waits for an expected event.
const tourTimeout = 20 * time.Second

// A peer is a server written with another SDK, or ours.
type peer struct {
	name      string
	info      string   // its name for itself
	revisions []string // that it speaks
	// launch makes a server that speaks the given revisions only, all if there
	// are none.
	launch func(t *testing.T, revisions ...string) *witnessed
	// lacks are stops that there is no way to make with it, and why.
	lacks map[string]string
	// quirks are what it cannot do, or does in another way than the rest, by
	// the names that the stops of the tour look up, and why. One that no stop
	// needs fails the test.
	quirks map[string]string
	// deviations are its errors on the wire.
	deviations func(revision string) []deviation
}

// known is some of the quirks, for the same peer elsewhere.
func (p *peer) known(names ...string) map[string]string {
	quirks := map[string]string{}
	for _, name := range names {
		quirks[name] = p.quirks[name]
	}
	return quirks
}

// A tour is one connection of our client with a peer, and what it saw.
type tour struct {
	*testing.T
	*client.Client
	ctx      context.Context
	peer     *peer
	revision string
	bridged  *bridgeSide // the bridge's upstream side; nil without a bridge

	mu     sync.Mutex
	asked  []string // the input requests that our handlers got
	answer mcp.ElicitResult
	heard  []string        // log messages that came as notifications
	needed map[string]bool // quirks that were looked up
}

// A stop is one thing that our client does on a tour.
type stop struct {
	name  string
	since string // the revision that has it first; empty is all
	visit func(t *tour)
}

// stops are in the order of the tour.
var stops = slices.Concat(basicStops, callStops, contentStops, inputStops, changeStops, endStops)

// quirk reports whether the peer is known for something.
func (t *tour) quirk(name string) bool {
	t.Helper()
	t.needed[name] = true
	why, ok := t.peer.quirks[name]
	if ok {
		t.Logf("%s has a quirk, %s: %s", t.peer.name, name, why)
	}
	return ok
}

// serverRevision is the revision that the server speaks, which is not our client's if a bridge
// translates.
func (t *tour) serverRevision() string {
	switch b := t.bridged; {
	case b == nil || b.modern == t.Revision().Modern():
		return t.revision
	case b.modern:
		return modern
	}
	return latestLegacy
}

// serverModern reports whether that is a modern one.
func (t *tour) serverModern() bool { return t.serverRevision() == modern }

// runTours takes our client through a peer in each revision that it speaks.
func runTours(t *testing.T, p *peer) {
	t.Helper()
	var mu sync.Mutex
	needed := map[string]bool{}
	t.Run("tours", func(t *testing.T) {
		for _, revision := range p.revisions {
			t.Run(revision, func(t *testing.T) {
				t.Parallel()
				looked := runTour(t, p, revision)
				mu.Lock()
				defer mu.Unlock()
				for name := range looked {
					needed[name] = true
				}
			})
		}
	})
	for name := range p.quirks {
		if !needed[name] && !t.Failed() {
			t.Errorf("no stop needs the quirk %q", name)
		}
	}
}

func runTour(t *testing.T, p *peer, revision string) (needed map[string]bool) {
	t.Helper()
	s := p.launch(t)
	s.crashes = true
	w := &tour{T: t, peer: p, revision: revision}
	w.make(s)
	s.checkGone()
	if t.Failed() {
		return w.needed
	}
	s.audit(p.processes(), p.knownDeviations(revision)...)
	return w.needed
}

// make connects our client by s, and makes all stops that there is a way to make.
func (t *tour) make(s *witnessed) {
	whole := t.T
	whole.Helper()
	t.ctx, t.needed = whole.Context(), map[string]bool{}
	known, _ := mcp.ParseRevision(t.revision)
	t.Client = t.dial(s, &client.Options{Revisions: []mcp.Revision{known}})
	for _, stop := range stops {
		if stop.since > t.revision || t.peer.lacks[stop.name] != "" {
			continue
		}
		whole.Run(stop.name, func(one *testing.T) {
			ctx, cancel := context.WithTimeout(one.Context(), tourTimeout)
			defer cancel()
			t.T, t.ctx = one, ctx
			stop.visit(t)
		})
		if whole.Failed() {
			break // the rest would only be confused
		}
	}
	t.T = whole
	if err := t.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// knownDeviations returns the peer's known deviations in a revision.
func (p *peer) knownDeviations(revision string) []deviation {
	if p.deviations == nil {
		return nil
	}
	return p.deviations(revision)
}

// processes is how many the tour takes.
func (p *peer) processes() int {
	if p.lacks["crash"] != "" {
		return 1
	}
	return 2 // the tool crash ended the first one
}

// dial connects our client to s, with all handlers.
func (t *tour) dial(s *witnessed, opts *client.Options) *client.Client {
	t.Helper()
	opts.Info.Name, opts.Info.Version = "interop", "1.0.0"
	opts.Input.Elicit, opts.Input.ElicitModes = t.elicit, []mcp.ElicitMode{mcp.ElicitModeForm, mcp.ElicitModeURL}
	opts.Input.Sample, opts.Input.Roots = t.sample, t.roots
	opts.OnNotification = t.notified
	opts.Tasks = true
	opts.Reconnect.MinBackoff = time.Millisecond
	c, err := client.Dial(t.ctx, s.transport(), opts)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	return c
}

// transport starts s for our client, or leads to it.
func (s *witnessed) transport() client.Transport {
	if s.web != nil {
		return streamable.Dial(s.web.url(), nil)
	}
	name, args := s.command()
	cmd := stdio.Command(name, args...)
	cmd.Stderr = &s.log
	return cmd
}

func (t *tour) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked = append(t.asked, fmt.Sprintf(format, args...))
}

// inputRequests returns the input requests since its last call.
func (t *tour) inputRequests() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	asked := t.asked
	t.asked = nil
	return asked
}

func (t *tour) elicit(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	if p.Mode == mcp.ElicitModeURL {
		t.note("visit %s: %s", p.URL, p.Message)
		return &mcp.ElicitResult{Action: mcp.ElicitActionAccept}, nil
	}
	var form struct {
		Properties map[string]struct{ Type string }
	}
	if err := json.Unmarshal(p.RequestedSchema, &form); err != nil {
		return nil, err
	}
	t.note("form name:%s age:%s: %s", form.Properties["name"].Type, form.Properties["age"].Type, p.Message)
	t.mu.Lock()
	defer t.mu.Unlock()
	answer := t.answer
	return &answer, nil
}

func (t *tour) sample(_ context.Context, p *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
	text, _ := p.Messages[0].Content[0].(mcp.TextContent)
	t.note("sample %s up to %d: %s", p.Messages[0].Role, p.MaxTokens, text.Text)
	return &mcp.CreateMessageResult{
		Role: mcp.RoleAssistant, Model: "test-model", StopReason: mcp.StopReasonEndTurn,
		Content: mcp.SamplingContent{mcp.TextContent{Text: "hello"}},
	}, nil
}

func (t *tour) roots(context.Context) ([]mcp.Root, error) {
	t.note("roots")
	return []mcp.Root{{URI: "file:///projects/a", Name: "Project A"}, {URI: "file:///projects/b"}}, nil
}

func (t *tour) notified(method string, params json.RawMessage) {
	if method != mcp.NotificationMessage {
		return
	}
	var p mcp.LoggingMessageNotificationParams
	if err := p.UnmarshalJSON(params); err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.heard = append(t.heard, logLine(&p))
}

func logLine(p *mcp.LoggingMessageNotificationParams) string {
	return fmt.Sprintf("%s %s %s", p.Level, p.Logger, bytes.TrimSpace(p.Data))
}

// text calls a tool that answers with a text.
func (t *tour) text(tool string, args any, opts ...client.CallOption) string {
	t.Helper()
	text, err := client.CallTool[string](t.ctx, t.Client, tool, args, opts...)
	if err != nil {
		t.Errorf("%s: %v", tool, err)
	}
	return text
}

// eventually waits until done reports true.
func (t *tour) eventually(what string, done func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for !done() {
		select {
		case <-ticker.C:
		case <-t.ctx.Done():
			t.Fatalf("waiting for %s: %v", what, t.ctx.Err())
		}
	}
}

// checkGone checks that no process of s is left.
func (s *witnessed) checkGone() {
	s.t.Helper()
	if s.web != nil {
		s.web.stop()
		return
	}
	for _, events := range s.transcripts() {
		for _, e := range events {
			if e.Kind != started {
				continue
			}
			if err := syscall.Kill(e.Code, 0); !errors.Is(err, syscall.ESRCH) {
				s.t.Errorf("process %d is still there: %v", e.Code, err)
			}
		}
	}
}

// newerContent are the deviations of peers that send all kinds of content,
// whatever the revision.
func newerContent(revision string) []deviation {
	if revision < "2025-06-18" {
		return []deviation{{rule: serverSchema, has: "CallToolResult", why: "it sends all kinds of content whatever the revision"}}
	}
	return nil
}
