package shape_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mcpwire/internal/era/shape"
	"mcpwire/internal/test/specschema"
	"mcpwire/mcp"
)

// TestExamples shows that the specification's own examples have no problems in their revision.
func TestExamples(t *testing.T) {
	seen, skipped := 0, 0
	for _, rev := range mcp.Revisions() {
		paths, err := filepath.Glob(filepath.Join(specschema.Dir(t), rev.String(), "examples", "*", "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range paths {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var compact bytes.Buffer
			if err := json.Compact(&compact, text); err != nil {
				t.Fatal(err)
			}
			problems, ok := checkExample(rev, filepath.Base(filepath.Dir(file)), compact.Bytes())
			if !ok {
				t.Logf("%s: not looked at", file)
				skipped++
				continue
			}
			seen++
			for _, p := range problems {
				if why := wrongExamples[filepath.Base(file)+" "+p.Message]; why != "" {
					continue
				}
				t.Errorf("%s: %s: %s: %s", file, p.Code, p.Pointer, p.Message)
			}
		}
	}
	if seen < 110 || skipped > 5 {
		t.Errorf("looked at %d examples, and not at %d", seen, skipped)
	}
}

// wrongExamples are problems that the specification's examples do have.
var wrongExamples = map[string]string{
	`read-resource-result-response.json "ttlMs" is missing: the result of resources/read requires it`:      "the schema requires it, and so does the page on caching",
	`read-resource-result-response.json "cacheScope" is missing: the result of resources/read requires it`: "the schema requires it, and so does the page on caching",
}

func isInput(rev mcp.Revision, method string) bool {
	m, ok := shape.MethodOf(method)
	return ok && m.Input(rev)
}

// checkExample finds out what an example of a type is.
func checkExample(rev mcp.Revision, typ string, text []byte) ([]shape.Finding, bool) {
	var envelope struct {
		Method string
		Params json.RawMessage
		Result json.RawMessage
		Error  json.RawMessage
		Code   int
	}
	if err := json.Unmarshal(text, &envelope); err != nil {
		return nil, false
	}
	switch {
	case strings.HasSuffix(typ, "ResultResponse"):
		return shape.Check(rev, shape.Message{Kind: shape.Result, Method: methodOf(rev, strings.TrimSuffix(typ, "Response")), Body: envelope.Result}), true
	case strings.HasSuffix(typ, "Error") && envelope.Error != nil:
		return shape.Check(rev, shape.Message{Kind: shape.ErrorObject, Body: envelope.Error}), true
	case strings.HasSuffix(typ, "Error"):
		return shape.Check(rev, shape.Message{Kind: shape.ErrorObject, Body: text}), true
	case strings.HasSuffix(typ, "Notification"):
		return shape.Check(rev, shape.Message{Kind: shape.Notification, Method: envelope.Method, Body: envelope.Params}), true
	case strings.HasSuffix(typ, "Request") && !isInput(rev, envelope.Method):
		return shape.Check(rev, shape.Message{Kind: shape.Request, Dir: shape.ToServer, Method: envelope.Method, Body: envelope.Params}), true
	case strings.HasSuffix(typ, "Result") && methodOf(rev, typ) != "":
		return shape.Check(rev, shape.Message{Kind: shape.Result, Method: methodOf(rev, typ), Body: text}), true
	}
	return shape.CheckType(rev, typ, text)
}

// methodOf returns the method whose result is of the type.
func methodOf(rev mcp.Revision, result string) string {
	for _, m := range shape.Methods() {
		for i, r := range m.Results(rev) {
			if i == 0 && r.Name() == result && result != "EmptyResult" {
				return m.Name
			}
		}
	}
	return ""
}
