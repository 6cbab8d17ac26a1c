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

// A step is a call of a tool by a host. Hosts in Go and in other languages run the same steps.
type step struct {
	Name string         `json:"name"`
	Tool string         `json:"tool"`
	Args map[string]any `json:"args"`
	// Progress is the number of expected progress notifications. Zero requests none.
	Progress int `json:"progress,omitempty"`
	// CancelAt cancels the call when the progress reaches it. Zero does not cancel.
	CancelAt int `json:"cancelAt,omitempty"`
	// Parallel is the number of concurrent calls, whose outcomes must be equal. Zero means one
	// call.
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
	Cancelled  bool            `json:"cancelled"` // the call failed because the host canceled it
	Progress   []float64       `json:"progress"`
	Agreeing   int             `json:"agreeing"` // number of parallel calls with this outcome
}

// An expectation is the expected outcome of a step.
type expectation struct {
	text       string
	structured string // only in the modern era: in the legacy era it must be an object
	isError    bool
	code       int
	cancelled  bool
	mentions   []string // substrings of the text of a tool error, or of the message
}

// A report is the report of a host about one session.
type report struct {
	Revision string             `json:"revision"`
	Server   string             `json:"server"`
	Tools    []string           `json:"tools"`
	Outcomes map[string]outcome `json:"outcomes"`
	Failure  string             `json:"failure"` // the error that ended the session
}

const quote = "h\u00e9llo \"w\u00f6rld\"\n\t\\ \u2028 \U0001f680"

// session has the steps that every host runs after it has connected. The order matters: the calls
// of echo after a canceled and a crashed call show that the server still works.
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

// checkReport compares a host's report with the expectations for the revision.
func checkReport(t *testing.T, got report, revision string) {
	t.Helper()
	if got.Failure != "" {
		t.Errorf("session failed: %s", got.Failure)
	}
	if got.Revision != revision {
		t.Errorf("revision = %q, want %q", got.Revision, revision)
	}
	if got.Server == "" {
		t.Error("server name is empty")
	}
	tools := slices.Sorted(slices.Values(got.Tools))
	if diff := cmp.Diff([]string{"add", "crash", "echo", "fail", "slow", "word_count"}, tools); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
	for _, s := range session {
		o, ok := got.Outcomes[s.Name]
		if !ok {
			t.Errorf("%s: report has no outcome", s.Name)
			continue
		}
		if diff := s.mismatch(o, revision); diff != "" {
			t.Errorf("%s: %s", s.Name, diff)
		}
	}
}

// mismatch returns the difference between an outcome and the expectation. Empty means none.
func (s step) mismatch(got outcome, revision string) string {
	want := outcome{Text: s.want.text, IsError: s.want.isError, Code: s.want.code, Cancelled: s.want.cancelled, Agreeing: s.Parallel}
	if revision == modern && s.want.structured != "" {
		want.Structured = json.RawMessage(s.want.structured)
	}
	text := got.Text + got.Message
	for _, m := range s.want.mentions {
		if !strings.Contains(text, m) {
			return fmt.Sprintf("text = %q, want %q in it", text, m)
		}
	}
	// The server chooses the other words of errors.
	if s.want.isError {
		got.Text = ""
	}
	got.Message = ""
	for i, p := range got.Progress {
		if p != float64(i+1) {
			return fmt.Sprintf("progress = %v, want 1, 2, 3 and so on", got.Progress)
		}
	}
	// A host may drop progress that arrives together with the response, on a busy machine even all
	// of it. The audit of the transcript checks that the server sent it. A call that progress
	// cancels must get some.
	if s.CancelAt > 0 && len(got.Progress) == 0 {
		return "progress is empty"
	}
	got.Progress = nil
	return cmp.Diff(want, got)
}

// A host is a connected client of a Go SDK.
type host interface {
	// revision returns the negotiated revision, name the name of the server.
	revision() string
	name() string
	tools(context.Context) ([]string, error)
	// call calls a tool. If progress is not nil, the host requests progress notifications and calls
	// progress from any goroutine, perhaps after call has returned.
	call(ctx context.Context, tool string, args map[string]any, progress func(float64)) outcome
	// ping sends a ping in the legacy era.
	ping(context.Context) error
	// close ends the session and waits until the server has exited.
	close() error
}

// walk runs the session and closes the host.
func walk(ctx context.Context, h host) report {
	r := report{Revision: h.revision(), Server: h.name(), Outcomes: map[string]outcome{}}
	note := func(operation string, err error) {
		if err != nil && r.Failure == "" {
			r.Failure = fmt.Sprintf("%s: %v", operation, err)
		}
	}
	var err error
	r.Tools, err = h.tools(ctx)
	note("list", err)
	for _, s := range session {
		r.Outcomes[s.Name] = runStep(ctx, h, s)
	}
	if r.Revision != modern {
		note("ping", h.ping(ctx))
	}
	note("close", h.close())
	return r
}

// runStep runs one step.
func runStep(ctx context.Context, h host, s step) outcome {
	switch {
	case s.Parallel > 0:
		return runParallel(ctx, h, s)
	case s.Progress > 0:
		return runProgress(ctx, h, s)
	}
	return h.call(ctx, s.Tool, s.Args, nil)
}

func runParallel(ctx context.Context, h host, s step) outcome {
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

func runProgress(ctx context.Context, h host, s step) outcome {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen := make(chan float64, 1000)
	o := h.call(ctx, s.Tool, s.Args, func(p float64) {
		seen <- p
		if s.CancelAt > 0 && p >= float64(s.CancelAt) {
			cancel()
		}
	})
	// The SDKs deliver notifications in other goroutines than responses.
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

// progressHandlers has the handlers of progress of a host, by token.
type progressHandlers struct {
	mu  sync.Mutex
	all []func(float64)
}

// add adds a handler and returns its token.
func (h *progressHandlers) add(handler func(float64)) (token string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, handler)
	return strconv.Itoa(len(h.all) - 1)
}

// notify calls the handler of the token, if it is a token of add.
func (h *progressHandlers) notify(token any, progress float64) {
	text, _ := token.(string)
	n, err := strconv.Atoi(text)
	if err != nil {
		return
	}
	h.mu.Lock()
	handler := h.all[n]
	h.mu.Unlock()
	handler(progress)
}

// structured returns the JSON text of decoded structured content.
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

// cancelled reports whether err is the host's cancellation.
func cancelled(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Canceled)
}
