package detail_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/view/detail"
	"mcpwire/internal/text/printable"
)

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":1}`

// arguments runs a command line in a shell in which mcpwire and curl print their arguments, and
// returns them.
func arguments(t *testing.T, line string, env ...string) []string {
	t.Helper()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no sh")
	}
	cmd := exec.Command(sh, "-c", `curl() { printf '%s\0' curl "$@"; }; mcpwire() { printf '%s\0' mcpwire "$@"; }; `+line)
	cmd.Env = append([]string{"PATH=/nonexistent"}, env...)
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
}

func TestCallCommand(t *testing.T) {
	call := func(params string) string {
		return `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":` + params + `}`
	}
	for _, tt := range []struct{ name, message, want string }{
		{"call", call(`{"name":"add","arguments":{"a":2,"b":"it's"},` + modernMeta + `}`), `mcpwire|call|add|--args|{"a":2,"b":"it's"}`},
		{"call without arguments", call(`{"name":"add"}`), `mcpwire|call|add`},
		{"call with white space", call(`{"name":"a b","arguments":{ "a" : "x  y" } }`), `mcpwire|call|a b|--args|{"a":"x  y"}`},
		{"a hostile tool", call(`{"name":"$(touch x); ' \" ` + "`id`" + ` !! \\\\ *","arguments":{}}`), "mcpwire|call|$(touch x); ' \" `id` !! \\\\ *|--args|{}"},
		{"a tool like a flag", call(`{"name":"--help"}`), `mcpwire|send|` + call(`{"name":"--help"}`)},
		{"a tool with control characters", call(`{"name":"\u001b[2J\n"}`), `mcpwire|send|` + call(`{"name":"\u001b[2J\n"}`)},
		{"arguments that hide", call(`{"name":"a","arguments":{"x":"` + "\u202e" + `"}}`), `mcpwire|call|a|--args|{"x":"\u202e"}`},
		{"a further round", call(`{"name":"a","requestState":"s","inputResponses":{}}`), `mcpwire|send|` + call(`{"name":"a","requestState":"s","inputResponses":{}}`)},
		{"duplicate names", call(`{"name":"a","name":"b"}`), `mcpwire|send|` + call(`{"name":"a","name":"b"}`)},
		{"read", `{"jsonrpc":"2.0","id":5,"method":"resources/read","params":{"uri":"file:///a b;rm -rf ~"}}`, `mcpwire|read|file:///a b;rm -rf ~`},
		{"prompt", `{"jsonrpc":"2.0","id":5,"method":"prompts/get","params":{"name":"p","arguments":{"a":"1 2","b":""}}}`, `mcpwire|prompt|p|a=1 2|b=`},
		{"prompt with an odd argument", `{"jsonrpc":"2.0","id":5,"method":"prompts/get","params":{"name":"p","arguments":{"a=b":"1"}}}`,
			`mcpwire|send|{"jsonrpc":"2.0","id":5,"method":"prompts/get","params":{"name":"p","arguments":{"a=b":"1"}}}`},
		{"complete", `{"jsonrpc":"2.0","id":5,"method":"completion/complete","params":{"ref":{"type":"ref/resource","uri":"demo:///{n}"},"argument":{"name":"n","value":""},"context":{"arguments":{"x":"y"}}}}`,
			`mcpwire|complete|resource|demo:///{n}|n||x=y`},
		{"list", `{"jsonrpc":"2.0","id":5,"method":"resources/templates/list"}`, `mcpwire|list|templates`},
		{"next page", `{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{"cursor":"-x"}}`, `mcpwire|list|tools|--page=-x`},
		{"ping", `{"jsonrpc":"2.0","id":5,"method":"ping"}`, `mcpwire|ping`},
		{"another", `{"jsonrpc":"2.0","id":5,"method":"x/y"}`, `mcpwire|send|{"jsonrpc":"2.0","id":5,"method":"x/y"}`},
		{"a notification", `{"jsonrpc":"2.0","method":"x/y"}`, `mcpwire|send|{"jsonrpc":"2.0","method":"x/y"}`},
		{"one of a batch", `[{"jsonrpc":"2.0","id":5,"method":"ping"},{"jsonrpc":"2.0","method":"x"}]`, `mcpwire|ping`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := snapshotRecord("stdio").start("node", "my server.js", "$(x)", "--flag", "").c2s(tt.message)
			c, err := detail.CallCommand(r.detail(t, 2, nil))
			if err != nil {
				t.Fatal(err)
			}
			if printable.Line(c.Text) != c.Text {
				t.Errorf("the line has invisible characters: %q", c.Text)
			}
			if diff := cmp.Diff(tt.want+"|--|node|my server.js|$(x)|--flag|", strings.Join(arguments(t, c.Text), "|")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.Text, diff)
			}
		})
	}
}

func TestCallTarget(t *testing.T) {
	r := snapshotRecord("http")
	r.head.URL = "https://example.com/other"
	r.post(1, "Host: 127.0.0.1:8", "Authorization: Bearer ~redacted:bearer:0123456789ab:64~", "X-Team: a'b", "X-Bad: ${HOME}", "X-Forwarded-For: 1", "@file: x", "User-Agent: me").
		message(capture.ToServer, 1, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"key":"a~redacted:key:aaaaaaaaaaaa:8~b"},`+modernMeta+`}}`).
		message(capture.ToClient, 1, `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}`)
	c, err := detail.CallCommand(r.detail(t, 2, nil))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"mcpwire", "call", "https://example.com/mcp", "x", "--args", `{"key":"aSECRETb"}`, "--protocol", "2026-07-28", "-H", "Authorization: Bearer ${MCPWIRE_AUTHORIZATION}", "-H", "X-Team: a'b"}
	if diff := cmp.Diff(want, arguments(t, c.Text, "MCPWIRE_KEY=SECRET", "MCPWIRE_AUTHORIZATION=no")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", c.Text, diff)
	}
	if diff := cmp.Diff([]string{"MCPWIRE_KEY", "MCPWIRE_AUTHORIZATION"}, c.Variables); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if notes := strings.Join(c.Notes, "; "); !strings.Contains(notes, "set MCPWIRE_KEY, MCPWIRE_AUTHORIZATION first") || !strings.Contains(notes, "X-Bad") || !strings.Contains(notes, "JSON strings") {
		t.Errorf("notes: %s", notes)
	}
}

func TestNoCommand(t *testing.T) {
	long := `{"jsonrpc":"2.0","method":"x","params":{"a":"` + strings.Repeat("x", 200_000) + `"}}`
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for name, r := range map[string]*recording{
		"of the server":            snapshotRecord("stdio").start("a").s2c(ping),
		"not a message":            snapshotRecord("stdio").start("a").add(&capture.Event{Kind: capture.KindStderr, Data: []byte("x")}),
		"too long":                 snapshotRecord("stdio").start("a").c2s(long),
		"no start":                 snapshotRecord("stdio").add(&capture.Event{Kind: capture.KindNote}).c2s(ping),
		"a command with a newline": snapshotRecord("stdio").start("a\nb").c2s(ping),
		"no URL":                   snapshotRecord("http").add(&capture.Event{Kind: capture.KindNote}).c2s(ping),
		"cut":                      snapshotRecord("stdio").start("a").add(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: []byte(ping), Cut: true, Len: 999}),
	} {
		if c, err := detail.CallCommand(r.detail(t, 2, nil)); !errors.Is(err, detail.ErrNoCommand) {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
	_, err := detail.CurlCommand(snapshotRecord("stdio").start("a").c2s(ping).detail(t, 2, nil))
	if !errors.Is(err, detail.ErrNotHTTP) {
		t.Errorf("curl for stdio: %v", err)
	}
}

func TestCurl(t *testing.T) {
	r := snapshotRecord("http")
	r.head.URL = "http://127.0.0.1:8/mcp?a=[1]"
	r.post(1, "Host: h", "Connection: close", "Accept: */*", "Authorization: Bearer ~redacted:bearer:0123456789ab:64~", "Content-Type: application/json", "Mcp-Param-X: ", "Accept-Encoding: gzip",
		"Bad Name: x", "X-Ctl: a\x1b", "X-Hostile: $(touch x)'`id`", "Content-Length: 9").
		message(capture.ToServer, 1, "{\"jsonrpc\":\"2.0\",\n\t\"id\":1,\"method\":\"ping\",\"params\":{\"a\":\"@x'\u202e\"}}")
	c, err := detail.CurlCommand(r.detail(t, 2, nil))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"curl", "--include", "--no-buffer", "--globoff", "--request", "POST", "--url", "http://127.0.0.1:8/mcp", "--header", "Accept: */*", "--header", "Authorization: Bearer T", "--header", "Content-Type: application/json",
		"--header", "Mcp-Param-X;", "--compressed", "--header", "X-Hostile: $(touch x)'`id`", "--header", "User-Agent:", "--data-raw", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"@x'\u202e"}}`,
	}
	if diff := cmp.Diff(want, arguments(t, c.Text, "MCPWIRE_AUTHORIZATION=T")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", c.Text, diff)
	}
	if notes := strings.Join(c.Notes, "; "); !strings.Contains(notes, "Bad Name") || !strings.Contains(notes, "X-Ctl") || !strings.Contains(notes, "white space") || strings.Contains(notes, "tap") {
		t.Errorf("notes: %s", notes)
	}
}

// TestCurlWithoutBody checks the command for a GET stream in a capture that does not have the
// server's address.
func TestCurlWithoutBody(t *testing.T) {
	r := snapshotRecord("http").add(&capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Exchange: 1, Request: &capture.Request{
		Method: "GET", URL: "/mcp?x", Headers: []capture.Header{{Name: "host", Value: "127.0.0.1:99"}, {Name: "User-Agent", Value: "u"}},
	}})
	c, err := detail.CurlCommand(r.detail(t, 1, nil))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"curl", "--include", "--no-buffer", "--globoff", "--request", "GET", "--url", "http://127.0.0.1:99/mcp?x", "--header", "User-Agent: u", "--header", "Accept:"}
	if diff := cmp.Diff(want, arguments(t, c.Text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(c.Notes) != 1 {
		t.Errorf("notes: %q", c.Notes)
	}
}
