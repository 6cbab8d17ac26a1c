package cause

import (
	_ "embed"
	"regexp"
	"strings"
	"sync"
)

var (
	//go:embed causes.txt
	causesText string
	//go:embed forms.txt
	formsText string
)

// A block is an entry of causes.txt.
type block struct {
	name  string
	match []*regexp.Regexp
	// not excludes texts that match. It may be nil.
	not *regexp.Regexp
	// what and fix are templates of [regexp.Regexp.Expand]. Without what, the cause is unknown.
	what, fix string
	// state is what the block applies to: "" for a statement, or else [Silent] or exited.
	state     State
	arguments bool
	// misleads reports that the statement is not worth quoting.
	misleads bool
	// general reports that the block is about a status, whatever the body says.
	general bool
}

// A form is an entry of forms.txt: how programs report errors.
type form struct {
	name string
	// when must match the whole output, unless it is nil.
	when *regexp.Regexp
	// begin matches the first line. Its first group, if there is one, is what counts of it.
	begin *regexp.Regexp
	// not excludes lines that begin matches. It may be nil.
	not *regexp.Regexp
	// stop matches the line after the last one. Nil takes one line only.
	stop *regexp.Regexp
	// last takes the last line that begin matches, not the first.
	last bool
}

// causes and forms return the tables. They panic if a file is malformed, which a test excludes.
var (
	causes = sync.OnceValue(func() (list []*block) {
		for b := range entries(causesText) {
			e := &block{name: b.name}
			for _, a := range b.lines {
				switch a.key {
				case "match":
					e.match = append(e.match, regexp.MustCompile("(?im)"+a.value))
				case "not":
					e.not = regexp.MustCompile("(?im)" + a.value)
				case "what":
					e.what = a.value
				case "fix":
					e.fix = a.value
				case "state":
					e.state = State(a.value)
				case "general":
					e.general = true
				case "misleads":
					e.misleads = true
				case "arguments":
					e.arguments = true
				default:
					panic("causes.txt: unknown key " + a.key)
				}
			}
			list = append(list, e)
		}
		return list
	})
	forms = sync.OnceValue(func() (list []*form) {
		for b := range entries(formsText) {
			e := &form{name: b.name}
			for _, a := range b.lines {
				switch a.key {
				case "when":
					e.when = regexp.MustCompile("(?m)" + a.value)
				case "begin":
					e.begin = regexp.MustCompile(a.value)
				case "not":
					e.not = regexp.MustCompile(a.value)
				case "stop":
					e.stop = regexp.MustCompile(a.value)
				case "last":
					e.last = true
				default:
					panic("forms.txt: unknown key " + a.key)
				}
			}
			list = append(list, e)
		}
		return list
	})
)

// An entry is a section of a data file: a line "== NAME" and lines "key: value".
type entry struct {
	name  string
	lines []attribute
}

type attribute struct{ key, value string }

// entries returns the sections of a data file. Lines that begin with # are comments.
func entries(text string) func(func(entry) bool) {
	return func(yield func(entry) bool) {
		for _, part := range strings.Split("\n"+text, "\n== ")[1:] {
			name, rest, _ := strings.Cut(part, "\n")
			e := entry{name: name}
			for line := range strings.Lines(rest) {
				if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
					continue
				}
				key, value, _ := strings.Cut(line, ":")
				e.lines = append(e.lines, attribute{key, strings.TrimSpace(value)})
			}
			if !yield(e) {
				return
			}
		}
	}
}
