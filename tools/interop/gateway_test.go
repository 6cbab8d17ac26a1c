package interop

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/mcp"
)

// A gatewayServer is a server behind the gateway.
type gatewayServer struct {
	side *bridgeSide
	// name is its name in the configuration.
	name   string
	server *recordedServer
}

// gatewayServers returns the stdio servers of the installed SDKs. If there are prefixes, it returns
// only servers whose names begin with one of them.
func gatewayServers(t *testing.T, prefixes ...string) (all []gatewayServer) {
	t.Helper()
	for i := range bridgeSides {
		s := &bridgeSides[i]
		wanted := len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s.name, p) })
		if s.http || !wanted {
			continue
		}
		installed := false
		t.Run(s.name, func(t *testing.T) {
			s.peer.launch(t, s.serverRevisions...) // skips the test if the SDK is not installed
			installed = true
		})
		if installed {
			name := strings.NewReplacer(", stdio", "", ", ", "-", " ", "").Replace(s.name)
			all = append(all, gatewayServer{s, strings.ToLower(name), s.peer.launch(t, s.serverRevisions...)})
		}
	}
	return all
}

// newGateway returns a gateway in front of servers. Clients start it.
func newGateway(t *testing.T, servers []gatewayServer) *recordedServer {
	t.Helper()
	type upstream struct {
		Command []string `json:"command"`
		Era     string   `json:"era"`
	}
	config := struct {
		ListWait          string              `json:"listWait"`
		LabelElicitations string              `json:"labelElicitations"` // the records have the messages of the servers
		Upstreams         map[string]upstream `json:"upstreams"`
	}{"30s", "never", map[string]upstream{}}
	for _, s := range servers {
		program, args := s.server.command()
		era := "legacy"
		if s.side.modern {
			era = "modern"
		}
		config.Upstreams[s.name] = upstream{append([]string{program}, args...), era}
	}
	text, err := json.Marshal(config) // JSON is YAML
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return newCommand(t, serverCommand[0], "gateway", "--stdio", "--no-watch", file)
}

// TestGateway runs a gateway in front of servers of all SDKs and both eras. In each era, our client
// lists the tools, calls the tools of each server, and responds to its input requests.
func TestGateway(t *testing.T) {
	if len(serverCommand) != 2 {
		t.Skip("INTEROP_SERVER is not mcpwire")
	}
	for _, revision := range []string{latestLegacy, modern} {
		t.Run(revision, func(t *testing.T) {
			servers := gatewayServers(t)
			g := newGateway(t, servers)
			known, _ := mcp.ParseRevision(revision)
			w := &tour{T: t, ctx: t.Context(), needed: map[string]bool{}, revision: revision}
			w.Client = w.dial(g, &client.Options{Revisions: []mcp.Revision{known}})
			tools := w.toolNames()
			for _, s := range servers {
				t.Run(s.name, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), tourTimeout)
					defer cancel()
					w.T, w.ctx, w.peer = t, ctx, s.side.peer
					s.visit(w, tools)
				})
			}
			w.T = t
			if err := w.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			g.checkGone()
			for _, s := range servers {
				s.server.checkGone()
			}
		})
	}
}

// visit calls the tools of one server through the gateway.
func (s *gatewayServer) visit(t *tour, tools []string) {
	tool := func(name string) string { return s.name + "__" + name }
	for _, name := range surfaceTools {
		if !slices.Contains(tools, tool(name)) {
			t.Errorf("tools lack %s", tool(name))
		}
	}
	t.equal("echo", "wörld", t.text(tool("echo"), map[string]string{"text": "wörld"}))
	if _, err := client.CallTool[string](t.ctx, t.Client, tool("fail"), map[string]string{"message": "no"}); !isToolError(err, "no") {
		t.Errorf("fail: error = %v, want a tool error", err)
	}
	t.setResult(ada)
	t.equal("ask", "accept Ada 36", t.text(tool("ask"), nil))
	t.equal("sample", "hello by test-model", t.text(tool("sample"), nil))
	t.equal("roots", "file:///projects/a Project A, file:///projects/b", t.text(tool("roots"), nil))
	t.equal("input requests", []string{askRecord, "sample user up to 50: " + sampleText, "roots"}, t.inputRequests())
	var steps atomic.Int64
	t.text(tool("slow"), map[string]int{"steps": 3, "delay_ms": 20}, client.WithProgress(func(*mcp.ProgressNotificationParams) { steps.Add(1) }))
	if _, late := t.peer.quirks["late progress"]; steps.Load() != 3 && !late {
		t.Errorf("slow: progress notifications = %d, want 3", steps.Load())
	}
	ctx, cancel := context.WithCancel(t.ctx)
	started := make(chan struct{}, 10)
	ended := make(chan error, 1)
	go func() {
		_, err := client.CallTool[string](ctx, t.Client, tool("slow"), map[string]int{"steps": 500, "delay_ms": 20}, client.WithProgress(func(*mcp.ProgressNotificationParams) {
			select {
			case started <- struct{}{}:
			default:
			}
		}))
		ended <- err
	}()
	select {
	case <-started:
	case <-t.ctx.Done():
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("canceled call: error = %v, want %v", err, context.Canceled)
	}
	t.text(tool("cancelled"), nil) // waits until the server has read the cancellation
	prompt, err := t.GetPrompt(t.ctx, s.name+"__greet", map[string]string{"name": "Ada"})
	if err != nil || len(prompt.Messages) == 0 {
		t.Errorf("prompt: %d messages, %v", len(prompt.Messages), err)
	}
}

// isToolError reports whether err is a tool error that contains text.
func isToolError(err error, text string) bool {
	e, ok := errors.AsType[*client.ToolError](err)
	return ok && strings.Contains(e.Error(), text)
}

// TestGatewayInspector lists and calls the tools of servers of both eras with Inspector, through a
// gateway.
func TestGatewayInspector(t *testing.T) {
	if len(serverCommand) != 2 {
		t.Skip("INTEROP_SERVER is not mcpwire")
	}
	for _, era := range inspectorEras {
		t.Run(era.name, func(t *testing.T) {
			t.Parallel()
			servers := gatewayServers(t, "ours", "go-sdk") // they start fast
			status, out := inspect(t, newGateway(t, servers), era.name, "--method", "tools/list")
			var list struct {
				Result struct{ Tools []struct{ Name string } }
			}
			if err := json.Unmarshal(out, &list); err != nil || status != 0 {
				t.Fatalf("list: status = %d, %v in %q", status, err, out)
			}
			var names, want []string
			for _, tool := range list.Result.Tools {
				if strings.HasSuffix(tool.Name, "__echo") {
					names = append(names, tool.Name)
				}
			}
			for _, s := range servers {
				want = append(want, s.name+"__echo")
			}
			if diff := cmp.Diff(sorted(want), sorted(names)); diff != "" {
				t.Errorf("tools (-want +got):\n%s", diff)
			}
			for _, s := range servers {
				status, out := inspect(t, newGateway(t, servers), era.name, "--method", "tools/call", "--tool-name", s.name+"__echo", "--tool-arg", "text=hi")
				if status != 0 || !strings.Contains(string(out), `"text":"hi"`) && !strings.Contains(string(out), `"text": "hi"`) {
					t.Errorf("%s: echo: status = %d: %s", s.name, status, out)
				}
			}
		})
	}
}
