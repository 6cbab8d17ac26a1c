// Package check has the commands that check captures and servers by rules, and compare them.
package check

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/inspect/report"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/text/spelling"
	"mcpwire/mcp"
)

// checkFlags holds the flags of the check command.
type checkFlags struct {
	format, failOn, explain, rev string
	list, json                   bool
	only, disable, reports       []string
	side                         sources.SideFlag

	server liveFlags
	// opts is the result of parse.
	opts check.Options
}

// The values of --format, and the value of --fail-on that is not a severity.
const (
	formatText     = "text"
	formatJSON     = "json"
	formatJUnit    = "junit"
	formatSARIF    = "sarif"
	formatGitHub   = "github"
	formatMarkdown = "markdown"

	failNever = "never"
)

func checkFormats() []string {
	return []string{formatText, formatJSON, formatJUnit, formatSARIF, formatGitHub, formatMarkdown}
}

func checkFailures() []string {
	return []string{check.Error.String(), check.Warning.String(), check.Info.String(), failNever}
}

// NewCommand returns the command check.
func NewCommand(e *kit.Env) *cobra.Command {
	f := new(checkFlags)
	c := &cobra.Command{
		Use:   "check [FILE|NAME|-]... | check TARGET | check -- CMD...",
		Short: "check captures or a server against the protocol's rules",
		Long: `Read captures and report where they break the rules of MCP: the specification's
rules for traffic on the wire, in the revision in force, and rules from
experience. Each finding gives its location, the requirement, a fix and a
reference. If missing events or redacted values make a result uncertain, it is
not a finding. The default is the newest capture, with all others of the
same time; - is standard input. If a NAME has a capture, check reads the
capture. live:NAME is always the server itself, and capture:NAME never is.

Given a server (a URL, a name from a host's configuration, or a command after
--), check sends valid and invalid requests itself, in all revisions or in that
of --rev. It calls no existing tool. The rules probe/… are about the server's
responses to these requests. If a command has responded, up to five of its
processes run at a time, or one if they disturb each other.

Rules have ids: --list lists them, and --explain describes one, with examples.
In --only and --disable, GROUP/* selects all rules of a group.

Infos are counted, and shown with --verbose, --only or --fail-on info, and in
other formats than text.

mcpwire keeps the traffic of the newest five checks of servers, so that
mcpwire show probe -n EVENT can show what a finding in text is about.

The exit status is 6 if there are findings of the --fail-on severity or worse.`,
		Example: `  mcpwire check
  mcpwire check --format sarif a.mcpcap.ndjson.gz > a.sarif
  mcpwire check --disable 'tools/*' --fail-on warning fs github
  mcpwire check --explain stdio/stray-output
  mcpwire check -- node build/index.js
  mcpwire check -o probe.mcpcap.ndjson http://127.0.0.1:8080/mcp`,
		ValidArgsFunction: targets.CompleteCapturesAndServers,
		RunE:              func(cmd *cobra.Command, args []string) error { return f.run(cmd, e, args) },
	}
	fs := c.Flags()
	fs.StringVar(&f.format, "format", formatText, "`FORMAT` of the findings: text, json, junit, sarif, github or markdown")
	fs.StringArrayVar(&f.reports, "report", nil, "also write the findings to a file: `FORMAT=FILE`; may be repeated")
	fs.BoolVar(&f.json, "json", false, "print the findings as one object, like --format json")
	fs.StringVar(&f.failOn, "fail-on", check.Error.String(), "lowest `SEVERITY` for exit status 6: error, warning, info or never")
	fs.StringVar(&f.explain, "explain", "", "describe a `RULE`, with examples")
	fs.StringVar(&f.rev, "rev", "", "check against this `REVISION`, whatever revision the traffic uses")
	fs.BoolVar(&f.list, "list", false, "list the rules")
	fs.StringSliceVar(&f.only, "only", nil, "check only these `RULES`")
	fs.StringSliceVar(&f.disable, "disable", nil, "skip these `RULES`")
	f.server.register(fs)
	fs.Lookup("verbose").Usage = "show infos, too, and of a server its standard error and each step"
	f.side.Register(c, "")
	kit.CompleteFlag(c, "format", checkFormats)
	kit.CompleteFlag(c, "fail-on", checkFailures)
	kit.CompleteFlag(c, "explain", ruleIDs)
	kit.CompleteFlag(c, "only", ruleIDs)
	kit.CompleteFlag(c, "disable", ruleIDs)
	kit.CompleteFlag(c, "rev", func() []string {
		var dates []string
		for _, r := range mcp.Revisions() {
			dates = append(dates, r.String())
		}
		return dates
	})
	return c
}

func ruleIDs() []string {
	var ids []string
	for _, r := range allRules() {
		ids = append(ids, r.ID)
	}
	return ids
}

func (f *checkFlags) run(cmd *cobra.Command, e *kit.Env, args []string) error {
	if err := f.parse(); err != nil {
		return err
	}
	switch {
	case f.explain != "":
		return f.explainRule(e, args)
	case f.list:
		return f.listRules(e, args)
	case isLiveCheck(cmd, args):
		if len(args) == 1 && cmd.ArgsLenAtDash() < 0 && !targets.IsURL(args[0]) && !strings.HasPrefix(args[0], sources.OfLive) {
			fmt.Fprintf(e.Stderr, "checking the server %s itself: no capture has that name\n", safe.Clip(args[0], 200))
		}
		return f.live(cmd, e, args)
	}
	paths, err := sources.Args(e, "check", args)
	if err != nil {
		return err
	}
	run := newCheckRun(&f.opts)
	status := e.StatusLine()
	defer status.Clear()
	for i, path := range paths {
		status.Step("reading %s, capture %d of %d", safe.Clip(path, 200), i+1, len(paths))
		if err := run.captured(cmd, sources.Source{Env: e, Paths: []string{path}, Side: f.side.Side}, path); err != nil {
			return err
		}
	}
	status.Clear()
	return f.finish(e, run)
}

// parse checks the flags and sets f.opts.
func (f *checkFlags) parse() error {
	if f.json {
		if f.format != formatText && f.format != formatJSON {
			return exit.Usagef("check: --json and --format %s exclude each other", f.format)
		}
		f.format = formatJSON
	}
	if !slices.Contains(checkFormats(), f.format) {
		return exit.Usagef("check: unknown format %q (want one of %s)", f.format, strings.Join(checkFormats(), ", "))
	}
	for _, report := range f.reports {
		format, file, _ := strings.Cut(report, "=")
		if !slices.Contains(checkFormats(), format) || file == "" {
			return exit.Usagef("check: --report %q: want FORMAT=FILE, with one of %s", report, strings.Join(checkFormats(), ", "))
		}
	}
	if !slices.Contains(checkFailures(), f.failOn) {
		return exit.Usagef("check: --fail-on %q: want one of %s", f.failOn, strings.Join(checkFailures(), ", "))
	}
	if f.rev != "" {
		if err := f.opts.Revision.UnmarshalText([]byte(f.rev)); err != nil {
			return exit.Usagef("check: --rev: %w", err)
		}
	}
	for _, id := range slices.Concat(f.only, f.disable) {
		if err := knownRule(id); err != nil {
			return err
		}
	}
	f.opts.Only, f.opts.Disabled = f.only, f.disable
	return nil
}

// knownRule returns an error if no rule has the id, or none is in the group.
func knownRule(id string) error {
	if group, ok := strings.CutSuffix(id, "*"); ok && strings.HasSuffix(group, "/") {
		if slices.ContainsFunc(ruleIDs(), func(r string) bool { return strings.HasPrefix(r, group) }) {
			return nil
		}
		return exit.Usagef("check: no rules %q (mcpwire check --list shows them all)", id)
	}
	if _, ok := lookupRule(id); ok {
		return nil
	}
	if similar := nearestRules(id); len(similar) > 0 {
		return exit.Usagef("check: unknown rule %q: did you mean %s?", id, strings.Join(similar, " or "))
	}
	return exit.Usagef("check: unknown rule %q (mcpwire check --list shows them all)", id)
}

func (f *checkFlags) explainRule(e *kit.Env, args []string) error {
	if len(args) > 0 || f.list {
		return exit.Usagef("check: --explain takes a rule and nothing else")
	}
	if err := knownRule(f.explain); err != nil {
		return err
	}
	r, ok := lookupRule(f.explain)
	switch {
	case !ok:
		return exit.Usagef("check: --explain takes one rule (mcpwire check --list shows them all)")
	case f.format == formatJSON:
		return report.RulesJSON(e.Stdout, []*check.Rule{r})
	case f.format != formatText:
		return exit.Usagef("check: --explain has the formats text and json")
	}
	return report.Explain(e.Stdout, r, checkColors(e))
}

func (f *checkFlags) listRules(e *kit.Env, args []string) error {
	if len(args) > 0 {
		return exit.Usagef("check: --list takes no files; --only and --disable select rules")
	}
	rules := f.rules()
	switch f.format {
	case formatText:
		return report.Rules(e.Stdout, rules, checkColors(e))
	case formatJSON:
		return report.RulesJSON(e.Stdout, rules)
	}
	return exit.Usagef("check: --list has the formats text and json")
}

func checkColors(e *kit.Env) *report.TextOptions {
	return &report.TextOptions{Color: bool(kit.NewScreen(e.Stdout).Paint)}
}

// A checkRun collects the findings of captures or of live traffic.
type checkRun struct {
	opts   *check.Options
	report report.Report
}

func newCheckRun(opts *check.Options) *checkRun {
	return &checkRun{opts, report.Report{Tool: "mcpwire", Version: build.Version(), Rules: opts.Enabled()}}
}

// captured checks one capture.
func (r *checkRun) captured(cmd *cobra.Command, src sources.Source, name string) error {
	if info, err := os.Stat(name); err == nil && info.Mode()&os.ModeCharDevice != 0 && name != "-" {
		// A line of a device may never end, nor may the search for the next one.
		return exit.Fail(exit.Unexpected, "not_a_capture", "captures are NDJSON, see doc/capture-format.md; mcpwire tap records them", fmt.Errorf("%s is a device, not a capture", name))
	}
	k := check.New(r.opts)
	r.report.Sources = append(r.report.Sources, name)
	for e, err := range src.Events(cmd.Context()) {
		if err != nil {
			return err
		}
		r.event(k, name, e)
	}
	r.add(name, k.Close())
	return nil
}

// event checks one event.
func (r *checkRun) event(k *check.Checker, name string, e *capture.Event) {
	if e.Kind != capture.KindHead && e.Kind != capture.KindTail && e.Kind != capture.KindGap {
		r.report.Events++
	}
	r.add(name, k.Add(e.Head, e)) // only the first event has one
}

func (r *checkRun) add(name string, findings []check.Finding) {
	for _, f := range findings {
		r.report.Results = append(r.report.Results, report.Result{Finding: f, Source: name})
	}
}

// finish prints the report, writes the others, and returns the exit status as an error.
func (f *checkFlags) finish(e *kit.Env, run *checkRun) error {
	if err := f.write(e, &run.report); err != nil {
		return err
	}
	for _, r := range f.reports {
		format, file, _ := strings.Cut(r, "=")
		var text bytes.Buffer
		if err := writeReport(&text, format, &run.report, nil); err != nil {
			return err
		}
		if err := os.WriteFile(file, text.Bytes(), 0o666); err != nil {
			return exit.Fail(exit.Unexpected, "output", "", fmt.Errorf("write the report: %w", err))
		}
	}
	var least check.Severity
	worst, any := run.report.Worst()
	if f.failOn == failNever || !any || least.UnmarshalText([]byte(f.failOn)) != nil || worst < least {
		return nil
	}
	return &exit.Status{Code: exit.Findings}
}

// write writes the report in the format of --format, and text for people as the flags say.
func (f *checkFlags) write(e *kit.Env, r *report.Report) error {
	opts := checkColors(e)
	opts.Width = kit.TerminalWidth(e.Stdout)
	if !f.server.target.Verbose && f.only == nil && f.failOn != check.Info.String() {
		opts.Least, opts.More = check.Warning, "--verbose shows the infos"
	}
	return writeReport(e.Stdout, f.format, r, opts)
}

// writeReport writes a report in a format. opts is for text.
func writeReport(w io.Writer, format string, r *report.Report, opts *report.TextOptions) error {
	switch format {
	case formatJSON:
		return report.JSON(w, r)
	case formatJUnit:
		return report.JUnit(w, r)
	case formatSARIF:
		return report.SARIF(w, r)
	case formatGitHub:
		return report.GitHub(w, r)
	case formatMarkdown:
		return report.Markdown(w, r)
	}
	return report.Text(w, r, opts)
}

// nearestRules returns up to three rule ids that resemble id, the most likely first. The group of
// id may be missing or wrong.
func nearestRules(id string) []string {
	var similar spelling.Ranking
	id = strings.ToLower(id)
	_, name, _ := strings.Cut(id, "/")
	for _, rule := range ruleIDs() {
		_, ruleName, _ := strings.Cut(rule, "/")
		d := min(spelling.Distance(id, rule), spelling.Distance(id, ruleName))
		switch {
		case ruleName == id || ruleName == name:
			d = 0
		case len(id) >= 3 && strings.Contains(rule, id):
			d = min(d, 2)
		}
		if d <= max(2, len(id)/3) {
			similar.Add(rule, d)
		}
	}
	return similar.Nearest(3)
}
