package mcp

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// TestMethods shows that method.go has a constant for each method of each schema, with a correct
// comment about its revisions.
func TestMethods(t *testing.T) {
	specs := openSpecs(t)
	f, err := parser.ParseFile(token.NewFileSet(), "method.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{} // by method
	for n := range ast.Preorder(f) {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || strings.HasPrefix(spec.Names[0].Name, "Meta") {
			continue
		}
		method, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		if notification := strings.HasPrefix(method, "notifications/"); notification != strings.HasPrefix(spec.Names[0].Name, "Notification") {
			t.Errorf("%s is %s", spec.Names[0].Name, method)
		}
		comments[method] = strings.TrimSpace(spec.Comment.Text())
	}
	where := map[string][]string{} // revisions by method
	for _, s := range specs {
		for name, def := range s.Defs {
			method, ok := at(def, "properties", "method", "const").(string)
			if ok && !strings.HasPrefix(name, "Client") && !strings.HasPrefix(name, "Server") {
				where[method] = append(where[method], s.revision.String())
			}
		}
	}
	for method, revisions := range where {
		comment, ok := comments[method]
		if !ok {
			t.Errorf("%s has no constant", method)
		}
		want := ""
		first, last := revisions[0], revisions[len(revisions)-1]
		switch {
		case first == last && last == LatestRevision.String():
			want = "since " + first
		case first == last:
			want = first
		case first != Revision20241105.String():
			want = "since " + first
		case last != LatestRevision.String():
			want = "until " + last
		}
		if !strings.HasPrefix(comment, want) || want == "" && comment != "" {
			t.Errorf("%s: the comment is %q, want %q", method, comment, want)
		}
		delete(comments, method)
	}
	for method, comment := range comments {
		if !strings.Contains(comment, "tasks extension") {
			t.Errorf("%s is in no schema", method)
		}
	}
}
