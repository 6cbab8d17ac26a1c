package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/inspect/hosts"
	"mcpwire/cmd/internal/inspect/probe"
	"mcpwire/cmd/internal/proxy/recording"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/cmd/internal/trace/cause"
	"mcpwire/mcp"
	"mcpwire/stdio"
)

// liveFlags holds the flags of check that apply only to servers.
type liveFlags struct {
	target targetFlags
	output string
	redact string
}

// reachFlags lists the flags of targetFlags that a probe uses. A probe makes its own client.
var reachFlags = []string{
	"header", "header-file", "env", "cwd", "timeout", "connect-timeout", "insecure", "cacert", "config", "server", "trust-project",
	"verbose", "oauth", "no-oauth", "client-id", "client-secret-env", "issuer", "scope",
}

// register adds the flags to fs.
func (f *liveFlags) register(fs *pflag.FlagSet) {
	fs.StringVarP(&f.output, "output", "o", "", "when checking a server, record the traffic to `FILE`")
	fs.StringVar(&f.redact, "redact", "default", "how to redact secrets in that file: `WAY` is default or off")
	registerReach(&f.target, fs)
}

// registerReach adds the target flags that say how to reach a server.
func registerReach(t *targetFlags, fs *pflag.FlagSet) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	t.register(all)
	for _, name := range reachFlags {
		fs.AddFlag(all.Lookup(name))
	}
	t.set = fs
}

// allRules returns the rules for captures and those for servers, sorted by id.
func allRules() []*check.Rule {
	list := append(check.Rules(), probe.Rules()...)
	slices.SortFunc(list, func(a, b *check.Rule) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// lookupRule returns the rule with an id, of either kind.
func lookupRule(id string) (*check.Rule, bool) {
	if r, ok := probe.Lookup(id); ok {
		return r, true
	}
	return check.Lookup(id)
}

// isLiveCheck reports whether a command line of check names a server and not a capture.
func isLiveCheck(cmd *cobra.Command, args []string) bool {
	switch {
	case cmd.ArgsLenAtDash() >= 0, flagText(cmd, "config") != "":
		return true
	case len(args) != 1 || args[0] == "-":
		return false
	case isURL(args[0]), strings.HasPrefix(args[0], ofLive):
		return true
	case strings.HasPrefix(args[0], ofCapture):
		return false
	}
	if _, err := os.Stat(args[0]); err == nil {
		return false
	}
	if dir, err := captures.Dir(); err == nil {
		if _, err := captures.Find(dir, args[0]); err == nil {
			return false
		}
	}
	machine, err := hosts.Current()
	if err != nil {
		return false
	}
	_, err = hosts.Resolve(machine, args[0])
	var missing *hosts.NotFoundError
	return err == nil || !errors.As(err, &missing)
}

// live probes a server and checks the traffic against the rules.
func (f *checkFlags) live(cmd *cobra.Command, e *env, args []string) error {
	t, rest, err := splitTarget(cmd, e, args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return exit.Usagef("check: unexpected argument %q after a server", rest[0])
	}
	d, err := newDialer(e, t, &f.server.target)
	if err != nil {
		return err
	}
	return checkLive(cmd.Context(), e, d, f)
}

// probeTarget returns the dialer's server as a target of package probe.
func (d *dialer) probeTarget() *probe.Target {
	t := &probe.Target{Command: d.target.command, Dir: d.target.dir, Env: d.target.env, URL: d.target.url, Header: d.target.header, Start: d.start}
	if d.http != nil {
		t.Transport = d.http
	}
	return t
}

// checkLive probes a server and prints the findings.
func checkLive(ctx context.Context, e *env, d *dialer, f *checkFlags) error {
	opts := &probe.Options{
		Only: f.only, Disabled: f.disable, Client: "mcpwire", Version: build.Version,
		Timeout: orForever(d.flags.timeout), Connect: d.handshakeWait(),
	}
	if f.opts.Revision != mcp.RevisionNone {
		opts.Revisions = []mcp.Revision{f.opts.Revision}
	}
	status := e.statusLine()
	if d.flags.verbose {
		status = nil // the lines of -v tell more
	}
	defer status.clear()
	opts.Progress = func(step probe.Step) { status.step("probing %s: %v", d.target.name, step) }
	if d.flags.verbose {
		opts.Progress = func(step probe.Step) { fmt.Fprintf(e.stderr, "mcpwire: %s\n", step.Text) }
		opts.Stderr = newTailWriter(e.stderr)
	}
	rec, kept, err := f.server.record(d, f.format == formatText)
	if err != nil {
		return err
	}
	if rec != nil {
		opts.Capture = rec.Writer
		defer rec.Close()
	}
	status.step("starting %s", d.target.name)
	report, err := probe.Run(ctx, d.probeTarget(), opts)
	status.clear()
	if rec != nil {
		if closeErr := rec.Close(); closeErr != nil && err == nil {
			err = exit.Fail(exit.Unexpected, "capture", "", fmt.Errorf("the capture is not complete: %w", closeErr))
		}
	}
	if err != nil && (len(report.Revisions) > 0 || ctx.Err() != nil || !errors.Is(err, probe.ErrNoAnswer)) {
		return d.probeFailure(err)
	}
	run := newCheckRun(&f.opts)
	run.report.Rules = f.rules()
	source := d.target.name
	if file := commandFile(d.target.dir, d.target.command); file != "" {
		source = file
	}
	run.report.Sources, run.report.Events = []string{source}, report.Events
	run.add(source, report.Findings)
	if err != nil && len(run.report.Results) == 0 {
		// Nothing was checked, so a report without findings would be wrong.
		return d.probeFailure(err)
	}
	printed := f.finish(e, run)
	d.explainEnd(report.Failures)
	if kept && len(run.report.Results) > 0 {
		first := run.report.Results[0]
		fmt.Fprintf(e.stderr, "mcpwire show %s -n %d shows the exchange of an event, mcpwire show %[1]s all of them\n", captures.ProbeName, first.Event)
	}
	if err != nil {
		return d.probeFailure(err)
	}
	return printed
}

// explainEnd prints why a process of the server ended after the handshake, according to its
// standard error, and that this ended the check, if hosts send the request too.
func (d *dialer) explainEnd(list []*probe.Failure) {
	i := slices.IndexFunc(list, func(f *probe.Failure) bool { return f.Ended && f.Usual })
	if i < 0 {
		i = slices.IndexFunc(list, func(f *probe.Failure) bool { return f.Ended && strings.TrimSpace(f.Stderr()) != "" })
	}
	if i < 0 {
		return
	}
	f := list[i]
	end := errors.New("a process of the server ended at " + f.About)
	if f.Usual {
		end = errors.New("not all rules were checked, because the server ends at " + f.About)
	}
	if f.Exit != nil {
		end = fmt.Errorf("%w: %s", end, exitWords(f.Exit))
	}
	lines, _ := newLines(f.Stderr())
	fmt.Fprintf(d.e.stderr, "mcpwire: %v\n", withLines(end, lines))
	if hint := d.causeHint(cause.Ended, strings.Split(f.Stderr(), "\n"), ""); hint != "" {
		fmt.Fprintf(d.e.stderr, "hint: %s\n", hint)
	}
}

// commandFile returns the first word of a command that names a file below the working folder, such
// as index.js in "node index.js", or "". Services that annotate a repository show findings at it. A
// shell's argument may have several words.
func commandFile(dir string, command []string) string {
	for _, arg := range command {
		for _, word := range strings.Fields(arg) {
			name := filepath.Join(dir, word)
			if !filepath.IsLocal(name) {
				continue
			}
			if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
				return name
			}
		}
	}
	return ""
}

// record creates the file of --output. Without --output, it creates the capture of a probe in the
// user's folder if keep is set, and reports whether it did. Without both it returns nil.
func (f *liveFlags) record(d *dialer, keep bool) (rec *capture.File, kept bool, err error) {
	if f.redact != "default" && f.redact != "off" {
		return nil, false, exit.Usagef("check: --redact %s: want default or off", safe.Line(f.redact))
	}
	if f.output == "" && !keep {
		return nil, false, nil
	}
	transport := capture.TransportHTTP
	if d.target.isStdio() {
		transport = capture.TransportStdio
	}
	opts := &capture.Options{Tool: "mcpwire " + build.Version, Transport: transport, Name: d.target.captureName(), URL: d.target.url, Redact: recording.Redaction(f.redact)}
	if f.output == "" {
		dir, err := captures.Dir()
		if err == nil {
			rec, err = captures.CreateProbe(dir, build.Version, opts)
		}
		// A probe does not need its capture.
		return rec, err == nil, nil
	}
	if rec, err = capture.Create(f.output, opts); err != nil {
		return nil, false, exit.Fail(exit.Unexpected, "capture", "--output needs a file that does not exist yet", err)
	}
	return rec, false, nil
}

// probeFailure converts an error of a probe to the error that the command returns.
func (d *dialer) probeFailure(err error) error {
	var status *probe.StatusError
	ended, exited := errors.AsType[*stdio.ExitError](err)
	switch {
	case errors.As(err, &status) && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden || status.Status == http.StatusProxyAuthRequired):
		return &exit.Failure{Status: exit.Auth, Code: "auth_required", Err: status, HTTPStatus: status.Status, URL: safeURL(d.target.url), Hint: "mcpwire doctor shows what the server requires; --header 'Authorization: Bearer ${TOKEN}' gives it a token"}
	case errors.Is(err, probe.ErrNoAnswer) && exited:
		short := *ended
		// The arguments may contain secrets.
		short.Name = d.target.name
		return &exit.Failure{Status: exit.Unreachable, Code: "no_answer", Err: fmt.Errorf("no handshake succeeded: %w", exitText(&short)), Hint: "mcpwire doctor looks for the cause"}
	case errors.Is(err, probe.ErrNoAnswer):
		return &exit.Failure{Status: exit.Unreachable, Code: "no_answer", Err: errors.New(safe.Line(err.Error())), Hint: "mcpwire doctor looks for the cause; --connect-timeout allows a slow server more time"}
	}
	return d.failure(err)
}

// rules returns the rules of both kinds that --only and --disable select.
func (f *checkFlags) rules() []*check.Rule {
	list := f.opts.Enabled()
	for _, r := range probe.Rules() {
		if probe.Enabled(r.ID, f.only, f.disable) {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *check.Rule) int { return strings.Compare(a.ID, b.ID) })
	return list
}
