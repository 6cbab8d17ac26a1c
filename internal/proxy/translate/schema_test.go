package translate_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"mcpwire/internal/proxy/translate"
	"mcpwire/internal/test/specschema"
	"mcpwire/mcp"
)

var resultTypes = map[string]string{
	"initialize": "InitializeResult", "server/discover": "DiscoverResult", "ping": "EmptyResult", "logging/setLevel": "EmptyResult",
	"tools/list": "ListToolsResult", "tools/call": "CallToolResult", "subscriptions/listen": "SubscriptionsListenResult",
	"resources/list": "ListResourcesResult", "resources/templates/list": "ListResourceTemplatesResult", "resources/read": "ReadResourceResult",
	"resources/subscribe": "EmptyResult", "resources/unsubscribe": "EmptyResult", "prompts/list": "ListPromptsResult", "prompts/get": "GetPromptResult",
	"completion/complete": "CompleteResult", "tasks/get": "GetTaskResult", "tasks/cancel": "CancelTaskResult", "tasks/result": "CallToolResult",
	"elicitation/create": "ElicitResult", "sampling/createMessage": "CreateMessageResult", "roots/list": "ListRootsResult",
}

// messageTypes are the definitions of requests and notifications.
var messageTypes = map[string]string{
	"initialize": "InitializeRequest", "server/discover": "DiscoverRequest", "ping": "PingRequest", "logging/setLevel": "SetLevelRequest",
	"tools/list": "ListToolsRequest", "tools/call": "CallToolRequest", "subscriptions/listen": "SubscriptionsListenRequest",
	"resources/list": "ListResourcesRequest", "resources/templates/list": "ListResourceTemplatesRequest", "resources/read": "ReadResourceRequest",
	"resources/subscribe": "SubscribeRequest", "resources/unsubscribe": "UnsubscribeRequest", "prompts/list": "ListPromptsRequest", "prompts/get": "GetPromptRequest",
	"completion/complete": "CompleteRequest", "tasks/get": "GetTaskRequest", "tasks/cancel": "CancelTaskRequest", "tasks/result": "GetTaskPayloadRequest",
	"elicitation/create": "ElicitRequest", "sampling/createMessage": "CreateMessageRequest", "roots/list": "ListRootsRequest",

	"notifications/initialized": "InitializedNotification", "notifications/progress": "ProgressNotification", "notifications/message": "LoggingMessageNotification",
	"notifications/tools/list_changed": "ToolListChangedNotification", "notifications/resources/list_changed": "ResourceListChangedNotification",
	"notifications/resources/updated": "ResourceUpdatedNotification", "notifications/prompts/list_changed": "PromptListChangedNotification",
	"notifications/subscriptions/acknowledged": "SubscriptionsAcknowledgedNotification", "notifications/cancelled": "CancelledNotification",
	"notifications/elicitation/complete": "ElicitationCompleteNotification", "notifications/tasks/status": "TaskStatusNotification",
	"notifications/roots/list_changed": "RootsListChangedNotification",
}

// openSchemas returns the schemas by revision, or nil if the specification is missing.
func openSchemas(t testing.TB) map[string]*specschema.Schema {
	t.Helper()
	if _, ok := specschema.Find(); !ok {
		return nil
	}
	sets := map[string]*specschema.Schema{}
	for _, r := range mcp.Revisions() {
		sets[r.String()] = specschema.Open(t, r.String(), map[string]func(any) error{"uri-template": func(any) error { return nil }})
	}
	return sets
}

// A checker validates a translator's messages to each side with the schema of the revision there.
type checker struct {
	t    testing.TB
	sets map[string]*specschema.Schema
	mu   sync.Mutex
	// revs has the revision of each side.
	revs [3]string
	// methods has, for the side to which requests were sent, the methods of pending requests by id.
	methods [3]map[string]string
	// n counts the checks.
	n int
}

func newChecker(t testing.TB, sets map[string]*specschema.Schema, modern bool) *checker {
	c := &checker{t: t, sets: sets}
	c.methods = [3]map[string]string{{}, {}, {}}
	c.revs[translate.Downstream], c.revs[translate.Upstream] = "2025-11-25", "2026-07-28"
	if modern {
		c.revs[translate.Downstream], c.revs[translate.Upstream] = "2026-07-28", "2025-11-25"
	}
	return c
}

type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// observe checks a message of the translator, or an incoming message if in is set.
func (c *checker) observe(o translate.Out, in string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text, out := in, false
	if in == "" {
		text, out = string(o.Message), true
	}
	if text == "" || o.To == translate.Dropped {
		return
	}
	var members []json.RawMessage
	if strings.HasPrefix(text, "[") && json.Unmarshal([]byte(text), &members) == nil {
		for _, m := range members {
			c.message(o.To, string(m), out)
		}
		return
	}
	c.message(o.To, text, out)
}

func (c *checker) message(side translate.Side, text string, out bool) {
	var e envelope
	if json.Unmarshal([]byte(text), &e) != nil {
		if out {
			c.t.Errorf("got %s, want a message", text)
		}
		return
	}
	if e.Method != "" && e.ID != nil {
		key := string(e.ID)
		if !out {
			key = "in" + key
		}
		c.methods[side][key] = e.Method
	}
	if e.Result != nil {
		key := "in" + string(e.ID)
		if !out {
			key = string(e.ID)
		}
		method := c.methods[side][key]
		delete(c.methods[side], key)
		if method == "initialize" {
			var r struct{ ProtocolVersion string }
			json.Unmarshal(e.Result, &r)
			if c.sets[r.ProtocolVersion] != nil {
				c.revs[side] = r.ProtocolVersion
			}
		}
		if out {
			c.result(side, method, string(e.Result))
			c.check(side, text, "JSONRPCResultResponse", "JSONRPCResponse")
		}
		return
	}
	switch {
	case !out:
	case e.Method != "":
		if name := messageTypes[e.Method]; name != "" && c.sets[c.revs[side]].Defs[name] != nil {
			c.check(side, text, name)
		}
	case e.Error != nil && string(e.ID) != "null" && e.ID != nil:
		c.check(side, text, "JSONRPCErrorResponse", "JSONRPCError")
	}
}

func (c *checker) result(side translate.Side, method, text string) {
	switch {
	case strings.Contains(text, `"resultType":"input_required"`):
		c.check(side, text, "InputRequiredResult")
	case strings.Contains(text, `"resultType":"task"`):
	case strings.HasPrefix(text, `{"task":{`):
		c.check(side, text, "CreateTaskResult")
	case resultTypes[method] != "" && c.sets[c.revs[side]].Defs[resultTypes[method]] != nil:
		c.check(side, text, resultTypes[method])
	}
}

func (c *checker) check(side translate.Side, text string, names ...string) {
	if c.sets[c.revs[side]].CheckFirst(c.t, text, names...) {
		c.n++
	}
}

// TestSchemas checks all messages in the transcripts against the specification's schemas.
func TestSchemas(t *testing.T) {
	specschema.Dir(t) // skips the test if it is missing
	sets := openSchemas(t)
	total := 0
	for _, s := range transcripts(t) {
		if strings.HasPrefix(s.name, "hostile") { // errors of peers are forwarded
			continue
		}
		t.Run(filepath.Base(s.file)+"/"+s.name, func(t *testing.T) {
			modern := false
			for _, line := range s.lines {
				modern = modern || line == "@modern"
			}
			c := newChecker(t, sets, modern)
			p := &player{observe: c.observe}
			p.play(s.lines)
			total += c.n
		})
	}
	if total < 20 {
		t.Errorf("got only %d checks", total)
	}
}
