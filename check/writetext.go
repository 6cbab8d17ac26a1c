package check

import (
	"bufio"
	"io"
	"strings"

	"mcpwire/internal/printable"
	"mcpwire/mcp"
)

// TextOptions are the options of WriteText and Explain. nil means defaults.
type TextOptions struct {
	Color bool // use the escape sequences of terminals
}

func (o *TextOptions) paint(style, s string) string {
	if o == nil || !o.Color {
		return s
	}
	return "\x1b[" + style + "m" + s + "\x1b[0m"
}

func (o *TextOptions) severity(s Severity) string {
	return o.paint([...]string{"36", "33", "31"}[min(max(s, Info), Error)], s.String())
}

// maxPerGroup is how many findings of a rule the text shows; the other formats have them all.
const maxPerGroup = 20

// WriteText writes a report for people: by rule, the worst first, with where to look and how to mend it. opts may be nil. The error is that of w.
func WriteText(w io.Writer, r *Report, opts *TextOptions) error {
	b := bufio.NewWriter(w)
	several := len(r.Sources) > 1
	for _, g := range r.groups() {
		b.WriteString(opts.severity(g.rule.Severity) + " " + opts.paint("1", g.rule.ID) + ": " + g.rule.Title + "\n")
		for i, f := range g.results {
			if i == maxPerGroup {
				b.WriteString("  … and " + itoa(len(g.results)-i) + " more\n")
				break
			}
			b.WriteString("  ")
			if several {
				b.WriteString(printable.Line(f.Source) + ": ")
			}
			b.WriteString(f.location() + "\n    " + f.Message)
			if rel := f.related(); rel != "" {
				b.WriteString(" (" + rel + ")")
			}
			b.WriteByte('\n')
		}
		if sdk := g.sdk(); sdk != "" {
			b.WriteString("  " + opts.paint("2", "The "+sdk+" does this in all servers built with it; it is not this server's own code.") + "\n")
		}
		b.WriteString("  " + opts.paint("32", "fix:") + " " + g.rule.Fix + "\n  " + opts.paint("2", g.rule.URL) + "\n\n")
	}
	errors, warnings, infos := r.Count()
	seen := plural(int(r.Events), "event")
	if len(r.Results) == 0 {
		b.WriteString("nothing found in " + seen + "\n")
		return b.Flush()
	}
	b.WriteString(plural(errors, "error") + ", " + plural(warnings, "warning") + ", " + plural(infos, "info") + " in " + seen + "\n")
	return b.Flush()
}

// Explain writes all that there is to say of a rule. opts may be nil. The error is that of w.
func Explain(w io.Writer, r *Rule, opts *TextOptions) error {
	b := bufio.NewWriter(w)
	b.WriteString(opts.paint("1", r.ID) + " (" + opts.severity(r.Severity) + ", " + revisionList(r.Revisions) + ")\n" + r.Title + "\n\n")
	for _, part := range [][2]string{{"Why", r.Why}, {"Fix", r.Fix}} {
		b.WriteString(opts.paint("1", part[0]+":") + " " + part[1] + "\n")
	}
	b.WriteString(opts.paint("2", r.URL) + "\n")
	for _, x := range []struct {
		name  string
		style string
		x     Example
	}{{"Bad", "31", r.Bad}, {"Good", "32", r.Good}} {
		b.WriteString("\n" + opts.paint(x.style, x.name+", in "+x.x.Revision.String()+":") + "\n")
		for line := range strings.Lines(x.x.Transcript()) {
			b.WriteString("  " + line)
		}
	}
	return b.Flush()
}

// revisionList says in words which revisions a rule is for.
func revisionList(list []mcp.Revision) string {
	switch n := len(list); {
	case n == 0 || n == len(mcp.Revisions()):
		return "all revisions"
	case n == 1:
		return list[0].String()
	case list[n-1] == mcp.LatestRevision:
		return "from " + list[0].String()
	default:
		return list[0].String() + " to " + list[n-1].String()
	}
}

// WriteRules writes a line for each rule: its id, severity, revisions and title. opts may be nil. The error is that of w.
func WriteRules(w io.Writer, rules []*Rule, opts *TextOptions) error {
	b := bufio.NewWriter(w)
	width := 0
	for _, r := range rules {
		width = max(width, len(r.ID))
	}
	for _, r := range rules {
		pad := strings.Repeat(" ", width-len(r.ID))
		severity := opts.severity(r.Severity) + strings.Repeat(" ", len("warning")-len(r.Severity.String()))
		b.WriteString(opts.paint("1", r.ID) + pad + "  " + severity + "  " + r.Title + " (" + revisionList(r.Revisions) + ")\n")
	}
	return b.Flush()
}
