package translate_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestDocument makes sure that doc/translation.md says for both directions what becomes of each method, notification and reserved member that package mcp
// knows, in any revision.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../doc/translation.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) != 3 {
			continue
		}
		for i, part := range strings.Split(cells[0], "`") {
			if i%2 == 1 {
				rows[part] = strings.TrimSpace(cells[1]) != "" && strings.TrimSpace(cells[2]) != ""
			}
		}
	}
	names := append(constants(t, "../../mcp/method.go"), constants(t, "../../mcp/metakey.go")...)
	names = append(names, constants(t, "../../mcp/error.go")...)
	if len(names) < 45 {
		t.Fatalf("only %d names were found: %q", len(names), names)
	}
	for _, name := range names {
		if !rows[name] {
			t.Errorf("doc/translation.md has no row for %s, or one with an empty cell", name)
		}
	}
}

// constants returns the values of a file's constants.
func constants(t *testing.T, path string) (values []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for _, v := range spec.Values {
			switch v := v.(type) {
			case *ast.BasicLit:
				value, _ := strconv.Unquote(v.Value)
				values = append(values, value)
			case *ast.UnaryExpr: // a code
				if lit, ok := v.X.(*ast.BasicLit); ok {
					values = append(values, v.Op.String()+lit.Value)
				}
			}
		}
		return false
	})
	return values
}
