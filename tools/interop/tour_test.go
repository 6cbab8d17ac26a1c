package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"mcpwire/client"
	"mcpwire/internal/test/process"
	"mcpwire/mcp"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

// tourTimeout limits how long a tour waits for an expected event.
const tourTimeout = 20 * time.Second

// A peer is a server on another SDK, or ours.
type peer struct {
	name      string
	info      string   // the name in its server info
	revisions []string // that it supports
	// launch returns a server that supports only the given revisions, or all if there are none.
	launch func(t *testing.T, revisions ...string) *recordedServer
	// lacks are the stops that it does not support, with the reason.
	lacks map[string]string
	// quirks are features that it lacks or implements in another way than the others, with the
	// reason. The keys are the names that stops look up. A quirk that no stop needs fails the test.
	quirks map[string]string
	// deviations returns its violations of rules. Nil means that it has none.
	deviations func(revision string) []deviation
}

// known returns some of the quirks, for the same peer in another mode.
func (p *peer) known(names ...string) map[string]string {
	quirks := map[string]string{}
	for _, name := range names {
		quirks[name] = p.quirks[name]
	}
	return quirks
}

// A tour is one connection of our client with a peer, and the results.
type tour struct {
	*testing.T
	*client.Client
	ctx      context.Context
	peer     *peer
	revision string
	bridged  *bridgeSide // the bridge's upstream side; nil without a bridge

	mu     sync.Mutex
	inputs []string         // the input requests that our handlers got
	result mcp.ElicitResult // the response to elicitation requests
	log    []string         // log messages that arrived as notifications
	needed map[string]bool  // quirks that were looked up
}

// A stop is a test of one feature during a tour.
type stop struct {
	name  string
	since string // the first revision with the feature; empty means all
	visit func(t *tour)
}

// stops are in the order of the tour.
var stops = slices.Concat(basicStops, callStops, contentStops, inputStops, changeStops, endStops)

// quirk reports whether the peer has a quirk.
func (t *tour) quirk(name string) bool {
	t.Helper()
	t.needed[name] = true
	why, ok := t.peer.quirks[name]
	if ok {
		t.Logf("%s has the quirk %q: %s", t.peer.name, name, why)
	}
	return ok
}

// serverRevision returns the revision of the server's connection, which is not our client's if a
// bridge translates.
func (t *tour) serverRevision() string {
	switch b := t.bridged; {
	case b == nil || b.modern == t.Revision().Modern():
		return t.revision
	case b.modern:
		return modern
	}
	return latestLegacy
}

// serverModern reports whether the server's connection is modern.
func (t *tour) serverModern() bool { return t.serverRevision() == modern }

// runTours runs a tour in each revision of a peer.
func runTours(t *testing.T, p *peer) {
	t.Helper()
	var mu sync.Mutex
	needed := map[string]bool{}
	skipped := false // the peer is not installed
	t.Run("tours", func(t *testing.T) {
		for _, revision := range p.revisions {
			t.Run(revision, func(t *testing.T) {
				t.Parallel()
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					skipped = skipped || t.Skipped()
				}()
				names := runTour(t, p, revision)
				mu.Lock()
				defer mu.Unlock()
				for name := range names {
					needed[name] = true
				}
			})
		}
	})
	for name := range p.quirks {
		if !needed[name] && !skipped && !t.Failed() {
			t.Errorf("quirk %q: no stop needs it", name)
		}
	}
}

func runTour(t *testing.T, p *peer, revision string) (needed map[string]bool) {
	t.Helper()
	s := p.launch(t)
	s.crashes = true
	w := &tour{T: t, peer: p, revision: revision}
	w.run(s)
	s.checkGone()
	if t.Failed() {
		return w.needed
	}
	s.audit(p.processes(), p.knownDeviations(revision)...)
	return w.needed
}

// run connects our client to s, and runs all stops that the revision and the peer support.
func (t *tour) run(s *recordedServer) {
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
			break // later stops depend on this one
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

// processes returns the number of server processes of a tour.
func (p *peer) processes() int {
	if p.lacks["crash"] != "" {
		return 1
	}
	return 2 // the tool crash ends the first one
}

// dial connects our client to s, with all handlers.
func (t *tour) dial(s *recordedServer, opts *client.Options) *client.Client {
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

// transport returns a transport that connects our client to s, or starts s.
func (s *recordedServer) transport() client.Transport {
	if s.web != nil {
		return streamable.NewTransport(s.web.url(), nil)
	}
	name, args := s.command()
	cmd := stdio.Command(name, args...)
	cmd.Stderr = &s.log
	return cmd
}

// note records an input request.
func (t *tour) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inputs = append(t.inputs, fmt.Sprintf(format, args...))
}

// inputRequests returns the input requests since the last call of inputRequests.
func (t *tour) inputRequests() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	inputs := t.inputs
	t.inputs = nil
	return inputs
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
	result := t.result
	return &result, nil
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
	t.log = append(t.log, logLine(&p))
}

func logLine(p *mcp.LoggingMessageNotificationParams) string {
	return fmt.Sprintf("%s %s %s", p.Level, p.Logger, bytes.TrimSpace(p.Data))
}

// text calls a tool whose result is a text.
func (t *tour) text(tool string, args any, opts ...client.CallOption) string {
	t.Helper()
	text, err := client.CallTool[string](t.ctx, t.Client, tool, args, opts...)
	if err != nil {
		t.Errorf("%s: %v", tool, err)
	}
	return text
}

// checkGone checks that all processes of s have exited.
func (s *recordedServer) checkGone() {
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
			if process.Running(e.Code) {
				s.t.Errorf("process %d is still running", e.Code)
			}
		}
	}
}

// contentDeviations returns the deviations of peers that send all kinds of content in every
// revision.
func contentDeviations(revision string) []deviation {
	if revision < "2025-06-18" {
		return []deviation{{rule: serverSchema, has: "CallToolResult", why: "it sends all kinds of content in every revision"}}
	}
	return nil
}
