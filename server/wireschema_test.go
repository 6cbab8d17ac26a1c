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

// specDir holds the specification's schema.json of each revision, beside the repository. It is not
// part of it.
const specDir = "../../shared/spec"

// resultTypes are the definitions of results by method. The schemas' own unions match anything.
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
	defs     string // where the definitions are
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
	s.compiler.RegisterFormat(&jsonschema.Format{Name: "uri-template", Validate: checkTemplate}) // the module's own knows no operators
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

// check holds a value against the first of the definitions that the revision has.
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

// A checker follows one connection, and holds what the server says against the schema of the
// revision it says it in.
type checker struct {
	t          *testing.T
	sets       map[string]*schemaSet
	legacy     bool // the server speaks nothing else
	negotiated string
	asked      map[string]asked // by the id's text
	checked    int
}

type asked struct{ method, revision string }

// envelope is a message as the checker sees it.
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
	if c.legacy || c.sets[revision] == nil { // a legacy request, or one of a revision that does not exist
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
	case string(e.ID) == "null": // as JSON-RPC has it, and no schema of MCP does
	case e.Error != nil:
		if revision == "" {
			revision = "2025-11-25"
		}
		c.check(revision, text, "JSONRPCErrorResponse", "JSONRPCError")
		if strings.Contains(string(e.Error), `"code":-32022,`) {
			c.check("2026-07-28", text, "UnsupportedProtocolVersionError")
		}
	default:
		c.t.Errorf("neither a notification nor an answer: %s", text)
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

// TestSchemas checks everything that the server says in the transcripts against the specification's
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
		runScripts(t, s, func(t *testing.T, revision string) *play {
			spoken := s.options.Revisions
			c := &checker{t: t, sets: sets, asked: map[string]asked{}, legacy: s.speaksOne || spoken != nil && !slices.Contains(spoken, mcp.LatestRevision)}
			t.Cleanup(func() { total += c.checked })
			return &play{script: s, revision: revision, framing: framing, open: openNetPipe, bubble: true, observe: c.observe}
		})
	}
	if total < 500 {
		t.Errorf("only %d checks were made", total)
	}
}
