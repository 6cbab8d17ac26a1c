package shape_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"mcpwire/internal/era/shape"
	"mcpwire/internal/test/specschema"
	"mcpwire/mcp"
)

// compileTypes returns the schema of each type that both schema.json and the tables have.
func compileTypes(t *testing.T, rev mcp.Revision) map[string]*jsonschema.Schema {
	t.Helper()
	accept := func(any) error { return nil }
	// Our own check calls these BadFormat.
	doc := specschema.Open(t, rev.String(), map[string]func(any) error{"uri": accept, "uri-template": accept, "byte": accept})
	all := map[string]*jsonschema.Schema{}
	for name := range doc.Defs {
		if _, ok := shape.TypeOf(rev, name); ok {
			all[name] = doc.Compile(t, name)
		}
	}
	return all
}

// TestDifferential compares with a validator that reads schema.json, on values that are right and
// on those that have one thing changed.
func TestDifferential(t *testing.T) {
	compared, used := 0, map[string]int{}
	for _, rev := range mcp.Revisions() {
		schemas := compileTypes(t, rev)
		for _, name := range slices.Sorted(maps.Keys(schemas)) {
			typ, _ := shape.TypeOf(rev, name)
			for _, all := range []bool{false, true} {
				sample := typ.AppendSample(nil, all)
				if problems, _ := shape.CheckType(rev, name, sample); len(problems) > 0 {
					t.Errorf("%s: %s: the sample %s has problems: %v", rev, name, sample, problems)
				}
				var value any
				if err := json.Unmarshal(sample, &value); err != nil {
					t.Fatalf("%s: %s: %s: %v", rev, name, sample, err)
				}
				mutate(value, name, all, func(where string) {
					compared++
					text, err := json.Marshal(value)
					if err != nil {
						t.Fatal(err)
					}
					ours, _ := shape.CheckType(rev, name, text)
					ours = slices.DeleteFunc(ours, func(p shape.Finding) bool { return p.Code == shape.BadFormat })
					parsed, _ := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
					theirs := schemas[name].Validate(parsed)
					if (len(ours) == 0) == (theirs == nil) {
						return
					}
					if why := explain(where, len(ours) == 0); why != "" {
						used[why]++
						return
					}
					t.Errorf("%s: %s: %s: ours %v, theirs %v: %s", rev, name, where, ours, theirs, text)
				})
			}
		}
	}
	t.Logf("%d values; %v", compared, used)
	if compared < 10000 {
		t.Errorf("only %d values were compared", compared)
	}
	for _, d := range differences {
		if used[d.why] == 0 {
			t.Errorf("the difference is not there any more: %s", d.why)
		}
	}
}

// mutate calls f for the value and, if parts is set, with each part of it changed in turn. where
// says which part, and into what. Members of _meta are mutated only in RequestParams, because they
// are the same elsewhere, and deeply nested parts only as separate types.
func mutate(root any, typ string, parts bool, f func(where string)) {
	if f("as it is"); !parts {
		return
	}
	mutatePart(root, "", typ == "RequestParams", f)
}

var replacements = []any{nil, true, json.Number("1"), json.Number("1.5"), json.Number("-3"), "x", []any{}, []any{map[string]any{}}, map[string]any{}, map[string]any{"x": nil}, map[string]any{"x": json.Number("1.5")}}

func mutatePart(value any, where string, meta bool, f func(where string)) {
	each := func(where string, old any, set func(any)) {
		for _, r := range replacements {
			set(r)
			text, _ := json.Marshal(r)
			f(where + "=" + string(text))
		}
		set(old)
		if deep := strings.Count(where, "/") > 3; !deep && (meta || !strings.HasSuffix(where, "/_meta")) {
			mutatePart(old, where, meta, f)
		}
	}
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			old := v[key]
			each(where+"/"+key, old, func(r any) { v[key] = r })
			delete(v, key)
			f(where + "/" + key + " dropped")
			v[key] = old
		}
	case []any:
		for i, old := range v {
			each(fmt.Sprintf("%s/%d", where, i), old, func(r any) { v[i] = r })
		}
	}
}

// A difference is one that is meant.
type difference struct {
	where   []string // parts of where
	lenient bool     // ours has no problem
	why     string
}

var differences = []difference{
	{[]string{"/traceparent", "/tracestate", "/baggage", "/io.modelcontextprotocol/related-task"}, false, "only the pages give these members of _meta a type"},
	{[]string{"/taskIds"}, false, "the tasks extension adds this member"},
	{[]string{`={"x":null}`, `={"x":1.5}`}, true, "the schema's JSONValue has neither null nor fractions"},
	{[]string{`/content/example=1.5`, `/example/content/example=1.5`}, true, "the schema takes the numbers of a form for integers"},
	{[]string{`/method="x"`}, true, "an input request of an extension"},
}

func explain(where string, lenient bool) string {
	for _, d := range differences {
		if d.lenient == lenient && slices.ContainsFunc(d.where, func(part string) bool { return strings.Contains(where, part) }) {
			return d.why
		}
	}
	return ""
}
