package targets

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/inspect/probe"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/cause"
	"mcpwire/stdio"
)

// reachFlags lists the flags of Flags that a probe uses. A probe makes its own client.
var reachFlags = []string{
	"header", "header-file", "env", "cwd", "timeout", "connect-timeout", "insecure", "cacert", "config", "server", "trust-project",
	"verbose", "oauth", "no-oauth", "client-id", "client-secret-env", "issuer", "scope",
}

// RegisterReach adds the target flags that say how to reach a server.
func RegisterReach(t *Flags, fs *pflag.FlagSet) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	t.Register(all)
	for _, name := range reachFlags {
		fs.AddFlag(all.Lookup(name))
	}
	t.Set = fs
}

// ProbeTarget returns the dialer's server as a target of package probe.
func (d *Dialer) ProbeTarget() *probe.Target {
	t := &probe.Target{Command: d.Target.Command, Dir: d.Target.Dir, Env: d.Target.Env, URL: d.Target.URL, Header: d.Target.Header, Start: d.Start}
	if d.HTTP != nil {
		t.Transport = d.HTTP
	}
	return t
}

// ExplainEnd prints why a process of the server ended after the handshake, according to its
// standard error, and that this ended the check, if hosts send the request too.
func (d *Dialer) ExplainEnd(list []*probe.Failure) {
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
		end = fmt.Errorf("%w: %s", end, ExitWords(f.Exit))
	}
	lines, _ := NewLines(f.Stderr())
	fmt.Fprintf(d.Env.Stderr, "mcpwire: %v\n", withLines(end, lines))
	if hint := d.causeHint(cause.Ended, strings.Split(f.Stderr(), "\n"), ""); hint != "" {
		fmt.Fprintf(d.Env.Stderr, "hint: %s\n", hint)
	}
}

// ProbeFailure converts an error of a probe to the error that the command returns.
func (d *Dialer) ProbeFailure(err error) error {
	var status *probe.StatusError
	ended, exited := errors.AsType[*stdio.ExitError](err)
	switch {
	case errors.As(err, &status) && (status.Status == http.StatusUnauthorized || status.Status == http.StatusForbidden || status.Status == http.StatusProxyAuthRequired):
		return &exit.Failure{Status: exit.Auth, Code: "auth_required", Err: status, HTTPStatus: status.Status, URL: SafeURL(d.Target.URL), Hint: "mcpwire doctor shows what the server requires; --header 'Authorization: Bearer ${TOKEN}' gives it a token"}
	case errors.Is(err, probe.ErrNoAnswer) && exited:
		short := *ended
		// The arguments may contain secrets.
		short.Name = d.Target.Name
		return &exit.Failure{Status: exit.Unreachable, Code: "no_answer", Err: fmt.Errorf("no handshake succeeded: %w", ExitText(&short)), Hint: "mcpwire doctor looks for the cause"}
	case errors.Is(err, probe.ErrNoAnswer):
		return &exit.Failure{Status: exit.Unreachable, Code: "no_answer", Err: errors.New(safe.Line(err.Error())), Hint: "mcpwire doctor looks for the cause; --connect-timeout allows a slow server more time"}
	}
	return d.Failure(err)
}

// ExitWords describes how a process ended.
func ExitWords(e *stdio.ExitError) string {
	if e.Signal != nil {
		return fmt.Sprintf("signal %v after %s", e.Signal, kit.ShortTime(e.After))
	}
	return fmt.Sprintf("exit status %d after %s", e.Code, kit.ShortTime(e.After))
}

// NewLines returns the important lines of a standard error, and all lines that are not blank.
func NewLines(text string) (important, all []string) {
	tail := kit.NewTailWriter(nil)
	_, _ = tail.Write([]byte(text))
	return tail.Lines(), tail.All()
}
