package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	modern       = "2026-07-28"
	latestLegacy = "2025-11-25"
)

var legacyRevisions = []string{"2024-11-05", "2025-03-26", "2025-06-18", latestLegacy}

// A step is one thing a host does: it calls a tool and reports the outcome.
// The walks of the Go hosts and of ts/walk.mjs carry out the same steps.
type step struct {
	Name string         `json:"name"`
	Tool string         `json:"tool"`
	Args map[string]any `json:"args"`
	// Progress requests progress notifications, and is the expected number.
	Progress int `json:"progress,omitempty"`
	// CancelAt cancels the call when the progress reaches it.
	CancelAt int `json:"cancelAt,omitempty"`
	// Parallel starts the call so many times at once; the outcomes must agree.
	Parallel int `json:"parallel,omitempty"`

	want expectation
}

// An outcome is the result of one step at a host.
type outcome struct {
	Text       string          `json:"text"` // of the first content block
	Structured json.RawMessage `json:"structured,omitempty"`
	IsError    bool            `json:"isError"`
	Code       int             `json:"code"` // of a JSON-RPC error
	Message    string          `json:"message"`
	Cancelled  bool            `json:"cancelled"` // the call ended as the host's own cancellation
	Progress   []float64       `json:"progress"`
	Agreeing   int             `json:"agreeing"` // how many parallel calls had this outcome
}

// An expectation is the outcome that a scenario must have.
type expectation struct {
	text       string
	structured string // only in the modern era: legacy has no structured content but objects
	isError    bool
	code       int
	cancelled  bool
	mentions   []string // parts of the text of a tool error, or of the message
}

// A report is what a host saw in one session.
type report struct {
	Revision string             `json:"revision"`
	Server   string             `json:"server"`
	Tools    []string           `json:"tools"`
	Outcomes map[string]outcome `json:"outcomes"`
	Failure  string             `json:"failure"` // why the session broke off
}

const quote = "h\u00e9llo \"w\u00f6rld\"\n\t\\ \u2028 \U0001f680"

// session is what every host does after connecting. The order matters: the
// plain echoes after a cancelled and a crashed call show that the server
// survived them.
var session = []step{
	{Name: "echo", Tool: "echo", Args: map[string]any{"text": quote}, want: expectation{text: quote}},
	{Name: "word count", Tool: "word_count", Args: map[string]any{"text": " one two\nthree "},
		want: expectation{text: "3", structured: "3"}},
	{Name: "add", Tool: "add", Args: map[string]any{"a": 2, "b": 40}, want: expectation{text: "42", structured: "42"}},
	{Name: "add large", Tool: "add", Args: map[string]any{"a": 1<<53 - 1, "b": 1},
		want: expectation{text: "9007199254740992", structured: "9007199254740992"}},
	{Name: "tool error", Tool: "fail", Args: map[string]any{"message": "the disk is on fire"},
		want: expectation{isError: true, mentions: []string{"the disk is on fire"}}},
	{Name: "wrong type", Tool: "add", Args: map[string]any{"a": "two", "b": 1},
		want: expectation{isError: true, mentions: []string{"a", "integer"}}},
	{Name: "missing argument", Tool: "echo", Args: map[string]any{},
		want: expectation{isError: true, mentions: []string{"text"}}},
	{Name: "unknown tool", Tool: "no_such_tool", Args: map[string]any{},
		want: expectation{code: -32602, mentions: []string{"no_such_tool"}}},
	{Name: "progress", Tool: "slow", Args: map[string]any{"steps": 3, "delay_ms": 20}, Progress: 3,
		want: expectation{text: "done after 3 steps"}},
	{Name: "cancel", Tool: "slow", Args: map[string]any{"steps": 1000, "delay_ms": 20}, Progress: 1, CancelAt: 1,
		want: expectation{cancelled: true}},
	{Name: "echo after cancel", Tool: "echo", Args: map[string]any{"text": "still here"}, want: expectation{text: "still here"}},
	{Name: "parallel", Tool: "slow", Args: map[string]any{"steps": 1, "delay_ms": 50}, Parallel: 16,
		want: expectation{text: "done after 1 steps"}},
	{Name: "crash", Tool: "crash", Args: map[string]any{}, want: expectation{code: -32603}},
	{Name: "echo after crash", Tool: "echo", Args: map[string]any{"text": "still here"}, want: expectation{text: "still here"}},
}

// checkReport compares a host's report with the features of the revision.
func checkReport(t *testing.T, got report, revision string) {
	t.Helper()
	if got.Failure != "" {
		t.Errorf("the session broke off: %s", got.Failure)
	}
	if got.Revision != revision {
		t.Errorf("revision: got %q, want %q", got.Revision, revision)
	}
	if got.Server == "" {
		t.Error("the host knows no name of the server")
	}
	tools := slices.Sorted(slices.Values(got.Tools))
	if diff := cmp.Diff([]string{"add", "crash", "echo", "fail", "slow", "word_count"}, tools); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	for _, s := range session {
		o, ok := got.Outcomes[s.Name]
		if !ok {
			t.Errorf("%s: the host did not report it", s.Name)
			continue
		}
		if diff := s.mismatch(o, revision); diff != "" {
			t.Errorf("%s: %s", s.Name, diff)
		}
	}
}

// mismatch says how an outcome differs from the step's expectation.
func (s step) mismatch(got outcome, revision string) string {
	want := outcome{Text: s.want.text, IsError: s.want.isError, Code: s.want.code, Cancelled: s.want.cancelled, Agreeing: s.Parallel}
	if revision == modern && s.want.structured != "" {
		want.Structured = json.RawMessage(s.want.structured)
	}
	said := got.Text + got.Message
	for _, m := range s.want.mentions {
		if !strings.Contains(said, m) {
			return fmt.Sprintf("does not mention %q: %q", m, said)
		}
	}
	// Wording is the server's own business where the step does not fix it.
	if s.want.isError {
		got.Text = ""
	}
	got.Message = ""
	for i, p := range got.Progress {
		if p != float64(i+1) {
			return fmt.Sprintf("progress %v is not 1, 2, 3 and so on", got.Progress)
		}
	}
	// A host may drop what arrives together with the response, which is all of
	// it on a busy machine; the audit of the transcript shows that the server
	// sent it. A call that is cancelled by the progress does not end without.
	if s.CancelAt > 0 && len(got.Progress) == 0 {
		return "progress: got none"
	}
	got.Progress = nil
	return cmp.Diff(want, got)
}

// A host is a connected client of a Go SDK.
type host interface {
	// revision is the negotiated one, name the server's own.
	revision() string
	name() string
	tools(context.Context) ([]string, error)
	// call calls a tool. The progress function, if not nil, makes the host
	// ask for notifications and may be called from any goroutine, also for a
	// while after call returned.
	call(ctx context.Context, tool string, args map[string]any, progress func(float64)) outcome
	// ping does what the revision offers for it.
	ping(context.Context) error
	// close ends the session and waits for the server's exit.
	close() error
}

// walk carries the session out and closes the host.
func walk(ctx context.Context, h host) report {
	r := report{Revision: h.revision(), Server: h.name(), Outcomes: map[string]outcome{}}
	note := func(doing string, err error) {
		if err != nil && r.Failure == "" {
			r.Failure = fmt.Sprintf("%s: %v", doing, err)
		}
	}
	var err error
	r.Tools, err = h.tools(ctx)
	note("listing", err)
	for _, s := range session {
		r.Outcomes[s.Name] = take(ctx, h, s)
	}
	if r.Revision != modern {
		note("ping", h.ping(ctx))
	}
	note("closing", h.close())
	return r
}

// take carries one step out.
func take(ctx context.Context, h host, s step) outcome {
	switch {
	case s.Parallel > 0:
		return takeParallel(ctx, h, s)
	case s.Progress > 0:
		return takeProgress(ctx, h, s)
	}
	return h.call(ctx, s.Tool, s.Args, nil)
}

func takeParallel(ctx context.Context, h host, s step) outcome {
	results := make(chan outcome)
	for range s.Parallel {
		go func() { results <- h.call(ctx, s.Tool, s.Args, nil) }()
	}
	first := <-results
	first.Agreeing = 1
	for range s.Parallel - 1 {
		if o := <-results; o.Text == first.Text && o.Code == first.Code {
			first.Agreeing++
		}
	}
	return first
}

func takeProgress(ctx context.Context, h host, s step) outcome {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := make(chan float64, 1000)
	o := h.call(ctx, s.Tool, s.Args, func(p float64) {
		seen <- p
		if s.CancelAt > 0 && p >= float64(s.CancelAt) {
			cancel()
		}
	})
	// The SDKs hand notifications to other goroutines than responses.
	limit := time.After(2 * time.Second)
	for len(o.Progress) < s.Progress {
		select {
		case p := <-seen:
			o.Progress = append(o.Progress, p)
		case <-limit:
			return o
		}
	}
	return o
}

// meters record the progress at hosts, by its token.
type meters struct {
	mu sync.Mutex
	of []func(float64)
}

// add returns the token of a new one.
func (m *meters) add(meter func(float64)) (token string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of = append(m.of, meter)
	return strconv.Itoa(len(m.of) - 1)
}

// tell sends progress for the token, if there is one.
func (m *meters) tell(token any, progress float64) {
	text, _ := token.(string)
	n, err := strconv.Atoi(text)
	if err != nil {
		return
	}
	m.mu.Lock()
	meter := m.of[n]
	m.mu.Unlock()
	meter(progress)
}

// structured returns the JSON text of a decoded structured content.
func structured(v any) json.RawMessage {
	if v == nil {
		return nil
	}
	text, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage(fmt.Sprintf("%q", err))
	}
	return bytes.TrimSpace(text)
}

// cancelled reports whether err is a host's own cancellation.
func cancelled(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}
