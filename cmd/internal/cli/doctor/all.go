package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/servers"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/inspect/hosts"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/text/plural"
)

// maxExamined limits how many servers doctor --all examines at the same time.
const maxExamined = 4

// runDoctorAll examines the servers that hosts have configured and prints a line for each.
func runDoctorAll(cmd *cobra.Command, e *kit.Env, f *targets.Flags, asJSON bool) error {
	machine, files, err := servers.Find()
	if err != nil {
		return err
	}
	servers.WarnAbout(e.Stderr, files)
	var all []hosts.Server
	for _, file := range files {
		for _, s := range file.Servers {
			if !s.Disabled {
				all = append(all, s)
			}
		}
	}
	reports := make([]*doctorReport, len(all))
	out := &doctorTable{e: e, paint: kit.NewScreen(e.Stdout).Paint, width: kit.TerminalWidth(e.Stdout), json: asJSON, servers: all}
	status := e.StatusLine()
	defer status.Clear()
	worst := new(doctorReport)
	ended := make(chan int, len(all))
	var wg sync.WaitGroup
	defer wg.Wait()
	started, printed := 0, make([]bool, len(all))
	start := func() {
		if i := started; i < len(all) {
			started++
			wg.Go(func() {
				reports[i] = examineConfigured(cmd, e, machine, all[i], *f)
				ended <- i
			})
		}
	}
	for range maxExamined {
		start()
	}
	// Lines come as servers end, so that a slow one holds up none.
	for done := range all {
		status.Step("%d of %d servers examined; running: %s", done, len(all), running(all[:started], printed))
		i := <-ended
		if err := cmd.Context().Err(); err != nil {
			return err
		}
		start()
		status.Clear()
		worst.worse(reports[i].exit)
		if err := out.line(i, reports[i]); err != nil {
			return err
		}
		printed[i] = true
	}
	if err := out.end(reports); err != nil {
		return err
	}
	if worst.exit != exit.OK {
		return &exit.Status{Code: worst.exit}
	}
	return nil
}

// running names the servers that have no report yet.
func running(all []hosts.Server, reported []bool) string {
	var names []string
	for i, s := range all {
		if !reported[i] {
			names = append(names, servers.ServerLabel(s))
		}
	}
	return strings.Join(names, ", ")
}

// examineConfigured examines a configured server without its rules.
func examineConfigured(cmd *cobra.Command, e *kit.Env, machine *hosts.Env, s hosts.Server, f targets.Flags) *doctorReport {
	name := s.Host + ":" + s.Name
	r := &doctorReport{out: io.Discard, json: true, Target: safe.Line(name), Sections: []*doctorSection{}}
	doc, err := configuredDoctor(e, machine, s, &f, r)
	switch {
	case err == nil:
		doc.target = kit.PlainArgs(name)
		doc.examine(cmd.Context())
	case errors.Is(err, errUntrusted):
		r.skipped = true
		r.section("Configuration").note("%s", safe.Line(err.Error()))
		r.Verdict = "only a file of the project configures it; --trust-project starts it"
	default:
		r.section("Configuration").bad("%s", safe.Line(err.Error()))
		r.next(kit.PlainArgs("mcpwire", "doctor", name)...)
	}
	_ = r.finish() // the exit status, which is in r
	return r
}

// errUntrusted is wrapped by the error for a server that is not started.
var errUntrusted = errors.New("only a file of the project configures it")

func configuredDoctor(e *kit.Env, machine *hosts.Env, s hosts.Server, f *targets.Flags, r *doctorReport) (*doctor, error) {
	if s.Scope == hosts.ScopeProject && !f.TrustProject && !hosts.IsTrusted(machine, s) {
		return nil, fmt.Errorf("%w: %s", errUntrusted, s.File)
	}
	expanded, err := s.Expand(machine)
	if err != nil {
		return nil, err
	}
	t, err := targets.OfHost(expanded)
	if err != nil {
		return nil, err
	}
	d, err := targets.NewDialer(e, t, f)
	if err != nil {
		return nil, err
	}
	return &doctor{e: e, d: d, report: r, wait: targets.OrForever(d.Flags.Timeout), connect: d.HandshakeWait(), quick: true, names: kit.NewSecretNames()}, nil
}

// A doctorTable prints a line for each server.
type doctorTable struct {
	e       *kit.Env
	paint   kit.Paint
	width   int
	json    bool
	servers []hosts.Server
}

func (t *doctorTable) line(i int, r *doctorReport) error {
	if t.json {
		return nil
	}
	width := 0
	for _, s := range t.servers {
		width = max(width, trace.Width(servers.ServerLabel(s)))
	}
	mark, style := "✓", kit.Green
	switch {
	case r.skipped:
		mark, style = "·", kit.Dim
	case r.exit != exit.OK:
		mark, style = "✗", kit.Red
	case r.slow != "":
		mark, style = "!", kit.Yellow
	}
	label := servers.ServerLabel(t.servers[i])
	text := r.Status
	if r.exit != exit.OK || r.slow != "" || r.skipped {
		text += ": " + r.Verdict
	}
	if r.speaks != "" {
		text += " · " + r.speaks
	}
	if t.width > 0 {
		f := kit.NewFolder(false, max(width+4+kit.MinWidth, t.width), width+4, width+4)
		f.Words(text, "")
		text = f.String()
	}
	_, err := fmt.Fprintf(t.e.Stdout, "%s %s%s  %s\n", t.paint.In(style, mark), label, strings.Repeat(" ", width-trace.Width(label)), text)
	return err
}

// end prints the reports as JSON, or how many servers have problems.
func (t *doctorTable) end(reports []*doctorReport) error {
	if t.json {
		text, err := json.MarshalIndent(reports, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(t.e.Stdout, "%s\n", text)
		return err
	}
	failed, first := 0, ""
	for i, r := range reports {
		if r.exit != exit.OK {
			if failed++; first == "" {
				first = kit.ShellLine("mcpwire", "doctor", t.servers[i].Host+":"+t.servers[i].Name)
			}
		}
	}
	switch {
	case len(reports) == 0:
		fmt.Fprintln(t.e.Stderr, "no servers found in the configuration of known hosts")
	case failed > 0:
		fmt.Fprintf(t.e.Stderr, "%d of %s failed; next: %s\n", failed, plural.Of(len(reports), "server"), safe.Line(first))
	}
	return nil
}

// examine examines the server.
func (doc *doctor) examine(ctx context.Context) {
	if doc.d.Target.IsStdio() {
		doc.process(ctx)
	} else {
		doc.web(ctx)
	}
}
