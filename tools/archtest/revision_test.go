package archtest

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// mayCompareRevisions reports whether a file may name revisions by their date
// and compare them by order: internal/era, the table in package mcp, generated
// files and tests.
func mayCompareRevisions(path string, generated bool) bool {
	return generated || strings.HasPrefix(path, "internal/era/") || path == "mcp/revision.go" || strings.HasSuffix(path, "_test.go")
}

var dateLiteral = regexp.MustCompile(`20\d\d-\d\d-\d\d`)

// timeLayout is the only such date that is not a revision.
const timeLayout = "2006-01-02"

// checkDates complains of string literals with a date in them.
func checkDates(s source) []string {
	if !s.inProduct() || mayCompareRevisions(s.path, s.generated) {
		return nil
	}
	var complaints []string
	for lit := range stringLiterals(s.file) {
		for _, date := range dateLiteral.FindAllString(lit.Value, -1) {
			if date != timeLayout {
				complaints = append(complaints, fmt.Sprintf("%s: the date %s stands outside internal/era and mcp/revision.go; ask for a feature instead", s.at(lit), date))
			}
		}
	}
	return complaints
}

// stringLiterals yields the string literals below a node.
func stringLiterals(n ast.Node) func(yield func(*ast.BasicLit) bool) {
	return func(yield func(*ast.BasicLit) bool) {
		for n := range ast.Preorder(n) {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && !yield(lit) {
				return
			}
		}
	}
}

// literalValue returns the value of a string literal.
func literalValue(lit *ast.BasicLit) string {
	text, err := strconv.Unquote(lit.Value)
	if err != nil {
		return lit.Value // does not happen in a file that parses
	}
	return text
}

func TestRevisionDates(t *testing.T) {
	for _, s := range sources(t) {
		report(t, checkDates(s))
	}
}

// TestRevisionOrder type-checks the module, as built for this machine.
func TestRevisionOrder(t *testing.T) {
	exports := map[string]string{}
	var own []pkg
	for _, p := range goList(t, runtime.GOOS, append([]string{"-deps", "-export"}, product...)...) {
		exports[p.ImportPath] = p.Export
		if p.ours() {
			own = append(own, p)
		}
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, p := range own {
		var files []*ast.File
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		complaints, err := checkOrder(p.ImportPath, fset, files, imports, func(f *ast.File) bool {
			name := filepath.Base(fset.Position(f.Package).Filename)
			return mayCompareRevisions(p.rel()+"/"+name, ast.IsGenerated(f))
		})
		if err != nil {
			t.Errorf("%s: %v", p.ImportPath, err)
		}
		report(t, complaints)
	}
}

// checkOrder complains of each place in a package, outside the exempt files,
// that compares revisions by their order: <, <=, > and >=, also of converted
// values, min and max, and the functions of package cmp except Or.
func checkOrder(path string, fset *token.FileSet, files []*ast.File, imports types.Importer, exempt func(*ast.File) bool) ([]string, error) {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: imports}
	if _, err := config.Check(path, fset, files, info); err != nil {
		return nil, err
	}
	c := orderChecker{info}
	var complaints []string
	for _, f := range files {
		if exempt(f) {
			continue
		}
		for n := range ast.Preorder(f) {
			if c.compares(n) {
				at := fset.Position(n.Pos())
				complaints = append(complaints, fmt.Sprintf("%s/%s:%d: revisions are compared by order outside internal/era; ask for a feature instead", path, filepath.Base(at.Filename), at.Line))
			}
		}
	}
	return complaints, nil
}

type orderChecker struct{ info *types.Info }

func (c orderChecker) compares(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		ordered := []token.Token{token.LSS, token.LEQ, token.GTR, token.GEQ}
		return slices.Contains(ordered, n.Op) && (c.revision(n.X) || c.revision(n.Y))
	case *ast.CallExpr:
		return c.orders(n.Fun) && slices.ContainsFunc(n.Args, c.revision)
	}
	return false
}

// orders reports whether a called function compares its arguments by order.
func (c orderChecker) orders(fun ast.Expr) bool {
	var id *ast.Ident
	switch f := ast.Unparen(fun).(type) {
	case *ast.Ident:
		id = f
	case *ast.SelectorExpr:
		id = f.Sel
	case *ast.IndexExpr: // with explicit type arguments
		return c.orders(f.X)
	default:
		return false
	}
	switch obj := c.info.Uses[id].(type) {
	case *types.Builtin:
		return obj.Name() == "min" || obj.Name() == "max"
	case *types.Func:
		return obj.Pkg() != nil && obj.Pkg().Path() == "cmp" && obj.Name() != "Or"
	}
	return false
}

// revision reports whether an expression is a revision, or was one before it
// was converted.
func (c orderChecker) revision(e ast.Expr) bool {
	e = ast.Unparen(e)
	if named, ok := types.Unalias(c.info.TypeOf(e)).(*types.Named); ok {
		obj := named.Obj()
		if obj.Name() == "Revision" && obj.Pkg() != nil && strings.HasSuffix(obj.Pkg().Path(), "/mcp") {
			return true
		}
	}
	if call, ok := e.(*ast.CallExpr); ok && len(call.Args) == 1 && c.info.Types[call.Fun].IsType() {
		return c.revision(call.Args[0])
	}
	return false
}

func TestCheckDates(t *testing.T) {
	const bad = "package p\n\n// 2025-11-25 may stand in comments.\nconst r = \"2025-11-25\"\nvar l = `v 2026-07-28` + \"2006-01-02\"\n"
	want := func(path string) []string {
		return []string{
			path + ":4: the date 2025-11-25 stands outside internal/era and mcp/revision.go; ask for a feature instead",
			path + ":5: the date 2026-07-28 stands outside internal/era and mcp/revision.go; ask for a feature instead",
		}
	}
	for _, tt := range []struct {
		path, text string
		want       []string
	}{
		{"server/a.go", bad, want("server/a.go")},
		{"mcp/tool.go", bad, want("mcp/tool.go")},
		{"mcp/revision.go", bad, nil},
		{"internal/era/a.go", bad, nil},
		{"server/a_test.go", bad, nil},
		{"tools/bench/compare/a.go", bad, nil},
		{"mcp/types_gen.go", "// Code generated by gen. DO NOT EDIT.\n\n" + bad, nil},
	} {
		s, err := parse(tt.path, tt.text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, checkDates(s)); diff != "" {
			t.Errorf("%s: complaints (-want +got):\n%s", tt.path, diff)
		}
	}
}

func TestCheckOrder(t *testing.T) {
	const text = `package mcp

type Revision uint8
type Other uint8

const Last Revision = 3

func f(r, s Revision, o Other, list []Revision) bool {
	_ = r == s || r != Last
	_ = o < 3 || len(list) < 2
	_ = max(o, 3)
	_ = r < s
	_ = int(r) >= 2
	_ = 3 > (r)
	_ = min(r, s)
	return uint8(Last) <= uint8(o)
}
`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "a.go", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, exempt := range []bool{false, true} {
		got, err := checkOrder("example.com/wire/mcp", fset, []*ast.File{file}, nil, func(*ast.File) bool { return exempt })
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for line := 12; line <= 16 && !exempt; line++ {
			want = append(want, fmt.Sprintf("example.com/wire/mcp/a.go:%d: revisions are compared by order outside internal/era; ask for a feature instead", line))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("exempt %v: complaints (-want +got):\n%s", exempt, diff)
		}
	}
}
