package report_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/cmd/internal/inspect/report"
)

// reportOf checks the bad example of a rule, as if it came from a file.
func reportOf(tb testing.TB, id string) *report.Report {
	r, ok := check.Lookup(id)
	if !ok {
		tb.Fatalf("no rule %s", id)
	}
	out := &report.Report{Sources: []string{"a b.mcpcap.ndjson"}, Events: 5, Tool: "mcpwire", Version: "1"}
	head, events, err := r.Bad.Events()
	if err != nil {
		tb.Fatal(err)
	}
	var file bytes.Buffer
	enc := capture.NewEncoder(&file, &capture.Redaction{Off: true})
	for _, e := range append([]*capture.Event{{Kind: capture.KindHead, Head: head}}, events...) {
		if err := enc.Encode(e); err != nil {
			tb.Fatal(err)
		}
	}
	if err := enc.Flush(); err != nil {
		tb.Fatal(err)
	}
	for f, err := range check.Run(capture.NewReader(&file, nil), nil) {
		if err != nil {
			tb.Fatal(err)
		}
		out.Results = append(out.Results, report.Result{Finding: f, Source: "a b.mcpcap.ndjson"})
	}
	return out
}

func TestText(t *testing.T) {
	var b bytes.Buffer
	if err := report.Text(&b, reportOf(t, "jsonrpc/unknown-id"), nil); err != nil {
		t.Fatal(err)
	}
	want := `1 error, 0 warnings, 0 infos in 5 events

error jsonrpc/unknown-id: A response matches no request
  event 5, to the client, id "1", 2025-11-25, /id
    no request has the id "1"; the pending request has 1, which is a different id
  fix: Copy the id of the request, byte for byte.
  https://modelcontextprotocol.io/specification/2025-11-25/basic
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	b.Reset()
	if err := report.Text(&b, reportOf(t, "jsonrpc/unknown-id"), &report.TextOptions{Width: 40}); err != nil {
		t.Fatal(err)
	}
	want = `1 error, 0 warnings, 0 infos in 5 events

error jsonrpc/unknown-id: A response
  matches no request
  event 5, to the client, id "1",
    2025-11-25, /id
    no request has the id "1"; the
    pending request has 1, which is a
    different id
  fix: Copy the id of the request, byte
       for byte.
  https://modelcontextprotocol.io/specification/2025-11-25/basic
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("text of 40 columns (-want +got):\n%s", diff)
	}
	b.Reset()
	if err := report.Text(&b, reportOf(t, "jsonrpc/unknown-id"), &report.TextOptions{Color: true}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "\n\x1b[31merror\x1b[0m \x1b[1mjsonrpc/unknown-id\x1b[0m: ") {
		t.Errorf("in color: %q", b.String())
	}
}

// TestTextSummary shows that a table of the rules comes before the findings, without the rules that
// are not shown.
func TestTextSummary(t *testing.T) {
	r := reportOf(t, "jsonrpc/unknown-id")
	for i, severity := range []check.Severity{check.Warning, check.Info, check.Info} {
		rule := *r.Results[0].Rule
		rule.ID, rule.Severity, rule.Title = []string{"a/b", "c/d", "c/e"}[i], severity, "Something else"
		one := r.Results[0]
		one.Rule = &rule
		r.Results = append(r.Results, one, one)
	}
	for _, tt := range []struct {
		opts *report.TextOptions
		want string
	}{
		{nil, `1 error, 2 warnings, 4 infos in 5 events
  error      1  jsonrpc/unknown-id  A response matches no request
  warning    2  a/b                 Something else
  info       2  c/d                 Something else
  info       2  c/e                 Something else

`},
		{&report.TextOptions{Least: check.Warning, More: "-v shows them"}, `1 error, 2 warnings, 4 infos in 5 events (-v shows them)
  error      1  jsonrpc/unknown-id  A response matches no request
  warning    2  a/b                 Something else

`},
		{&report.TextOptions{Least: check.Error, More: "-v shows them"}, "1 error, 2 warnings, 4 infos in 5 events (-v shows them)\n\nerror jsonrpc/unknown-id: "},
	} {
		var b bytes.Buffer
		if err := report.Text(&b, r, tt.opts); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(b.String(), tt.want) {
			t.Errorf("%+v: got:\n%s\nwant the beginning:\n%s", tt.opts, b.String(), tt.want)
		}
		if tt.opts != nil && strings.Contains(b.String(), "c/d") {
			t.Errorf("%+v: infos are shown:\n%s", tt.opts, b.String())
		}
	}
}

// TestTextClips shows that the text lists the first results of a rule and counts the others.
func TestTextClips(t *testing.T) {
	r := reportOf(t, "jsonrpc/unknown-id")
	for range 30 {
		r.Results = append(r.Results, r.Results[0])
	}
	var b bytes.Buffer
	if err := report.Text(&b, r, nil); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "  … and 11 more\n") {
		t.Errorf("text:\n%s", b.String())
	}
}

func TestJSON(t *testing.T) {
	var b bytes.Buffer
	if err := report.JSON(&b, reportOf(t, "jsonrpc/unknown-id")); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"findings": []any{map[string]any{
			"rule": "jsonrpc/unknown-id", "severity": "error", "source": "a b.mcpcap.ndjson", "capture": "example", "event": 5.0, "dir": "s2c", "id": `"1"`,
			"revision": "2025-11-25", "pointer": "/id", "message": `no request has the id "1"; the pending request has 1, which is a different id`,
			"fix": "Copy the id of the request, byte for byte.", "url": "https://modelcontextprotocol.io/specification/2025-11-25/basic",
		}},
		"summary": map[string]any{"errors": 1.0, "warnings": 0.0, "infos": 0.0, "events": 5.0, "sources": []any{"a b.mcpcap.ndjson"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

func TestJUnit(t *testing.T) {
	var b bytes.Buffer
	r := reportOf(t, "jsonrpc/unknown-id")
	r.Rules = (&check.Options{Only: []string{"jsonrpc/unknown-id", "jsonrpc/version", "stdio/stray-output"}}).Enabled()
	if err := report.JUnit(&b, r); err != nil {
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

// TestJUnitSeverities shows that infos fail no test, and hide no failure of their rule.
func TestJUnitSeverities(t *testing.T) {
	for _, tt := range []struct {
		name       string
		severities []check.Severity
		failures   int
		failure    string // its type
		output     bool
	}{
		{"an info", []check.Severity{check.Info}, 0, "", true},
		{"an error and an info", []check.Severity{check.Error, check.Info}, 1, "error", true},
		{"a warning and an error", []check.Severity{check.Warning, check.Error}, 1, "error", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := reportOf(t, "jsonrpc/unknown-id")
			r.Rules = (&check.Options{Only: []string{"jsonrpc/unknown-id"}}).Enabled()
			first := r.Results[0]
			r.Results = nil
			for _, severity := range tt.severities {
				rule, res := *first.Rule, first
				rule.Severity = severity
				res.Rule = &rule
				r.Results = append(r.Results, res)
			}
			var b bytes.Buffer
			if err := report.JUnit(&b, r); err != nil {
				t.Fatal(err)
			}
			var got struct {
				Failures int `xml:"failures,attr"`
				Case     struct {
					Failure struct {
						Type string `xml:"type,attr"`
					} `xml:"failure"`
					Output string `xml:"system-out"`
				} `xml:"testsuite>testcase"`
			}
			if err := xml.Unmarshal(b.Bytes(), &got); err != nil {
				t.Fatalf("%v\n%s", err, b.Bytes())
			}
			if got.Failures != tt.failures || got.Case.Failure.Type != tt.failure || (got.Case.Output != "") != tt.output {
				t.Errorf("got %+v\n%s", got, b.Bytes())
			}
		})
	}
}

func TestSARIF(t *testing.T) {
	var b bytes.Buffer
	if err := report.SARIF(&b, reportOf(t, "jsonrpc/unknown-id")); err != nil {
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

func TestGitHub(t *testing.T) {
	var b bytes.Buffer
	r := reportOf(t, "jsonrpc/unknown-id")
	r.Results[0].Message = "100%\nof"
	if err := report.GitHub(&b, r); err != nil {
		t.Fatal(err)
	}
	want := "::error file=a b.mcpcap.ndjson,title=jsonrpc/unknown-id%3A A response matches no request::event 5, to the client, id \"1\", 2025-11-25, /id: 100%25%0Aof%0Afix: " +
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
	r := reportOf(t, "jsonrpc/unknown-id")
	for name, err := range map[string]error{
		"text": report.Text(brokenWriter{}, r, nil), "json": report.JSON(brokenWriter{}, r), "junit": report.JUnit(brokenWriter{}, r),
		"sarif": report.SARIF(brokenWriter{}, r), "github": report.GitHub(brokenWriter{}, r), "rules": report.Rules(brokenWriter{}, check.Rules(), nil),
		"explain": report.Explain(brokenWriter{}, check.Rules()[0], nil), "rules as JSON": report.RulesJSON(brokenWriter{}, check.Rules()),
	} {
		if !errors.Is(err, errBroken) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestExplain shows that every rule can be explained.
func TestExplain(t *testing.T) {
	for _, r := range check.Rules() {
		if err := report.Explain(io.Discard, r, nil); err != nil {
			t.Error(err)
		}
	}
}

func ExampleExplain() {
	r, _ := check.Lookup("jsonrpc/batch-empty")
	_ = report.Explain(os.Stdout, r, nil)
	// Output:
	// jsonrpc/batch-empty (error, all revisions)
	// A batch without messages
	//
	// Why: An empty array is not a message, and its sender waits for a response that never arrives.
	// Fix: Send nothing.
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

func TestMarkdown(t *testing.T) {
	r := reportOf(t, "jsonrpc/unknown-id")
	rule := *r.Results[0].Rule
	rule.ID, rule.Severity, rule.Title, rule.Fix, rule.URL = "a/b", check.Info, "Something else", "Do it.", "https://example.com"
	other := r.Results[0]
	other.Rule = &rule
	other.Message = "a|b\n<script> [x](http://y) `z` *w* @team #1 \\"
	r.Results = append([]report.Result{other, other}, r.Results...)
	r.Tool = "my_tool"
	var b bytes.Buffer
	if err := report.Markdown(&b, r); err != nil {
		t.Fatal(err)
	}
	want := `### my\_tool: 1 error, 0 warnings, 2 infos in 5 events

| severity | count | rule | for example | fix |
|---|---|---|---|---|
| error | 1 | [` + "`jsonrpc/unknown-id`" + `](https://modelcontextprotocol.io/specification/2025-11-25/basic) A response matches no request | event 5, to the client, id "1", 2025-11-25, /id: no request has the id "1"; the pending request has 1, which is a different id | Copy the id of the request, byte for byte. |
| info | 2 | [` + "`a/b`" + `](https://example.com) Something else | event 5, to the client, id "1", 2025-11-25, /id: a\|b &lt;script&gt; \[x\](http://y) \` + "`z\\`" + ` \*w\* &#64;team \#1 \\ | Do it. |
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("Markdown (-want +got):\n%s", diff)
	}
	b.Reset()
	if err := report.Markdown(&b, &report.Report{Tool: "mcpwire", Events: 7}); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "### mcpwire: 0 errors, 0 warnings, 0 infos in 7 events\n"; got != want {
		t.Errorf("without findings: %q, want %q", got, want)
	}
}
