package compliance

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// A requirement is a requirement of the specification.
type requirement struct {
	id, revisions, text string
	// status is one of statuses, and reason its sentence. Both are empty if tests
	// cover the requirement.
	status, reason string
	statusLine     int // line of the status, from 1
}

// A status is the reason why a requirement has no test, or not only tests.
type status struct {
	name    string
	reason  bool // it needs a sentence
	meaning string
}

const (
	open = "open"
	user = "user"
)

var statuses = []status{
	{open, true, "nothing shows it, or it is not so"},
	{user, true, "left, wholly or in part, to the application that embeds mcpwire"},
	{"design", true, "it cannot be otherwise, for the reason given"},
}

// A part is a chapter of the page, and has tables.
type part struct {
	title  string
	tables []table
}

type table struct {
	title string
	rows  []*requirement
}

// all returns the requirements of all tables.
func all(parts []part) []*requirement {
	var list []*requirement
	for _, p := range parts {
		for _, t := range p.tables {
			list = append(list, t.rows...)
		}
	}
	return list
}

var requirementLine = regexp.MustCompile(`^([SCT]\d+) \[([^\]]+)\] (\S.*)$`)

// A reader reads requirements.txt.
type reader struct {
	parts      []part
	seen       map[string]bool
	complaints []string
	line       int
}

func parseRequirements(text string) ([]part, []string) {
	p := &reader{seen: map[string]bool{}}
	for line := range strings.Lines(text) {
		p.line++
		p.take(strings.TrimSuffix(line, "\n"))
	}
	return p.parts, p.complaints
}

func (p *reader) complain(format string, args ...any) {
	p.complaints = append(p.complaints, fmt.Sprintf("requirements.txt:%d: ", p.line)+fmt.Sprintf(format, args...))
}

func (p *reader) take(line string) {
	title, isPart := strings.CutPrefix(line, "== ")
	subtitle, isTable := strings.CutPrefix(line, "-- ")
	m := requirementLine.FindStringSubmatch(line)
	switch {
	case line == "" || line[0] == '#':
	case isPart:
		p.parts = append(p.parts, part{title: title})
	case isTable && len(p.parts) > 0:
		last := &p.parts[len(p.parts)-1]
		last.tables = append(last.tables, table{title: subtitle})
	case m != nil && p.table() != nil:
		if p.seen[m[1]] {
			p.complain("%s appears twice", m[1])
		}
		p.seen[m[1]] = true
		p.table().rows = append(p.table().rows, &requirement{id: m[1], revisions: m[2], text: m[3]})
	case line[0] == '\t' && p.row() != nil:
		p.status(line[1:])
	default:
		p.complain("%q is no requirement, status or title, or in the wrong place", line)
	}
}

// table returns the table that is being read, or nil.
func (p *reader) table() *table {
	if len(p.parts) == 0 {
		return nil
	}
	tables := p.parts[len(p.parts)-1].tables
	if len(tables) == 0 {
		return nil
	}
	return &tables[len(tables)-1]
}

// row returns the last requirement of that table, or nil.
func (p *reader) row() *requirement {
	t := p.table()
	if t == nil || len(t.rows) == 0 {
		return nil
	}
	return t.rows[len(t.rows)-1]
}

func (p *reader) status(text string) {
	r := p.row()
	name, reason, _ := strings.Cut(text, ":")
	reason = strings.TrimSpace(reason)
	i := slices.IndexFunc(statuses, func(s status) bool { return s.name == name })
	switch {
	case r.status != "":
		p.complain("%s has two statuses", r.id)
	case i < 0:
		p.complain("%s: there is no status %q", r.id, name)
	case statuses[i].reason && reason == "":
		p.complain("%s: %s needs a sentence that says why", r.id, name)
	default:
		r.status, r.reason, r.statusLine = name, reason, p.line
	}
}

// withoutStale returns the text without the lines that mark tested requirements
// as open.
func withoutStale(text string, rows []*requirement, proofs map[string][]proof) string {
	lines := strings.SplitAfter(text, "\n")
	for _, r := range rows {
		if r.status == open && len(proofs[r.id]) > 0 {
			lines[r.statusLine-1] = ""
		}
	}
	return strings.Join(lines, "")
}

// judge complains of annotations and statuses that contradict each other.
func judge(rows []*requirement, proofs map[string][]proof) []string {
	var complaints []string
	known := map[string]bool{}
	for _, r := range rows {
		known[r.id] = true
		tests := proofs[r.id]
		switch {
		case len(tests) == 0 && r.status == "":
			complaints = append(complaints, r.id+" has neither a test nor a status: annotate a test, or say in requirements.txt why there is none")
		case len(tests) > 0 && r.status == open:
			complaints = append(complaints, fmt.Sprintf("%s is open by requirements.txt, but %s shows it: go test ./internal/test/compliance -update", r.id, tests[0]))
		case len(tests) > 0 && r.status != "" && r.status != user:
			complaints = append(complaints, fmt.Sprintf("%s is %q by requirements.txt, but %s shows it: one of the two is wrong", r.id, r.status, tests[0]))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(proofs)) {
		if !known[id] {
			complaints = append(complaints, fmt.Sprintf("%s names %s, which is not in requirements.txt", proofs[id][0], id))
		}
	}
	return complaints
}
