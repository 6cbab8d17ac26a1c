package interop

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// inspectorToolError is the exit status of Inspector's CLI if the tool returned an error or does
// not exist. Status 0 is success; with --strict, 6 means a tool schema that some hosts would
// reject.
const inspectorToolError = 5

// inspect runs Inspector's CLI on s and returns its exit status and standard output.
func inspect(t *testing.T, s *recordedServer, era string, args ...string) (status int, out []byte) {
	t.Helper()
	node := node(t, 22)
	to := s.address()
	entry := map[string]any{"command": to.Command, "args": to.Args}
	switch {
	case to.Old:
		entry = map[string]any{"type": "sse", "url": to.URL}
	case to.URL != "":
		entry = map[string]any{"type": "streamable-http", "url": to.URL}
	}
	text, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"mcpwire": entry}})
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	config := filepath.Join(home, "mcp.json")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	launcher := filepath.Join(nodeDir, "node_modules", "@modelcontextprotocol", "inspector", "clients", "launcher", "build", "index.js")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	fixed := []string{launcher, "--cli", "--config", config, "--server", "mcpwire", "--protocol-era", era, "--format", "json"}
	cmd := exec.CommandContext(ctx, node, append(fixed, args...)...)
	// Inspector keeps state in the home directory, and secrets in the keychain by default.
	cmd.Env = append(os.Environ(), "HOME="+home, "MCP_INSPECTOR_SECRET_STORE=memory")
	out, err = s.output(cmd)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), out
	}
	if err != nil {
		t.Fatalf("inspector: %v", err)
	}
	return 0, out
}

// An inspectorEra is Inspector's name for the choice of an era, and the era that it negotiates with
// a server of both eras.
type inspectorEra struct {
	name   string
	modern bool
}

var inspectorEras = []inspectorEra{
	{name: "legacy"},
	{name: "auto", modern: true},
	{name: "modern", modern: true},
}

func TestInspectorList(t *testing.T) {
	for _, era := range inspectorEras {
		t.Run(era.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			status, out := inspect(t, s, era.name, "--method", "tools/list", "--strict")
			if status != 0 {
				t.Fatalf("status = %d, want 0", status)
			}
			var got struct {
				Result struct {
					Tools []struct {
						Name        string
						Description string
						InputSchema struct{ Type string }
					}
				}
			}
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatalf("decode output: %v in %q", err, out)
			}
			var names []string
			for _, tool := range got.Result.Tools {
				names = append(names, tool.Name)
				if tool.Description == "" || tool.InputSchema.Type != "object" {
					t.Errorf("%s: description = %q, input type = %q, want a description and object", tool.Name, tool.Description, tool.InputSchema.Type)
				}
			}
			slices.Sort(names)
			if diff := cmp.Diff([]string{"add", "crash", "echo", "fail", "slow", "word_count"}, names); diff != "" {
				t.Errorf("tools (-want +got):\n%s", diff)
			}
			s.audit(1)
		})
	}
}

func TestInspectorCall(t *testing.T) {
	type block struct{ Type, Text string }
	type result struct {
		Content           []block
		StructuredContent any
		IsError           bool
	}
	for _, tt := range []struct {
		name, tool, args string
		status           int
		want             result
	}{
		{name: "echo", tool: "echo", args: `{"text":"a \"b\"\n\u00e9"}`,
			want: result{Content: []block{{"text", "a \"b\"\n\u00e9"}}}},
		{name: "word count", tool: "word_count", args: `{"text":"a b c"}`,
			want: result{Content: []block{{"text", "3"}}, StructuredContent: 3.0}},
		{name: "tool error", tool: "fail", args: `{"message":"no luck"}`, status: inspectorToolError,
			want: result{Content: []block{{"text", "no luck"}}, IsError: true}},
		{name: "unknown tool", tool: "no_such_tool", args: `{}`, status: inspectorToolError},
	} {
		for _, era := range inspectorEras {
			t.Run(tt.name+" "+era.name, func(t *testing.T) {
				t.Parallel()
				s := newServer(t)
				status, out := inspect(t, s, era.name,
					"--method", "tools/call", "--tool-name", tt.tool, "--tool-args-json", tt.args)
				if status != tt.status {
					t.Errorf("status = %d, want %d", status, tt.status)
				}
				want := tt.want
				if !era.modern {
					want.StructuredContent = nil
				}
				var got struct{ Result result }
				if len(out) > 0 {
					if err := json.Unmarshal(out, &got); err != nil {
						t.Fatalf("decode output: %v in %q", err, out)
					}
				}
				if diff := cmp.Diff(want, got.Result); diff != "" {
					t.Errorf("result (-want +got):\n%s", diff)
				}
				s.audit(1)
			})
		}
	}
}
