// Package doctor has the command that finds out why a server does not work.
package doctor

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/inspect/probe"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/net/loopback"
	"mcpwire/mcp"
)

// A doctor finds out why a server fails.
type doctor struct {
	e      *kit.Env
	d      *targets.Dialer
	report *doctorReport
	// wait is the timeout of a response.
	wait time.Duration
	// connect is the timeout of a connection or process, including its handshake.
	connect time.Duration
	// flags are the flags of the command line that reach the server.
	flags []kit.Arg
	// target is the target of the command line.
	target []kit.Arg
	names  *kit.SecretNames
	quick  bool
	// metadata fetches the documents about authorization. nil means a guarded transport.
	metadata http.RoundTripper
	// spared reports that the rules are not checked because the server is on another machine.
	spared bool
	// reported are the kinds of failures that were reported in detail.
	reported struct{ ended, refused, unanswered bool }
	// invalidOutput reports whether output has already been reported as not being a message.
	invalidOutput bool
}

// maxGuess limits the wait for responses at guessed URLs.
const maxGuess = 10 * time.Second

// NewCommand returns the command doctor.
func NewCommand(e *kit.Env) *cobra.Command {
	f := new(targets.Flags)
	var asJSON, asMarkdown, quick, all bool
	c := &cobra.Command{
		Use:   "doctor TARGET | doctor -- CMD... | doctor --all",
		Short: "explain why a server fails, and how to fix it",
		Long: `Test a server step by step as hosts use it, and explain what fails and how to
fix it. For a program: whether it is found and starts, how it exits, what it
writes to standard error, what it writes to standard output that is not a
message and what probably wrote it, which revisions it speaks, and how soon it
responds. For a server over HTTP: name resolution, connection, certificate,
proxies, redirects, status codes, authorization, and which Origins it accepts.
Finally, doctor makes the first request of a host and checks the server against
the rules (mcpwire check), unless --quick is given. The rules need requests that
no client sends, so --quick is the default for a URL on another machine; use
--quick=false there. --all prints a line for each server that a host on this
machine has configured, as soon as it is known, without checking the rules.

` + targets.Help + `

A program must start and complete the handshake within --connect-timeout, and
send other responses within --timeout. A server that is only slow is reported as
slow. If a program has responded, up to five of its processes run at a time, or
one if they disturb each other.

Marks: ✓ passed, ✗ failed, ! unusual, · information. The exit status is 0 if the
server passes, 3 if it requires authorization, 4 if it is unreachable or does
not respond, and 6 if something else is wrong.`,
		Example: `  mcpwire doctor -- npx -y @modelcontextprotocol/server-filesystem ~
  mcpwire doctor https://example.com/mcp
  mcpwire doctor claude-desktop:files --json
  mcpwire doctor --all`,
		ValidArgsFunction: targets.CompleteServers(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case asMarkdown && (asJSON || all):
				return exit.Usagef("doctor: --markdown excludes --json and --all")
			case asMarkdown:
				return markdown(e, func(e *kit.Env) error {
					r := newDoctorReport(e, false)
					r.redactor = capture.NewRedactor(nil)
					return runDoctor(cmd, e, f, args, r, quick)
				})
			case !all:
				return runDoctor(cmd, e, f, args, newDoctorReport(e, asJSON), quick)
			}
			if len(args) > 0 || cmd.ArgsLenAtDash() >= 0 {
				return exit.Usagef("doctor: --all examines all configured servers: it takes no server")
			}
			f.NoOAuth = !f.Given("oauth")
			return runDoctorAll(cmd, e, f, asJSON)
		},
	}
	fs := c.Flags()
	targets.RegisterReach(f, fs)
	fs.BoolVar(&asJSON, "json", false, "print one JSON object, or with --all an array of them")
	fs.BoolVar(&asMarkdown, "markdown", false, "print Markdown for an issue, with the version of mcpwire and without secrets")
	fs.BoolVar(&all, "all", false, "examine all configured servers, four at a time")
	fs.BoolVar(&quick, "quick", false, "do not check the server against the rules")
	return c
}

// markdown runs a command, and prints its output as Markdown with the version of this program, to
// be pasted into an issue.
func markdown(e *kit.Env, run func(e *kit.Env) error) error {
	var output bytes.Buffer
	own := *e
	own.Stdout = &output
	failed := run(&own)
	if output.Len() == 0 {
		return failed
	}
	fence := "```"
	for bytes.Contains(output.Bytes(), []byte(fence)) {
		fence += "`"
	}
	version := strings.ReplaceAll(strings.TrimSpace(build.Text()), "\n", ", ")
	if _, err := fmt.Fprintf(e.Stdout, "%s\n\n%stext\n%s%s\n", version, fence, output.Bytes(), fence); err != nil {
		return err
	}
	return failed
}

func runDoctor(cmd *cobra.Command, e *kit.Env, f *targets.Flags, args []string, r *doctorReport, quick bool) error {
	t, rest, err := targets.Split(cmd, e, args)
	if bad, ok := errors.AsType[*exit.Failure](err); ok && bad.Code == "bad_configuration" {
		r.Target = safe.Line(args[0])
		r.section("Configuration").bad("%s", safe.Line(bad.Err.Error())).hint("%s: hosts pass the reference on unchanged, or an empty value, and the server fails without it", bad.Hint)
		r.next(kit.PlainArgs("mcpwire", "doctor", "--env", "NAME=value", args[0])...)
		return r.finish()
	}
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return exit.Usagef("doctor: unexpected argument %q after a server", rest[0])
	}
	if !f.Given("oauth") {
		// The server's own response is wanted.
		f.NoOAuth = true
	}
	d, err := targets.NewDialer(e, t, f)
	if err != nil {
		return err
	}
	names := kit.NewSecretNames()
	r.Target = t.Name
	if d.Target.IsStdio() {
		r.Target = kit.ShellText(names.Args(d.Target.Command...))
	}
	doc := &doctor{e: e, d: d, report: r, wait: targets.OrForever(d.Flags.Timeout), connect: d.HandshakeWait(), quick: quick, names: names}
	if u, err := url.Parse(d.Target.URL); err == nil && u.Host != "" && !loopback.IsHost(u.Hostname()) && !f.Given("quick") {
		doc.quick, doc.spared = true, true
	}
	doc.flags, doc.target = againArgs(cmd, args, names)
	doc.examine(cmd.Context())
	if err := cmd.Context().Err(); err != nil {
		r.progress.Clear()
		return err
	}
	return r.finish()
}

// againFlags lists the flags that a later command needs to reach the server in the same way.
var againFlags = []string{
	"env", "cwd", "header", "header-file", "timeout", "connect-timeout", "insecure", "cacert",
	"oauth", "no-oauth", "client-id", "client-secret-env", "issuer", "scope", "config", "server",
}

// againArgs returns the arguments that name the server in a suggested command: the flags that reach
// it, and the target as given. Variables replace secrets.
func againArgs(cmd *cobra.Command, args []string, names *kit.SecretNames) (flags, target []kit.Arg) {
	for _, name := range againFlags {
		flag := cmd.Flags().Lookup(name)
		if flag == nil || !flag.Changed {
			continue
		}
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			switch {
			case flag.Value.Type() == "bool" && v == "true":
				flags = append(flags, kit.PlainArgs("--"+name)...)
			case name == "env":
				flags = append(append(flags, kit.PlainArgs("--env")...), names.Args(v)...)
			case name == "header":
				header, value, _ := strings.Cut(v, ":")
				value = strings.TrimSpace(value)
				// mcpwire itself replaces ${NAME}.
				if !targets.Variable().MatchString(value) {
					value = names.Redactor.Header(header, value)
				}
				flags = append(append(flags, kit.PlainArgs("--header")...), names.Split(header+": "+value, "--"+header))
			default:
				flags = append(flags, kit.PlainArgs("--"+name, v)...)
			}
		}
	}
	switch dash := cmd.ArgsLenAtDash(); {
	case dash >= 0:
		target = append(kit.PlainArgs("--"), names.Args(args[dash:]...)...)
	case len(args) > 0 && targets.IsURL(args[0]):
		target = []kit.Arg{names.URL(args[0])}
	case len(args) > 0:
		target = kit.PlainArgs(args[0])
	}
	return flags, target
}

// mcpwire returns a command line for the same server. flags are the command's own flags.
func (doc *doctor) mcpwire(verb string, flags ...string) []kit.Arg {
	return slices.Concat(kit.PlainArgs("mcpwire", verb), kit.PlainArgs(flags...), doc.flags, doc.target)
}

// elsewhereArgs returns a command line for another URL. A peer may have named the URL, so the
// command contains nothing that was meant for the server.
func (doc *doctor) elsewhereArgs(raw string, words ...string) []kit.Arg {
	return append(kit.PlainArgs(append([]string{"mcpwire"}, words...)...), doc.names.URL(raw))
}

// bearer is the header that gives the server a token. mcpwire replaces the variable.
const bearer = "Authorization: Bearer ${TOKEN}"

// newestFirst returns the revisions to try: the modern ones, then those that hosts propose.
func newestFirst() []mcp.Revision {
	list := mcp.Revisions()
	slices.Reverse(list)
	return list
}

// rules checks the server against the rules, in all revisions that it speaks, like mcpwire check.
// With --quick it only makes the first request.
func (doc *doctor) rules(ctx context.Context, spoken []mcp.Revision) {
	ascending := slices.Clone(spoken)
	slices.Reverse(ascending)
	limited, cancel := context.WithTimeout(ctx, maxRules)
	defer cancel()
	if doc.quick {
		// One revision is enough for the request after the handshake.
		ascending = spoken[:1]
	}
	report, err := probe.Run(limited, doc.d.ProbeTarget(), &probe.Options{
		Revisions: ascending, Timeout: doc.wait, Connect: doc.connect, Version: build.Version(), HandshakesOnly: doc.quick,
		Progress: func(step probe.Step) { doc.report.status("checking the rules: %v", step) },
	})
	if ctx.Err() == nil {
		doc.judge(report, err)
	}
}

// judge reports the result of a probe.
func (doc *doctor) judge(report *probe.Report, err error) {
	doc.failures(report.Failures)
	if doc.quick {
		return
	}
	s := doc.report.section(sectionRules)
	if doc.reported.ended {
		s.note("not all rules are checked: the server ends at a request that hosts send")
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		s.odd("not all rules could be checked in %s", kit.ShortTime(maxRules)).hint("mcpwire check has no such limit")
	case err != nil:
		s.odd("the rules could not be checked: %s", safe.Clip(err.Error(), 200))
	}
	if err == nil || len(report.Findings) > 0 {
		doc.findings(s, report)
	}
}

// covers reports whether the report already has, in more detail, what a rule would say.
func (doc *doctor) covers(rule string) bool {
	switch rule {
	case "stdio/stray-output":
		return doc.invalidOutput
	case "probe/died", "stdio/exit-pending":
		return doc.reported.ended
	case "probe/failing", "probe/refused":
		return doc.reported.refused
	case "probe/unanswered", "lifecycle/unanswered":
		return doc.reported.unanswered
	}
	return false
}

// rankOf returns the rank of a rule.
func rankOf(rule string) rank {
	switch {
	case rule == "probe/died", rule == "probe/failing", rule == "stdio/exit-pending":
		return rankRequest
	case strings.HasPrefix(rule, "shape/"), rule == "probe/refused":
		return rankLists
	case strings.HasSuffix(rule, "/unanswered"):
		return rankCalls
	}
	return rankRules
}

// maxRules limits the time for checking the rules.
const maxRules = 5 * time.Minute

// maxFindings limits how many rules a doctor names.
const maxFindings = 8

// findings reports the rules that the server breaks.
func (doc *doctor) findings(s *doctorSection, report *probe.Report) {
	// Keep the worst finding of each rule.
	list := slices.Clone(report.Findings)
	slices.SortStableFunc(list, func(a, b check.Finding) int { return cmp.Compare(b.Rule.Severity, a.Rule.Severity) })
	seen := map[string]bool{}
	shown, wrong, warnings, sdk, shared := 0, 0, 0, "", 0
	for _, f := range list {
		s.rank = rankOf(f.Rule.ID)
		if seen[f.Rule.ID] || doc.covers(f.Rule.ID) {
			continue
		}
		seen[f.Rule.ID] = true
		if f.SDK != "" {
			sdk, shared = f.SDK, shared+1
		}
		if f.Rule.Severity == check.Info {
			continue
		}
		wrong++
		if f.Rule.Severity == check.Warning {
			warnings++
		}
		if shown++; shown > maxFindings {
			continue
		}
		line := s.odd
		if f.Rule.Severity == check.Error {
			line = s.bad
		}
		line("%s: %s: %s", f.Rule.ID, safe.Clip(f.Rule.Title, 100), safe.Clip(f.Message, 200)).hint("%s", f.Rule.Fix)
	}
	switch {
	case wrong == 0 && doc.reported.ended:
	case wrong == 0 && doc.invalidOutput:
		s.good("no other findings in %d messages and events", report.Events)
	case wrong == 0:
		s.good("no findings in %d messages and events", report.Events)
	case shown > maxFindings:
		s.note("and %d more rules", shown-maxFindings)
	}
	if shared > 0 {
		s.note("%d more broken rules are due to the %s, as in all servers built with it: mcpwire check --verbose lists them", shared, sdk)
	}
	if doc.report.warnings = warnings; wrong > 0 {
		doc.report.next(doc.mcpwire("check")...)
	}
}
