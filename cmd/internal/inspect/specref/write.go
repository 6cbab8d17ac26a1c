package specref

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"mcpwire/mcp"
)

// A Style configures the output. The zero Style is plain text, 80 columns wide.
type Style struct {
	// Width is the width in columns. Zero means 80.
	Width int
	// Strong and Faint, if not nil, emphasize and dim text. They must not change its width.
	Strong, Faint func(text string) string
}

// Write writes entries as text. It returns the error of w.
func Write(w io.Writer, entries []*Entry, style Style) error {
	return writeEach(w, style, entries, (*printer).entry)
}

// writeEach writes the items of a list with blank lines between them.
func writeEach[T any](w io.Writer, style Style, list []T, write func(p *printer, item T)) error {
	p := newPrinter(style)
	for i, item := range list {
		if i > 0 {
			p.line("")
		}
		write(p, item)
	}
	_, err := w.Write(p.Bytes())
	return err
}

// WriteIndex writes an index as text. It returns the error of w.
func WriteIndex(w io.Writer, groups []Group, style Style) error {
	return writeEach(w, style, groups, func(p *printer, g Group) {
		p.line(p.Strong(g.Title))
		p.list("  ", g.Words)
	})
}

// A printer collects the output.
type printer struct {
	bytes.Buffer
	Style
}

func newPrinter(style Style) *printer {
	if style.Width == 0 {
		style.Width = 80
	}
	for _, emphasis := range []*func(string) string{&style.Strong, &style.Faint} {
		if *emphasis == nil {
			*emphasis = func(text string) string { return text }
		}
	}
	return &printer{Style: style}
}

func (p *printer) line(text string) { p.WriteString(strings.TrimRight(text, " ") + "\n") }

// wrap writes a text in lines of the width. first is the prefix of the first line, then that of the
// others.
func (p *printer) wrap(first, then, text string) {
	row, start := first, true
	for word := range strings.FieldsSeq(text) {
		if !start && len(row)+1+len(word) > p.Width {
			p.line(row)
			row, start = then, true
		}
		if !start {
			row += " "
		}
		row += word
		start = false
	}
	p.line(row)
}

// list writes words separated by commas, without breaking a word.
func (p *printer) list(indent string, words []string) {
	row := indent
	for i, word := range words {
		if i < len(words)-1 {
			word += ","
		}
		if row != indent && len(row)+len(word) > p.Width {
			p.line(row)
			row = indent
		}
		row += word + " "
	}
	p.line(row)
}

func (p *printer) section(title string) {
	p.line("")
	p.line(p.Strong(title))
}

func (p *printer) entry(e *Entry) {
	title := e.Name
	if e.Alias != "" {
		title += " " + e.Alias
	}
	kind := e.Kind
	switch {
	case e.Message != "":
		kind = e.Message
	case e.Kind == "code":
		kind = "error code"
	case e.Kind == "field":
		kind = "member"
	}
	p.line(p.Strong(title) + p.Faint(" ("+kind+")"))
	if e.Summary != "" {
		p.wrap("  ", "  ", e.Summary)
	}
	p.facts(e)
	p.shapes(e)
	p.places(e.Places)
	if len(e.UsedIn) > 0 {
		p.section("Used in")
		p.list("  ", e.UsedIn)
	}
	if len(e.Changes) > 0 {
		p.section("Changes")
		for _, c := range e.Changes {
			for i, what := range c.What {
				head := c.Revision
				if i > 0 {
					head = strings.Repeat(" ", len(c.Revision))
				}
				p.wrap("  "+head+"  ", "                ", what)
			}
		}
	}
	if e.Do != "" {
		p.section("What to do")
		p.wrap("  ", "  ", e.Do)
	}
	p.notes(e)
	p.errors(e)
	p.rules(e)
	p.examples(e.Examples)
}

// facts writes the facts that take one line each.
func (p *printer) facts(e *Entry) {
	p.line("")
	fact := func(name, text string) {
		if text != "" {
			p.wrap(fmt.Sprintf("%-11s", name), "           ", text)
		}
	}
	if len(e.Revisions) == 0 {
		fact("Revisions", "not in the requested revisions: it is in "+strings.Join(e.All, ", "))
	} else {
		fact("Revisions", strings.Join(e.Revisions, ", "))
	}
	fact("From", map[string]string{"both": "client and server"}[e.From]+map[bool]string{true: e.From}[e.From != "both"])
	each := func(name string, all []RevisionText) {
		for i, s := range all {
			if i > 0 {
				name = ""
			}
			fact(name, s.Text+revisionsText(s.Revisions, e.Revisions))
		}
	}
	each("Direction", e.Directions)
	each("When", e.When)
	each("Needs", e.Needs)
	fact("Answers", e.Answers)
	fact("HTTP", e.HTTP)
	fact("Data", e.DataNote)
	fact("Page", e.Page)
}

// revisionsText returns the revisions of a text in parentheses, or "" if it applies to all of
// whole.
func revisionsText(part, whole []string) string {
	if len(part) >= len(whole) {
		return ""
	}
	return " (" + revisionRange(part) + ")"
}

// revisionRange formats consecutive revisions as a range.
func revisionRange(revs []string) string {
	all := mcp.Revisions()
	switch n := len(revs); {
	case n == 0:
		return ""
	case n == len(all):
		return "all"
	case n > 1 && revs[n-1] == all[len(all)-1].String():
		return "since " + revs[0]
	case n > 1 && revs[0] == all[0].String():
		return "until " + revs[n-1]
	case n > 2:
		return revs[0] + " to " + revs[n-1]
	}
	return strings.Join(revs, ", ")
}

func (p *printer) shapes(e *Entry) {
	show := func(title string, s *Shape) {
		if s == nil {
			return
		}
		name := ""
		if s.Type != "" {
			name = s.Type + ", "
		}
		optional := ""
		if s.Optional {
			optional = "; optional"
		}
		p.section(title + " (" + name + s.Revision + optional + ")")
		p.shape(s)
	}
	show("Params", e.Params)
	for i, r := range e.Results {
		show(map[bool]string{true: "Result", false: "Or"}[i == 0], r)
	}
	show("Data", e.Data)
	show("Shape", e.Shape)
}

func (p *printer) shape(s *Shape) {
	switch {
	case len(s.OneOf) > 0:
		p.wrap("  ", "  ", strings.Join(s.OneOf, " | "))
		for _, alt := range s.Alternatives {
			p.line("  " + alt.Type + ":")
			p.members(alt.Members, "    ")
		}
		if slices.ContainsFunc(s.Alternatives, func(alt *Shape) bool { return slices.ContainsFunc(alt.Members, isRequired) }) {
			p.line(p.Faint("  * required"))
		}
	case len(s.Members) == 0:
		p.line("  no required members")
	default:
		p.members(s.Members, "  ")
		if slices.ContainsFunc(s.Members, isRequired) {
			p.line(p.Faint("  * required"))
		}
	}
}

// isRequired reports whether a member or one of its members is required.
func isRequired(m Member) bool { return m.Required || slices.ContainsFunc(m.Members, isRequired) }

// members writes a tree of members, with names and types in columns.
func (p *printer) members(all []Member, indent string) {
	column := 0
	for _, m := range all {
		if n := len(m.Name) + 3; n <= 30 {
			column = max(column, n)
		}
	}
	for _, m := range all {
		name := m.Name
		if m.Required {
			name += "*"
		}
		text := m.Type
		if m.Limits != "" {
			text += " (" + m.Limits + ")"
		}
		head := indent + fmt.Sprintf("%-*s", column, name)
		if len(name) >= column {
			head = indent + name + "  "
		}
		p.wrap(head, indent+strings.Repeat(" ", column+2), text)
		p.members(m.Members, indent+"  ")
	}
}

func (p *printer) places(all []Place) {
	if len(all) == 0 {
		return
	}
	const most = 40
	p.section("Where")
	for i, place := range all {
		if i == most {
			p.line(fmt.Sprintf("  and %d more: --json lists them", len(all)-most))
			return
		}
		text := place.In + ": " + place.Type
		switch {
		case len(place.Required) == len(place.Revisions):
			text += ", required"
		case len(place.Required) > 0:
			text += ", required in " + revisionRange(place.Required)
		}
		p.wrap("  ", "    ", text+" ("+revisionRange(place.Revisions)+")")
	}
}

// notes writes notes, with their revisions if they differ from those of the entry.
func (p *printer) notes(e *Entry) {
	if len(e.Notes) == 0 {
		return
	}
	p.section("Notes")
	for _, s := range e.Notes {
		head := ""
		if !slices.Equal(s.Revisions, e.Revisions) {
			head = revisionRange(s.Revisions) + ": "
		}
		p.wrap("  - ", "    ", head+s.Text)
	}
}

func (p *printer) errors(e *Entry) {
	if len(e.Errors) == 0 {
		return
	}
	p.section("Errors")
	for _, c := range e.Errors {
		p.wrap(fmt.Sprintf("  %-7s ", strconv.Itoa(c.Code)), "          ", c.When+revisionsText(c.Revisions, e.Revisions))
	}
}

func (p *printer) rules(e *Entry) {
	if len(e.Rules) == 0 {
		return
	}
	p.section("Rules")
	side := ""
	for _, r := range e.Rules {
		if r.Side != side {
			side = r.Side
			p.line("  " + side + ":")
		}
		p.wrap(fmt.Sprintf("    %-5s", r.ID), "         ", r.Text+revisionsText(r.Revisions, e.All))
	}
}

func (p *printer) examples(all []Example) {
	for _, x := range all {
		title := "Example: " + x.Title
		if x.Revision != "" {
			title += " (" + x.Revision + ")"
		}
		p.section(title)
		if x.Header != "" {
			p.wrap("  ", "    ", x.Header)
			continue
		}
		var out bytes.Buffer
		if err := json.Indent(&out, x.Message, "  ", "  "); err != nil {
			continue // a test reads all examples
		}
		p.line("  " + out.String())
	}
}
