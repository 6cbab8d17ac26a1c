package specref

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/era/shape"
	"mcpwire/mcp"
)

var update = flag.Bool("update", false, "write rules.txt anew from internal/test/compliance")

const requirements = "../../../../internal/test/compliance/requirements.txt"

// TestRules shows that rules.txt has exactly the rules that the other texts name, with the text in
// internal/test/compliance.
func TestRules(t *testing.T) {
	text, err := os.ReadFile(requirements)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	var order []string
	for _, m := range regexp.MustCompile(`(?m)^([SCT]\d+) .*$`).FindAllStringSubmatch(string(text), -1) {
		all[m[1]] = m[0]
		order = append(order, m[1])
	}
	used := map[string]bool{}
	for _, blocks := range texts(t) {
		for _, b := range blocks {
			for id := range strings.FieldsSeq(b.text("rules")) {
				if all[id] == "" {
					t.Errorf("%s: there is no rule %s", b.name, id)
				}
				used[id] = true
			}
		}
	}
	head, _, _ := strings.Cut(rulesText, "\n\n")
	want := head + "\n\n"
	for _, id := range order {
		if used[id] {
			want += all[id] + "\n"
		}
	}
	if *update {
		if err := os.WriteFile("rules.txt", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(want, rulesText); diff != "" {
		t.Errorf("rules.txt (-want +got; go test -update mends it):\n%s", diff)
	}
}

// texts returns the blocks of the text files.
func texts(t *testing.T) map[string][]*block {
	t.Helper()
	all := map[string][]*block{}
	for name, text := range map[string]string{"methods": methodsText, "codes": codesText, "headers": headersText, "fields": fieldsText} {
		blocks, err := readBlocks(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[name] = blocks
	}
	return all
}

// TestTexts shows that each block has the required fields, and no unknown ones.
func TestTexts(t *testing.T) {
	keys := map[string][]string{
		"methods": {"is", "needs", "page", "rules", "error", "note", "params", "result"},
		"codes":   {"is", "in", "answers", "http", "data", "do", "rules", "page"},
		"headers": {"is", "in", "from", "when", "rules", "note", "page", "example"},
		"fields":  {"is", "in", "rules", "page"},
	}
	must := map[string][]string{"methods": {"is", "page"}, "codes": {"is", "in", "do", "page"}, "headers": {"is", "in", "from", "when", "page", "example"}, "fields": {"is"}}
	for name, blocks := range texts(t) {
		seen := map[string]bool{}
		for _, b := range blocks {
			if seen[b.name] {
				t.Errorf("%s: %s is there twice", name, b.name)
			}
			seen[b.name] = true
			for _, key := range must[name] {
				if b.text(key) == "" {
					t.Errorf("%s: %s has no %q", name, b.name, key)
				}
			}
			for _, l := range b.attributes {
				if !slices.Contains(keys[name], l.key) || l.rest != "" && l.key != "error" {
					t.Errorf("%s: %s: a line %q %q", name, b.name, l.key, l.rest)
				}
			}
			if in := b.text("in"); in != "" {
				if _, err := parseRevisions(in); err != nil {
					t.Errorf("%s: %s: %v", name, b.name, err)
				}
			}
		}
	}
}

func TestReadErrors(t *testing.T) {
	for _, text := range []string{"is: before", "== a\nis without a colon", "== a\npage [2025-01-01]: x", "== a\npage [from 2025-01-01]: x", "== a\npage [2025-06-18 to x]: y"} {
		if _, err := readBlocks(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
	for _, text := range []string{"X1 [all] text", "S1 text", "S1 [never] text"} {
		if _, err := readRules(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

// TestMethods shows that the methods of all revisions are found, with a text, and that no other
// entry is found as a method.
func TestMethods(t *testing.T) {
	b := Open()
	for _, m := range shape.Methods() {
		e := only(t, b.Lookup(m.Name, nil), "method", m.Name)
		if e == nil {
			continue
		}
		if e.Summary == "" || e.Page == "" || len(e.Directions) == 0 || e.Params == nil || len(e.Examples) == 0 {
			t.Errorf("%s: a text is missing: %+v", m.Name, e)
		}
		if want := names(m.Revisions()); !slices.Equal(e.Revisions, want) {
			t.Errorf("%s: revisions %v, want %v", m.Name, e.Revisions, want)
		}
		if !m.Notification && len(e.Results) == 0 {
			t.Errorf("%s: no result", m.Name)
		}
	}
	for _, text := range b.methods {
		if _, ok := shape.MethodOf(text.name); !ok {
			t.Errorf("methods.txt: no revision has %s", text.name)
		}
	}
}

// only returns the entry of a kind and name, or fails the test.
func only(t *testing.T, all []*Entry, kind, name string) *Entry {
	t.Helper()
	for _, e := range all {
		if e.Kind == kind && e.Name == name {
			return e
		}
	}
	t.Errorf("%s %s was not found", kind, name)
	return nil
}

// TestWords shows that searches find an entry in all spellings that people use.
func TestWords(t *testing.T) {
	b := Open()
	for word, want := range map[string]string{
		"-32700": "code -32700", "-32600": "code -32600", "-32601": "code -32601", "-32602": "code -32602", "-32603": "code -32603", "-32002": "code -32002",
		"-32042": "code -32042", "-32020": "code -32020", "-32021": "code -32021", "-32022": "code -32022", "-1": "code -1", "-32000": "code -32000",
		"-32019": "code -32000", "-32001": "code -32000", "-32099": "code -32020..-32099", "-32023": "code -32020..-32099", "32022": "code -32022",
		"HeaderMismatch": "code -32020", "UnsupportedProtocolVersionError": "code -32022", "parseerror": "code -32700",
		"MissingRequiredClientCapability": "code -32021", "URLElicitationRequiredError": "code -32042",
		"MCP-Protocol-Version": "header MCP-Protocol-Version", "mcp-method": "header Mcp-Method", "Mcp-Name:": "header Mcp-Name", "Mcp-Param-*": "header Mcp-Param-*",
		"Mcp-Param-Region": "header Mcp-Param-*", "Mcp-Session-Id": "header Mcp-Session-Id", "LAST-EVENT-ID": "header Last-Event-ID", "Accept": "header Accept",
		"Origin": "header Origin", "WWW-Authenticate": "header WWW-Authenticate", "Authorization": "header Authorization",
		"resultType": "field resultType", "progressToken": "field progressToken", "_meta.progressToken": "field progressToken", "ttlMs": "field ttlMs",
		"io.modelcontextprotocol/protocolVersion":      "field io.modelcontextprotocol/protocolVersion",
		"_meta.io.modelcontextprotocol/subscriptionId": "field io.modelcontextprotocol/subscriptionId",
		"related-task": "field io.modelcontextprotocol/related-task", "x-mcp-header": "field x-mcp-header", "structuredcontent": "field structuredContent",
		"Tool": "type Tool", "contentblock": "type ContentBlock", "cancelled": "method notifications/cancelled", "TOOLS/CALL": "method tools/call",
	} {
		kind, name, _ := strings.Cut(want, " ")
		only(t, b.Lookup(word, nil), kind, name)
	}
	if all := b.Lookup("clientInfo", nil); len(all) != 2 {
		t.Errorf("clientInfo has %d meanings", len(all))
	}
	if all := b.Lookup("nothing of the kind", nil); all != nil {
		t.Errorf("found %v", all)
	}
}

// TestReserved shows that all reserved keys of _meta have a text.
func TestReserved(t *testing.T) {
	b := Open()
	for name := range b.fields {
		if strings.HasPrefix(name, metaPrefix) && b.texts[name] == nil {
			t.Errorf("%s has no text", name)
		}
	}
	for name, text := range b.texts {
		if b.fields[name] == nil && text.text("in") == "" {
			t.Errorf("fields.txt: no type has %s", name)
		}
	}
}

// TestExamples checks that the examples are valid in their revision, forevery request.
func TestExamples(t *testing.T) {
	b, count := Open(), 0
	for _, r := range mcp.Revisions() {
		for _, m := range shape.Methods() {
			if !slices.Contains(m.Revisions(), r) {
				continue
			}
			e := only(t, b.Lookup(m.Name, []mcp.Revision{r}), "method", m.Name)
			for _, x := range e.Examples {
				count++
				for _, p := range checkExample(m, r, x.Message) {
					t.Errorf("%s: %s: %s: %s: %s", r, m.Name, x.Title, p.Pointer, p.Message)
				}
			}
		}
		for _, c := range b.codes {
			number, _, _ := strings.Cut(c.name, " ")
			for _, x := range only(t, b.Lookup(number, []mcp.Revision{r}), "code", number).Examples {
				count++
				for _, p := range shape.Check(r, shape.Message{Kind: shape.ErrorObject, Body: x.Message}) {
					t.Errorf("%s: %s: %s: %s", r, c.name, p.Pointer, p.Message)
				}
			}
		}
	}
	if count < 200 {
		t.Errorf("only %d examples", count)
	}
}

func checkExample(m shape.Method, r mcp.Revision, message []byte) []shape.Finding {
	var envelope struct{ Params, Result json.RawMessage }
	if err := json.Unmarshal(message, &envelope); err != nil {
		return []shape.Finding{{Message: err.Error()}}
	}
	check := shape.Message{Kind: shape.Request, Method: m.Name, Body: envelope.Params}
	switch {
	case m.Input(r) && !bytes.Contains(message, []byte(`"method"`)):
		check.Kind, check.Body = shape.Result, message
	case m.Input(r):
		problems, _ := shape.CheckType(r, "InputRequest", message)
		return problems
	case m.Notification:
		check.Kind = shape.Notification
	case envelope.Result != nil:
		check.Kind, check.Body = shape.Result, envelope.Result
	}
	return shape.Check(r, check)
}

// TestWrite shows that every entry is printed within the width, unless a word is longer.
func TestWrite(t *testing.T) {
	b := Open()
	for _, g := range b.Index() {
		for _, w := range g.Words {
			name, _, _ := strings.Cut(w, " ")
			entries := b.Lookup(name, nil)
			if len(entries) == 0 {
				t.Errorf("%s is only in the index", w)
			}
			var out bytes.Buffer
			if err := Write(&out, entries, Style{}); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out.String()) {
				line = strings.TrimSuffix(line, "\n")
				if utf8.RuneCountInString(line) > 80 && strings.Contains(strings.TrimSpace(line), " ") && !strings.Contains(line, "https://") && !strings.Contains(line, `": "`) {
					t.Errorf("%s: a long line: %q", w, line)
				}
				if strings.TrimRight(line, " ") != line || strings.Contains(line, "\x1b") {
					t.Errorf("%s: %q", w, line)
				}
			}
			if _, err := json.Marshal(entries); err != nil {
				t.Errorf("%s: %v", w, err)
			}
		}
	}
	var out bytes.Buffer
	if err := WriteIndex(&out, b.Index(), Style{}); err != nil || out.Len() < 2000 {
		t.Errorf("the index: %v, %d bytes", err, out.Len())
	}
}

func TestChanges(t *testing.T) {
	b := Open()
	got := only(t, b.Lookup("Tool", nil), "type", "Tool").Changes
	want := []Change{
		{"2025-03-26", []string{"+ Tool.annotations"}},
		{"2025-06-18", []string{"+ Tool.title", "+ Tool.outputSchema", "+ Tool._meta"}},
		{"2025-11-25", []string{"+ Tool.inputSchema.$schema", "+ Tool.outputSchema.$schema", "+ Tool.icons", "+ Tool.execution"}},
	}
	if diff := cmp.Diff(want, got[:min(3, len(got))]); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	for word, want := range map[string]string{
		"roots/list": "~ no longer a request, but part of an input_required result", "notifications/progress": "~ only from server to client",
		"tasks/get": "~ moved from the protocol to an extension", "tools/list": "~ params is required", "initialize": "- initialize",
		"server/discover": "+ server/discover",
	} {
		changes := only(t, b.Lookup(word, nil), "method", word).Changes
		if last := changes[len(changes)-1]; last.Revision != "2026-07-28" || !slices.Contains(last.What, want) {
			t.Errorf("%s: %v, want %q", word, last, want)
		}
	}
}

func TestSuggest(t *testing.T) {
	b := Open()
	for word, want := range map[string]string{
		"tools/cal": "tools/call", "tolos/call": "tools/call", "resultTyp": "resultType", "HeaderMissmatch": "-32020", "mcp-nmae": "Mcp-Name", "initialzed": "notifications/initialized",
		"Toool": "Tool", "progresstokn": "progressToken",
	} {
		if got := b.Suggest(word); !slices.Contains(got, want) || len(got) > 5 {
			t.Errorf("%s: got %v, want %s", word, got, want)
		}
	}
	if got := b.Suggest(strings.Repeat("z", 100_000)); got != nil {
		t.Errorf("got %v", got)
	}
}

func FuzzLookup(f *testing.F) {
	b := Open()
	f.Add("tools/call")
	f.Add("-32000")
	f.Add("Mcp-Param-\x1b[31m")
	f.Fuzz(func(t *testing.T, word string) {
		var out bytes.Buffer
		if err := Write(&out, b.Lookup(word, nil), Style{Width: 20}); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "\x1b") {
			t.Errorf("%q is written unchanged", word)
		}
		b.Suggest(word)
	})
}

// TestNotes shows that notes are omitted for revisions without the feature, unless the note
// includes them.
func TestNotes(t *testing.T) {
	b := Open()
	for _, tt := range []struct {
		word string
		rev  mcp.Revision
		want []string // the revisions of each note
	}{
		{"server/discover", mcp.Revision20251125, nil},
		{"server/discover", mcp.Revision20260728, []string{"2026-07-28"}},
		{"tasks/get", mcp.Revision20241105, nil},
		{"ping", mcp.Revision20260728, []string{"2026-07-28"}},
		{"tools/call", mcp.Revision20241105, []string{"2024-11-05"}},
		{"Mcp-Method", mcp.Revision20241105, nil},
	} {
		var got []string
		for _, n := range b.Lookup(tt.word, []mcp.Revision{tt.rev})[0].Notes {
			got = append(got, strings.Join(n.Revisions, " "))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s in %s (-want +got):\n%s", tt.word, tt.rev, diff)
		}
	}
	var text strings.Builder
	if err := Write(&text, b.Lookup("tools/call", []mcp.Revision{mcp.Revision20241105}), Style{}); err != nil || !strings.Contains(text.String(), "\n  - a failure inside") {
		t.Errorf("a note on all requested revisions names them: %v\n%s", err, text.String())
	}
}

// TestAnswers checks that an error that any request may get is not listed for only a few methods.
func TestAnswers(t *testing.T) {
	b := Open()
	for word, want := range map[string]string{"-32020": "any request over HTTP", "-32022": "any request", "-32602": "any request", "-32002": "resources/read", "-1": "sampling/createMessage"} {
		if got := b.Lookup(word, nil)[0].Answers; got != want {
			t.Errorf("%s: got %q, want %q", word, got, want)
		}
	}
}
