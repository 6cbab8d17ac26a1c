package check_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/mcp"
)

// report checks the bad example of a rule, as if it were in a file.
func report(tb testing.TB, id string) *check.Report {
	r, ok := check.Lookup(id)
	if !ok {
		tb.Fatalf("no rule %s", id)
	}
	out := &check.Report{Sources: []string{"a b.mcpcap.ndjson"}, Events: 5, Tool: "mcpwire", Version: "1"}
	for f, err := range check.Run(capture.NewReader(bytes.NewReader(written(tb, r.Bad)), nil), nil) {
		if err != nil {
			tb.Fatal(err)
		}
		out.Results = append(out.Results, check.Result{Finding: f, Source: "a b.mcpcap.ndjson"})
	}
	return out
}

func TestWriteText(t *testing.T) {
	var b bytes.Buffer
	if err := check.WriteText(&b, report(t, "jsonrpc/unknown-id"), nil); err != nil {
		t.Fatal(err)
	}
	want := `error jsonrpc/unknown-id: A response to no request
  event 5, to the client, id "1", 2025-11-25, /id
    no request has the id "1"; the one that waits has 1, which is not the same
  fix: Copy the id of the request, byte for byte.
  https://modelcontextprotocol.io/specification/2025-11-25/basic

1 error, 0 warnings, 0 infos in 5 events
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	b.Reset()
	if err := check.WriteText(&b, report(t, "jsonrpc/unknown-id"), &check.TextOptions{Color: true}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(b.String(), "\x1b[31merror\x1b[0m \x1b[1mjsonrpc/unknown-id\x1b[0m: ") {
		t.Errorf("in colour: %q", b.String())
	}
}

// TestWriteTextClips: a rule that is broken everywhere does not bury the others.
func TestWriteTextClips(t *testing.T) {
	r := report(t, "jsonrpc/unknown-id")
	for range 30 {
		r.Results = append(r.Results, r.Results[0])
	}
	var b bytes.Buffer
	if err := check.WriteText(&b, r, nil); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "  … and 11 more\n") {
		t.Errorf("text:\n%s", b.String())
	}
}

func TestWriteJSON(t *testing.T) {
	var b bytes.Buffer
	if err := check.WriteJSON(&b, report(t, "jsonrpc/unknown-id")); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"findings": []any{map[string]any{
			"rule": "jsonrpc/unknown-id", "severity": "error", "source": "a b.mcpcap.ndjson", "capture": "example", "event": 5.0, "dir": "s2c", "id": `"1"`,
			"revision": "2025-11-25", "pointer": "/id", "message": `no request has the id "1"; the one that waits has 1, which is not the same`,
			"fix": "Copy the id of the request, byte for byte.", "url": "https://modelcontextprotocol.io/specification/2025-11-25/basic",
		}},
		"summary": map[string]any{"errors": 1.0, "warnings": 0.0, "infos": 0.0, "events": 5.0, "sources": []any{"a b.mcpcap.ndjson"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

func TestWriteJUnit(t *testing.T) {
	var b bytes.Buffer
	r := report(t, "jsonrpc/unknown-id")
	r.Rules = (&check.Options{Only: []string{"jsonrpc/unknown-id", "jsonrpc/version", "stdio/stray-output"}}).Enabled()
	if err := check.WriteJUnit(&b, r); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Suites   []struct {
			Name  string `xml:"name,attr"`
			Cases []struct {
				Name    string    `xml:"name,attr"`
				Failure *struct{} `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatalf("%v\n%s", err, b.Bytes())
	}
	if got.Tests != 3 || got.Failures != 1 || len(got.Suites) != 2 || got.Suites[0].Name != "jsonrpc" || got.Suites[0].Cases[0].Failure == nil || got.Suites[0].Cases[1].Failure != nil {
		t.Errorf("JUnit:\n%s", b.Bytes())
	}
}

func TestWriteSARIF(t *testing.T) {
	var b bytes.Buffer
	if err := check.WriteSARIF(&b, report(t, "jsonrpc/unknown-id")); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct {
					Name  string
					Rules []struct{ ID, HelpURI string }
				}
			}
			Results []struct {
				RuleID    string
				RuleIndex int
				Level     string
				Locations []struct {
					PhysicalLocation struct{ ArtifactLocation struct{ URI string } }
					LogicalLocations []struct{ FullyQualifiedName string }
				}
			}
		}
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	run := got.Runs[0]
	res := run.Results[0]
	if got.Version != "2.1.0" || run.Tool.Driver.Name != "mcpwire" || len(run.Tool.Driver.Rules) != len(check.Rules()) || run.Tool.Driver.Rules[res.RuleIndex].ID != res.RuleID ||
		res.Level != "error" || res.Locations[0].PhysicalLocation.ArtifactLocation.URI != "a%20b.mcpcap.ndjson" || res.Locations[0].LogicalLocations[0].FullyQualifiedName != "event 5 /id" {
		t.Errorf("SARIF: %+v", got)
	}
}

func TestWriteGitHub(t *testing.T) {
	var b bytes.Buffer
	r := report(t, "jsonrpc/unknown-id")
	r.Results[0].Message = "100%\nof"
	if err := check.WriteGitHub(&b, r); err != nil {
		t.Fatal(err)
	}
	want := "::error file=a b.mcpcap.ndjson,title=jsonrpc/unknown-id%3A A response to no request::event 5, to the client, id \"1\", 2025-11-25, /id: 100%25%0Aof%0Afix: " +
		"Copy the id of the request, byte for byte.%0Ahttps://modelcontextprotocol.io/specification/2025-11-25/basic\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}

// brokenWriter fails.
type brokenWriter struct{}

var errBroken = errors.New("broken")

func (brokenWriter) Write([]byte) (int, error) { return 0, errBroken }

func TestWriteErrors(t *testing.T) {
	r := report(t, "jsonrpc/unknown-id")
	for name, err := range map[string]error{
		"text": check.WriteText(brokenWriter{}, r, nil), "json": check.WriteJSON(brokenWriter{}, r), "junit": check.WriteJUnit(brokenWriter{}, r),
		"sarif": check.WriteSARIF(brokenWriter{}, r), "github": check.WriteGitHub(brokenWriter{}, r), "rules": check.WriteRules(brokenWriter{}, check.Rules(), nil),
		"explain": check.Explain(brokenWriter{}, check.Rules()[0], nil), "rules as JSON": check.WriteRulesJSON(brokenWriter{}, check.Rules()),
	} {
		if !errors.Is(err, errBroken) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestDescriptions: every rule says all that people need.
func TestDescriptions(t *testing.T) {
	id := regexp.MustCompile(`^[a-z]+/[a-z0-9-]+$`)
	placeholder := regexp.MustCompile(`\$(r[1-5]|rev|meta|version|client)\b`)
	seen := map[string]bool{}
	for _, r := range check.Rules() {
		switch {
		case !id.MatchString(r.ID) || seen[r.ID]:
			t.Errorf("%s: the id is spelled wrong, or stands twice", r.ID)
		case r.Title == "" || r.Why == "" || r.Fix == "" || !strings.HasPrefix(r.URL, "https://"):
			t.Errorf("%s: something is not said", r.ID)
		case strings.HasSuffix(r.Title, ".") || !strings.HasSuffix(r.Why, ".") || !strings.HasSuffix(r.Fix, "."):
			t.Errorf("%s: a title has no full stop, sentences have", r.ID)
		case placeholder.MatchString(r.Title + r.Why + r.Fix + r.URL + r.Good.Transcript() + r.Bad.Transcript()):
			t.Errorf("%s: a placeholder is left", r.ID)
		}
		seen[r.ID] = true
		if err := check.Explain(io.Discard, r, nil); err != nil {
			t.Error(err)
		}
	}
}

func TestNearest(t *testing.T) {
	for _, tt := range []struct{ id, want string }{
		{"id-nul", "jsonrpc/id-null"},
		{"jsonrpc/idnull", "jsonrpc/id-null"},
		{"stray-output", "stdio/stray-output"},
		{"STDIO/STRAY-OUTPUT", "stdio/stray-output"},
		{"nothing of the sort", ""},
		{"", ""},
	} {
		got := ""
		if near := check.Nearest(tt.id); len(near) > 0 {
			got = near[0]
		}
		if got != tt.want {
			t.Errorf("Nearest(%q) begins with %q, want %q", tt.id, got, tt.want)
		}
	}
}

func TestOptions(t *testing.T) {
	r, _ := check.Lookup("jsonrpc/unknown-id")
	run := func(o *check.Options) (n int) {
		for range check.Run(capture.NewReader(bytes.NewReader(written(t, r.Bad)), nil), o) {
			n++
		}
		return n
	}
	for _, tt := range []struct {
		name string
		opts *check.Options
		want int
	}{
		{"none", nil, 1},
		{"only", &check.Options{Only: []string{r.ID}}, 1},
		{"only another", &check.Options{Only: []string{"jsonrpc/version"}}, 0},
		{"only a group", &check.Options{Only: []string{"jsonrpc/*"}}, 1},
		{"disabled", &check.Options{Disabled: []string{r.ID}}, 0},
		{"disabled group", &check.Options{Disabled: []string{"jsonrpc/*"}}, 0},
		{"disabled wins", &check.Options{Only: []string{r.ID}, Disabled: []string{r.ID}}, 0},
	} {
		if got := run(tt.opts); got != tt.want {
			t.Errorf("%s: %d findings, want %d", tt.name, got, tt.want)
		}
	}
}

// TestMaxPerRule: a rule that is broken all the time keeps quiet after a while.
func TestMaxPerRule(t *testing.T) {
	k := check.New(&check.Options{Limits: check.Limits{MaxPerRule: 10}})
	n := 0
	for i := range 100 {
		n += len(k.Add(&capture.Head{Transport: "stdio"}, &capture.Event{Kind: capture.KindInvalid, N: uint64(i + 1), Dir: capture.ToClient, Data: []byte("log"), Framing: capture.FramingLF}))
	}
	if n != 10 {
		t.Errorf("%d findings, want 10", n)
	}
}

func TestSeverity(t *testing.T) {
	for _, s := range []check.Severity{check.Info, check.Warning, check.Error} {
		var back check.Severity
		if err := back.UnmarshalText([]byte(s.String())); err != nil || back != s {
			t.Errorf("%v becomes %v, %v", s, back, err)
		}
	}
	if new(check.Severity).UnmarshalText([]byte("bad")) == nil {
		t.Error("a severity bad")
	}
}

func ExampleRun() {
	r, _ := check.Lookup("stdio/stray-output")
	head, events, _ := r.Bad.Events()
	var file bytes.Buffer
	enc := capture.NewEncoder(&file, nil)
	_ = enc.Encode(&capture.Event{Kind: capture.KindHead, Head: head})
	for _, e := range events {
		_ = enc.Encode(e)
	}
	_ = enc.Flush()

	for f, err := range check.Run(capture.NewReader(&file, nil), nil) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(f.Rule.Severity, f.Rule.ID, "at event", f.Event)
		fmt.Println(f.Message)
	}
	// Output:
	// error stdio/stray-output at event 1
	// "hello from console.log" is no message
}

func ExampleExample() {
	x := check.Example{Revision: mcp.Revision20251125, Text: `> {"jsonrpc":"2.0","id":1,"method":"ping"}
! ready
<(crlf) {"jsonrpc":"2.0","id":1,"result":{}}`}
	_, events, err := x.Events()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range events {
		fmt.Println(e.N, e.Kind, e.Dir, e.Framing, string(e.Data))
	}
	// Output:
	// 1 msg c2s lf {"jsonrpc":"2.0","id":1,"method":"ping"}
	// 2 err   ready
	// 3 msg s2c crlf {"jsonrpc":"2.0","id":1,"result":{}}
}

func ExampleExplain() {
	r, _ := check.Lookup("jsonrpc/batch-empty")
	_ = check.Explain(os.Stdout, r, nil)
	// Output:
	// jsonrpc/batch-empty (error, all revisions)
	// A batch without messages
	//
	// Why: An empty array is not a message, and its sender waits for an answer that does not come.
	// Fix: Send nothing instead.
	// https://www.jsonrpc.org/specification#batch
	//
	// Bad, in 2025-03-26:
	//   > {"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{"roots":{"listChanged":true},"sampling":{},"elicitation":{}},"clientInfo":{"name":"host","version":"1"}}}
	//   < {"jsonrpc":"2.0","id":"init","result":{"protocolVersion":"2025-03-26","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"logging":{},"completions":{}},"serverInfo":{"name":"server","version":"1"}}}
	//   > {"jsonrpc":"2.0","method":"notifications/initialized"}
	//   > []
	//
	// Good, in 2025-03-26:
	//   > {"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{"roots":{"listChanged":true},"sampling":{},"elicitation":{}},"clientInfo":{"name":"host","version":"1"}}}
	//   < {"jsonrpc":"2.0","id":"init","result":{"protocolVersion":"2025-03-26","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"logging":{},"completions":{}},"serverInfo":{"name":"server","version":"1"}}}
	//   > {"jsonrpc":"2.0","method":"notifications/initialized"}
	//   > [{"jsonrpc":"2.0","id":1,"method":"ping"}]
	//   < [{"jsonrpc":"2.0","id":1,"result":{}}]
}
