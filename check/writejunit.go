package check

import (
	"encoding/xml"
	"io"
	"strings"

	"mcpwire/internal/printable"
)

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
}

type junitFailure struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes a report as JUnit XML: a suite for each group of rules, and a test for each rule, which fails if there are findings. The error is that of w.
func WriteJUnit(w io.Writer, r *Report) error {
	byID := map[string]group{}
	for _, g := range r.groups() {
		byID[g.rule.ID] = g
	}
	out := junitSuites{Name: "mcpwire check"}
	for _, rule := range r.rules() {
		class, _, _ := strings.Cut(rule.ID, "/")
		if n := len(out.Suites); n == 0 || out.Suites[n-1].Name != class {
			out.Suites = append(out.Suites, junitSuite{Name: class})
		}
		suite := &out.Suites[len(out.Suites)-1]
		c := junitCase{Class: class, Name: rule.ID}
		if g, ok := byID[rule.ID]; ok {
			c.Failure = junitText(g)
			suite.Failures++
			out.Failures++
		}
		suite.Tests++
		out.Tests++
		suite.Cases = append(suite.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(out); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func junitText(g group) *junitFailure {
	var b strings.Builder
	for _, f := range g.results {
		b.WriteString(printable.Line(f.Source) + ": " + f.location() + ": " + f.Message + "\n")
	}
	b.WriteString("fix: " + g.rule.Fix + "\n" + g.rule.URL + "\n")
	return &junitFailure{Type: g.rule.Severity.String(), Message: g.rule.Title + " (" + plural(len(g.results), "finding") + ")", Text: b.String()}
}
