package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/mcptest"
)

// connect returns a client of the fixtures that knows an answer to everything.
func connect(t *testing.T, r mcp.Revision) *client.Client {
	t.Helper()
	srv, err := newServer(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return mcptest.Connect(t, srv, &client.Options{
		Revisions: []mcp.Revision{r},
		Input: client.InputOptions{
			Elicit: fillOut,
			Sample: func(context.Context, *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
				return &mcp.CreateMessageResult{Role: mcp.RoleAssistant, Model: "m", Content: mcp.SamplingContent{mcp.TextContent{Text: "Paris"}}}, nil
			},
			Roots: func(context.Context) ([]mcp.Root, error) { return []mcp.Root{{URI: "file:///work"}}, nil },
		},
		Tasks: true,
	})
}

// fillOut fills in the fields that a form has.
func fillOut(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	var form struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(p.RequestedSchema, &form); err != nil {
		return nil, err
	}
	answers := map[string]any{
		"name": "Alice", "context": "a test", "color": "green", "username": "testuser", "email": "test@example.com", "confirm": true, "ok": true,
		"untitledSingle": "option1", "titledSingle": "value1", "legacyEnum": "opt1", "untitledMulti": []string{"option1"}, "titledMulti": []string{"value2"},
	}
	content := make(map[string]any)
	for name := range form.Properties {
		if a, ok := answers[name]; ok {
			content[name] = a
		}
	}
	text, err := json.Marshal(content)
	return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: text}, err
}

// inEachEra runs a test with a client of the newest revision of each era, in a bubble.
func inEachEra(t *testing.T, test func(t *testing.T, c *client.Client)) {
	for _, r := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		t.Run(r.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, connect(t, r)) })
		})
	}
}

func TestTools(t *testing.T) {
	inEachEra(t, func(t *testing.T, c *client.Client) {
		for _, tt := range []struct{ tool, args, want string }{
			{"test_simple_text", `{}`, "This is a simple text response for testing."},
			{"test_tool_with_logging", `{}`, "Three messages were logged."},
			{"test_logging_tool", `{}`, "A message was logged."},
			{"test_missing_capability", `{}`, "The client can be asked for sampling."},
			{"test_x_mcp_header", `{"region":"r"}`, `test_x_mcp_header was called with {"region":"r"}`},
			{"json_schema_2020_12_tool", `{"phone":"1","contactMethod":"phone"}`, `json_schema_2020_12_tool was called with {"phone":"1","contactMethod":"phone"}`},
			{"test_sampling", `{"prompt":"p"}`, "LLM response: Paris"},
			{"test_elicitation", `{"message":"m"}`, `Elicitation completed: action=accept, content={"email":"test@example.com","username":"testuser"}`},
			{"test_elicitation_sep1034_defaults", `{}`, `Elicitation completed: action=accept, content={"name":"Alice"}`},
			{"test_elicitation_sep1330_enums", `{}`, `Elicitation completed: action=accept, content={"legacyEnum":"opt1","titledMulti":["value2"],"titledSingle":"value1","untitledMulti":["option1"],"untitledSingle":"option1"}`},
			{"test_reconnection", `{}`, "Reconnection test completed successfully."},
			{"test_input_required_result_elicitation", `{}`, "Hello, Alice!"},
			{"test_input_required_result_sampling", `{}`, "LLM response: Paris"},
			{"test_input_required_result_list_roots", `{}`, "1 roots file:///work"},
			{"test_input_required_result_request_state", `{}`, "state-ok"},
			{"test_input_required_result_multiple_inputs", `{}`, "Alice: Paris; 1 roots file:///work"},
			{"test_input_required_result_multi_round", `{}`, "Alice likes green"},
			{"test_input_required_result_capabilities", `{}`, "Asked what could be asked."},
			{"greet", `{"name":"World"}`, "Hello, World!"},
			{"slow_compute", `{"seconds":0,"label":"l"}`, `Computed "l" in 0 s.`},
			{"slow_compute", `{"seconds":2}`, `Computed "" in 2 s.`},
			{"confirm_delete", `{"filename":"f"}`, "f would be gone now."},
			{"multi_input", `{}`, "Alice is sure: true"},
			{"test_tool_with_task", `{}`, "Hello at last, Alice!"},
		} {
			task, err := c.StartTool(t.Context(), tt.tool, json.RawMessage(tt.args))
			if err != nil {
				t.Errorf("%s: %v", tt.tool, err)
				continue
			}
			got, err := client.WaitTask[string](t.Context(), task)
			if err != nil || got != tt.want {
				t.Errorf("%s: got %q, %v, want %q", tt.tool, got, err, tt.want)
			}
		}
	})
}

func TestFailures(t *testing.T) {
	inEachEra(t, func(t *testing.T, c *client.Client) {
		if res, err := c.CallTool(t.Context(), "test_error_handling", nil); err != nil || !res.IsError {
			t.Errorf("test_error_handling: got %+v, %v", res, err)
		}
		job := func(name string) (*mcp.CallToolResult, error) {
			task, err := c.StartTool(t.Context(), name, nil)
			if err != nil {
				t.Fatal(err)
			}
			return task.Wait(t.Context())
		}
		if res, err := job("failing_job"); err != nil || !res.IsError {
			t.Errorf("failing_job: got %+v, %v", res, err)
		}
		if res, err := job("protocol_error_job"); !client.IsPeer(err) {
			t.Errorf("protocol_error_job: got %+v, %v", res, err)
		}
	})
}

// What becomes of a task, or does not, is a matter of time.
func TestBecomesTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := connect(t, mcp.LatestRevision)
		for tool, want := range map[string]bool{
			`greet {"name":"x"}`: false, `slow_compute {"seconds":0}`: false, `slow_compute {"seconds":1}`: true, `failing_job {}`: true,
			`protocol_error_job {}`: true, `confirm_delete {"filename":"x"}`: true, `multi_input {}`: true, `test_tool_with_task {}`: true,
		} {
			name, args, _ := strings.Cut(tool, " ")
			task, err := c.StartTool(t.Context(), name, json.RawMessage(args))
			if err != nil {
				t.Errorf("%s: %v", tool, err)
			} else if got := task.ID() != ""; got != want {
				t.Errorf("%s: became a task: %t, want %t", tool, got, want)
			}
		}
	})
}

func TestSignals(t *testing.T) {
	inEachEra(t, func(t *testing.T, c *client.Client) {
		var progress []float64
		var logged []string
		opts := []client.CallOption{
			client.WithProgress(func(p mcp.ProgressNotificationParams) { progress = append(progress, p.Progress) }),
			client.WithLog(mcp.LevelDebug, func(p mcp.LoggingMessageNotificationParams) { logged = append(logged, string(p.Data)) }),
		}
		for _, tool := range []string{"test_tool_with_progress", "test_tool_with_logging"} {
			if _, err := c.CallTool(t.Context(), tool, nil, opts...); err != nil {
				t.Error(err)
			}
		}
		if len(progress) != 3 || progress[0] != 0 || progress[1] != 50 || progress[2] != 100 {
			t.Errorf("progress %v, want 0, 50 and 100", progress)
		}
		if c.Revision().Modern() && len(logged) != 3 {
			t.Errorf("logged %q, want three messages", logged)
		}
	})
}

func TestChanges(t *testing.T) {
	inEachEra(t, func(t *testing.T, c *client.Client) {
		s, err := c.Listen(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true, PromptsListChanged: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for tool, want := range map[string]client.EventKind{
			"test_trigger_tool_change": client.ToolsListChanged, "test_trigger_prompt_change": client.PromptsListChanged,
		} {
			if _, err := c.CallTool(t.Context(), tool, nil); err != nil {
				t.Fatal(err)
			}
			said := false
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			for e, err := range s.Events(ctx) {
				if said = err == nil && e.Kind == want; said || err != nil {
					break
				}
			}
			cancel()
			if !said {
				t.Errorf("nothing was told after %s", tool)
			}
		}
	})
}

// The suite looks at first pages only, wants a description of each tool, and calls the first one
// without arguments.
func TestLists(t *testing.T) {
	inEachEra(t, func(t *testing.T, c *client.Client) {
		list, err := c.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if list.NextCursor != nil {
			t.Error("the tools have a second page")
		}
		for _, tool := range list.Tools {
			if tool.Description == "" {
				t.Errorf("tool %s has no description", tool.Name)
			}
		}
		if _, err := c.CallTool(t.Context(), list.Tools[0].Name, struct{}{}); err != nil {
			t.Errorf("the first tool: %v", err)
		}
	})
}

func TestResources(t *testing.T) {
	inEachEra(t, func(t *testing.T, c *client.Client) {
		for uri, want := range map[string]string{
			"test://static-text":       "This is the content of the static text resource.",
			"test://template/123/data": `{"data":"Data for ID: 123","id":"123","templateTest":true}`,
			"test://watched-resource":  "Watched resource content",
			"test://static-binary":     "",
		} {
			res, err := c.ReadResource(t.Context(), uri)
			if err != nil {
				t.Errorf("%s: %v", uri, err)
				continue
			}
			if got := res.Contents[0]; got.Text != want || (want == "") != (got.Blob != nil) || got.MIMEType == "" {
				t.Errorf("%s: got %+v", uri, got)
			}
		}
		if _, err := c.ReadResource(t.Context(), "test://nonexistent"); !client.IsNotFound(err) {
			t.Errorf("got %v for what does not exist", err)
		}
	})
}

func TestPrompts(t *testing.T) {
	inEachEra(t, func(t *testing.T, c *client.Client) {
		for _, tt := range []struct {
			name string
			args map[string]string
			want string
		}{
			{"test_simple_prompt", nil, "This is a simple prompt for testing."},
			{"test_prompt_with_arguments", map[string]string{"arg1": "v1", "arg2": "v2"}, "Prompt with arguments: arg1='v1', arg2='v2'"},
			{"test_prompt_with_embedded_resource", map[string]string{"resourceUri": "test://x"}, "Please process the embedded resource above."},
			{"test_prompt_with_image", nil, "Please analyze the image above."},
			{"test_input_required_result_prompt", nil, "Use this context: a test"},
		} {
			p, err := c.Prompt(t.Context(), tt.name, tt.args)
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
				continue
			}
			last := p.Messages[len(p.Messages)-1].Content
			if got, ok := last.(mcp.TextContent); !ok || got.Text != tt.want {
				t.Errorf("%s: got %+v, want %q", tt.name, last, tt.want)
			}
		}
	})
}

// A client that has declared nothing is refused by what needs it.
func TestUndeclared(t *testing.T) {
	srv, err := newServer(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := mcptest.Connect(t, srv, &client.Options{Revisions: []mcp.Revision{mcp.LatestRevision}})
	for tool, want := range map[string]string{
		"test_missing_capability": `{"requiredCapabilities":{"sampling":{}}}`,
		"failing_job":             `{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`,
	} {
		_, err := c.CallTool(t.Context(), tool, nil)
		e := jsonrpc.ErrorOf(err)
		if e == nil || e.Code != mcp.CodeMissingRequiredClientCapability || string(e.Data) != want {
			t.Errorf("%s: got %v", tool, err)
		}
	}
	if got, err := client.CallTool[string](t.Context(), c, "slow_compute", map[string]int{"seconds": 0}); err != nil || got == "" {
		t.Errorf("slow_compute: got %q, %v", got, err)
	}
}
