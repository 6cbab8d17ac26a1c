package probe

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/check"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// TestRules checks the descriptions of the rules.
func TestRules(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rules() {
		if seen[r.ID] || !strings.HasPrefix(r.ID, prefix) {
			t.Errorf("%s: twice, or without the prefix", r.ID)
		}
		seen[r.ID] = true
		if _, taken := check.Lookup(r.ID); taken {
			t.Errorf("%s: package check has it too", r.ID)
		}
		for what, text := range map[string]string{"Title": r.Title, "Why": r.Why, "Fix": r.Fix} {
			if text == "" || strings.HasSuffix(text, ".") == (what == "Title") {
				t.Errorf("%s: %s is %q", r.ID, what, text)
			}
		}
		if !strings.HasPrefix(r.URL, "https://") {
			t.Errorf("%s: URL is %q", r.ID, r.URL)
		}
		for name, x := range map[string]check.Example{"Good": r.Good, "Bad": r.Bad} {
			if _, events, err := x.Events(); err != nil || len(events) == 0 {
				t.Errorf("%s: %s example: %d events, %v", r.ID, name, len(events), err)
			}
			if !appliesTo(r, x.Revision) {
				t.Errorf("%s: %s example is of %v, which does not have the rule", r.ID, name, x.Revision)
			}
		}
		// The good example must violate no other rule either.
		head, events, _ := r.Good.Events()
		k := check.New(nil)
		var all []check.Finding
		for _, e := range events {
			all = append(all, k.Add(head, e)...)
		}
		all = slices.DeleteFunc(append(all, k.Close()...), func(f check.Finding) bool { return !aboutServer(&f) || f.Rule.Severity == check.Info })
		if len(all) > 0 {
			t.Errorf("%s: good example: %s", r.ID, verbose(all))
		}
	}
}

func TestChosen(t *testing.T) {
	for _, tt := range []struct {
		only, disabled []string
		want           bool
	}{
		{nil, nil, true},
		{[]string{"probe/*"}, nil, true},
		{[]string{"probe/eof"}, nil, true},
		{[]string{"stdio/*"}, nil, false},
		{nil, []string{"probe/*"}, false},
		{[]string{"probe/*"}, []string{"probe/eof"}, false},
		{[]string{"probe/e*"}, nil, false}, // only whole groups
	} {
		if got := Enabled("probe/eof", tt.only, tt.disabled); got != tt.want {
			t.Errorf("Chosen(only %v, disabled %v) = %v, want %v", tt.only, tt.disabled, got, tt.want)
		}
	}
}

func speaks(revisions ...mcp.Revision) fault {
	return func(m *jsonrpc.Message, line string) ([]string, bool) {
		switch {
		case string(m.Method) == mcp.MethodInitialize && !strings.Contains(line, noSuchVersion):
			if v := jsonwire.Text(jsonwire.Lookup(m.Params, "protocolVersion")); !slices.ContainsFunc(revisions, func(r mcp.Revision) bool { return r.String() == v }) {
				return result(m, strings.Replace(initialized, "%s", revisions[len(revisions)-1].String(), 1)), true
			}
		case metaText(m, mcp.MetaProtocolVersion) != "" && !slices.Contains(revisions, rev20260728):
			return failure(m, "-32601"), true
		}
		return nil, false
	}
}

// both is two faults, the first one first.
func both(f, g fault) fault {
	return func(m *jsonrpc.Message, line string) ([]string, bool) {
		if reply, taken := f(m, line); taken {
			return reply, true
		}
		return g(m, line)
	}
}

// severities returns the violated rules of the probe with severity, revision and library.
func severities(list []check.Finding) []string {
	got := []string{}
	for _, f := range list {
		if strings.HasPrefix(f.Rule.ID, prefix) || f.SDK != "" {
			got = append(got, strings.TrimSpace(f.Rule.ID+" "+f.Rule.Severity.String()+" "+f.Revision.String()+" "+f.SDK))
		}
	}
	slices.Sort(got)
	return slices.Compact(got)
}

// TestSeverities shows that a finding is less severe in a superseded revision, or if a library
// causes it.
func TestSeverities(t *testing.T) {
	unknown := when(noSuchMethod, "", with(""))
	zod := func(m *jsonrpc.Message) []string {
		return []string{`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32603,"message":"[\n  {\n    \"code\": \"invalid_type\",\n    \"path\": [\n      \"params\"\n    ]\n  }\n]"}}`}
	}
	for _, tt := range []struct {
		name string
		in   fault
		want []string
	}{
		{"all revisions", unknown, []string{
			"probe/unknown-method error 2025-11-25", "probe/unknown-method error 2026-07-28",
			"probe/unknown-method warning 2024-11-05", "probe/unknown-method warning 2025-03-26", "probe/unknown-method warning 2025-06-18",
		}},
		{"the oldest only", both(speaks(rev20241105), unknown), []string{"probe/unknown-method error 2024-11-05"}},
		{"the library", both(speaks(rev20251125), when(mcp.MethodResourcesRead, `"params":{}`, zod)), []string{"probe/error-code info 2025-11-25 TypeScript SDK"}},
		{"the library, and the server", both(speaks(rev20251125), both(when(mcp.MethodResourcesRead, `"params":{}`, zod), when(mcp.MethodPromptsGet, noSuchPrompt, code("-32603")))), []string{
			"probe/error-code info 2025-11-25 TypeScript SDK", "probe/error-code warning 2025-11-25",
		}},
		{"the library in another place", both(speaks(rev20251125), both(when(mcp.MethodResourcesRead, `"params":{}`, zod), lines(notJSON))), []string{
			"probe/error-code info 2025-11-25 TypeScript SDK", "probe/garbage-unanswered info 2025-11-25 TypeScript SDK",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				report, err := probeFake(t, flaw{in: tt.in}, nil)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, severities(report.Findings)); diff != "" {
					t.Errorf("findings (-want +got):\n%s%s", diff, verbose(report.Findings))
				}
				for _, f := range report.Findings {
					if f.Revision != mcp.RevisionNone && strings.Contains(f.Rule.URL, "modelcontextprotocol") && !strings.Contains(f.Rule.URL, "/"+f.Revision.String()+"/") {
						t.Errorf("%s in %v refers to %s", f.Rule.ID, f.Revision, f.Rule.URL)
					}
				}
			})
		})
	}
}

// TestPythonLogs shows that the Python SDK reports bad requests by log messages, whatever the
// server has declared.
func TestPythonLogs(t *testing.T) {
	refuse := func(m *jsonrpc.Message) []string {
		return []string{
			`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","logger":"mcp.server.exception_handler","data":"Internal Server Error"}}`,
			`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32602,"message":"Invalid request parameters","data":""}}`,
		}
	}
	undeclared := when(mcp.MethodInitialize, "", with(strings.Replace(initialized, "%s", rev20251125.String(), 1)))
	synctest.Test(t, func(t *testing.T) {
		report, err := probeFake(t, flaw{in: both(both(undeclared, speaks(rev20251125)), when(noSuchMethod, "", refuse))}, nil)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(report.Findings, func(f check.Finding) bool { return f.Rule.ID == "capability/logging" })
		if i < 0 {
			t.Fatalf("not found:\n%s", verbose(report.Findings))
		}
		if f := report.Findings[i]; f.SDK != "Python SDK" || f.Rule.Severity != check.Info {
			t.Errorf("got %v of %q, want an info of the Python SDK", f.Rule.Severity, f.SDK)
		}
	})
}

// TestExitAfterInvalidMessage shows that there is no stdio/exit finding about a server that ends
// because of an invalid message.
func TestExitAfterInvalidMessage(t *testing.T) {
	for _, f := range []fault{lines(notJSON, die), lines(func(line string) bool { return strings.HasPrefix(line, "[") }, die), lines(func(line string) bool { return line == "" }, die)} {
		synctest.Test(t, func(t *testing.T) {
			report, err := probeFake(t, flaw{in: f}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := brief(report.Findings); slices.ContainsFunc(got, func(id string) bool { return strings.HasPrefix(id, "stdio/exit") }) {
				t.Errorf("found: %s", verbose(report.Findings))
			}
		})
	}
}

// TestWording checks the text of a finding about a missing response.
func TestWording(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		report, err := probeFake(t, flaw{in: lines(func(line string) bool { return strings.HasPrefix(line, "[") })}, &Options{Revisions: []mcp.Revision{rev20250326}, Only: []string{"probe/batch"}})
		if err != nil || len(report.Findings) != 1 {
			t.Fatalf("%v, findings %s", err, verbose(report.Findings))
		}
		if got, want := report.Findings[0].Message, "a batch got no response in time"; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
	})
}

// The revisions, oldest first, and by era.
const (
	rev20241105 = mcp.Revision20241105
	rev20250326 = mcp.Revision20250326
	rev20250618 = mcp.Revision20250618
	rev20251125 = mcp.Revision20251125
	rev20260728 = mcp.Revision20260728
)

var (
	legacy = []mcp.Revision{rev20241105, rev20250326, rev20250618, rev20251125}
	modern = []mcp.Revision{rev20260728}
)

// TestReadRules shows that texts that are not rules are errors.
func TestReadRules(t *testing.T) {
	const rule = "rule: a\nseverity: error\nrevisions: legacy\ntitle: T\nurl: basic\ngood: 2025-11-25\n\tinit\n\t> x\n"
	list, err := readRules("# comment\n\n" + rule)
	if err != nil || len(list) != 1 {
		t.Fatalf("got %d rules and %v", len(list), err)
	}
	want := check.Rule{ID: "probe/a", Severity: check.Error, Revisions: legacy, Title: "T", Good: check.Example{Revision: rev20251125, Text: "init\n> x"},
		URL: "https://modelcontextprotocol.io/specification/2025-11-25/basic"}
	if diff := cmp.Diff(want, list[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, text := range []string{"severity: bad", "revisions: 2001-01-01", "good: never", "size: 1", "title", "\tbefore an example", rule + "what: else"} {
		if _, err := readRules(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}
