package server_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"mcpwire/mcp"
	"mcpwire/server"
)

type message = mcp.SamplingMessage

func says(r mcp.Role, blocks ...mcp.ContentBlock) message { return message{Role: r, Content: blocks} }

func use(id string) mcp.ContentBlock {
	return mcp.ToolUseContent{ID: id, Name: "x", Input: json.RawMessage(`{}`)}
}

func toolResult(id string) mcp.ContentBlock {
	return &mcp.ToolResultContent{ToolUseID: id, Content: []mcp.ContentBlock{mcp.TextContent{Text: "r"}}}
}

// TestSamplingRules shows that requests that clients must reject are not sent.
//
// Spec: S164 S165 S166 S167
func TestSamplingRules(t *testing.T) {
	const user, assistant = mcp.RoleUser, mcp.RoleAssistant
	hello := says(user, mcp.TextContent{Text: "hello"})
	conversation := func(m ...message) *mcp.CreateMessageRequestParams {
		return &mcp.CreateMessageRequestParams{MaxTokens: 1, Messages: m}
	}
	with := func(change func(p *mcp.CreateMessageRequestParams)) *mcp.CreateMessageRequestParams {
		p := conversation(hello)
		change(p)
		return p
	}
	for _, tt := range []struct {
		name string
		p    *mcp.CreateMessageRequestParams
		want string // empty if the request is sent
	}{
		{"text", conversation(hello), ""},
		{"all kinds", conversation(says(user, mcp.TextContent{Text: "a"}, mcp.ImageContent{Data: []byte("i"), MIMEType: "image/png"}, &mcp.AudioContent{Data: []byte("a"), MIMEType: "audio/wav"})), ""},
		{"a tool use with its result", conversation(hello, says(assistant, use("1")), says(user, toolResult("1"))), ""},
		{"tool uses with text", conversation(hello, says(assistant, mcp.TextContent{Text: "wait"}, use("1"), use("2")), says(user, toolResult("2"), toolResult("1")), hello), ""},
		{"the same id later", conversation(says(assistant, use("1")), says(user, toolResult("1")), says(assistant, use("1")), says(user, toolResult("1"))), ""},
		{"everything set", with(func(p *mcp.CreateMessageRequestParams) {
			p.IncludeContext, p.Temperature, p.SystemPrompt = "thisServer", new(0.5), "be brief"
			p.Tools = []mcp.Tool{{Name: "x", InputSchema: json.RawMessage(`{"type": "object"}`)}}
			p.ToolChoice = &mcp.ToolChoice{Mode: mcp.ToolChoiceRequired}
		}), ""},

		{"no messages", conversation(), "needs messages"},
		{"no content", conversation(message{Role: user}), "messages[0]: it needs content"},
		{"no role", conversation(says("", mcp.TextContent{Text: "x"})), `messages[0]: role ""`},
		{"another role", conversation(hello, says("system", mcp.TextContent{Text: "x"})), `messages[1]: role "system"`},
		{"no block", conversation(says(user, nil)), "messages[0]: content[0]"},
		{"a link", conversation(says(user, mcp.ResourceLink{URI: "a:b", Name: "n"})), "content[0]: a sampling message has"},
		{"a resource", conversation(says(user, mcp.EmbeddedResource{Resource: mcp.ResourceContents{URI: "a:b"}})), "content[0]: a sampling message has"},
		{"results with a text", conversation(says(assistant, use("1")), says(user, toolResult("1"), mcp.TextContent{Text: "x"})), "messages[1]: a message with tool results"},
		{"a text with results", conversation(says(assistant, use("1")), says(user, mcp.TextContent{Text: "x"}, toolResult("1"))), "messages[1]: a message with tool results"},
		{"no result", conversation(says(assistant, use("1"))), "messages[0]: the tool use \"1\" has no result"},
		{"another message first", conversation(says(assistant, use("1")), hello, says(user, toolResult("1"))), "messages[1]: the tool use \"1\""},
		{"one result of two", conversation(says(assistant, use("1"), use("2")), says(user, toolResult("1"))), "messages[1]: the tool use \"2\""},
		{"a result without a use", conversation(says(user, toolResult("1"))), "messages[0]: the tool result"},
		{"a result of another use", conversation(says(assistant, use("1")), says(user, toolResult("2"))), "messages[1]: the tool result"},
		{"a result twice", conversation(says(assistant, use("1")), says(user, toolResult("1"), toolResult("1"))), "messages[1]: the tool result"},
		{"an id twice", conversation(says(assistant, use("1"), use("1"))), "messages[0]: each tool use needs an id"},
		{"no id", conversation(says(assistant, use("")), says(user, toolResult(""))), "messages[0]: each tool use needs an id"},
		{"a use by the user", conversation(says(user, use("1"))), "messages[0]: tool results have the role user"},
		{"a result by the assistant", conversation(says(assistant, use("1")), says(assistant, toolResult("1"))), "messages[1]: tool results have the role user"},
		{"no tokens", with(func(p *mcp.CreateMessageRequestParams) { p.MaxTokens = 0 }), "maxTokens"},
		{"a task", with(func(p *mcp.CreateMessageRequestParams) { p.Task = &mcp.TaskMetadata{} }), "task"},
		{"temperature", with(func(p *mcp.CreateMessageRequestParams) { p.Temperature = new(math.NaN()) }), "temperature"},
		{"preferences", with(func(p *mcp.CreateMessageRequestParams) {
			p.ModelPreferences = &mcp.ModelPreferences{CostPriority: new(0.0), SpeedPriority: new(1.0), IntelligencePriority: new(0.5)}
		}), ""},
		{"cost", with(func(p *mcp.CreateMessageRequestParams) {
			p.ModelPreferences = &mcp.ModelPreferences{CostPriority: new(math.NaN())}
		}), "modelPreferences"},
		{"speed", with(func(p *mcp.CreateMessageRequestParams) {
			p.ModelPreferences = &mcp.ModelPreferences{SpeedPriority: new(-0.1)}
		}), "modelPreferences"},
		{"intelligence", with(func(p *mcp.CreateMessageRequestParams) {
			p.ModelPreferences = &mcp.ModelPreferences{IntelligencePriority: new(1.1)}
		}), "modelPreferences"},
		{"context", with(func(p *mcp.CreateMessageRequestParams) { p.IncludeContext = "everything" }), "includeContext"},
		{"tool choice", with(func(p *mcp.CreateMessageRequestParams) { p.ToolChoice = &mcp.ToolChoice{Mode: "any"} }), "toolChoice"},
		{"a tool without a name", with(func(p *mcp.CreateMessageRequestParams) {
			p.Tools = []mcp.Tool{{InputSchema: json.RawMessage(`{"type":"object"}`)}}
		}), "tools[0]: it needs a name"},
		{"a tool without a schema", with(func(p *mcp.CreateMessageRequestParams) { p.Tools = []mcp.Tool{{Name: "x"}} }), "tools[0]: input schema"},
		{"an array schema of a tool", with(func(p *mcp.CreateMessageRequestParams) {
			p.Tools = []mcp.Tool{{Name: "x", InputSchema: json.RawMessage(`{"type":"array"}`)}}
		}), "tools[0]: input schema"},
		{"metadata", with(func(p *mcp.CreateMessageRequestParams) { p.Metadata = json.RawMessage(`{`) }), "metadata"},
		{"metadata that is an array", with(func(p *mcp.CreateMessageRequestParams) { p.Metadata = json.RawMessage(`[]`) }), "metadata"},
	} {
		for _, revision := range []string{"2025-11-25", modern} {
			c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
				res, err := c.Sample(c, "k", tt.p)
				if err != nil {
					return "", err
				}
				return res.Model, nil
			}), revision, everything)
			c.answer = fixed(answers)
			got, err := c.tool()
			asked := c.takeAsked()
			if err != nil || tt.want == "" && got != "m" || tt.want != "" && (!strings.HasPrefix(got, `error: sampling/createMessage "k": `) || !strings.Contains(got, tt.want)) ||
				(len(asked) > 0) != (tt.want == "") {
				t.Errorf("%s, %s: got %q, %v; want one with %q; asked %q", revision, tt.name, got, err, tt.want, asked)
			}
		}
	}
}

// TestSamplingContext omits what the client has not declared.
func TestSamplingContext(t *testing.T) {
	for _, tt := range []struct {
		revision, caps string
		sent           bool
	}{
		{"2025-06-18", `{"sampling":{}}`, true}, // clients of this revision declare no details
		{"2025-11-25", `{"sampling":{}}`, false},
		{"2025-11-25", `{"sampling":{"context":{}}}`, true},
		{modern, `{"sampling":{}}`, false},
		{modern, `{"sampling":{"context":{}}}`, true},
	} {
		c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
			p := *sum
			p.IncludeContext = mcp.IncludeContextThisServer
			_, err := c.Sample(c, "k", &p)
			return "done", err
		}), tt.revision, tt.caps)
		c.answer = fixed(answers)
		if got, err := c.tool(); err != nil || got != "done" {
			t.Errorf("%s: %q, %v", tt.revision, got, err)
		}
		if asked := c.takeAsked(); len(asked) != 1 || strings.Contains(asked[0], "thisServer") != tt.sent {
			t.Errorf("%s, %s: %q", tt.revision, tt.caps, asked)
		}
	}
}

// TestSamplingAnswers reads clients' responses to sampling requests.
func TestSamplingAnswers(t *testing.T) {
	for answer, want := range map[string]string{
		four: "4 endTurn",
		`{"role":"assistant","content":[{"type":"text","text":"4"}],"model":"m"}`:                                              "4",
		`{"role":"assistant","content":{"type":"tool_use","id":"1","name":"x","input":{}},"model":"m","stopReason":"toolUse"}`: "use 1 toolUse",
		`{"role":"system","content":{"type":"text","text":"4"},"model":"m"}`:                                                   "!role",
		`{"role":"assistant","model":"m"}`:                                                                                     "!content",
		`{"role":"assistant","content":"4","model":"m"}`:                                                                       "!content",
		`{"role":"assistant","content":{"type":"text","text":"4"}}`:                                                            "!model",
		`{"role":"assistant","content":{"type":"text"},"model":"m"}`:                                                           "!text",
	} {
		for _, revision := range []string{"2025-11-25", modern} {
			c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
				res, err := c.Sample(c, "k", sum)
				if err != nil {
					return "", err
				}
				text := ""
				for _, block := range res.Content {
					switch v := block.(type) {
					case mcp.TextContent:
						text += v.Text
					case mcp.ToolUseContent:
						text += "use " + v.ID
					}
				}
				return strings.TrimSpace(text + " " + string(res.StopReason)), nil
			}), revision, everything)
			c.answer = fixed(map[string]string{"sampling/createMessage": answer})
			got, err := c.tool()
			if err != nil {
				got = "error: " + err.Error()
			}
			if part, bad := strings.CutPrefix(want, "!"); bad && (!strings.HasPrefix(got, "error: ") || !strings.Contains(got, part)) || !bad && got != want {
				t.Errorf("%s, %s: got %q, want %q", revision, answer, got, want)
			}
		}
	}
}

// TestRootsAnswers reads clients' responses to roots/list.
func TestRootsAnswers(t *testing.T) {
	for answer, want := range map[string]string{
		home:               "1",
		`{"roots":[]}`:     "0",
		`{}`:               "!roots",
		`{"roots":[{}]}`:   "!uri",
		`{"roots":"none"}`: "!roots",
	} {
		for _, revision := range allRevisions {
			c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
				roots, err := c.Roots(c, "k")
				return fmt.Sprint(len(roots)), err
			}), revision, `{"roots":{}}`)
			c.answer = fixed(map[string]string{"roots/list": answer})
			got, err := c.tool()
			if err != nil {
				got = "error: " + err.Error()
			}
			if part, bad := strings.CutPrefix(want, "!"); bad && (!strings.HasPrefix(got, "error: ") || !strings.Contains(got, part)) || !bad && got != want {
				t.Errorf("%s, %s: got %q, want %q", revision, answer, got, want)
			}
		}
	}
}
