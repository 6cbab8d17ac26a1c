package interop

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

var inputStops = []stop{
	{"elicitation", "2025-06-18", func(t *tour) {
		for _, tt := range []struct {
			result mcp.ElicitResult
			want   string
		}{
			{ada, "accept Ada 36"},
			{mcp.ElicitResult{Action: mcp.ElicitActionDecline}, "decline"},
			{mcp.ElicitResult{Action: mcp.ElicitActionCancel}, "cancel"},
		} {
			t.setResult(tt.result)
			t.equal("ask", tt.want, t.text("ask", nil))
			t.equal("input requests", []string{askRecord}, t.inputRequests())
		}
	}},
	{"url elicitation", "2025-11-25", func(t *tour) {
		t.equal("visit", "accept", t.text("visit", nil))
		t.equal("input requests", []string{"visit " + visitURL + ": " + visitMessage}, t.inputRequests())
	}},
	{"sampling", "", func(t *tour) {
		t.equal("sample", "hello by test-model", t.text("sample", nil))
		t.equal("input requests", []string{"sample user up to 50: " + sampleText}, t.inputRequests())
	}},
	{"roots", "", func(t *tour) {
		t.equal("roots", "file:///projects/a Project A, file:///projects/b", t.text("roots", nil))
		t.equal("input requests", []string{"roots"}, t.inputRequests())
	}},
	{"input requests of prompts and resources", "2025-06-18", func(t *tour) {
		t.setResult(ada)
		prompt, err := t.GetPrompt(t.ctx, "asked", nil)
		if err != nil {
			t.Errorf("prompt: %v", err)
		} else {
			t.equal("prompt", "accept Ada 36", blockLine(prompt.Messages[0].Content))
		}
		t.equal("input requests", []string{askRecord}, t.inputRequests())
		if t.quirk("resources cannot send input requests") || !t.serverModern() && t.quirk("resources cannot send input requests to legacy clients") {
			return
		}
		resource, err := t.ReadResource(t.ctx, askedURI)
		if err != nil {
			t.Errorf("resource: %v", err)
		} else {
			t.equal("resource", "accept Ada 36", resource.Contents[0].Text)
		}
		t.equal("input requests", []string{askRecord}, t.inputRequests())
	}},
	{"tasks", latestLegacy, visitTasks},
}

// askRecord is the record of the input request of the tool ask, and ada a response.
const askRecord = "form name:string age:integer: " + askMessage

var ada = mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: json.RawMessage(`{"name":"Ada","age":36}`)}

// setResult sets the response to later elicitation requests.
func (t *tour) setResult(result mcp.ElicitResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.result = result
}

// visitTasks runs tools as tasks, if the peer supports tasks in the revision.
func visitTasks(t *tour) {
	caps := t.Profile().Capabilities
	_, extension := caps.Extensions["io.modelcontextprotocol/tasks"]
	if t.Revision().Modern() && !extension || !t.Revision().Modern() && caps.Tasks == nil {
		if !t.quirk("no tasks in " + t.serverRevision()) {
			t.Error("capability tasks is missing")
		}
		return
	}
	task, err := t.StartTool(t.ctx, "work", map[string]any{"text": "a task", "for_ms": 50})
	if err != nil {
		t.Fatal(err)
	}
	if task.ID() == "" {
		t.Error("work: task id is empty, want a task")
	}
	text, err := client.WaitTask[string](t.ctx, task)
	if err != nil || text != "worked on a task" {
		t.Errorf("work = %q, %v, want %q", text, err, "worked on a task")
	}
	t.equal("state", mcp.TaskStatusCompleted, task.State().Status)

	if task, err = t.StartTool(t.ctx, "work", map[string]any{"text": "a task", "for_ms": 60_000}); err != nil {
		t.Fatal(err)
	}
	if err := task.Cancel(t.ctx); err != nil {
		t.Errorf("cancel: %v", err)
	}
	if _, err := task.Wait(t.ctx); !errors.Is(err, client.ErrTaskCanceled) {
		t.Errorf("wait for a canceled task: error = %v, want %v", err, client.ErrTaskCanceled)
	}

	if t.quirk("tasks cannot send input requests") {
		return
	}
	t.setResult(ada)
	if task, err = t.StartTool(t.ctx, "interview", nil); err != nil {
		t.Fatal(err)
	}
	if text, err := client.WaitTask[string](t.ctx, task); err != nil || text != "accept Ada 36" {
		t.Errorf("interview = %q, %v, want %q", text, err, "accept Ada 36")
	}
	t.equal("input requests", []string{askRecord}, t.inputRequests())
}

var changeStops = []stop{
	{"resource updated", "", func(t *tour) {
		events := make(chan client.Event, 16)
		sub, err := t.ListenFunc(t.ctx, mcp.SubscriptionFilter{ResourceSubscriptions: []string{greetingURI}}, func(e client.Event) { events <- e })
		if err != nil {
			if t.serverModern() && t.quirk("no subscriptions/listen") {
				return
			}
			t.Fatal(err)
		}
		defer sub.Close()
		t.equal("honored", []string{greetingURI}, sub.Accepted().ResourceSubscriptions)
		t.text("touch", map[string]string{"uri": "test://a"}) // no subscription
		t.text("touch", map[string]string{"uri": greetingURI})
		if !t.serverModern() || !t.quirk("changes without subscription id") && !t.quirk("updates without subscription id") {
			t.expect(events, client.Event{Kind: client.ResourceUpdated, URI: greetingURI})
		}
		// No notification may come after Close, which the audit checks.
		sub.Close()
		t.text("touch", map[string]string{"uri": greetingURI})
	}},
	{"list changed", "", func(t *tour) {
		events := make(chan client.Event, 16)
		sub, err := t.ListenFunc(t.ctx, mcp.SubscriptionFilter{ToolsListChanged: true}, func(e client.Event) { events <- e })
		if err != nil {
			t.Fatal(err)
		}
		defer sub.Close()
		if slices.Contains(t.toolNames(), "extra") {
			t.Error("tools have extra before the call of extend")
		}
		t.equal("extend", "extended", t.text("extend", nil))
		// The bridge has one subscription after the other then.
		translated := !t.Revision().Modern() && t.serverModern()
		if !t.serverModern() || !t.quirk("changes without subscription id") && !(translated && t.quirk("one subscription ends the others")) {
			t.expect(events, client.Event{Kind: client.ToolsListChanged})
		}
		t.contains("tools", t.toolNames(), []string{"extra"})
	}},
}

// expect waits for an event.
func (t *tour) expect(events <-chan client.Event, want client.Event) {
	t.Helper()
	t.equal("event", want, t.next(events))
}

// next returns the next event.
func (t *tour) next(events <-chan client.Event) client.Event {
	t.Helper()
	select {
	case e := <-events:
		return e
	case <-t.ctx.Done():
		t.Fatalf("wait for an event: %v", t.ctx.Err())
		return client.Event{}
	}
}

var endStops = []stop{{"crash", "", visitCrash}}

// visitCrash lets the server's process crash. Our client connects to a new one and resubscribes.
func visitCrash(t *tour) {
	events := make(chan client.Event, 16)
	sub, err := t.ListenFunc(t.ctx, mcp.SubscriptionFilter{ToolsListChanged: true}, func(e client.Event) { events <- e })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	_, err = t.CallTool(t.ctx, "crash", nil)
	if t.bridged != nil {
		t.checkBridgedCrash(err, events)
	} else {
		t.checkCrash(err, events)
	}
	t.equal("revision", t.revision, t.Revision().String())
	t.equal("echo", "still here", t.text("echo", map[string]string{"text": "still here"}, client.WithTimeout(10*time.Second)))
}

func (t *tour) checkCrash(err error, events <-chan client.Event) {
	t.Helper()
	// Over HTTP the request fails, not the connection.
	if lost := (*jsonrpc.CallError)(nil); !errors.Is(err, jsonrpc.ErrClosed) && !(errors.As(err, &lost) && lost.Outcome == jsonrpc.OutcomeUnknown) {
		t.Errorf("crash: error = %v, want a lost connection", err)
	}
	late := !t.Revision().Modern() && t.quirk("only POST detects a lost session")
	if late {
		if err := t.Ping(t.ctx); err != nil {
			t.Errorf("ping: %v", err)
		}
	}
	missed := client.Event{Kind: client.ToolsListChanged, Missed: true}
	e := t.next(events)
	for late && e == missed {
		e = t.next(events) // the client reopened the stream of the old session before
	}
	t.equal("event", client.Event{Kind: client.Resubscribed}, e)
	t.expect(events, missed)
}

// checkBridgedCrash checks that the client keeps its connection, and gets an error for the call and
// a list-changed notification.
func (t *tour) checkBridgedCrash(err error, events <-chan client.Event) {
	t.Helper()
	rpcErr := (*jsonrpc.Error)(nil)
	if !errors.As(err, &rpcErr) || rpcErr.Code != jsonrpc.CodeInternalError {
		t.Fatalf("crash: error = %v, want an internal error", err)
	}
	if t.bridged.http {
		if !strings.Contains(rpcErr.Message, "the connection to the server was lost before its response") && !strings.Contains(rpcErr.Message, "the connection to the server ended") {
			t.Errorf("crash: error = %v, want a lost connection", rpcErr)
		}
	} else if status := fmt.Sprintf(`"exitCode":%d`, crashStatus); !strings.Contains(string(rpcErr.Data), status) {
		t.Errorf("crash: error = %v with data %s, want %s in it", rpcErr, rpcErr.Data, status)
	}
	t.expect(events, client.Event{Kind: client.ToolsListChanged})
}
