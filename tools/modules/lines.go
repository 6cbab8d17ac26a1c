package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// floors are the floors of the house, from the top: the folders of each, the longest of which that
// fits a file counts. The others are not product.
var floors = []struct {
	name string
	dirs []string
}{
	{"programs", []string{"cmd"}},
	{"backends and telemetry", []string{"cluster/natscluster", "mcpotel"}},
	{"library", []string{"."}},
	{"", []string{"tools", "examples", "mcpotel/example", "internal/test", "cluster/clustertest"}},
}

// floorOf returns the number of the floor of a folder.
func floorOf(dir string) (floor int) {
	longest := -1
	for i, f := range floors {
		for _, d := range f.dirs {
			if (d == "." || dir == d || strings.HasPrefix(dir, d+"/")) && len(d) > longest {
				floor, longest = i, len(d)
			}
		}
	}
	return floor
}

// printLines prints how many lines of Go people have to maintain: those of files that git knows,
// without tests and generated files, by floor and package.
func printLines(w io.Writer, root string) error {
	cmd := exec.Command("git", "ls-files", "-z", "*.go")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	counts := make([]map[string]int, len(floors))
	for i := range counts {
		counts[i] = map[string]int{}
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if strings.HasSuffix(name, "_test.go") || slices.Contains(strings.Split(name, "/"), "testdata") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		if dir := path.Dir(name); !ast.IsGenerated(f) {
			counts[floorOf(dir)][dir] += bytes.Count(text, []byte("\n"))
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	all := 0
	for i, f := range floors {
		if f.name == "" {
			continue
		}
		sum := 0
		for _, dir := range slices.SortedFunc(maps.Keys(counts[i]), func(a, b string) int { return counts[i][b] - counts[i][a] }) {
			sum += counts[i][dir]
			fmt.Fprintf(t, "%d\t %s\n", counts[i][dir], dir)
		}
		all += sum
		fmt.Fprintf(t, "%d\t in the %s\n\t \n", sum, f.name)
	}
	fmt.Fprintf(t, "%d\t in all\n", all)
	return t.Flush()
}
