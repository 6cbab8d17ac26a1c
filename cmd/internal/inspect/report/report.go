// Package report writes what package check finds, for people and for other tools: as text, JSON,
// JUnit XML, SARIF and the annotations of GitHub Actions. It also writes descriptions of rules.
//
//	r := &report.Report{Sources: []string{name}, Tool: "mytool"}
//	for f, err := range check.Run(reader, nil) {
//		…
//		r.Results = append(r.Results, report.Result{Finding: f, Source: name})
//	}
//	err := report.SARIF(os.Stdout, r)
//
// # Concurrency
//
// The functions do not modify their arguments, and may run at the same time.
//
// # Errors
//
// The functions return errors of the writer.
//
// # Compatibility
//
// JSON may gain members. The text for people may change.
package report

import (
	"bufio"
	"cmp"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/internal/text/plural"
	"mcpwire/internal/text/printable"
	"mcpwire/mcp"
)

// A Result is a finding with the source of its capture.
type Result struct {
	check.Finding
	// Source names the source, usually a file.
	Source string
}

// A Report is the result of a check.
type Report struct {
	// Results are the findings of all sources.
	Results []Result
	// Sources lists everything that was checked, also without findings.
	Sources []string
	// Events counts the checked events.
	Events uint64
	// Rules lists the checked rules. Nil means all.
	Rules []*check.Rule
	// Tool names the checking program, such as "mcpwire".
	Tool string
	// Version is the version of the tool.
	Version string
}

func (r *Report) count() (errors, warnings, infos int) {
	for _, f := range r.Results {
		switch f.Rule.Severity {
		case check.Error:
			errors++
		case check.Warning:
			warnings++
		default:
			infos++
		}
	}
	return errors, warnings, infos
}

// Worst returns the greatest severity of the results. ok is false if there are no results.
func (r *Report) Worst() (s check.Severity, ok bool) {
	for _, f := range r.Results {
		s, ok = max(s, f.Rule.Severity), true
	}
	return s, ok
}

// A group holds the results of one rule.
type group struct {
	rule *check.Rule
	// newest is the index of the rule's revision.
	newest  int
	results []Result
}

// groups returns the results by rule and severity, the worst first. The rule of a group is the one
// of the newest revision among its results.
func (r *Report) groups() []*group {
	type key struct {
		id       string
		severity check.Severity
	}
	byID := map[key]*group{}
	for _, res := range r.Results {
		k := key{res.Rule.ID, res.Rule.Severity}
		g := byID[k]
		if g == nil {
			g = &group{rule: res.Rule, newest: -1}
			byID[k] = g
		}
		if n := slices.Index(mcp.Revisions(), res.Revision); n > g.newest {
			g.rule, g.newest = res.Rule, n
		}
		g.results = append(g.results, res)
	}
	return slices.SortedFunc(maps.Values(byID), func(a, b *group) int {
		return cmp.Or(cmp.Compare(b.rule.Severity, a.rule.Severity), cmp.Compare(a.rule.ID, b.rule.ID))
	})
}

// sdk returns the library that all results blame, or "".
func (g *group) sdk() string {
	for _, f := range g.results {
		if f.SDK == "" || f.SDK != g.results[0].SDK {
			return ""
		}
	}
	return g.results[0].SDK
}

func (r *Report) rules() []*check.Rule {
	if r.Rules != nil {
		return r.Rules
	}
	return check.Rules()
}

func location(f *check.Finding) string {
	parts := []string{"event " + utoa(f.Event)}
	if f.Session != 0 {
		parts = append(parts, "session "+utoa(f.Session))
	}
	if f.Exchange != 0 {
		parts = append(parts, "exchange "+utoa(f.Exchange))
	}
	switch f.Dir {
	case capture.ToServer:
		parts = append(parts, "to the server")
	case capture.ToClient:
		parts = append(parts, "to the client")
	}
	if f.Method != "" {
		parts = append(parts, f.Method)
	}
	if f.ID != "" {
		parts = append(parts, "id "+f.ID)
	}
	if f.Revision != mcp.RevisionNone {
		parts = append(parts, f.Revision.String())
	}
	if f.Pointer != "" {
		parts = append(parts, f.Pointer)
	}
	return strings.Join(parts, ", ")
}

// related lists the other events of a finding.
func related(f *check.Finding) string {
	if len(f.Related) == 0 {
		return ""
	}
	var list []string
	for _, n := range f.Related {
		list = append(list, utoa(n))
	}
	return "see event " + strings.Join(list, ", ")
}

// TextOptions configure [Text], [Rules] and [Explain]. A nil *TextOptions means defaults.
type TextOptions struct {
	// Color enables terminal escape sequences.
	Color bool
	// Least is the lowest severity of the findings that Text writes. It only counts others. The
	// zero value writes all.
	Least check.Severity
	// More says how to see the others, such as "--verbose shows them".
	More string
	// Width is the width of the terminal in columns. Text breaks longer lines between words. Zero
	// means no limit.
	Width int
}

// fold breaks a text that begins at column col between words. Further lines are indented.
func (o *TextOptions) fold(text string, col, indent int) string {
	if o == nil || o.Width == 0 {
		return text
	}
	var b strings.Builder
	for i, word := range strings.Split(text, " ") {
		n := utf8.RuneCountInString(word)
		switch {
		case i > 0 && col+1+n > o.Width:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			col = indent
		case i > 0:
			b.WriteByte(' ')
			col++
		}
		b.WriteString(word)
		col += n
	}
	return b.String()
}

func (o *TextOptions) paint(style, s string) string {
	if o == nil || !o.Color {
		return s
	}
	return "\x1b[" + style + "m" + s + "\x1b[0m"
}

func (o *TextOptions) severity(s check.Severity) string {
	return o.paint([...]string{"36", "33", "31"}[min(max(s, check.Info), check.Error)], s.String())
}

// maxPerGroup limits the findings of a rule in text. Other formats contain all of them.
const maxPerGroup = 20

// Text writes a report for people: the counts and a table of the rules, and then the findings by
// rule, the worst first, with locations and fixes. opts may be nil. It returns errors of w.
func Text(w io.Writer, r *Report, opts *TextOptions) error {
	b := bufio.NewWriter(w)
	several := len(r.Sources) > 1
	groups := r.groups()
	hidden := 0
	if opts != nil {
		groups = slices.DeleteFunc(groups, func(g *group) bool {
			drop := g.rule.Severity < opts.Least
			if drop {
				hidden += len(g.results)
			}
			return drop
		})
	}
	writeSummary(b, r, groups, hidden, opts)
	for _, g := range groups {
		b.WriteByte('\n')
		b.WriteString(opts.severity(g.rule.Severity) + " " + opts.paint("1", g.rule.ID) + ": " + opts.fold(g.rule.Title, len(g.rule.Severity.String()+g.rule.ID)+3, 2) + "\n")
		for i, f := range g.results {
			if i == maxPerGroup {
				b.WriteString("  … and " + strconv.Itoa(len(g.results)-i) + " more\n")
				break
			}
			place, message := location(&f.Finding), f.Message
			if several {
				place = printable.Line(f.Source) + ": " + place
			}
			if rel := related(&f.Finding); rel != "" {
				message += " (" + rel + ")"
			}
			b.WriteString("  " + opts.fold(place, 2, 4) + "\n    " + opts.fold(message, 4, 4) + "\n")
		}
		if sdk := g.sdk(); sdk != "" {
			b.WriteString("  " + opts.paint("2", opts.fold("The "+sdk+" does this in all servers built with it; it is not this server's code.", 2, 2)) + "\n")
		}
		b.WriteString("  " + opts.paint("32", "fix:") + " " + opts.fold(g.rule.Fix, 7, 7) + "\n  " + opts.paint("2", g.rule.URL) + "\n")
	}
	return b.Flush()
}

// writeSummary writes the counts, and if there are several groups, a line for each. hidden counts
// the results that are not in groups.
func writeSummary(b *bufio.Writer, r *Report, groups []*group, hidden int, opts *TextOptions) {
	errors, warnings, infos := r.count()
	seen := " in " + plural.Of(int(r.Events), "event")
	if len(r.Results) == 0 {
		b.WriteString("no findings" + seen + "\n")
		return
	}
	b.WriteString(opts.paint("1", plural.Of(errors, "error")+", "+plural.Of(warnings, "warning")+", "+plural.Of(infos, "info")) + seen)
	if hidden > 0 && opts.More != "" {
		b.WriteString(" (" + opts.More + ")")
	}
	b.WriteByte('\n')
	if len(groups) < 2 {
		return
	}
	width := 0
	for _, g := range groups {
		width = max(width, len(g.rule.ID))
	}
	for _, g := range groups {
		count := strconv.Itoa(len(g.results))
		b.WriteString("  " + opts.severity(g.rule.Severity) + strings.Repeat(" ", len("warning")-len(g.rule.Severity.String())) +
			strings.Repeat(" ", max(1, 5-len(count))) + count + "  " + g.rule.ID + strings.Repeat(" ", width-len(g.rule.ID)) + "  " + opts.fold(g.rule.Title, width+18, width+18) + "\n")
	}
}

// Explain writes the full description of a rule. opts may be nil. It returns errors of w.
func Explain(w io.Writer, r *check.Rule, opts *TextOptions) error {
	b := bufio.NewWriter(w)
	b.WriteString(opts.paint("1", r.ID) + " (" + opts.severity(r.Severity) + ", " + revisionList(r.Revisions) + ")\n" + r.Title + "\n\n")
	for _, part := range [][2]string{{"Why", r.Why}, {"Fix", r.Fix}} {
		b.WriteString(opts.paint("1", part[0]+":") + " " + part[1] + "\n")
	}
	b.WriteString(opts.paint("2", r.URL) + "\n")
	for _, x := range []struct {
		name  string
		style string
		x     check.Example
	}{{"Bad", "31", r.Bad}, {"Good", "32", r.Good}} {
		b.WriteString("\n" + opts.paint(x.style, x.name+", in "+x.x.Revision.String()+":") + "\n")
		for line := range strings.Lines(x.x.Transcript()) {
			b.WriteString("  " + line)
		}
	}
	return b.Flush()
}

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

// Rules writes a line for each rule: id, severity, title and revisions. opts may be nil. It
// returns errors of w.
func Rules(w io.Writer, rules []*check.Rule, opts *TextOptions) error {
	b := bufio.NewWriter(w)
	width := 0
	for _, r := range rules {
		width = max(width, len(r.ID))
	}
	for _, r := range rules {
		pad := strings.Repeat(" ", width-len(r.ID))
		b.WriteString(opts.paint("1", r.ID) + pad + "  " + opts.severity(r.Severity) + strings.Repeat(" ", len("warning")-len(r.Severity.String())) + "  " + r.Title + " (" + revisionList(r.Revisions) + ")\n")
	}
	return b.Flush()
}

type jsonReport struct {
	Findings []jsonFinding `json:"findings"`
	Summary  jsonSummary   `json:"summary"`
}

type jsonSummary struct {
	Errors   int      `json:"errors"`
	Warnings int      `json:"warnings"`
	Infos    int      `json:"infos"`
	Events   uint64   `json:"events"`
	Sources  []string `json:"sources"`
}

type jsonFinding struct {
	Rule     string         `json:"rule"`
	Severity check.Severity `json:"severity"`
	Source   string         `json:"source,omitempty"`
	Capture  string         `json:"capture,omitempty"`
	Event    uint64         `json:"event"`
	Dir      string         `json:"dir,omitempty"`
	Session  uint64         `json:"session,omitempty"`
	Exchange uint64         `json:"exchange,omitempty"`
	ID       string         `json:"id,omitempty"`
	Method   string         `json:"method,omitempty"`
	Revision string         `json:"revision,omitempty"`
	Pointer  string         `json:"pointer,omitempty"`
	Message  string         `json:"message"`
	Fix      string         `json:"fix"`
	URL      string         `json:"url"`
	Related  []uint64       `json:"related,omitempty"`
	SDK      string         `json:"sdk,omitempty"`
}

// JSON writes a report as a JSON object with the array findings and the object summary. It
// returns errors of w.
func JSON(w io.Writer, r *Report) error {
	out := jsonReport{Findings: []jsonFinding{}, Summary: jsonSummary{Events: r.Events, Sources: r.Sources}}
	out.Summary.Errors, out.Summary.Warnings, out.Summary.Infos = r.count()
	for _, f := range r.Results {
		out.Findings = append(out.Findings, jsonFinding{
			Rule: f.Rule.ID, Severity: f.Rule.Severity, Source: f.Source, Capture: f.Capture, Event: f.Event, Dir: string(f.Dir), Session: f.Session,
			Exchange: f.Exchange, ID: f.ID, Method: f.Method, Revision: revisionName(f.Revision), Pointer: f.Pointer, Message: f.Message,
			Fix: f.Rule.Fix, URL: f.Rule.URL, Related: f.Related, SDK: f.SDK,
		})
	}
	return encode(w, out)
}

func encode(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func revisionName(r mcp.Revision) string {
	if r == mcp.RevisionNone {
		return ""
	}
	return r.String()
}

type jsonRule struct {
	ID        string         `json:"id"`
	Severity  check.Severity `json:"severity"`
	Revisions []mcp.Revision `json:"revisions"`
	Title     string         `json:"title"`
	Why       string         `json:"why"`
	Fix       string         `json:"fix"`
	URL       string         `json:"url"`
	Good      string         `json:"good"`
	Bad       string         `json:"bad"`
}

// RulesJSON writes the descriptions of rules as a JSON array. It returns errors of w.
func RulesJSON(w io.Writer, rules []*check.Rule) error {
	out := []jsonRule{}
	for _, r := range rules {
		revisions := r.Revisions
		if len(revisions) == 0 {
			revisions = mcp.Revisions()
		}
		out = append(out, jsonRule{r.ID, r.Severity, revisions, r.Title, r.Why, r.Fix, r.URL, r.Good.Transcript(), r.Bad.Transcript()})
	}
	return encode(w, out)
}

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
	Output  string        `xml:"system-out,omitempty"`
}

type junitFailure struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// JUnit writes a report as JUnit XML, with a suite for each group of rules and a test for each
// rule. A test fails if its rule has errors or warnings. Infos are the test's output. It returns
// errors of w.
func JUnit(w io.Writer, r *Report) error {
	byID := map[string][]*group{} // the highest severity first
	for _, g := range r.groups() {
		byID[g.rule.ID] = append(byID[g.rule.ID], g)
	}
	out := junitSuites{Name: "mcpwire check"}
	for _, rule := range r.rules() {
		class, _, _ := strings.Cut(rule.ID, "/")
		if n := len(out.Suites); n == 0 || out.Suites[n-1].Name != class {
			out.Suites = append(out.Suites, junitSuite{Name: class})
		}
		suite := &out.Suites[len(out.Suites)-1]
		c := junitCase{Class: class, Name: rule.ID}
		for _, g := range byID[rule.ID] {
			switch {
			case g.rule.Severity == check.Info:
				c.Output = junitText(g)
			case c.Failure == nil:
				message := g.rule.Title + " (" + plural.Of(len(g.results), "finding") + ")"
				c.Failure = &junitFailure{g.rule.Severity.String(), message, junitText(g)}
				suite.Failures++
				out.Failures++
			default:
				c.Failure.Text += junitText(g)
			}
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

// junitText returns the findings of a rule, and the fix.
func junitText(g *group) string {
	var b strings.Builder
	for _, f := range g.results {
		b.WriteString(printable.Line(f.Source) + ": " + location(&f.Finding) + ": " + f.Message + "\n")
	}
	b.WriteString("fix: " + g.rule.Fix + "\n" + g.rule.URL + "\n")
	return b.String()
}

// These types are the part of SARIF 2.1.0
// (https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html) that reports need.

type (
	// A sarifPart is an object with one member.
	sarifPart map[string]string
	sarifLog  struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       map[string]sarifDriver `json:"tool"`
		Artifacts  []map[string]sarifPart `json:"artifacts,omitempty"`
		Results    []sarifResult          `json:"results"`
		ColumnKind string                 `json:"columnKind"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID      string    `json:"id"`
		Short   sarifPart `json:"shortDescription"`
		Full    sarifPart `json:"fullDescription"`
		HelpURI string    `json:"helpUri"`
		Help    sarifPart `json:"help"`
		Default sarifPart `json:"defaultConfiguration"`
	}
	sarifResult struct {
		RuleID     string          `json:"ruleId"`
		RuleIndex  int             `json:"ruleIndex"`
		Level      string          `json:"level"`
		Message    sarifPart       `json:"message"`
		Locations  []sarifLocation `json:"locations"`
		Properties sarifProperties `json:"properties"`
	}
	sarifLocation struct {
		Physical map[string]sarifPart `json:"physicalLocation,omitempty"`
		Logical  []sarifLogical       `json:"logicalLocations"`
	}
	sarifLogical struct {
		Name string `json:"name"`
		Full string `json:"fullyQualifiedName"`
		Kind string `json:"kind"`
	}
	sarifProperties struct {
		Event    uint64   `json:"event"`
		Related  []uint64 `json:"relatedEvents,omitempty"`
		Method   string   `json:"method,omitempty"`
		Revision string   `json:"revision,omitempty"`
	}
)

// SARIF writes a report as SARIF 2.1.0. Events are logical locations, because people do not
// edit the lines of a capture. It returns errors of w.
func SARIF(w io.Writer, r *Report) error {
	run := sarifRun{ColumnKind: "utf16CodeUnits", Results: []sarifResult{}}
	driver := sarifDriver{Name: cmp.Or(r.Tool, "mcpwire"), Version: r.Version, Rules: []sarifRule{}}
	index := map[string]int{}
	add := func(rule *check.Rule) {
		index[rule.ID] = len(driver.Rules)
		driver.Rules = append(driver.Rules, sarifRule{
			ID: rule.ID, Short: sarifPart{"text": rule.Title}, Full: sarifPart{"text": rule.Why}, HelpURI: rule.URL, Help: sarifPart{"text": rule.Fix}, Default: sarifPart{"level": sarifLevel(rule.Severity)},
		})
	}
	for _, rule := range r.rules() {
		add(rule)
	}
	for _, s := range r.Sources {
		if s != "-" {
			run.Artifacts = append(run.Artifacts, map[string]sarifPart{"location": {"uri": fileURI(s)}})
		}
	}
	for _, f := range r.Results {
		if _, ok := index[f.Rule.ID]; !ok {
			add(f.Rule)
		}
		run.Results = append(run.Results, sarifOf(f, index[f.Rule.ID]))
	}
	run.Tool = map[string]sarifDriver{"driver": driver}
	return encode(w, sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}})
}

func sarifOf(f Result, index int) sarifResult {
	full := "event " + utoa(f.Event)
	if f.Pointer != "" {
		full += " " + f.Pointer
	}
	loc := sarifLocation{Logical: []sarifLogical{{Name: "event " + utoa(f.Event), Full: full, Kind: "member"}}}
	if f.Source != "" && f.Source != "-" {
		loc.Physical = map[string]sarifPart{"artifactLocation": {"uri": fileURI(f.Source)}}
	}
	return sarifResult{
		RuleID: f.Rule.ID, RuleIndex: index, Level: sarifLevel(f.Rule.Severity), Message: sarifPart{"text": f.Message}, Locations: []sarifLocation{loc},
		Properties: sarifProperties{f.Event, f.Related, f.Method, revisionName(f.Revision)},
	}
}

func sarifLevel(s check.Severity) string {
	if s <= check.Info {
		return "note"
	}
	return s.String()
}

// fileURI converts a file name to a URI reference. A relative name becomes a relative reference.
func fileURI(name string) string {
	name = filepath.ToSlash(name)
	u := url.URL{Path: name}
	if strings.HasPrefix(name, "/") {
		u.Scheme = "file"
	}
	return u.String()
}

// Markdown writes a report as Markdown, such as for the summary of a job of GitHub Actions: how
// many findings there are, and a table of the broken rules with one example each. Text in it has
// no effect as Markdown or HTML. It returns errors of w.
func Markdown(w io.Writer, r *Report) error {
	b := bufio.NewWriter(w)
	errors, warnings, infos := r.count()
	fmt.Fprintf(b, "### %s: %s, %s, %s in %s\n", markdownText.Replace(printable.Line(r.Tool)), plural.Of(errors, "error"), plural.Of(warnings, "warning"), plural.Of(infos, "info"), plural.Of(int(r.Events), "event"))
	counts := make(map[string]int)
	for _, f := range r.Results {
		counts[f.Rule.ID]++
	}
	first := slices.Clone(r.Results)
	slices.SortStableFunc(first, func(a, b Result) int { return cmp.Compare(b.Rule.Severity, a.Rule.Severity) })
	if len(first) > 0 {
		b.WriteString("\n| severity | count | rule | for example | fix |\n|---|---|---|---|---|\n")
	}
	for _, f := range first {
		n := counts[f.Rule.ID]
		if n == 0 { // written already
			continue
		}
		counts[f.Rule.ID] = 0
		fmt.Fprintf(b, "| %s | %d | [`%s`](%s) %s | %s | %s |\n", f.Rule.Severity, n, f.Rule.ID, f.Rule.URL,
			markdownText.Replace(f.Rule.Title), markdownText.Replace(location(&f.Finding)+": "+f.Message), markdownText.Replace(f.Rule.Fix))
	}
	return b.Flush()
}

// markdownText escapes the characters that have a meaning in Markdown, and line breaks, which would
// end a row of a table.
var markdownText = strings.NewReplacer("\\", `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "|", `\|`, "~", `\~`,
	"<", "&lt;", ">", "&gt;", "&", "&amp;", "@", "&#64;", "#", `\#`, "\r", " ", "\n", " ")

// GitHub writes a report as workflow commands of GitHub Actions
// (https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands), which become
// annotations. It returns errors of w.
func GitHub(w io.Writer, r *Report) error {
	b := bufio.NewWriter(w)
	for _, f := range r.Results {
		command := f.Rule.Severity.String()
		if f.Rule.Severity <= check.Info {
			command = "notice"
		}
		b.WriteString("::" + command + " ")
		if f.Source != "" && f.Source != "-" {
			b.WriteString("file=" + githubProperty.Replace(printable.Line(f.Source)) + ",")
		}
		b.WriteString("title=" + githubProperty.Replace(f.Rule.ID+": "+f.Rule.Title) + "::")
		b.WriteString(githubData.Replace(location(&f.Finding)+": "+f.Message+"\nfix: "+f.Rule.Fix+"\n"+f.Rule.URL) + "\n")
	}
	return b.Flush()
}

var (
	githubData     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	githubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

func utoa(n uint64) string { return strconv.FormatUint(n, 10) }
