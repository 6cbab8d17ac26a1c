package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/capture"
	"mcpwire/internal/probe"
	"mcpwire/mcp"
)

// A doctor finds out why a server fails.
type doctor struct {
	e      *env
	d      *dialer
	report *doctorReport
	wait   time.Duration // for each step
	again  string        // the target as a command line has it
	quick  bool
	stray  bool // what is on standard output was said already
}

// defaultStep is how long a doctor waits for each answer.
const defaultStep = 10 * time.Second

func newDoctorCommand(e *env) *cobra.Command {
	f := new(targetFlags)
	var asJSON, quick bool
	c := &cobra.Command{
		Use:   "doctor TARGET | doctor -- CMD...",
		Short: "explain why a server fails, and what to do",
		Long: `Tries what hosts do with a server, step by step, and says in plain words what
goes wrong and how to mend it. Of a program: whether it is found and starts, how
it ends, what it writes to its standard error, what is on its standard output that
does not belong there and what probably wrote it, which revisions it speaks and how
soon it answers. Of a server over HTTP: name, connection, certificate, proxies,
redirects, status codes, authorization, which Origins it takes. In the end the
server is held against the rules (mcpwire check), unless --quick is given.

` + targetHelp + `

Marks: ✓ well, ✗ wrong, ! odd, · for your information. The exit status is 0 if the
server is well, 3 if it wants authorization, 4 if it cannot be reached or does not
answer, and 6 if something else is wrong.`,
		Example: `  mcpwire doctor -- npx -y @modelcontextprotocol/server-filesystem ~
  mcpwire doctor https://example.com/mcp
  mcpwire doctor claude-desktop:files --json`,
		RunE: func(cmd *cobra.Command, args []string) error { return runDoctor(cmd, e, f, args, asJSON, quick) },
	}
	fs := c.Flags()
	registerReach(f, fs)
	fs.BoolVar(&asJSON, "json", false, "print one JSON object")
	fs.BoolVar(&quick, "quick", false, "do not hold the server against the rules")
	return c
}

func runDoctor(cmd *cobra.Command, e *env, f *targetFlags, args []string, asJSON, quick bool) error {
	screen := newScreen(e.stdout)
	r := &doctorReport{out: e.stdout, paint: screen.paint, json: asJSON}
	t, rest, err := splitTarget(cmd, args)
	var bad *failure
	if errors.As(err, &bad) && bad.code == "bad_configuration" {
		r.Target = safeLine(args[0])
		r.section("Configuration").bad("%s", safeLine(bad.err.Error())).hint("%s: hosts pass the reference on as it is, or nothing, and the server fails for want of it", bad.hint)
		r.next("mcpwire doctor --env NAME=value %s", safeLine(args[0]))
		return r.finish()
	}
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return usagef("doctor: unexpected argument %q beside a server", rest[0])
	}
	if !f.given("oauth") {
		f.noOAuth = true // what the server itself says is wanted
	}
	d, err := newDialer(e, t, f)
	if err != nil {
		return err
	}
	r.Target = t.name
	if d.target.isStdio() {
		r.Target = commandLine(d.target.command)
	}
	doc := &doctor{e: e, d: d, report: r, wait: defaultStep, quick: quick, again: againText(cmd, args)}
	if f.given("timeout") && f.timeout > 0 {
		doc.wait = f.timeout
	}
	if d.target.isStdio() {
		doc.process(cmd.Context())
	} else {
		doc.web(cmd.Context())
	}
	if err := cmd.Context().Err(); err != nil {
		return err
	}
	return r.finish()
}

// againText is the target as it was given, for the command to try next. Arguments that look like secrets are hidden.
func againText(cmd *cobra.Command, args []string) string {
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		return "-- " + commandLine(args[dash:])
	}
	if len(args) > 0 && isURL(args[0]) {
		return safeURL(args[0])
	}
	if file := flagText(cmd, "config"); file != "" {
		return safeLine(shellWord(file + ":" + flagText(cmd, "server")))
	}
	return safeLine(shellWord(strings.Join(args, " ")))
}

// commandLine is a command as a shell takes it.
func commandLine(command []string) string {
	words := make([]string, len(command))
	for i, w := range command {
		words[i] = safeLine(shellWord(w))
	}
	return capture.NewRedactor(nil).Text(strings.Join(words, " "))
}

// tapped is the target for a tap, which only takes commands.
func (doc *doctor) tapped() string {
	if strings.HasPrefix(doc.again, "-- ") {
		return doc.again
	}
	return "-- " + commandLine(doc.d.target.command)
}

// newestFirst are the revisions to try: the modern ones, and then what hosts propose.
func newestFirst() []mcp.Revision {
	list := mcp.Revisions()
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
		list[i], list[j] = list[j], list[i]
	}
	return list
}

// rules holds the server against the rules, in the newest revision of each era that it speaks.
func (doc *doctor) rules(ctx context.Context, spoken []mcp.Revision) {
	var pick []mcp.Revision
	for _, r := range spoken { // the newest first
		if len(pick) == 0 || len(pick) == 1 && pick[0].Modern() && !r.Modern() {
			pick = append(pick, r)
		}
	}
	if doc.quick || len(pick) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 12*doc.wait)
	defer cancel()
	s := doc.report.section("Rules")
	report, err := probe.Run(ctx, doc.d.probeTarget(), &probe.Options{Revisions: pick, Timeout: doc.wait, Client: "mcpwire", Version: Version})
	if err != nil && len(report.Findings) == 0 {
		s.odd("the rules could not be tried: %s", clip(safeLine(err.Error()), 200))
		return
	}
	doc.findings(s, report)
}

// maxFindings is how many rules a doctor names.
const maxFindings = 8

// findings sums up what breaks the rules.
func (doc *doctor) findings(s *doctorSection, report *probe.Report) {
	counts := map[string]int{}
	shown, wrong := 0, 0
	for _, f := range report.Findings {
		severity := f.Rule.Severity.String()
		if counts[f.Rule.ID]++; counts[f.Rule.ID] > 1 || severity == "info" || doc.stray && f.Rule.ID == "stdio/stray-output" {
			continue
		}
		wrong++
		if shown++; shown > maxFindings {
			continue
		}
		line := s.odd
		if severity == "error" {
			line = s.bad
		}
		line("%s: %s", f.Rule.ID, clip(safeLine(f.Rule.Title), 100)).detail(clip(safeLine(f.Message), 160)).hint("%s", f.Rule.Fix)
	}
	switch {
	case wrong == 0 && doc.stray:
		s.good("nothing else is wrong in %d messages and events", report.Events)
	case wrong == 0:
		s.good("nothing is wrong in %d messages and events", report.Events)
	case shown > maxFindings:
		s.note("and %d more rules", shown-maxFindings)
	}
	if wrong > 0 {
		doc.report.next("mcpwire check %s", doc.again)
	}
}
