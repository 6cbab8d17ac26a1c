package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	specDir = "../../../shared/spec"
	outDir  = "../../mcp"
	// shapeDir is the folder of the tables of shapes.
	shapeDir = "../../internal/era/shape"
)

// needSpec skips the test if the specification, which is not part of the repository, is not there.
func needSpec(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(specDir); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the specification's schemas are not there: no %s", specDir)
	}
}

// TestCommitted shows that the committed files are what the generator makes.
func TestCommitted(t *testing.T) {
	needSpec(t)
	types, _, err := generate(specDir)
	if err != nil {
		t.Fatal(err)
	}
	compareFiles(t, outDir, types)
	shapes, err := generateShape(specDir)
	if err != nil {
		t.Fatal(err)
	}
	compareFiles(t, shapeDir, shapes)
}

// compareFiles compares the generated files of a folder with what they should be.
func compareFiles(t *testing.T, dir string, want map[string][]byte) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "gen_*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		if diff := cmp.Diff(string(want[name]), string(got)); diff != "" {
			t.Errorf("%s: go generate ./mcp ./internal/era/shape would change it (-generated +committed):\n%s", name, diff)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("%s: go generate ./mcp ./internal/era/shape would write it", name)
	}
}

// TestComplete shows that each definition and each property of each schema is generated, or is
// skipped for a reason.
func TestComplete(t *testing.T) {
	needSpec(t)
	_, m, err := generate(specDir)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for i, date := range dates {
		text, err := os.ReadFile(filepath.Join(specDir, date, "schema.json"))
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]json.RawMessage
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		if doc["$defs"] == nil {
			doc["$defs"] = doc["definitions"]
		}
		var defs map[string]any
		if err := json.Unmarshal(doc["$defs"], &defs); err != nil {
			t.Fatal(err)
		}
		for name, def := range defs {
			total += checkPart(t, m.outcomes[rev(i)], date, name, def)
		}
	}
	if total < 2000 {
		t.Errorf("only %d parts were looked at", total)
	}
}

// checkPart checks a definition or property, and all below it. It returns how many there are.
func checkPart(t *testing.T, rules map[string]string, date, path string, schema any) int {
	t.Helper()
	rule := rules[path]
	if rule == "" || strings.HasSuffix(rule, ": ") {
		t.Errorf("%s: %s: neither covered nor skipped with a reason", date, path)
	}
	return 1 + checkBelow(t, rules, date, path, schema)
}

func checkBelow(t *testing.T, rules map[string]string, date, path string, schema any) (total int) {
	t.Helper()
	switch s := schema.(type) {
	case []any:
		for _, part := range s {
			total += checkBelow(t, rules, date, path, part)
		}
	case map[string]any:
		properties, _ := s["properties"].(map[string]any)
		for name, p := range properties {
			total += checkPart(t, rules, date, path+"."+name, p)
		}
		for _, keyword := range []string{"allOf", "anyOf", "oneOf", "items", "additionalProperties", "not"} {
			total += checkBelow(t, rules, date, path, s[keyword])
		}
	}
	return total
}

// TestRules shows that a rule that nothing needs fails the run.
func TestRules(t *testing.T) {
	needSpec(t)
	fails := func(name, want string) {
		t.Helper()
		if _, _, err := generate(specDir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
	skipped["Nothing"] = "why"
	fails("skip", `rule "Nothing" of skipped is not used`)
	delete(skipped, "Nothing")

	kinds["Tool.nothing"] = kind{form: formString}
	fails("override", `rule "Tool.nothing" of kinds is not used`)
	delete(kinds, "Tool.nothing")

	lenientArrays["Tool.title"] = true
	fails("lenient", `rule "Tool.title" of lenient is not used`)
	delete(lenientArrays, "Tool.title")

	enum := enums["Icon.theme"]
	delete(enums, "Icon.theme")
	fails("enum", "Icon.theme: an enum without constants")
	enums["Icon.theme"] = enum

	place := inlineTypes["CompleteResult.completion"]
	delete(inlineTypes, "CompleteResult.completion")
	fails("in place", "CompleteResult.completion: an inline type without a name")
	inlineTypes["CompleteResult.completion"] = place

	reason := skipped["JSONValue"]
	delete(skipped, "JSONValue")
	fails("no skip", "JSONValue")
	skipped["JSONValue"] = reason

	if _, _, err := generate(specDir); err != nil {
		t.Errorf("as it was: %v", err)
	}
	if _, _, err := generate("nowhere"); err == nil {
		t.Error("generated from nothing")
	}
}

// TestShapeRules shows that a rule of the shapes that nothing needs fails the run, too.
func TestShapeRules(t *testing.T) {
	needSpec(t)
	fails := func(name, want string) {
		t.Helper()
		if _, err := generateShape(specDir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", name, err, want)
		}
	}
	unshaped["Nothing"] = "why"
	fails("no shape", `rule "Nothing" of unshaped is not used`)
	delete(unshaped, "Nothing")

	fractionFields = append(fractionFields, "Nothing.at")
	fails("fraction", `rule "Nothing.at" of fractions is not used`)
	fractionFields = fractionFields[:len(fractionFields)-1]

	additions := shapeAdditionsText
	shapeAdditionsText = []byte(`{"1999-01-01":{}}`)
	fails("revision", "no revision 1999-01-01")
	shapeAdditionsText = []byte(strings.Replace(string(additions), `"SubscriptionFilter"`, `"SubscriptionSieve"`, 1))
	fails("extension of nothing", "has no SubscriptionSieve")
	shapeAdditionsText = additions

	if _, err := generateShape(specDir); err != nil {
		t.Errorf("as it was: %v", err)
	}
	if _, err := generateShape("nowhere"); err == nil {
		t.Error("generated from nothing")
	}
}

func TestGoName(t *testing.T) {
	for name, want := range map[string]string{
		"uri": "URI", "mimeType": "MIMEType", "uriTemplate": "URITemplate", "ttlMs": "TTLMs", "websiteUrl": "WebsiteURL", "taskIds": "TaskIDs",
		"_meta": "Meta", "toolUseId": "ToolUseID", "input_required": "InputRequired", "date-time": "DateTime", "isError": "IsError",
		"io.modelcontextprotocol/clientInfo": "ClientInfo", "readOnlyHint": "ReadOnlyHint", "id": "ID", "identity": "Identity",
	} {
		if got := goName(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
