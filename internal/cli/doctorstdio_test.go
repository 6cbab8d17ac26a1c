package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"mcpwire/internal/inspect/probe"
)

// TestDoctorSlow shows that a slow server is reported as slow, and as working.
func TestDoctorSlow(t *testing.T) {
	seen := func(outcome probe.Outcome, took time.Duration) probe.Observation {
		return probe.Observation{Outcome: outcome, Took: took}
	}
	for _, tt := range []struct {
		name   string
		all    []probe.Observation
		result string
		exit   int
	}{
		{"quick", []probe.Observation{seen(probe.Negotiated, time.Second)}, "healthy: no problems found\n", exitOK},
		{"slow", []probe.Observation{seen(probe.Negotiated, 14*time.Second)}, "healthy: no problems found, but it is slow: it takes 14s to respond\n", exitOK},
		{"slow only with concurrent processes", []probe.Observation{seen(probe.Refused, time.Second), seen(probe.Negotiated, 14*time.Second)}, "healthy: no problems found\n", exitOK},
		{"the first process sends no response", []probe.Observation{seen(probe.Silent, time.Second), seen(probe.Negotiated, 14*time.Second), seen(probe.Negotiated, 12*time.Second)}, "it is slow: it takes 12s to respond\n", exitOK},
		{"too slow", []probe.Observation{seen(probe.Negotiated, 2*time.Minute)}, "problems: it is slow: it takes 2m", exitFindings},
	} {
		var out bytes.Buffer
		r := &doctorReport{out: &out}
		(&doctor{report: r}).startup(r.section("Handshakes"), tt.all)
		_ = r.finish() // the exit status, below
		if !strings.Contains(out.String(), tt.result) || r.exit != tt.exit {
			t.Errorf("%s: exit status %d, want %d; printed:\n%s", tt.name, r.exit, tt.exit, out.String())
		}
	}
}

// TestStderrReasonVariable shows that the reason names the missing variable, or else the exception.
func TestStderrReasonVariable(t *testing.T) {
	for _, tt := range []struct{ stderr, what, variable string }{
		{"file:///x.mjs:1\nconst n = process.env.WEATHER_KEY.length;\n                      ^\n\nTypeError: Cannot read properties of undefined (reading 'length')\n    at file:///x.mjs:1:5", "WEATHER_KEY is missing", "WEATHER_KEY"},
		{"  File \"x.py\", line 2\n    key = os.environ['TOKEN']\nKeyError: 'TOKEN'", "TOKEN is missing", "TOKEN"},
		{"Missing GITHUB_TOKEN", "GITHUB_TOKEN is missing", "GITHUB_TOKEN"},
		{"file:///x.mjs:2\nconsole.error(`with ${key.length}`);\n\nTypeError: Cannot read properties of undefined (reading 'length')", "TypeError: Cannot read properties of undefined (reading 'length')", ""},
		{"using process.env.DEBUG_LEVEL\nError: the port is taken", "Error: the port is taken", ""},
		{"up and running", "", ""},
	} {
		got := stderrReason(strings.Split(tt.stderr, "\n"))
		if got.what != tt.what || got.variable != tt.variable {
			t.Errorf("%q: %q, variable %q; want %q, %q", tt.stderr, got.what, got.variable, tt.what, tt.variable)
		}
	}
}

// TestStderrReasonHint has the standard error of servers on npm and PyPI that did not start.
func TestStderrReasonHint(t *testing.T) {
	for _, tt := range []struct{ name, stderr, what, hint string }{
		{"a missing program", "Traceback (most recent call last):\nFileNotFoundError: [Errno 2] No such file or directory: 'ruff'", "FileNotFoundError: [Errno 2] No such file or directory: 'ruff'", "a file or a program that it needs does not exist"},
		{"a missing program, Node.js", "Error: spawn gh ENOENT", "Error: spawn gh ENOENT", "a file or a program that it needs does not exist"},
		{"no network", "TypeError: fetch failed\n  [cause]: Error: getaddrinfo ENOTFOUND docs.example.com", "TypeError: fetch failed", "it cannot reach the network"},
		{"a server for version 1 of the SDK", "    from mcp.server.fastmcp import FastMCP\nModuleNotFoundError: No module named 'mcp.server.fastmcp'. This is mcp 2.x, where FastMCP was renamed", "ModuleNotFoundError: No module named 'mcp.server.fastmcp'. This is mcp 2.x, where FastMCP was renamed", "it needs version 1 of the Python SDK"},
		{"a low-level server for version 1", "AttributeError: 'Server' object has no attribute 'list_resources'", "AttributeError: 'Server' object has no attribute 'list_resources'", "it may need version 1 of the Python SDK"},
		{"a package", "ModuleNotFoundError: No module named 'requests'", "ModuleNotFoundError: No module named 'requests'", "a package is missing in this Python"},
		{"a native addon", "Error: Cannot find module '../build/Release/keytar.node'", "Error: Cannot find module '../build/Release/keytar.node'", "a native addon is missing"},
		{"a file", "Error: Cannot find module '/x/index.js'", "Error: Cannot find module '/x/index.js'", "a package is missing: npm install"},
		{"bad JSON", `SyntaxError: Unexpected token 'h', "hello" is not valid JSON`, `SyntaxError: Unexpected token 'h', "hello" is not valid JSON`, "something that it reads is not valid JSON"},
		{"arguments, argparse", "usage: duck [-h] --db-path DB_PATH\n            [--readonly]\nduck: error: the following arguments are required: --db-path", "duck: error: the following arguments are required: --db-path", "it expects other arguments"},
		{"arguments, with a usage", "Error: Redis URL is required\nUsage: npx server-redis redis://host:port", "Error: Redis URL is required", "its usage is: npx server-redis redis://host:port"},
		{"another cause, with the usage of cobra", "Error: no current context\nUsage:\n  server [flags]", "Error: no current context", ""},
	} {
		got := stderrReason(strings.Split(tt.stderr, "\n"))
		if got.what != tt.what || !strings.HasPrefix(got.hint, tt.hint) || tt.hint == "" && got.hint != "" {
			t.Errorf("%s: %q, hint %q; want %q, %q", tt.name, got.what, got.hint, tt.what, tt.hint)
		}
	}
}
