package main

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/mcptest"
	"mcpwire/server"
	"mcpwire/stdio"
)

// The test binary is also the servers: with this variable, it serves on standard input and output a
// tool of that name.
const tool = "HOST_TEST_TOOL"

func TestMain(m *testing.M) {
	if name := os.Getenv(tool); name != "" {
		srv := server.MustNew(name, "1.0.0", nil)
		err := server.AddTool(srv, name, "Says "+name+".", func(context.Context, struct{}) (string, error) { return name, nil })
		if err == nil {
			err = stdio.Serve(context.Background(), srv)
		}
		if err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

// program returns a server with one tool.
func program(t *testing.T, name string) client.Transport {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := stdio.Command(self)
	cmd.Env = []string{tool + "=" + name}
	return cmd
}

func TestRun(t *testing.T) {
	mcptest.CheckLeaks(t)
	servers := map[string]client.Transport{
		"one":    program(t, "moo"),
		"two":    program(t, "purr"),
		"broken": stdio.Command("a-program-that-does-not-exist"),
	}
	var stdout, stderr strings.Builder
	if err := run(t.Context(), servers, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	want := []string{"one__moo\tSays moo.", "two__purr\tSays purr."}
	if diff := cmp.Diff(want, slices.Sorted(strings.Lines(stdout.String())), cmp.Transformer("trim", strings.TrimSpace)); diff != "" {
		t.Errorf("stdout (-want +got):\n%s", diff)
	}
	if got := stderr.String(); !strings.HasPrefix(got, "broken: dial: ") || strings.Count(got, "\n") != 1 {
		t.Errorf("stderr: got %q, want one line about broken", got)
	}
}

func TestCall(t *testing.T) {
	g := client.NewGroup(nil)
	defer g.Close()
	connect(t.Context(), g, map[string]client.Transport{"one": program(t, "moo"), "two": program(t, "purr")})
	result, err := g.CallTool(t.Context(), "two__purr", nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]mcp.ContentBlock{mcp.TextContent{Text: "purr"}}, result.Content); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

func TestParse(t *testing.T) {
	servers, err := parse([]string{"a=node server.js", "b=https://example.com/mcp"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "b"}, slices.Sorted(maps.Keys(servers))); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if _, err := parse([]string{"node server.js"}); err == nil {
		t.Error("an argument without a name was accepted")
	}
}
