package interop

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/stdio"
)

// agentTools are the tools of mcpwire mcp without --allow-calls.
var agentTools = []string{"captures", "check_capture", "check_server", "diff", "doctor", "exchange", "exchanges", "list", "servers", "spec", "stats"}

// maxAgentResult limits a result, in bytes: a page of 16 KiB, a note on standard error, and the
// line that names the next page.
const maxAgentResult = 18 << 10

// recordedCalls is the number of calls in the capture of agentHome. It exceeds the lines of a page.
const recordedCalls = 230

// agentHome returns the environment of a user whose host has a server configured. A capture of the
// server contains calls with secrets.
func agentHome(t *testing.T) []string {
	t.Helper()
	home := t.TempDir()
	env := []string{"HOME=" + home, "MCPWIRE_HOME=" + filepath.Join(home, "state"), "XDG_CONFIG_HOME=", "CLAUDE_CONFIG_DIR="}
	config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"demo": map[string]any{
		"command": serverCommand[0], "args": []string{"serve"}, "env": map[string]string{"SERVICE_API_KEY": plantedEnv},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(home, ".cursor"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".cursor", "mcp.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}

	tap := stdio.Command(serverCommand[0], "tap", "--name", "demo", "--", serverCommand[0], "serve")
	tap.Env = env
	c, err := client.Dial(t.Context(), tap, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range recordedCalls {
		if _, err := c.CallTool(t.Context(), "echo", map[string]any{"text": fmt.Sprint("call ", i)}); err != nil {
			t.Fatal(err)
		}
	}
	writeSecrets(t, c)
	if _, err := c.CallTool(t.Context(), "fail", map[string]any{"message": "out of paper"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return env
}

// newAgentServer returns mcpwire mcp in an environment. The SDKs pass few variables to a server, so
// the program env sets them.
func newAgentServer(t *testing.T, env []string, flags ...string) *recordedServer {
	t.Helper()
	return newCommand(t, slices.Concat([]string{"env"}, env, []string{serverCommand[0], "mcp"}, flags)...)
}

// An agentStep is a call of an agent, with the expected result.
type agentStep struct {
	step
	// has are strings that the text must contain, lacks those that it must not contain.
	has, lacks []string
	isError    bool
	// lines limits the lines of the text. Zero means no limit.
	lines int
}

func agentCall(tool string, args map[string]any, has ...string) agentStep {
	return agentStep{step: step{Tool: tool, Args: args}, has: has}
}

// agentSession returns the calls of an agent that debugs a server.
func agentSession(allowCalls bool) []agentStep {
	none := map[string]any{}
	demo := map[string]any{"server": "demo"}
	first := agentCall("exchanges", map[string]any{"capture": "demo"}, "called echo", "more lines; the next page has offset 200)")
	first.lines = 201
	second := agentCall("exchanges", map[string]any{"capture": "demo", "offset": 200}, "called echo", "called fail", "exited with code 0")
	second.lacks = []string{"more lines"}
	steps := []agentStep{
		agentCall("captures", none, "demo", "stdio", "closed"),
		first,
		second,
		agentCall("exchanges", map[string]any{"capture": "demo", "filter": "status:iserror"}, "called fail"),
		agentCall("exchanges", map[string]any{"capture": "demo", "filter": "-status:ok"}, "called fail"),
		agentCall("exchanges", map[string]any{"capture": "demo", "filter": `"Authorization"`}, "called echo"),
		agentCall("exchange", map[string]any{"capture": "demo", "number": 10}, `"method": "tools/call"`, `"name": "echo"`, "modern 2026-07-28"),
		agentCall("stats", none, "echo", "fail"),
		agentCall("stats", map[string]any{"by": "method"}, "tools/call"),
		agentCall("check_capture", map[string]any{"capture": "demo"}, "events"),
		agentCall("spec", map[string]any{"term": "-32021"}, "MissingRequiredClientCapability"),
		agentCall("servers", none, "cursor", "demo", "serve"),
		agentCall("list", demo, "word_count(text: string)", "demo://about"),
		agentCall("list", map[string]any{"server": "demo", "kind": "tools", "names": []string{"add"}}, "Add two integers"),
		agentCall("doctor", map[string]any{"server": "cursor:demo", "quick": true}, "Result: healthy"),
		agentCall("check_server", demo, "no findings in"),
		agentCall("diff", map[string]any{"before": "live:demo", "after": "live:demo"}, "no differences"),
	}
	for _, invalid := range []agentStep{
		agentCall("exchanges", map[string]any{"capture": "../demo"}, "is not the name of a capture", "captures"),
		agentCall("exchanges", map[string]any{"capture": "demo", "offset": -1}, "offset"),
		agentCall("exchange", map[string]any{"capture": "demo", "number": 0}, "number"),
		agentCall("exchange", map[string]any{"capture": "demo", "number": 100000}, "100000"),
		agentCall("stats", map[string]any{"by": "weekday"}, "by", `"tool"`, `"method"`),
		agentCall("list", map[string]any{"server": "demo", "kind": "toys"}, "kind", `"templates"`),
		agentCall("doctor", map[string]any{"server": "no-such-server"}, "no host has configured", "servers"),
		agentCall("doctor", none, "server"),
		agentCall("spec", map[string]any{"term": "no/such"}, "no/such"),
	} {
		invalid.isError = true
		steps = append(steps, invalid)
	}
	add := agentCall("call", map[string]any{"server": "demo", "tool": "add", "arguments": map[string]any{"a": 2, "b": 40}}, "42", "recorded: ", "capture:demo")
	if allowCalls {
		failed := agentCall("call", map[string]any{"server": "demo", "tool": "fail", "arguments": map[string]any{"message": "no luck"}}, "no luck")
		failed.isError = true
		// Without a capture, exchanges reads the newest one, that of the call.
		found := agentCall("exchanges", map[string]any{"filter": "tool:add"}, "called add")
		steps = append(steps, add, found, failed)
	}
	for i := range steps {
		steps[i].Name = fmt.Sprint(i, " ", steps[i].Tool)
	}
	return steps
}

// check compares the outcome of a step.
func (s agentStep) check(t *testing.T, o outcome) {
	t.Helper()
	args, err := json.Marshal(s.Args)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("%s %s", s.Tool, args)
	if o.IsError != s.isError || o.Code != 0 {
		t.Errorf("%s: isError = %t, code = %d %q, want isError %t\n%.500s", name, o.IsError, o.Code, o.Message, s.isError, o.Text)
	}
	for _, part := range s.has {
		if !strings.Contains(o.Text, part) {
			t.Errorf("%s: text lacks %q: %.1000s", name, part, o.Text)
		}
	}
	for _, part := range append(slices.Clone(s.lacks), "planted", "\x1b") {
		if strings.Contains(o.Text, part) {
			t.Errorf("%s: text contains %q: %.1000s", name, part, o.Text)
		}
	}
	if len(o.Text) > maxAgentResult {
		t.Errorf("%s: result has %d bytes, want at most %d", name, len(o.Text), maxAgentResult)
	}
	if n := strings.Count(o.Text, "\n"); s.lines > 0 && n > s.lines {
		t.Errorf("%s: result has %d lines, want at most %d", name, n, s.lines)
	}
}

// TestAgentTypeScript calls the tools of mcpwire mcp with the TypeScript SDKs.
func TestAgentTypeScript(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		mode         any
		allowCalls   bool
		processes    int
	}{
		{"1.x", "v1.mjs", nil, false, 1},
		{"1.x with calls", "v1.mjs", nil, true, 1},
		{"2.x modern with calls", "v2.mjs", map[string]string{"pin": modern}, true, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var flags []string
			var deviations []deviation
			want := agentTools
			if tt.allowCalls {
				flags, want = []string{"--allow-calls"}, sorted(append(slices.Clone(agentTools), "call"))
			}
			s := newAgentServer(t, agentHome(t), flags...)
			steps := agentSession(tt.allowCalls)
			var script []step
			for _, a := range steps {
				script = append(script, a.step)
			}
			if !tt.allowCalls {
				deviations = []deviation{{rule: "check: tools/unknown", has: `"call" is not in the server's list`, why: "the test makes the host call it"}}
				script = append(script, step{Name: "unavailable", Tool: "call", Args: map[string]any{"server": "demo", "tool": "add"}})
			}
			r := runSteps(t, s, tt.script, tt.mode, script)
			if r.Failure != "" {
				t.Errorf("session failed: %s", r.Failure)
			}
			if diff := cmp.Diff(want, sorted(r.Tools)); diff != "" {
				t.Errorf("tools (-want +got):\n%s", diff)
			}
			for _, a := range steps {
				a.check(t, r.Outcomes[a.Name])
			}
			if o := r.Outcomes["unavailable"]; !tt.allowCalls && (o.Code != -32602 || !strings.Contains(o.Message, "call")) {
				t.Errorf("call without --allow-calls = %+v, want error -32602", o)
			}
			s.audit(tt.processes, deviations...)
		})
	}
}

// TestAgentInspector calls the tools of mcpwire mcp with Inspector, each call in its own process.
func TestAgentInspector(t *testing.T) {
	env := agentHome(t)
	for _, era := range pinnedEras {
		t.Run("list "+era.name, func(t *testing.T) {
			t.Parallel()
			s := newAgentServer(t, env, "--allow-calls")
			status, out := inspect(t, s, era.name, "--method", "tools/list", "--strict")
			if status != 0 {
				t.Fatalf("status = %d, want 0: %s", status, out)
			}
			var got struct {
				Result struct {
					Tools []struct {
						Name, Description string
						InputSchema       struct {
							Properties map[string]struct{ Description string }
						}
						Annotations struct{ ReadOnlyHint, OpenWorldHint, DestructiveHint *bool }
					}
				}
			}
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatalf("decode result: %v in %q", err, out)
			}
			var names []string
			for _, tool := range got.Result.Tools {
				names = append(names, tool.Name)
				if a := tool.Annotations; a.ReadOnlyHint == nil || *a.ReadOnlyHint != (tool.Name != "call") || a.OpenWorldHint == nil {
					t.Errorf("%s: annotations = %+v", tool.Name, a)
				}
				for name, p := range tool.InputSchema.Properties {
					if p.Description == "" || strings.Contains(p.Description, "=") {
						t.Errorf("%s: description of the input %s = %q", tool.Name, name, p.Description)
					}
				}
			}
			if diff := cmp.Diff(sorted(append(slices.Clone(agentTools), "call")), sorted(names)); diff != "" {
				t.Errorf("tools (-want +got):\n%s", diff)
			}
			// A model reads the definitions before its first call.
			if limit := 8 << 10; len(out) > limit {
				t.Errorf("definitions have %d bytes, want at most %d", len(out), limit)
			}
			s.audit(1)
		})
	}
	// Some of the calls are enough: TestAgentTypeScript makes all of them.
	for i, a := range agentSession(true) {
		if i%4 != 0 {
			continue
		}
		era := pinnedEras[i/4%len(pinnedEras)]
		t.Run(a.Name+" "+era.name, func(t *testing.T) {
			t.Parallel()
			args, err := json.Marshal(a.Args)
			if err != nil {
				t.Fatal(err)
			}
			s := newAgentServer(t, env, "--allow-calls")
			status, out := inspect(t, s, era.name, "--method", "tools/call", "--tool-name", a.Tool, "--tool-args-json", string(args))
			want := 0
			if a.isError {
				want = inspectorToolError
			}
			if status != want {
				t.Errorf("status = %d, want %d", status, want)
			}
			var got struct {
				Result struct {
					Content []struct{ Text string }
					IsError bool
				}
			}
			if err := json.Unmarshal(out, &got); err != nil || len(got.Result.Content) != 1 {
				t.Fatalf("decode result: %v in %q", err, out)
			}
			a.check(t, outcome{Text: got.Result.Content[0].Text, IsError: got.Result.IsError})
			s.audit(1)
		})
	}
}
