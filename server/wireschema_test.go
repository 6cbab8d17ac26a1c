package server_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"mcpwire/internal/test/specschema"
	"mcpwire/internal/text/uritemplate"
	"mcpwire/mcp"
)

// resultTypes are the definitions of results by method. The unions of the schemas match any result.
var resultTypes = map[string]string{
	"initialize":           "InitializeResult",
	"server/discover":      "DiscoverResult",
	"tools/list":           "ListToolsResult",
	"tools/call":           "CallToolResult",
	"ping":                 "EmptyResult",
	"logging/setLevel":     "EmptyResult",
	"subscriptions/listen": "SubscriptionsListenResult",

	"resources/list":           "ListResourcesResult",
	"resources/templates/list": "ListResourceTemplatesResult",
	"resources/read":           "ReadResourceResult",
	"resources/subscribe":      "EmptyResult",
	"resources/unsubscribe":    "EmptyResult",
	"prompts/list":             "ListPromptsResult",
	"prompts/get":              "GetPromptResult",
	"completion/complete":      "CompleteResult",
}

var notificationTypes = map[string]string{
	"notifications/progress":                   "ProgressNotification",
	"notifications/message":                    "LoggingMessageNotification",
	"notifications/tools/list_changed":         "ToolListChangedNotification",
	"notifications/resources/list_changed":     "ResourceListChangedNotification",
	"notifications/resources/updated":          "ResourceUpdatedNotification",
	"notifications/prompts/list_changed":       "PromptListChangedNotification",
	"notifications/subscriptions/acknowledged": "SubscriptionsAcknowledgedNotification",
	"notifications/cancelled":                  "CancelledNotification",
	"notifications/elicitation/complete":       "ElicitationCompleteNotification",
}

// requestTypes are the definitions of a server's requests.
var requestTypes = map[string]string{
	"elicitation/create":     "ElicitRequest",
	"sampling/createMessage": "CreateMessageRequest",
	"roots/list":             "ListRootsRequest",
}

// checkTemplate is stricter than the format of package jsonschema, which has no operators.
func checkTemplate(v any) error {
	text, ok := v.(string)
	if !ok {
		return nil
	}
	_, err := uritemplate.Parse(text)
	return err
}

// A checker observes one connection, and validates the server's messages against the schema of
// their revision.
type checker struct {
	t          *testing.T
	sets       map[string]*specschema.Schema
	legacy     bool // the server supports no modern revision
	negotiated string
	asked      map[string]asked // by id
	checked    int
}

type asked struct{ method, revision string }

// envelope is a JSON-RPC message.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Meta map[string]any `json:"_meta"`
	} `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

func (c *checker) observe(sent bool, text string) {
	if !sent && strings.HasPrefix(text, "[") {
		var members []json.RawMessage
		if err := json.Unmarshal([]byte(text), &members); err != nil {
			c.t.Errorf("%v: %s", err, text)
		}
		for _, member := range members {
			c.received(string(member))
		}
		return
	}
	if !sent {
		c.received(text)
		return
	}
	var members []json.RawMessage
	if json.Unmarshal([]byte(text), &members) != nil {
		members = []json.RawMessage{json.RawMessage(text)}
	}
	for _, member := range members {
		var e envelope
		if json.Unmarshal(member, &e) != nil || e.Method == "" || e.ID == nil {
			continue
		}
		revision, _ := e.Params.Meta["io.modelcontextprotocol/protocolVersion"].(string)
		c.asked[string(e.ID)] = asked{e.Method, revision}
	}
}

func (c *checker) received(text string) {
	var e envelope
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		c.t.Errorf("%v: %s", err, text)
	}
	request, ok := c.asked[string(e.ID)]
	if !ok {
		request.method = "ping" // the only request that scripts send without framing
	}
	revision := request.revision
	if c.legacy || c.sets[revision] == nil { // a legacy request, or an unknown revision
		revision = c.negotiated
	}
	if request.method == "initialize" && e.Result != nil {
		var r struct{ ProtocolVersion string }
		json.Unmarshal(e.Result, &r)
		c.negotiated, revision = r.ProtocolVersion, r.ProtocolVersion
	}
	switch {
	case e.Method != "" && e.ID != nil:
		c.check(revision, text, requestTypes[e.Method])
	case e.Method != "":
		if meta := e.Params.Meta; meta["io.modelcontextprotocol/subscriptionId"] != nil || revision == "" {
			revision = "2026-07-28"
		}
		c.check(revision, text, notificationTypes[e.Method])
	case e.Result != nil:
		if revision == "" {
			revision = "2025-11-25" // ping before the handshake
		}
		c.check(revision, text, "JSONRPCResultResponse", "JSONRPCResponse")
		if strings.Contains(string(e.Result), `"resultType":"input_required"`) {
			c.check(revision, string(e.Result), "InputRequiredResult")
			break
		}
		c.check(revision, string(e.Result), resultTypes[request.method])
	case string(e.ID) == "null": // valid JSON-RPC, but in no MCP schema
	case e.Error != nil:
		if revision == "" {
			revision = "2025-11-25"
		}
		c.check(revision, text, "JSONRPCErrorResponse", "JSONRPCError")
		if strings.Contains(string(e.Error), `"code":-32022,`) {
			c.check("2026-07-28", text, "UnsupportedProtocolVersionError")
		}
	default:
		c.t.Errorf("neither a notification nor a response: %s", text)
	}
}

func (c *checker) check(revision, text string, names ...string) {
	c.checked++
	if names[0] == "" {
		c.t.Errorf("no definition is known for %s", text)
		return
	}
	if !c.sets[revision].CheckFirst(c.t, text, names...) {
		c.t.Errorf("none of %v is defined", names)
	}
}

// TestSchemas validates all of the server's messages in the transcripts against the specification's
// schemas.
func TestSchemas(t *testing.T) {
	sets := map[string]*specschema.Schema{}
	for _, revision := range append(legacyRevisions(), "2026-07-28") {
		sets[revision] = specschema.Open(t, revision, map[string]func(any) error{"uri-template": checkTemplate})
	}
	total := 0
	for _, s := range scripts(t) {
		framing := s.framing
		if framing == "" {
			framing = "line"
		}
		runScripts(t, s, func(t *testing.T, revision string) *scriptRun {
			spoken := s.options.Revisions
			c := &checker{t: t, sets: sets, asked: map[string]asked{}, legacy: s.speaksOne || spoken != nil && !slices.Contains(spoken, mcp.LatestRevision)}
			t.Cleanup(func() { total += c.checked })
			return &scriptRun{script: s, revision: revision, framing: framing, open: openNetPipe, bubble: true, observe: c.observe}
		})
	}
	if total < 500 {
		t.Errorf("only %d checks were made", total)
	}
}
