package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

// root is the folder of the repository.
const root = "../.."

// platforms are those that the module is built for; files differ by platform,
// and so do imports.
var platforms = []string{"linux", "darwin", "windows"}

// A pkg is the description of a package by go list, without its tests.
type pkg struct {
	ImportPath string
	Standard   bool
	Dir        string
	GoFiles    []string
	CgoFiles   []string
	Imports    []string
	Deps       []string
	Export     string // a file with export data, if requested
	Module     *struct {
		Path string
		Main bool
	}
}

// product are the packages of the modules that users import or run.
var product = []string{"./...", "./cmd/...", "./mcpotel/..."}

// ours reports whether p belongs to a module of the repository.
func (p pkg) ours() bool { return p.Module != nil && p.Module.Main }

// top is the path of the root module.
func (p pkg) top() string {
	return strings.TrimSuffix(strings.TrimSuffix(p.Module.Path, "/cmd"), "/mcpotel")
}

// rel is the path in the repository: "jsonrpc", "cmd/internal/cli".
func (p pkg) rel() string { return strings.TrimPrefix(p.ImportPath, p.top()+"/") }

// listed has what goList returned, by its arguments.
var listed = map[string][]pkg{}

// goList runs go list at the root for a platform: for this one with the settings of the tests, so
// that compiled packages are in the cache, and for others with the settings of go vet.
func goList(t *testing.T, goos string, args ...string) []pkg {
	t.Helper()
	key := goos + " " + strings.Join(args, " ")
	if listed[key] == nil {
		listed[key] = runGoList(t, goos, args)
	}
	return listed[key]
}

func runGoList(t *testing.T, goos string, args []string) []pkg {
	t.Helper()
	fields := "-json=ImportPath,Standard,Dir,GoFiles,CgoFiles,Imports,Deps,Export,Module"
	cmd := exec.Command("go", append([]string{"list", fields}, args...)...)
	cmd.Dir = root
	if goos != runtime.GOOS {
		cmd.Env = append(cmd.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list for %s: %v\n%s", goos, err, stderr.Bytes())
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatalf("go list for %s: %v", goos, err)
		}
		all = append(all, p)
	}
}

// A source is one parsed Go file.
type source struct {
	path      string // from the root of the repository, with slashes
	fset      *token.FileSet
	file      *ast.File
	text      string
	generated bool
}

// at returns the position of a node, for messages.
func (s source) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", s.path, s.fset.Position(n.Pos()).Line)
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

func parse(path, text string) (source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return source{}, err
	}
	return source{path: path, fset: fset, file: file, text: text, generated: ast.IsGenerated(file)}, nil
}

// sources returns all Go files of the repository, nested modules and files for
// other platforms included.
func sources(t *testing.T) []source {
	t.Helper()
	all, err := parseAll()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// parseAll parses the files once, for all tests.
var parseAll = sync.OnceValues(func() (all []source, err error) {
	skip := []string{".git", "testdata", "node_modules"}
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains(skip, d.Name()) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		s, err := parse(filepath.ToSlash(rel), string(text))
		if err != nil {
			return err
		}
		all = append(all, s)
		return nil
	})
	return all, err
})

// inProduct reports whether a file belongs to a module of product.
func (s source) inProduct() bool {
	return !slices.ContainsFunc([]string{"cluster/natscluster/", "cmd/mcpwire-node/", "tools/"}, func(dir string) bool { return strings.HasPrefix(s.path, dir) })
}

// report makes each complaint an error of the test.
func report(t *testing.T, complaints []string) {
	t.Helper()
	for _, c := range complaints {
		t.Error(c)
	}
}
