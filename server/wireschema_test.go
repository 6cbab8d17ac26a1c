package server_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"mcpwire/internal/text/uritemplate"
	"mcpwire/mcp"
)

// specDir has the specification's schema.json of each revision, next to the repository but not part
// of it.
const specDir = "../../shared/spec"

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

// A schemaSet is the schema.json of one revision.
type schemaSet struct {
	compiler *jsonschema.Compiler
	defs     string // name of the member with the definitions
	names    map[string]any
}

func openSchemas(t *testing.T, revision string) *schemaSet {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(specDir, revision, "schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	s := &schemaSet{compiler: jsonschema.NewCompiler()}
	// the module's own format has no operators
	s.compiler.RegisterFormat(&jsonschema.Format{Name: "uri-template", Validate: checkTemplate})
	if err := s.compiler.AddResource("urn:mcp", doc); err != nil {
		t.Fatal(err)
	}
	for _, s.defs = range []string{"$defs", "definitions"} {
		if s.names, _ = doc.(map[string]any)[s.defs].(map[string]any); s.names != nil {
			return s
		}
	}
	t.Fatalf("%s: no definitions", revision)
	return nil
}

func checkTemplate(v any) error {
	text, ok := v.(string)
	if !ok {
		return nil
	}
	_, err := uritemplate.Parse(text)
	return err
}

// check validates a value against the first of the definitions that the revision has.
func (s *schemaSet) check(t *testing.T, value any, names ...string) {
	t.Helper()
	for _, name := range names {
		if s.names[name] == nil {
			continue
		}
		schema, err := s.compiler.Compile("urn:mcp#/" + s.defs + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(value); err != nil {
			text, _ := json.Marshal(value)
			t.Errorf("%s: %v\n%s", name, err, text)
		}
		return
	}
	t.Errorf("none of %v is defined", names)
}

// A checker observes one connection, and validates the server's messages against the schema of
// their revision.
type checker struct {
	t          *testing.T
	sets       map[string]*schemaSet
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
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		c.t.Errorf("%v: %s", err, text)
		return
	}
	c.sets[revision].check(c.t, value, names...)
}

// TestSchemas validates all of the server's messages in the transcripts against the specification's
// schemas.
func TestSchemas(t *testing.T) {
	if _, err := os.Stat(specDir); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the specification's schemas are not there: no %s", specDir)
	}
	sets := map[string]*schemaSet{}
	for _, revision := range append(legacyRevisions(), "2026-07-28") {
		sets[revision] = openSchemas(t, revision)
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
