package archtest

import (
	"fmt"
	"go/ast"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// surface is the number of exported names of each public package, as exportedNames counts them. A
// change that exports a name changes the number too, and says in its commit message who needs it.
// See doc/adr/0006-public-api.md.
var surface = map[string]int{
	"auth":                36,
	"bridge":              10,
	"capture":             94,
	"check":               18,
	"client":              104,
	"cluster":             42,
	"cluster/clustertest": 2,
	"cluster/natscluster": 10,
	"health":              4,
	"jsonrpc":             67,
	"mcp":                 229,
	"mcpotel":             6,
	"mcptest":             27,
	"middleware":          6,
	"oauth":               47,
	"schema":              20,
	"schema/fullschema":   3,
	"skills":              9,
	"server":              115,
	"stdio":               20,
	"streamable":          35,
}

// standardMethods lists methods that interfaces of the standard library demand. A type that has all
// methods of a list has them for that interface, so they do not count.
var standardMethods = [][]string{
	{"AfterFunc", "Deadline", "Done", "Err", "Value"}, {"Enabled", "Handle", "WithAttrs", "WithGroup"},
	{"MarshalJSON"}, {"UnmarshalJSON"}, {"MarshalText"}, {"AppendText"}, {"UnmarshalText"},
	{"Error"}, {"Is"}, {"As"}, {"Unwrap"}, {"String"}, {"GoString"}, {"Format"}, {"LogValue"},
	{"Read"}, {"Write"}, {"Close"}, {"ServeHTTP"}, {"RoundTrip"}, {"IsZero"},
}

// isPublic reports whether users may import the package of a file.
func (s source) isPublic() bool {
	for _, dir := range strings.Split(path.Dir(s.path), "/") {
		if dir == "internal" || dir == "cmd" {
			return false
		}
	}
	return (s.inProduct() || strings.HasPrefix(s.path, "cluster/natscluster/")) && !s.test() && s.file.Name.Name != "main"
}

// exportedNames returns the exported names of each public package, sorted: what it declares, and
// "Type.Method" for the methods of exported types that no interface of the standard library
// demands.
func exportedNames(files []source) map[string][]string {
	names := map[string]map[string]bool{}
	methods := map[[2]string][]string{} // by package and type
	for _, s := range files {
		if !s.isPublic() {
			continue
		}
		dir := path.Dir(s.path)
		if names[dir] == nil {
			names[dir] = map[string]bool{}
		}
		add := func(id *ast.Ident) {
			if id.IsExported() {
				names[dir][id.Name] = true
			}
		}
		for _, d := range s.file.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						add(spec.Name)
					case *ast.ValueSpec:
						for _, id := range spec.Names {
							add(id)
						}
					}
				}
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name)
				} else if typ := receiver(d.Recv.List[0].Type); typ != nil && typ.IsExported() && d.Name.IsExported() {
					key := [2]string{dir, typ.Name}
					methods[key] = append(methods[key], d.Name.Name)
				}
			}
		}
	}
	for key, list := range methods {
		for _, name := range list {
			if !slices.ContainsFunc(standardMethods, func(all []string) bool {
				return slices.Contains(all, name) && !slices.ContainsFunc(all, func(m string) bool { return !slices.Contains(list, m) })
			}) {
				names[key[0]][key[1]+"."+name] = true
			}
		}
	}
	sorted := map[string][]string{}
	for dir, set := range names {
		sorted[dir] = slices.Sorted(maps.Keys(set))
	}
	return sorted
}

// receiver returns the name of a method's type.
func receiver(typ ast.Expr) *ast.Ident {
	switch typ := typ.(type) {
	case *ast.StarExpr:
		return receiver(typ.X)
	case *ast.IndexExpr:
		return receiver(typ.X)
	case *ast.IndexListExpr:
		return receiver(typ.X)
	case *ast.Ident:
		return typ
	}
	return nil
}

// checkSurface complains of each package whose number of exported names differs from the recorded
// one.
func checkSurface(names map[string][]string, recorded map[string]int) []string {
	var complaints []string
	for _, dir := range slices.Sorted(maps.Keys(names)) {
		switch n, want := len(names[dir]), recorded[dir]; {
		case n > want:
			complaints = append(complaints, fmt.Sprintf("%s exports %d names, and surface says %d: unexport what only this module needs, or raise the number and say who needs the name", dir, n, want))
		case n < want:
			complaints = append(complaints, fmt.Sprintf("%s exports %d names: lower its number in surface, which is %d", dir, n, want))
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(recorded)) {
		if names[dir] == nil {
			complaints = append(complaints, fmt.Sprintf("%s: no such public package; remove it from surface", dir))
		}
	}
	return complaints
}

func TestSurface(t *testing.T) {
	report(t, checkSurface(exportedNames(sources(t)), surface))
}

func TestExportedNames(t *testing.T) {
	var files []source
	for path, text := range map[string]string{
		"a/a.go": "package a\n\nconst A, b = 1, 2\n\nvar C int\n\ntype D[T any] struct{ E int }\n\nfunc F() {}\n\nfunc (*D[T]) G() {}\n\n" +
			"func (D[T]) String() string { return \"\" }\n\nfunc (D[T]) Done() {}\n\ntype h int\n\nfunc (h) I() {}\n",
		"a/a_windows.go":                "package a\n\nfunc F() {}\n",
		"a/a_test.go":                   "package a\n\nfunc J() {}\n",
		"a/k.go":                        "package a\n\ntype K int\n\nfunc (K) Enabled() {}\n\nfunc (K) Handle() {}\n\nfunc (K) WithAttrs() {}\n\nfunc (K) WithGroup() {}\n\nfunc (K) L() {}\n",
		"a/internal/b/b.go":             "package b\n\nfunc M() {}\n",
		"cmd/a/main.go":                 "package main\n\nfunc N() {}\n",
		"tools/bench/a/a.go":            "package a\n\nfunc O() {}\n",
		"cluster/natscluster/a_test.go": "package a\n\nfunc P() {}\n",
		"cluster/natscluster/a.go":      "package a\n\nfunc R() {}\n",
		"a/internal.go":                 "package a\n",
		"a/b/testmain/run.go":           "package main\n\nfunc Q() {}\n",
	} {
		s, err := parse(path, text)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, s)
	}
	names := exportedNames(files)
	if diff := cmp.Diff(map[string][]string{"a": {"A", "C", "D", "D.Done", "D.G", "F", "K", "K.L"}, "cluster/natscluster": {"R"}}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	for _, tt := range []struct {
		recorded map[string]int
		want     []string
	}{
		{map[string]int{"a": 8, "cluster/natscluster": 1}, nil},
		{map[string]int{"a": 7, "cluster/natscluster": 1}, []string{"a exports 8 names, and surface says 7: unexport what only this module needs, or raise the number and say who needs the name"}},
		{map[string]int{"a": 9, "cluster/natscluster": 1}, []string{"a exports 8 names: lower its number in surface, which is 9"}},
		{map[string]int{"a": 8, "b": 1, "cluster/natscluster": 1}, []string{"b: no such public package; remove it from surface"}},
	} {
		if diff := cmp.Diff(tt.want, checkSurface(names, tt.recorded)); diff != "" {
			t.Errorf("recorded %v: complaints (-want +got):\n%s", tt.recorded, diff)
		}
	}
}
