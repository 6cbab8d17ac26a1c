package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/cli/connect"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/internal/era"
	"mcpwire/mcp"
)

// root is the folder of the module.
var root = filepath.Join("..", "..", "..")

// readDoc returns a document of the module.
func readDoc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fenced returns the first code block of a language.
func fenced(t *testing.T, text, language string) string {
	t.Helper()
	return fencedBlocks(t, text, language)[0]
}

// fencedBlocks returns all code blocks of a language. There must be at least one.
func fencedBlocks(t *testing.T, text, language string) []string {
	t.Helper()
	var blocks []string
	for {
		_, rest, ok := strings.Cut(text, "\n```"+language+"\n")
		if !ok {
			break
		}
		block, after, closed := strings.Cut(rest, "```\n")
		if !closed {
			t.Fatalf("a block of %s has no end", language)
		}
		blocks, text = append(blocks, block), after
	}
	if blocks == nil {
		t.Fatalf("no block of %s", language)
	}
	return blocks
}

// goTool runs the go command in the module and returns what it prints.
func goTool(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return string(out)
}

// TestHostConfiguration checks that the README and the help of serve show the same block, and that
// it is JSON.
func TestHostConfiguration(t *testing.T) {
	var compact [2]bytes.Buffer
	_, help, _ := strings.Cut(connect.NewServeCommand(&kit.Env{}).Long, "\"servers\"):\n")
	help, _, _ = strings.Cut(help, "\n\nGive ")
	for i, text := range []string{fenced(t, readDoc(t, "README.md"), "json"), help} {
		if err := json.Compact(&compact[i], []byte(text)); err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
	}
	if diff := gocmp.Diff(compact[0].String(), compact[1].String()); diff != "" {
		t.Errorf("help of serve (-README +help):\n%s", diff)
	}
}

// TestFeatureTable checks that doc/architecture.md lists the revisions of each feature.
func TestFeatureTable(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| .*\\(`(\\w+)`\\) \\|(.*)\\|$")
	got := map[string][]bool{}
	for _, m := range row.FindAllStringSubmatch(readDoc(t, "doc/architecture.md"), -1) {
		for cell := range strings.SplitSeq(m[2], "|") {
			got[m[1]] = append(got[m[1]], strings.TrimSpace(cell) == "yes")
		}
	}
	want := map[string][]bool{}
	for _, r := range mcp.Revisions() {
		v := reflect.ValueOf(*era.Of(r))
		for field, value := range v.Fields() {
			if value.Kind() == reflect.Bool {
				want[field.Name] = append(want[field.Name], value.Bool())
			}
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("(-era +doc):\n%s", diff)
	}
}

// documents returns all documents: those in the root and below doc.
func documents(t *testing.T) []string {
	t.Helper()
	names, err := fs.Glob(os.DirFS(root), "*.md")
	if err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(os.DirFS(root), "doc", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

var (
	docCode = regexp.MustCompile("(?ms)^```\\w+$.*?^```$")
	docLink = regexp.MustCompile(`\]\(([^)#]+)[^)]*\)`)
	docName = regexp.MustCompile("`([^`\n]+)`")
	docTest = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]\w*$`)
	docPath = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)*/[\w.-]+\.(go|md|txtar)$`)
	goTest  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
)

// TestDocNames checks that links, tests and files that documents name exist.
func TestDocNames(t *testing.T) {
	tests := testNames(t)
	exists := func(parts ...string) bool {
		_, err := os.Stat(filepath.Join(append([]string{root}, parts...)...))
		return err == nil
	}
	for _, name := range documents(t) {
		text := readDoc(t, name)
		for _, m := range docLink.FindAllStringSubmatch(docCode.ReplaceAllString(text, ""), -1) {
			if !strings.Contains(m[1], "://") && !exists(filepath.Dir(name), m[1]) {
				t.Errorf("%s: link to %s, which does not exist", name, m[1])
			}
		}
		for _, m := range docName.FindAllStringSubmatch(text, -1) {
			switch {
			case docTest.MatchString(m[1]) && !tests[m[1]]:
				t.Errorf("%s: there is no test %s", name, m[1])
			case docPath.MatchString(m[1]) && !exists(m[1]):
				t.Errorf("%s: there is no file %s", name, m[1])
			}
		}
	}
}

// testNames are the names of all tests of all modules here.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || path != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		for _, m := range goTest.FindAllStringSubmatch(readDoc(t, path), -1) {
			names[m[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// decisionRef finds a decision that a document or a comment refers to, with the number of the link.
var decisionRef = regexp.MustCompile(`(?:\[(?:decision )?(\d+)\]\([^)]*?|doc/adr/)(\d{4}-[\w-]+\.md)`)

// TestDecisions checks that decisions are numbered without gaps, that each says what was rejected
// and is short, and that references to decisions have the right number and name.
func TestDecisions(t *testing.T) {
	files, err := fs.Glob(os.DirFS(root), "doc/adr/[0-9]*.md")
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(files, cmp.Compare)
	for i, name := range files {
		if want := fmt.Sprintf("doc/adr/%04d-", i+1); !strings.HasPrefix(name, want) {
			t.Errorf("%s: want a name that begins with %s", name, want)
		}
		text := readDoc(t, name)
		if want := fmt.Sprintf("# %d. ", i+1); !strings.HasPrefix(text, want) {
			t.Errorf("%s: want a title that begins with %q", name, want)
		}
		for _, heading := range []string{"\n## Decision\n", "\n## Rejected\n"} {
			if !strings.Contains(text, heading) {
				t.Errorf("%s: no heading %q", name, strings.TrimSpace(heading))
			}
		}
		if n := strings.Count(text, "\n"); n > 120 {
			t.Errorf("%s: %d lines: want at most 120", name, n)
		}
	}
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || name != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case !slices.Contains([]string{".go", ".md"}, path.Ext(name)):
			return nil
		}
		for _, m := range decisionRef.FindAllStringSubmatch(readDoc(t, name), -1) {
			if !slices.Contains(files, "doc/adr/"+m[2]) {
				t.Errorf("%s: there is no decision %s", name, m[2])
			} else if m[1] != "" && m[1] != strings.TrimLeft(m[2][:4], "0") {
				t.Errorf("%s: number %s refers to %s", name, m[1], m[2])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
