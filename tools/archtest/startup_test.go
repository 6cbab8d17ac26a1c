package archtest

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// checkStartup complains of regular expressions that are compiled when a program starts: they take
// some 20 µs and 20 KiB each, in every process.
func checkStartup(s source) []string {
	if s.test() {
		return nil
	}
	var complaints []string
	for _, d := range s.file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				return false
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "regexp" && strings.HasPrefix(n.Sel.Name, "MustCompile") {
					complaints = append(complaints, fmt.Sprintf("%s: compiled at the start of each program; use internal/text/lazyregexp", s.at(n)))
				}
			}
			return true
		})
	}
	return complaints
}

// TestStartup checks the packages that mcpwire links.
func TestStartup(t *testing.T) {
	var linked []string
	for _, p := range goList(t, platforms[0], "-deps", "./cmd/mcpwire") {
		if p.ours() {
			linked = append(linked, p.rel())
		}
	}
	for _, s := range sources(t) {
		if s.inProduct() && slices.Contains(linked, path.Dir(s.path)) {
			report(t, checkStartup(s))
		}
	}
}

func TestCheckStartup(t *testing.T) {
	for _, tt := range []struct {
		decl string
		bad  bool
	}{
		{"var a = regexp.MustCompile(`a`)", true},
		{"var a = []*regexp.Regexp{regexp.MustCompilePOSIX(`a`)}", true},
		{"var a = lazyregexp.New(`a`)", false},
		{"var a = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`a`) })", false},
		{"func a() { regexp.MustCompile(`a`) }", false},
	} {
		s, err := parse("a/a.go", "package p\n\n"+tt.decl+"\n")
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		if tt.bad {
			want = []string{"a/a.go:3: compiled at the start of each program; use internal/text/lazyregexp"}
		}
		if diff := cmp.Diff(want, checkStartup(s)); diff != "" {
			t.Errorf("%s: complaints (-want +got):\n%s", tt.decl, diff)
		}
	}
}
