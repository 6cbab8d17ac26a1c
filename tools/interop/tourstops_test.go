package interop

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/internal/test/wait"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// collect returns the sorted names of the items of a list.
func collect[T any](t *tour, list iter.Seq2[T, error], name func(T) string) []string {
	t.Helper()
	var names []string
	for item, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name(item))
	}
	return sorted(names)
}

func (t *tour) toolNames() []string {
	t.Helper()
	return collect(t, t.Tools(t.ctx, client.WithoutCache()), func(tool mcp.Tool) string { return tool.Name })
}

// contains checks that got contains the names want.
func (t *tour) contains(what string, got, want []string) {
	t.Helper()
	for _, name := range want {
		if !slices.Contains(got, name) {
			t.Errorf("%s = %q, want %q among them", what, got, name)
		}
	}
}

func (t *tour) equal(what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

var basicStops = []stop{
	{"server", "", func(t *tour) {
		t.equal("revision", t.revision, t.Revision().String())
		t.equal("name", t.peer.info, t.Profile().Server.Name)
		t.equal("instructions", instructions, t.Profile().Instructions)
		caps := t.Profile().Capabilities
		if caps.Tools == nil || caps.Prompts == nil || caps.Resources == nil || !caps.Resources.Subscribe || !caps.Tools.ListChanged {
			t.Errorf("capabilities = %+v, want tools, prompts and resources with notifications", caps)
		}
		if t.revision != "2024-11-05" && caps.Completions == nil {
			t.Error("capability completions is missing")
		}
	}},
	{"ping", "", func(t *tour) {
		if err := t.Ping(t.ctx); err != nil {
			t.Error(err)
		}
	}},
	{"tools", "", func(t *tour) {
		t.contains("tools", t.toolNames(), surfaceTools)
	}},
	{"pages", "", func(t *tour) {
		first, err := t.ListResources(t.ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(first.Resources); first.NextCursor == nil || n != 2 {
			t.Errorf("first page: %d resources, cursor %v; want 2 and a cursor", n, first.NextCursor)
		}
		if _, err := t.ListResources(t.ctx, new("no such cursor")); !client.IsServerError(err) && !t.quirk("any cursor") {
			t.Errorf("invalid cursor: error = %v, want an error of the peer", err)
		}
	}},
}

var callStops = []stop{
	{"text", "", func(t *tour) {
		t.equal("echo", quote, t.text("echo", map[string]string{"text": quote}))
	}},
	{"structured", "", func(t *tour) {
		got, err := client.CallTool[struct {
			Sum int `json:"sum"`
		}](t.ctx, t.Client, "sum", map[string]int{"a": 2, "b": 40})
		if err != nil || got.Sum != 42 {
			t.Errorf("sum = %+v, %v, want 42", got, err)
		}
	}},
	{"tool error", "", func(t *tour) {
		_, err := client.CallTool[string](t.ctx, t.Client, "fail", map[string]string{"message": "the disk is on fire"})
		if e := (*client.ToolError)(nil); !errors.As(err, &e) || !strings.Contains(err.Error(), "the disk is on fire") {
			t.Errorf("fail: error = %v, want a tool error", err)
		}
	}},
	{"unknown tool", "", func(t *tour) {
		result, err := t.CallTool(t.ctx, "no_such_tool", nil)
		if e := (*jsonrpc.Error)(nil); errors.As(err, &e) && e.Code == jsonrpc.CodeInvalidParams {
			return
		}
		if err != nil || !result.IsError || !t.quirk("an unknown tool is a tool error") {
			t.Errorf("call of an unknown tool = %+v, %v, want invalid params", result, err)
		}
	}},
	{"wrong arguments", "", func(t *tour) {
		result, err := t.CallTool(t.ctx, "sum", map[string]string{"a": "two", "b": "three"})
		if err == nil && result.IsError {
			return
		}
		if client.IsServerError(err) && t.quirk("wrong arguments are a protocol error") {
			return
		}
		t.Errorf("call with wrong arguments = %+v, %v, want a tool error", result, err)
	}},
	{"progress", "", func(t *tour) {
		steps := []float64{}
		text := t.text("slow", map[string]int{"steps": 3, "delay_ms": 20}, client.WithProgress(func(p *mcp.ProgressNotificationParams) {
			steps = append(steps, p.Progress)
			if p.Total == nil || *p.Total != 3 {
				t.Errorf("total = %v, want 3", p.Total)
			}
		}))
		t.equal("text", "done after 3 steps", text)
		want := []float64{1, 2, 3}
		if t.quirk("late progress") {
			// Events after the response cannot be attributed to the call.
			want = want[:min(len(steps), 3)]
		}
		if !t.quirk("unreliable progress") {
			t.equal("progress", want, steps)
		}
	}},
	{"log", "", visitLog},
	{"cancel", "", func(t *tour) {
		ctx, cancel := context.WithCancel(t.ctx)
		defer cancel()
		_, err := t.CallTool(ctx, "slow", map[string]int{"steps": 1000, "delay_ms": 20}, client.WithProgress(func(*mcp.ProgressNotificationParams) { cancel() }))
		if !errors.Is(err, context.Canceled) || client.IsServerError(err) {
			t.Errorf("canceled call: error = %v, want %v", err, context.Canceled)
		}
		t.equal("cancelled", "cancelled", t.text("cancelled", nil))
	}},
	{"timeout", "", func(t *tour) {
		_, err := t.CallTool(t.ctx, "slow", map[string]int{"steps": 1, "delay_ms": 60_000}, client.WithTimeout(50*time.Millisecond))
		if e := (*client.TimeoutError)(nil); !errors.As(err, &e) || e.Max {
			t.Errorf("call with a timeout: error = %v, want a timeout", err)
		}
		t.equal("cancelled", "cancelled", t.text("cancelled", nil))
	}},
	{"concurrent calls", "", func(t *tour) {
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				text := fmt.Sprint("call ", i)
				if got, err := client.CallTool[string](t.ctx, t.Client, "echo", map[string]string{"text": text}); got != text || err != nil {
					t.Errorf("echo = %q, %v, want %q", got, err, text)
				}
			})
		}
		wg.Wait()
	}},
}

// visitLog requests log messages with a level: for the session in the legacy era, with the call in
// the modern era.
func visitLog(t *tour) {
	want := []string{`info surface "notice"`, `error surface "trouble"`}
	if !t.Revision().Modern() {
		if err := t.SetLevel(t.ctx, mcp.LevelInfo); err != nil {
			t.Fatal(err)
		}
		t.equal("log", "logged", t.text("log", nil))
		if t.quirk("lost log") {
			return
		}
		wait.Until(t, "the log", func() bool {
			t.mu.Lock()
			defer t.mu.Unlock()
			return len(t.log) >= len(want)
		})
		t.mu.Lock()
		defer t.mu.Unlock()
		t.equal("log messages", want, t.log)
		return
	}
	got := []string{}
	t.equal("log", "logged", t.text("log", nil, client.WithLog(mcp.LevelInfo, func(p *mcp.LoggingMessageNotificationParams) {
		got = append(got, logLine(p))
	})))
	if t.quirk("late log") {
		want = want[:min(len(got), len(want))]
	}
	if !t.quirk("lost log") {
		t.equal("log messages", want, got)
	}
	// A call that requests no log messages gets none, which the audit checks.
	t.equal("log", "logged", t.text("log", nil))
}

var contentStops = []stop{
	{"content", "", func(t *tour) {
		result, err := t.CallTool(t.ctx, "media", nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, block := range result.Content {
			got = append(got, blockLine(block))
		}
		audio, link := "audio/wav "+pixel, "-> "+greetingURI
		if len(got) == 5 && !t.quirk("content of later revisions") {
			// Our server replaces content that the revision does not have with a text.
			if t.revision < "2025-03-26" {
				audio = "[audio/wav, 5 bytes: revision 2024-11-05 has no audio content]"
			}
			if t.revision < "2025-06-18" {
				link = "[resource greeting: " + greetingURI + "]"
			}
		}
		t.equal("content", []string{"text", "image/png " + pixel, audio, link, "text/plain " + greetingURI + ": " + greetingText}, got)
	}},
	{"resources", "", func(t *tour) {
		t.contains("resources", collect(t, t.Resources(t.ctx), func(r mcp.Resource) string { return r.URI }), surfaceResources)
		t.contains("templates", collect(t, t.ResourceTemplates(t.ctx), func(r mcp.ResourceTemplate) string { return r.URITemplate }), []string{itemTemplate})
		for uri, want := range map[string]mcp.ResourceContents{
			greetingURI: {URI: greetingURI, MIMEType: "text/plain", Text: greetingText},
			logoURI:     {URI: logoURI, MIMEType: "image/png", Blob: logo},
			itemURI:     {URI: itemURI, MIMEType: "text/plain", Text: itemText},
		} {
			r, err := t.ReadResource(t.ctx, uri)
			if err != nil {
				t.Errorf("%s: %v", uri, err)
				continue
			}
			t.equal(uri, []mcp.ResourceContents{want}, r.Contents)
		}
	}},
	{"unknown resource", "", func(t *tour) {
		for _, uri := range []string{missingItem, "test://nothing"} {
			if r, err := t.ReadResource(t.ctx, uri); !client.IsNotFound(err) && !(uri == missingItem && client.IsServerError(err) && t.quirk("handlers cannot report an unknown resource")) {
				t.Errorf("read %s = %+v, %v, want not found", uri, r, err)
			}
		}
	}},
	{"prompts", "", func(t *tour) {
		t.contains("prompts", collect(t, t.Prompts(t.ctx), func(p mcp.Prompt) string { return p.Name }), surfacePrompts)
		r, err := t.GetPrompt(t.ctx, "greet", map[string]string{"name": "Ada", "style": "formal"})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range r.Messages {
			got = append(got, string(m.Role)+": "+blockLine(m.Content))
		}
		t.equal("greet", []string{"user: Greet Ada in a formal way.", "assistant: Hello, Ada!"}, got)
		if r, err = t.GetPrompt(t.ctx, "review", nil); err != nil || len(r.Messages) != 1 {
			t.Fatalf("review = %+v, %v, want one message", r, err)
		}
		t.equal("review", "text/plain "+greetingURI+": "+greetingText, blockLine(r.Messages[0].Content))
		if _, err := t.GetPrompt(t.ctx, "greet", nil); !client.IsServerError(err) {
			t.Errorf("greet without arguments: error = %v, want an error of the peer", err)
		}
	}},
	{"completion", "", func(t *tour) {
		complete := func(ref mcp.Reference, name, value string, known map[string]string, want []string) {
			t.Helper()
			c, err := t.Complete(t.ctx, ref, mcp.CompleteArgument{Name: name, Value: value}, known)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			t.equal(name, want, c.Values)
		}
		greet := mcp.PromptReference{Name: "greet"}
		complete(greet, "style", "f", nil, []string{"formal", "friendly"})
		complete(mcp.ResourceTemplateReference{URI: itemTemplate}, "id", "1", nil, []string{"1", "10", "11"})
		if t.revision >= "2025-06-18" {
			complete(greet, "name", "", map[string]string{"style": "formal"}, names("formal"))
		}
		complete(greet, "name", "", nil, names(""))
	}},
}

// blockLine returns a content block as one line.
func blockLine(block mcp.ContentBlock) string {
	switch b := block.(type) {
	case mcp.TextContent:
		return b.Text
	case mcp.ImageContent:
		return b.MIMEType + " " + base64.StdEncoding.EncodeToString(b.Data)
	case mcp.AudioContent:
		return b.MIMEType + " " + base64.StdEncoding.EncodeToString(b.Data)
	case mcp.ResourceLink:
		return "-> " + b.URI
	case mcp.EmbeddedResource:
		return b.Resource.MIMEType + " " + b.Resource.URI + ": " + b.Resource.Text
	}
	return fmt.Sprintf("%#v", block)
}
