package compliance

import (
	"fmt"
	"slices"
	"strings"
)

// preface is the head of the page.
const preface = `# Compliance

What the five revisions of the specification demand, each MUST and MUST NOT in a
few words, and what shows that mcpwire does it: the names of tests. Servers come
first, then clients, then tasks, which either may have.

This page is generated from comments in the tests and from
` + "`internal/test/compliance/requirements.txt`" + `; do not edit it. ` + "`TestPage`" + ` holds that it
is up to date, and that nothing is left out.
[CONTRIBUTING.md](../CONTRIBUTING.md#compliance) says how to annotate a test.

"legacy" is all revisions before 2026-07-28. Where a test plays transcripts, the
names behind it are those of file and section. What has no test says why:

`

// render writes the page.
func render(parts []part, proofs map[string][]proof) string {
	var b strings.Builder
	b.WriteString(preface)
	b.WriteString("| status | meaning |")
	for _, p := range parts {
		b.WriteString(" " + p.title + " |")
	}
	b.WriteString("\n|---|---|" + strings.Repeat("---|", len(parts)) + "\n")
	kinds := append([]status{{tested, false, "tests show it"}}, statuses...)
	for _, s := range kinds {
		fmt.Fprintf(&b, "| %s | %s |", s.name, s.meaning)
		for _, p := range parts {
			n := 0
			for _, r := range all([]part{p}) {
				if r.standing(proofs) == s.name {
					n++
				}
			}
			fmt.Fprintf(&b, " %d |", n)
		}
		b.WriteString("\n")
	}
	for _, p := range parts {
		fmt.Fprintf(&b, "\n## %s\n", p.title)
		for _, t := range p.tables {
			fmt.Fprintf(&b, "\n### %s\n\n| id | revisions | requirement | shown by |\n|---|---|---|---|\n", t.title)
			for _, r := range t.rows {
				fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.id, r.revisions, cell(r.text), cell(r.evidence(proofs[r.id])))
			}
		}
	}
	return b.String()
}

// tested is the text in place of a status if there are tests.
const tested = "tested"

// standing returns the status of a requirement, or tested.
func (r *requirement) standing(proofs map[string][]proof) string {
	if len(proofs[r.id]) > 0 {
		return tested
	}
	return r.status
}

// evidence returns the cell of the page with the tests and the status.
func (r *requirement) evidence(tests []proof) string {
	word := r.status
	if r.reason != "" {
		word += ": " + r.reason
	}
	switch {
	case len(tests) == 0:
		return word
	case r.status == user:
		return named(tests) + "; " + word
	}
	return named(tests)
}

// named lists tests, which are sorted, by package and function.
func named(tests []proof) string {
	var packages []string
	for _, dir := range slices.Compact(collect(tests, func(p proof) string { return p.dir })) {
		var functions []string
		for _, p := range tests {
			if p.dir != dir {
				continue
			}
			text, section := "`"+p.test+"`", "`"+p.section+"`"
			switch last := len(functions) - 1; {
			case p.section == "":
				functions = append(functions, text)
			case last >= 0 && strings.HasPrefix(functions[last], text+" ("):
				functions[last] = strings.TrimSuffix(functions[last], ")") + ", " + section + ")"
			default:
				functions = append(functions, text+" ("+section+")")
			}
		}
		packages = append(packages, dir+" "+strings.Join(functions, ", "))
	}
	return strings.Join(packages, "; ")
}

func collect[T, U any](list []T, f func(T) U) []U {
	var out []U
	for _, v := range list {
		out = append(out, f(v))
	}
	return out
}

// cell escapes a text for a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
