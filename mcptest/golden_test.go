package mcptest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcptest"
)

// A goldenServer is a server for golden files. It handles one request after the other.
type goldenServer struct{}

func (goldenServer) Serve(_ context.Context, f jsonrpc.Framer) error {
	var open []jsonrpc.ID
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			for _, id := range open {
				f.WriteFrame(jsonrpc.AppendResult(nil, id, []byte(`{"end":true}`)))
			}
			return nil
		}
		var m jsonrpc.Message
		if err := jsonrpc.Parse(frame, &m, 0); err != nil {
			f.WriteFrame(jsonrpc.AppendError(nil, m.ID, err.(*jsonrpc.Error), true))
			continue
		}
		answer := func(result string) { f.WriteFrame(jsonrpc.AppendResult(nil, m.ID, []byte(result))) }
		note := func(params string) { f.WriteFrame(jsonrpc.AppendNotification(nil, "note", []byte(params))) }
		switch string(m.Method) {
		case "echo":
			answer(string(m.Params))
		case "initialize":
			answer(`{"welcome":"to you"}`)
		case "note":
			note(`["before"]`)
			answer("{}")
			note(`["after"]`)
		case "slow":
			<-time.After(300 * time.Millisecond)
			answer("{}")
		case "clock":
			answer(`"` + time.Now().UTC().Format(time.RFC3339) + `"`)
		case "listen":
			note(`["listening"]`)
			open = append(open, m.ID.Clone())
		case "break":
			return errors.New("broken on request")
		}
	}
}

// TestGoldenChild is the test that runGolden runs in a separate process.
func TestGoldenChild(t *testing.T) {
	how := os.Getenv("MCPTEST_GOLDEN_CHILD")
	if how == "" {
		t.Skip("it is run by the tests of Golden")
	}
	opts := &mcptest.GoldenOptions{Bubble: how == "bubble", Timeout: 500 * time.Millisecond}
	mcptest.Golden(t, "*.txtar", func(testing.TB) goldenServer { return goldenServer{} }, opts)
}

// runGolden runs a file in a separate process, and returns the lines about failures and the
// resulting file.
func runGolden(t *testing.T, how, text string, env []string, args ...string) (failures, after string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "f.txtar")
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append([]string{"-test.run=^TestGoldenChild$"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "MCPTEST_GOLDEN_CHILD="+how), env...)
	out, err := cmd.CombinedOutput()
	if ok := strings.HasPrefix(string(out), "PASS\n"); ok != (err == nil) {
		t.Fatalf("%v:\n%s", err, out)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		trimmed := strings.TrimLeft(line, " ")
		switch {
		case strings.HasPrefix(line, "coverage:"), line == "PASS\n", line == "FAIL\n", strings.HasPrefix(trimmed, "--- FAIL: TestGoldenChild"):
		default:
			lines = append(lines, trimmed)
		}
	}
	return strings.Join(lines, ""), string(written)
}

// place matches the location of a failure: the call of Golden, or package testing for cleanup
// functions in a bubble.
var place = regexp.MustCompile(`(?m)^(golden_test|testing)\.go:\d+: `)

func TestGoldenChecks(t *testing.T) {
	const hint = "\nIf this is intended, set MCPTEST_UPDATE=1 to write it to the file.\n"
	tests := []struct{ name, how, file, want string }{
		{"good", "bubble", `For the reader.

-- captures --
# A comment.
> {"id":1,"jsonrpc":"2.0","method":"echo","params":{"a":5,"_meta":"$modern"}}
< {"jsonrpc":"2.0","id":1,"result":{"a":"$x","$any":"$any"}}
> {"id":2,"jsonrpc":"2.0","method":"echo","params":["$x"]}
< {"jsonrpc":"2.0","id":2,"result":[5]}
-- handshake --
@handshake 2025-11-25
> {"id":1,"jsonrpc":"2.0","method":"clock"}
< {"jsonrpc":"2.0","id":1,"result":"2000-01-01T00:00:00Z"}
-- what is no message --
>raw {"
< {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"$any"}}
-- the end --
> {"jsonrpc":"2.0","id":1,"method":"listen"}
< {"jsonrpc":"2.0","method":"note","params":["listening"]}
@eof
< {"jsonrpc":"2.0","id":1,"result":{"end":true}}
-- unordered --
@unordered
> {"jsonrpc":"2.0","id":1,"method":"note"}
< {"jsonrpc":"2.0","id":1,"result":{}}
< {"jsonrpc":"2.0","method":"note","params":["after"]}
< {"jsonrpc":"2.0","method":"note","params":["before"]}
`, ""},
		{"another message", "bubble", "-- s --\n# c\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"note\"}\n< {\"jsonrpc\":\"2.0\",\"method\":\"note\",\"params\":[\"afterwards\"]}\n",
			`f.txtar:4: session "s": Expect: got another message
params[0]: got "before", want "afterwards"
want: {"jsonrpc":"2.0","method":"note","params":["afterwards"]}
got:  {"jsonrpc":"2.0","method":"note","params":["before"]}
the session so far:
> {"jsonrpc":"2.0","id":1,"method":"note"}
< {"jsonrpc":"2.0","method":"note","params":["before"]}
< {"jsonrpc":"2.0","id":1,"result":{}}
< {"jsonrpc":"2.0","method":"note","params":["after"]}` + hint},
		{"too many", "bubble", "comment\n-- a --\n> 1\n< \"$any\"\n-- s --\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"listen\"}\n",
			`f.txtar:6: session "s": 2 unexpected messages; the last: {"jsonrpc":"2.0","id":1,"result":{"end":true}}
the session so far:
> {"jsonrpc":"2.0","id":1,"method":"listen"}
< {"jsonrpc":"2.0","method":"note","params":["listening"]}
< {"jsonrpc":"2.0","id":1,"result":{"end":true}}
! the other side has closed the connection` + hint},
		{"too few", "bubble", "-- s --\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"nothing\"}\n< {}\n",
			"f.txtar:3: session \"s\": Expect: no message within 500ms\nwant: {}\nthe session so far:\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"nothing\"}" + hint},
		{"the server fails", "real", "-- s --\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"break\"}\n", "the server failed: broken on request\n"},
		{"no sessions", "real", "> {}\n", "f.txtar: no sessions: each begins with a line such as -- name --\n"},
		{"no messages", "real", "-- s --\n# Nothing.\n", "f.txtar:2: session \"s\": the session sends nothing\n"},
		{"response first", "real", "-- s --\n< {}\n", "f.txtar:2: session \"s\": no message can be expected before the first that is sent\n"},
		{"unknown line", "real", "-- s --\n> 1\nwhat?\n", "f.txtar:3: session \"s\": \"what?\" begins with none of > >raw < @handshake @unordered @eof #\n"},
		{"unknown revision", "real", "-- s --\n@handshake 2025-11-24\n",
			"f.txtar:2: session \"s\": \"@handshake 2025-11-24\": the handshake must come first and name one of [2024-11-05 2025-03-26 2025-06-18 2025-11-25 2026-07-28]\n"},
		{"message after the end", "real", "-- s --\n@eof\n> 1\n", "f.txtar:3: session \"s\": nothing can be sent after @eof\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			failures, after := runGolden(t, tt.how, tt.file, nil)
			failures = place.ReplaceAllString(failures, "")
			if diff := cmp.Diff(tt.want, failures); diff != "" {
				t.Errorf("failures (-want +got):\n%s", diff)
			}
			if after != tt.file {
				t.Errorf("the file was changed:\n%s", after)
			}
		})
	}
}

func TestGoldenUpdate(t *testing.T) {
	const before = `For the reader.
-- kept --
# A comment.
> {"jsonrpc":"2.0","id":1,"method":"echo","params":{"a":1,"b":[2,3]}}

< {"id":"$any","result":{"b":["$x",3.0],"$any":"$any"},"jsonrpc":"2.0"}
# Another.
> {"jsonrpc":"2.0","id":"$x","method":"echo","params":["$x"]}
< {"jsonrpc":"2.0","id":"$x","result":["$x"]}
-- changed --
@handshake 2025-11-25
> {"jsonrpc":"2.0","id":1,"method":"note"}
< {"jsonrpc":"2.0","method":"note","params":["$any"]}
# In between.
< {"jsonrpc":"2.0","id":"$id","result":{"old":true}}
> {"jsonrpc":"2.0","id":2,"method":"echo","params":["$id","$$x"]}
< {"jsonrpc":"2.0","id":2,"result":["$id","old"]}
< {"jsonrpc":"2.0","id":3,"result":"none"}
-- new --
> {"jsonrpc":"2.0","id":1,"method":"slow"}
> {"jsonrpc":"2.0","id":2,"method":"listen"}
>raw {
> {"jsonrpc":"2.0","id":3,"method":"nothing"}
> {"jsonrpc":"2.0","id":4,"method":"echo","params":[]}
# The end.
-- ended --
> {"jsonrpc":"2.0","id":2,"method":"listen"}
@eof
-- unordered --
@unordered
> {"jsonrpc":"2.0","id":1,"method":"note"}
< {"jsonrpc":"2.0","method":"note","params":["after"]}
< {"jsonrpc":"2.0","method":"note","params":["changed"]}
< {"jsonrpc":"2.0","id":1,"result":{}}
< {"jsonrpc":"2.0","id":1,"result":"gone"}
`
	const after = `For the reader.
-- kept --
# A comment.
> {"jsonrpc":"2.0","id":1,"method":"echo","params":{"a":1,"b":[2,3]}}

< {"id":"$any","result":{"b":["$x",3.0],"$any":"$any"},"jsonrpc":"2.0"}
# Another.
> {"jsonrpc":"2.0","id":"$x","method":"echo","params":["$x"]}
< {"jsonrpc":"2.0","id":"$x","result":["$x"]}
-- changed --
@handshake 2025-11-25
> {"jsonrpc":"2.0","id":1,"method":"note"}
< {"jsonrpc":"2.0","method":"note","params":["$any"]}
# In between.
< {"jsonrpc":"2.0","id":"$id","result":{}}
< {"jsonrpc":"2.0","method":"note","params":["after"]}
> {"jsonrpc":"2.0","id":2,"method":"echo","params":["$id","$$x"]}
< {"jsonrpc":"2.0","id":2,"result":["$id","$$x"]}
-- new --
> {"jsonrpc":"2.0","id":1,"method":"slow"}
< {"jsonrpc":"2.0","id":1,"result":{}}
> {"jsonrpc":"2.0","id":2,"method":"listen"}
< {"jsonrpc":"2.0","method":"note","params":["listening"]}
>raw {
< {"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error: invalid JSON at byte 1: unexpected end of text, want a member name in quotes"}}
> {"jsonrpc":"2.0","id":3,"method":"nothing"}
> {"jsonrpc":"2.0","id":4,"method":"echo","params":[]}
< {"jsonrpc":"2.0","id":4,"result":[]}
# The end.
@eof
< {"jsonrpc":"2.0","id":2,"result":{"end":true}}
-- ended --
> {"jsonrpc":"2.0","id":2,"method":"listen"}
< {"jsonrpc":"2.0","method":"note","params":["listening"]}
@eof
< {"jsonrpc":"2.0","id":2,"result":{"end":true}}
-- unordered --
@unordered
> {"jsonrpc":"2.0","id":1,"method":"note"}
< {"jsonrpc":"2.0","method":"note","params":["after"]}
< {"jsonrpc":"2.0","method":"note","params":["before"]}
< {"jsonrpc":"2.0","id":1,"result":{}}
`
	tests := []struct {
		name string
		env  []string
		args []string
	}{
		{"by the environment", []string{"MCPTEST_UPDATE=1"}, nil},
		{"by the flag", nil, []string{"-update"}},
		{"by neither", []string{"MCPTEST_UPDATE=0"}, []string{"-update=false"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			failures, got := runGolden(t, "bubble", before, tt.env, tt.args...)
			if tt.name == "by neither" {
				if got != before || failures == "" {
					t.Errorf("failures %q; the file was changed:\n%s", failures, got)
				}
				return
			}
			if diff := cmp.Diff(after, got); diff != "" || failures != "" {
				t.Fatalf("failures %q, file (-want +got):\n%s", failures, diff)
			}
			if failures, _ := runGolden(t, "bubble", after, nil); failures != "" {
				t.Errorf("the written file fails:\n%s", failures)
			}
			if _, again := runGolden(t, "bubble", after, tt.env, tt.args...); again != after {
				t.Errorf("a second update changes:\n%s", cmp.Diff(after, again))
			}
			if failures, _ := runGolden(t, "real", after, nil); failures != "" {
				t.Errorf("the written file fails outside of a bubble:\n%s", failures)
			}
		})
	}
}

// TestGolden runs the test of ExampleGolden in a bubble and outside of it.
func TestGolden(t *testing.T) {
	goldenTest(t)
	mcptest.Golden(t, "testdata/*.txtar", newWords, &mcptest.GoldenOptions{Bubble: true})
}
