package compliance

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A proof is a test of a requirement.
type proof struct {
	dir     string // of the package, from the root of the repository
	test    string
	section string // what the test plays: "file" or "file/section"; may be ""
}

func (p proof) String() string {
	s := p.dir + " " + p.test
	if p.section != "" {
		s += " (" + p.section + ")"
	}
	return s
}

// A scan collects the annotations.
type scan struct {
	proofs     map[string][]proof // by the requirement's id
	scripts    []scripted
	players    []player
	complaints []string
}

// scripted is a txtar file with annotations.
type scripted struct {
	path  string
	shows map[string][]string // ids by section; "" is the file
}

// A player is a test that plays the txtar files of a pattern.
type player struct {
	proof
	pattern string // from the root
}

var (
	id       = regexp.MustCompile(`^[SCT]\d+$`)
	testName = regexp.MustCompile(`^(Test|Fuzz|Example)($|[^a-z])`)
	section  = regexp.MustCompile(`^-- (.+) --$`)
)

// scanTests reads the tests of a repository.
func scanTests(repository fs.FS) (*scan, error) {
	s := &scan{proofs: map[string][]proof{}}
	err := fs.WalkDir(repository, ".", func(name string, d fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return err
		case d.IsDir() && (base == "node_modules" || name != "." && base[0] == '.'):
			return fs.SkipDir
		case d.IsDir():
			return nil
		case strings.HasSuffix(base, "_test.go"):
			text, err := fs.ReadFile(repository, name)
			if err != nil {
				return err
			}
			return s.source(name, text)
		case strings.HasSuffix(base, ".txtar") && slices.Contains(strings.Split(name, "/"), "testdata"):
			text, err := fs.ReadFile(repository, name)
			s.script(name, string(text))
			return err
		}
		return nil
	})
	s.play()
	for _, list := range s.proofs {
		slices.SortFunc(list, func(a, b proof) int { return strings.Compare(a.String(), b.String()) })
	}
	return s, err
}

func (s *scan) complain(where string, line int, format string, args ...any) {
	s.complaints = append(s.complaints, fmt.Sprintf("%s:%d: ", where, line)+fmt.Sprintf(format, args...))
}

// annotation returns the text after "Spec:" in a comment.
func annotation(comment, mark string) (words []string, ok bool) {
	text, ok := strings.CutPrefix(comment, mark)
	if !ok {
		return nil, false
	}
	text = strings.TrimSpace(text)
	if len(text) < len("Spec:") || !strings.EqualFold(text[:len("Spec:")], "Spec:") {
		return nil, false
	}
	return strings.Fields(text[len("Spec:"):]), true
}

// source reads a Go file.
func (s *scan) source(name string, text []byte) error {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, group := range file.Comments {
		for _, c := range group.List {
			words, ok := annotation(c.Text, "//")
			if !ok {
				continue
			}
			line := fset.Position(c.Pos()).Line
			f := functionAt(file, c.Pos())
			switch {
			case !testName.MatchString(f) || f == "TestMain":
				s.complain(name, line, "the annotation belongs to no test: it must stand in one, or in the comment above it")
				continue
			case strings.HasPrefix(f, "Example") && !hasOutput(file, f):
				s.complain(name, line, "%s is not run, as it has no output", f)
				continue
			}
			s.sourceWords(name, line, proof{dir: path.Dir(name), test: f}, words)
		}
	}
	return nil
}

func (s *scan) sourceWords(name string, line int, p proof, words []string) {
	if len(words) == 0 {
		s.complain(name, line, "the annotation names nothing")
	}
	for _, word := range words {
		switch {
		case id.MatchString(word):
			s.add(word, p)
		case strings.HasSuffix(word, ".txtar"):
			s.players = append(s.players, player{p, path.Join(p.dir, word)})
		default:
			s.complain(name, line, "%q is neither a requirement's id nor a path of .txtar files", word)
		}
	}
}

// hasOutput reports whether an example has output that go test compares, without
// which it does not run it.
func hasOutput(file *ast.File, example string) bool {
	return slices.ContainsFunc(doc.Examples(file), func(e *doc.Example) bool {
		return "Example"+e.Name == example && (e.Output != "" || e.EmptyOutput)
	})
}

// functionAt returns the name of the function that contains a position in its body
// or comment, or "". Methods do not count.
func functionAt(file *ast.File, at token.Pos) string {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil {
			continue
		}
		from := f.Pos()
		if f.Doc != nil {
			from = f.Doc.Pos()
		}
		if from <= at && at <= f.End() {
			return f.Name.Name
		}
	}
	return ""
}

func (s *scan) add(id string, p proof) {
	if !slices.Contains(s.proofs[id], p) {
		s.proofs[id] = append(s.proofs[id], p)
	}
}

// script reads a txtar file.
func (s *scan) script(name, text string) {
	shows := map[string][]string{}
	in, n := "", 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if m := section.FindStringSubmatch(line); m != nil {
			in = m[1]
			continue
		}
		words, ok := annotation(line, "#")
		if !ok {
			continue
		}
		if len(words) == 0 {
			s.complain(name, n, "the annotation names nothing")
		}
		for _, word := range words {
			if !id.MatchString(word) {
				s.complain(name, n, "%q is no requirement's id", word)
				continue
			}
			shows[in] = append(shows[in], word)
		}
	}
	s.scripts = append(s.scripts, scripted{name, shows})
}

// play gives what txtar files show to the tests that play them.
func (s *scan) play() {
	played := map[string]bool{}
	for _, p := range s.players {
		found := false
		for _, script := range s.scripts {
			if ok, err := path.Match(p.pattern, script.path); err != nil || !ok {
				continue
			}
			found, played[script.path] = true, true
			for in, ids := range script.shows {
				p.section = path.Join(strings.TrimSuffix(path.Base(script.path), ".txtar"), in)
				for _, id := range ids {
					s.add(id, p.proof)
				}
			}
		}
		if !found {
			s.complaints = append(s.complaints, fmt.Sprintf("%s plays %s, of which there are none", p.proof, p.pattern))
		}
	}
	for _, script := range s.scripts {
		if len(script.shows) > 0 && !played[script.path] {
			s.complaints = append(s.complaints, script.path+": no test says that it plays this file; see doc.go of internal/test/compliance")
		}
	}
}
