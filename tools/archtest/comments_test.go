package archtest

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// maxCommentWidth is the width of comments in columns; a tab has four.
const maxCommentWidth = 100

// checkComments complains of comments that are too wide, unless a URL makes them so, and of doc
// comments that do not begin with the name of what they document.
func checkComments(s source) []string {
	var complaints []string
	lines := strings.Split(s.text, "\n")
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			line := lines[s.fset.Position(c.Pos()).Line-1]
			width := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    "))
			if width > maxCommentWidth && !strings.Contains(line, "://") && !strings.Contains(line, "//go:") {
				complaints = append(complaints, fmt.Sprintf("%s: the comment has %d columns, limit %d", s.at(c), width, maxCommentWidth))
			}
		}
	}
	check := func(doc *ast.CommentGroup, name string) {
		first := strings.TrimSpace(doc.Text())
		for _, article := range []string{"A ", "An ", "The "} {
			first = strings.TrimPrefix(first, article)
		}
		if doc != nil && first != "" && !strings.HasPrefix(first, name) {
			complaints = append(complaints, fmt.Sprintf("%s: the comment does not begin with %s", s.at(doc), name))
		}
	}
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			check(d.Doc, d.Name.Name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok {
					check(t.Doc, t.Name.Name)
					if !d.Lparen.IsValid() {
						check(d.Doc, t.Name.Name)
					}
				}
			}
		}
	}
	return complaints
}

func TestComments(t *testing.T) {
	for _, s := range sources(t) {
		if s.inProduct() && !s.test() && !s.generated {
			report(t, checkComments(s))
		}
	}
}

// TestCheckComments tests checkComments.
func TestCheckComments(t *testing.T) {
	long := strings.Repeat("x", 90)
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"good", "package p\n\n// A T is a type.\ntype T int\n\n// f does it.\nfunc f() {}\n", nil},
		{"wide", "package p\n\n// f is " + long + " wide.\nfunc f() {}\n", []string{"a.go:3: the comment has 104 columns, limit 100"}},
		{"tabs", "package p\n\nfunc f() {\n\t// " + long + " xx\n\t// " + long + " xxxx\n}\n", []string{"a.go:5: the comment has 102 columns, limit 100"}},
		{"after code", "package p\n\nvar v = 1 // " + long + "\n", []string{"a.go:3: the comment has 103 columns, limit 100"}},
		{"URL", "package p\n\n// f is https://example.com/" + long + "\nfunc f() {}\n", nil},
		{"name", "package p\n\n// Does it.\nfunc f() {}\n\n// What is a type.\ntype T int\n",
			[]string{"a.go:3: the comment does not begin with f", "a.go:6: the comment does not begin with T"}},
		{"group", "package p\n\n// Types of things.\ntype (\n\t// T is one.\n\tT int\n\t// another\n\tU int\n)\n", []string{"a.go:7: the comment does not begin with U"}},
		{"directive alone", "package p\n\n//go:noinline\nfunc f() {}\n", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := parse("a.go", tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, checkComments(s)); diff != "" {
				t.Errorf("complaints (-want +got):\n%s", diff)
			}
		})
	}
}
