package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/inspect/hosts"
	"mcpwire/cmd/internal/inspect/probe"
	"mcpwire/cmd/internal/proxy/recording"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/mcp"
)

// liveFlags holds the flags of check that apply only to servers.
type liveFlags struct {
	target targets.Flags
	output string
	redact string
}

// register adds the flags to fs.
func (f *liveFlags) register(fs *pflag.FlagSet) {
	fs.StringVarP(&f.output, "output", "o", "", "when checking a server, record the traffic to `FILE`")
	fs.StringVar(&f.redact, "redact", "default", "how to redact secrets in that file: `WAY` is default or off")
	targets.RegisterReach(&f.target, fs)
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
	case cmd.ArgsLenAtDash() >= 0, kit.FlagText(cmd, "config") != "":
		return true
	case len(args) != 1 || args[0] == "-":
		return false
	case targets.IsURL(args[0]), strings.HasPrefix(args[0], sources.OfLive):
		return true
	case strings.HasPrefix(args[0], sources.OfCapture):
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
func (f *checkFlags) live(cmd *cobra.Command, e *kit.Env, args []string) error {
	t, rest, err := targets.Split(cmd, e, args)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return exit.Usagef("check: unexpected argument %q after a server", rest[0])
	}
	d, err := targets.NewDialer(e, t, &f.server.target)
	if err != nil {
		return err
	}
	return checkLive(cmd.Context(), e, d, f)
}

// checkLive probes a server and prints the findings.
func checkLive(ctx context.Context, e *kit.Env, d *targets.Dialer, f *checkFlags) error {
	opts := &probe.Options{
		Only: f.only, Disabled: f.disable, Version: build.Version(),
		Timeout: targets.OrForever(d.Flags.Timeout), Connect: d.HandshakeWait(),
	}
	if f.opts.Revision != mcp.RevisionNone {
		opts.Revisions = []mcp.Revision{f.opts.Revision}
	}
	status := e.StatusLine()
	if d.Flags.Verbose {
		status = nil // the lines of -v tell more
	}
	defer status.Clear()
	opts.Progress = func(step probe.Step) { status.Step("probing %s: %v", d.Target.Name, step) }
	if d.Flags.Verbose {
		opts.Progress = func(step probe.Step) { fmt.Fprintf(e.Stderr, "mcpwire: %s\n", step.Text) }
		opts.Stderr = kit.NewTailWriter(e.Stderr)
	}
	rec, kept, err := f.server.record(d, f.format == formatText)
	if err != nil {
		return err
	}
	if rec != nil {
		opts.Capture = rec.Writer
		defer rec.Close()
	}
	status.Step("starting %s", d.Target.Name)
	report, err := probe.Run(ctx, d.ProbeTarget(), opts)
	status.Clear()
	if rec != nil {
		if closeErr := rec.Close(); closeErr != nil && err == nil {
			err = exit.Fail(exit.Unexpected, "capture", "", fmt.Errorf("the capture is not complete: %w", closeErr))
		}
	}
	if err != nil && (len(report.Revisions) > 0 || ctx.Err() != nil || !errors.Is(err, probe.ErrNoAnswer)) {
		return d.ProbeFailure(err)
	}
	run := newCheckRun(&f.opts)
	run.report.Rules = f.rules()
	source := d.Target.Name
	if file := commandFile(d.Target.Dir, d.Target.Command); file != "" {
		source = file
	}
	run.report.Sources, run.report.Events = []string{source}, report.Events
	run.add(source, report.Findings)
	if err != nil && len(run.report.Results) == 0 {
		// Nothing was checked, so a report without findings would be wrong.
		return d.ProbeFailure(err)
	}
	printed := f.finish(e, run)
	d.ExplainEnd(report.Failures)
	if kept && len(run.report.Results) > 0 {
		first := run.report.Results[0]
		fmt.Fprintf(e.Stderr, "mcpwire show %s -n %d shows the exchange of an event, mcpwire show %[1]s all of them\n", captures.ProbeName, first.Event)
	}
	if err != nil {
		return d.ProbeFailure(err)
	}
	return printed
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
func (f *liveFlags) record(d *targets.Dialer, keep bool) (rec *capture.File, kept bool, err error) {
	if f.output == "" && !keep {
		return nil, false, nil
	}
	transport := capture.TransportHTTP
	if d.Target.IsStdio() {
		transport = capture.TransportStdio
	}
	opts := &capture.Options{Tool: "mcpwire " + build.Version(), Transport: transport, Name: d.Target.CaptureName(), URL: d.Target.URL, Redact: recording.Redaction(f.redact)}
	if f.output == "" {
		dir, err := captures.Dir()
		if err == nil {
			rec, err = captures.CreateProbe(dir, build.Version(), opts)
		}
		// A probe does not need its capture.
		return rec, err == nil, nil
	}
	if rec, err = capture.Create(f.output, opts); err != nil {
		return nil, false, exit.Fail(exit.Unexpected, "capture", "--output needs a file that does not exist yet", err)
	}
	return rec, false, nil
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
