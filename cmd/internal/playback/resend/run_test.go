package resend_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/stdio"
)

// initialize is a recorded request in an unusual spelling.
const initialize = `{"jsonrpc": "2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"elicitation":{},"sampling":{}},"clientInfo":{"name":"host","version":"9"}}}`

// helper returns the origin of a stdio server that is the test binary.
func helper(t *testing.T, name string) *resend.Origin {
	t.Helper()
	t.Setenv(helperVar, name)
	return &resend.Origin{
		Capture: "CAP", Event: 4, Name: "fs", Transport: capture.TransportStdio, Command: []string{os.Args[0], "--flag"}, Dir: t.TempDir(),
		Revision: "2025-06-18", Initialize: []byte(initialize),
	}
}

// run sends a message and returns the result with the events of the new capture.
func run(t *testing.T, o *resend.Origin, message string, opts *resend.Options) (*resend.Result, []*capture.Event, error) {
	t.Helper()
	var with resend.Options
	if opts != nil {
		with = *opts
	}
	if with.Dir == "" {
		with.Dir = t.TempDir()
	}
	if with.Timeout == 0 {
		with.Timeout = waitLimit
	}
	res, err := resend.Run(t.Context(), o, []byte(message), &with)
	if res == nil {
		return nil, nil, err
	}
	return res, readFile(t, res.Path), err
}

func readFile(t *testing.T, path string) []*capture.Event {
	t.Helper()
	r, err := capture.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var list []*capture.Event
	for e, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e.Clone())
	}
	return list
}

// story describes the events of a capture, one per line, without values that differ from run to
// run.
func story(events []*capture.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%s", e.Kind)
		if e.Dir != "" {
			fmt.Fprintf(&b, " %s", e.Dir)
		}
		switch {
		case e.Exit != nil:
			fmt.Fprintf(&b, " %d%s", e.Exit.Code, e.Exit.Signal)
		case e.Head != nil:
			fmt.Fprintf(&b, " %s %q", e.Head.Transport, e.Head.Name)
		case e.Start != nil:
			fmt.Fprintf(&b, " %s", strings.Join(e.Start.Command[1:], " "))
		case e.Tail != nil:
			fmt.Fprintf(&b, " lost %d", e.Tail.Lost)
		case e.Request != nil:
			fmt.Fprintf(&b, " %d %s %s", e.Exchange, e.Request.Method, e.Request.URL)
		case e.Response != nil:
			fmt.Fprintf(&b, " %d %d", e.Exchange, e.Response.Status)
		case e.Exchange > 0:
			fmt.Fprintf(&b, " %d", e.Exchange)
		}
		if e.Data != nil {
			fmt.Fprintf(&b, " %s", e.Data)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// without returns the events that are not of the kinds.
func without(events []*capture.Event, kinds ...capture.Kind) []*capture.Event {
	var list []*capture.Event
	for _, e := range events {
		drop := false
		for _, k := range kinds {
			drop = drop || e.Kind == k
		}
		if !drop {
			list = append(list, e)
		}
	}
	return list
}

func text(events []*capture.Event, kind capture.Kind) string {
	var lines []string
	for _, e := range events {
		if e.Kind == kind {
			lines = append(lines, string(e.Data))
		}
	}
	return strings.Join(lines, "\n")
}

func TestRunLegacy(t *testing.T) {
	o := helper(t, "echo")
	message := `{"jsonrpc":"2.0", "id":"a\u0062","method":"tools/call","params":{"x":1.0,"y":9007199254740993}}`
	res, events, err := run(t, o, message, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Standard error is a separate stream.
	want := `head stdio "fs resent"
note sent again: event 4 of capture CAP, possibly edited
start --flag
msg c2s ` + initialize + `
msg s2c {"jsonrpc":"2.0","id":0,"result":` + handshake + `}
msg c2s {"jsonrpc":"2.0","method":"notifications/initialized"}
msg c2s ` + message + `
msg s2c ` + string(res.Response) + `
eof c2s
eof s2c
exit 0
tail lost 0
`
	if diff := cmp.Diff(want, story(without(events, capture.KindStderr))); diff != "" {
		t.Errorf("the capture (-want +got):\n%s", diff)
	}
	var answer struct {
		ID     string
		Result struct{ Got string }
	}
	if err := json.Unmarshal(res.Response, &answer); err != nil || answer.ID != "ab" || answer.Result.Got != message {
		t.Errorf("the server got %q, with id %q, %v; want the message byte for byte", answer.Result.Got, answer.ID, err)
	}
	if got, want := text(events, capture.KindStderr), "initialize: "+initialize+"\ninitialized"; got != want {
		t.Errorf("the server got the client name %q, want %q", got, want)
	}
	if byN := func(n uint64) string { return string(events[n].Data) }; byN(res.N) != message || byN(res.ResponseN) != string(res.Response) {
		t.Errorf("events %d and %d are not the message and its answer", res.N, res.ResponseN)
	}
	if events[0].Capture != res.CaptureID || res.Latency <= 0 || res.Session != 1 {
		t.Errorf("result is %+v of capture %s", res, events[0].Capture)
	}
	if pid := events[2].Start.PID; pid <= 0 || events[2].Start.Dir != o.Dir || events[2].Session != 1 {
		t.Errorf("the start is recorded as %+v", events[2].Start)
	}
}

func TestRunForms(t *testing.T) {
	for _, tt := range []struct {
		name, message string
		change        func(*resend.Origin)
		want          string // the message that the server gets
	}{
		{"line breaks", "{\n \"jsonrpc\":\"2.0\",\n \"id\":1,\"method\":\"m\"}", nil, `{ "jsonrpc":"2.0", "id":1,"method":"m"}`},
		{"an id in use", `{"jsonrpc":"2.0","id":0,"method":"m","params":{"id":0}}`, nil, `{"jsonrpc":"2.0","id":1,"method":"m","params":{"id":0}}`},
		{"no recorded handshake", `{"jsonrpc":"2.0","id":0,"method":"m"}`, func(o *resend.Origin) { o.Initialize = nil }, `{"jsonrpc":"2.0","id":0,"method":"m"}`},
		{"modern by its metadata", `{"jsonrpc":"2.0","id":0,"method":"m","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, nil,
			`{"jsonrpc":"2.0","id":0,"method":"m","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`},
		{"modern by its session", `{"jsonrpc":"2.0","id":0,"method":"m"}`, func(o *resend.Origin) { o.Modern = true }, `{"jsonrpc":"2.0","id":0,"method":"m"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := helper(t, "echo")
			if tt.change != nil {
				tt.change(o)
			}
			res, events, err := run(t, o, tt.message, nil)
			if err != nil {
				t.Fatal(err)
			}
			var answer struct{ Result struct{ Got string } }
			if err := json.Unmarshal(res.Response, &answer); err != nil || answer.Result.Got != tt.want {
				t.Errorf("the server got %q, %v, want %q", answer.Result.Got, err, tt.want)
			}
			greeted := strings.Contains(text(events, capture.KindStderr), "initialize")
			if want := !strings.HasPrefix(tt.name, "modern"); greeted != want {
				t.Errorf("a handshake: %v, want %v", greeted, want)
			}
		})
	}
}

func TestRunHandshakeItself(t *testing.T) {
	res, events, err := run(t, helper(t, "echo"), initialize, nil)
	if err != nil || !bytes.Contains(res.Response, []byte("serverInfo")) {
		t.Fatalf("the answer is %s, %v", res.Response, err)
	}
	if got := text(events, capture.KindStderr); got != "initialize: "+initialize {
		t.Errorf("the server saw %q, want initialize once", got)
	}
	_, events, err = run(t, helper(t, "echo"), `{"jsonrpc":"2.0","method":"notifications/initialized","params":{}}`, nil)
	if got := text(events, capture.KindStderr); err != nil || got != "initialize: "+initialize+"\ninitialized" {
		t.Errorf("the server saw %q, %v, want each part of the handshake once", got, err)
	}
}

func TestRunBatch(t *testing.T) {
	batch := `[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","id":2,"method":"tools/list"}]`
	o := helper(t, "ours")
	o.Initialize = []byte(strings.Replace(initialize, "2025-06-18", "2025-03-26", 1))
	res, _, err := run(t, o, batch, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []struct{ ID int }
	if err := json.Unmarshal(res.Response, &got); err != nil || len(got) != 2 {
		t.Errorf("the answer is %s, want a batch of two", res.Response)
	}
}

func TestRunNotification(t *testing.T) {
	o := helper(t, "echo")
	res, events, err := run(t, o, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, &resend.Options{IdleTimeout: 50 * time.Millisecond})
	if err != nil || res.Response != nil || res.N == 0 {
		t.Fatalf("result %+v, %v", res, err)
	}
	if !strings.Contains(story(events), "notifications/cancelled") {
		t.Errorf("it is not recorded:\n%s", story(events))
	}
}

func TestRunModern(t *testing.T) {
	o := helper(t, "ours")
	o.Initialize, o.Modern = nil, true
	call := func(tool, arguments string) string {
		return `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}}}}`
	}
	res, events, err := run(t, o, call("greet", `{"name":"Ann"}`), &resend.Options{Env: []string{"RESEND_TEST_MARK= of resend"}})
	if err != nil || !bytes.Contains(res.Response, []byte("Hello, Ann of resend!")) {
		t.Fatalf("the answer is %s, %v", res.Response, err)
	}
	if n := strings.Count(story(events), "msg "); n != 2 {
		t.Errorf("%d messages, want the request and its answer:\n%s", n, story(events))
	}
	res, _, err = run(t, o, call("ask", `{}`), nil)
	if err != nil || !bytes.Contains(res.Response, []byte(`"input_required"`)) {
		t.Errorf("the answer is %s, %v, want what asks for input", res.Response, err)
	}
}

func TestRunInputRequests(t *testing.T) {
	res, _, err := run(t, helper(t, "ask"), `{"jsonrpc":"2.0","id":3,"method":"tools/call"}`, nil)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Result struct{ Got []string } }
	if err := json.Unmarshal(res.Response, &answer); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"jsonrpc":"2.0","id":"q","result":{}}`,
		`{"jsonrpc":"2.0","id":"q","result":{"action":"decline"}}`,
		`{"jsonrpc":"2.0","id":"q","error":{"code":-1,"message":"rejected: this is a resent message, and no user can approve"}}`,
	}
	got := answer.Result.Got
	if len(got) != 5 {
		t.Fatalf("the server got %q", got)
	}
	if diff := cmp.Diff(want, got[:3]); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	for _, a := range got[3:] {
		if !strings.Contains(a, `"code":-32601`) {
			t.Errorf("an answer is %s, want -32601", a)
		}
	}
	if res.Asked != 5 {
		t.Errorf("Asked is %d, want 5", res.Asked)
	}
}

func TestRunBadServers(t *testing.T) {
	const message = `{"jsonrpc":"2.0","id":3,"method":"tools/call"}`
	t.Run("no response", func(t *testing.T) {
		res, events, err := run(t, helper(t, "hang"), message, &resend.Options{Timeout: 2 * time.Second})
		if !errors.Is(err, resend.ErrTimeout) || res == nil || res.Response != nil || res.N == 0 {
			t.Errorf("result %+v, %v", res, err)
		}
		if got := story(events); !strings.HasSuffix(got, "exit 0\ntail lost 0\n") {
			t.Errorf("the capture ends in another way:\n%s", got)
		}
	})
	t.Run("server ends", func(t *testing.T) {
		res, events, err := run(t, helper(t, "die"), message, nil)
		ended, ok := errors.AsType[*wireclient.EndedError](err)
		exit, isExit := errors.AsType[*stdio.ExitError](err)
		if !ok || !isExit || exit.Code != 7 || !strings.Contains(ended.Error(), "no database") || res.ResponseN != 0 {
			t.Errorf("result %+v, %v", res, err)
		}
		if got := story(events); !strings.Contains(got, "\nexit 7\n") || !strings.Contains(got, "err fatal: no database") {
			t.Errorf("the capture:\n%s", got)
		}
	})
	t.Run("handshake rejected", func(t *testing.T) {
		_, _, err := run(t, helper(t, "refuse"), message, nil)
		if refused, ok := errors.AsType[*resend.HandshakeError](err); !ok || refused.Err.Code != -32602 || refused.N == 0 {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("prints other text", func(t *testing.T) {
		res, events, err := run(t, helper(t, "rubbish"), message, nil)
		if err != nil || string(res.Response) != `{"jsonrpc":"2.0","id":3,"result":{"ok":true}}` {
			t.Errorf("result %+v, %v", res, err)
		}
		got := story(events)
		for _, want := range []string{"invalid s2c console.log: hello\x1b[31m\n", "invalid s2c \n", `msg s2c {"jsonrpc":"2.0","method":"notifications"}` + "\n"} {
			if !strings.Contains(got, want) {
				t.Errorf("%q is not in the capture:\n%s", want, got)
			}
		}
	})
	t.Run("too many messages", func(t *testing.T) {
		res, events, err := run(t, helper(t, "flood"), message, &resend.Options{MaxCapture: 100_000})
		if !errors.Is(err, wireclient.ErrTooLarge) || res == nil || len(events) > 200 {
			t.Errorf("result %+v, %v, %d events", res, err, len(events))
		}
		if last := events[len(events)-2]; last.Kind != capture.KindExit {
			t.Errorf("the last event is %v, want the exit", last.Kind)
		}
	})
	t.Run("program not found", func(t *testing.T) {
		o := helper(t, "echo")
		o.Command = []string{"/nowhere/to/be/found"}
		res, events, err := run(t, o, message, nil)
		// the latter on Windows
		missing := errors.Is(err, os.ErrNotExist) || errors.Is(err, exec.ErrNotFound)
		if !missing || res == nil || len(events) != 3 {
			t.Errorf("result %+v, %v, %d events", res, err, len(events))
		}
	})
}

func TestRunCanceled(t *testing.T) {
	o := helper(t, "hang")
	cause := errors.New("the user has had enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	dir := t.TempDir()
	go func() { // as soon as the message was sent
		for !strings.Contains(dirText(dir), "tools/call") {
			<-time.After(5 * time.Millisecond)
		}
		cancel(cause)
	}()
	res, err := resend.Run(ctx, o, []byte(`{"jsonrpc":"2.0","id":3,"method":"tools/call"}`), &resend.Options{Dir: dir})
	if !errors.Is(err, cause) || res == nil {
		t.Errorf("result %+v, %v", res, err)
	}
}

func dirText(dir string) string {
	var all []byte
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		b, _ := os.ReadFile(dir + "/" + e.Name())
		all = append(all, b...)
	}
	return string(all)
}

func TestRunRejected(t *testing.T) {
	const secret = `~redacted:token:0123456789ab:16~`
	for _, tt := range []struct {
		name, message string
		change        func(*resend.Origin)
		opts          resend.Options
		want          string
	}{
		{"placeholder", `{"jsonrpc":"2.0","id":3,"method":"m","params":{"a/b":["x","y ` + secret + `"]}}`, nil, resend.Options{},
			"the message has a secret that was redacted when recorded, at /params/a~1b/1"},
		{"placeholder in invalid JSON", `{` + secret, nil, resend.Options{}, "the message has a secret that was redacted when recorded"},
		{"placeholder as a name", `{"jsonrpc":"2.0","id":3,"method":"m","params":{"` + secret + `":1}}`, nil, resend.Options{},
			"the message has a secret that was redacted when recorded, at /params/~0redacted:token:0123456789ab:16~0"},
		{"number", `{"jsonrpc":"2.0","id":3,"method":"m","params":{"pin":0,"n":0}}`, func(o *resend.Origin) { o.Redacted = []string{"/params/pin"} }, resend.Options{},
			"the message has a secret that was redacted when recorded, at /params/pin"},
		{"more placeholders than listed", `{"jsonrpc":"2.0","id":3,"method":"m"}`, func(o *resend.Origin) { o.MoreRedacted = 3 }, resend.Options{},
			"the message has a secret that was redacted when recorded"},
		{"command", `{"jsonrpc":"2.0","id":3,"method":"m"}`, func(o *resend.Origin) { o.Command = append(o.Command, secret) }, resend.Options{},
			"the command has a secret that was redacted when recorded, at /2"},
		{"URL", `{"jsonrpc":"2.0","id":3,"method":"m"}`, func(o *resend.Origin) { o.Transport, o.URL = capture.TransportHTTP, "http://localhost/?k="+secret }, resend.Options{},
			"the URL has a secret that was redacted when recorded"},
		{"no command", `{"jsonrpc":"2.0","id":3,"method":"m"}`, func(o *resend.Origin) { o.Command = nil }, resend.Options{},
			"resend: the capture does not say how to reach the server: it has no command"},
		{"no URL", `{"jsonrpc":"2.0","id":3,"method":"m"}`, func(o *resend.Origin) { o.Transport = capture.TransportHTTP }, resend.Options{},
			"resend: the capture does not say how to reach the server: it has no URL"},
		{"no URL of HTTP", `{"jsonrpc":"2.0","id":3,"method":"m"}`, func(o *resend.Origin) { o.Transport, o.URL = capture.TransportHTTP, "file:///etc/passwd" }, resend.Options{},
			"resend: the capture does not say how to reach the server: the URL is not an HTTP URL"},
		{"too large", `{"jsonrpc":"2.0","id":3,"method":"m"}`, nil, resend.Options{MaxMessage: 10}, "resend: a message of 37 bytes: too large"},
		{"filled in", `{"jsonrpc":"2.0","id":3,"method":"m","params":{"pin":12}}`, func(o *resend.Origin) { o.Redacted = []string{"/params/pin"} }, resend.Options{}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := helper(t, "echo")
			if tt.change != nil {
				tt.change(o)
			}
			tt.opts.Dir = t.TempDir()
			_, _, err := run(t, o, tt.message, &tt.opts)
			if got := fmt.Sprint(err); got != tt.want && (err != nil || tt.want != "") {
				t.Errorf("the error is\n%s\nwant\n%s", got, tt.want)
			}
			if files, _ := os.ReadDir(tt.opts.Dir); len(files) != 0 && tt.want != "" {
				t.Errorf("a server was started: %v", files)
			}
		})
	}
}
