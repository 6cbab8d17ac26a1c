// Package call has the commands that use a server by hand and in scripts.
package call

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/client"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A verb is an operation on a server, run by a command, which connects for it, or by a line of the
// shell, which is already connected.
type verb interface {
	// register adds the verb's own flags.
	register(fs *pflag.FlagSet)
	// parse takes the arguments after the target and returns an error if they are invalid. It runs
	// before anything is started.
	parse(args []string) error
	run(ctx context.Context, s *session) error
}

// A session is a connection to a server, with the destinations of its output.
type session struct {
	*client.Client
	e     *kit.Env
	d     *targets.Dialer
	trace *targets.Trace
	notes *kit.Notes
}

// newVerbCommand completes c, which has the texts, to the command of a verb.
func newVerbCommand(e *kit.Env, c *cobra.Command, v verb) *cobra.Command {
	var f targets.Flags
	var record bool
	c.ValidArgsFunction = completeTarget
	c.Long += "\n\n" + targets.Help
	c.RunE = func(cmd *cobra.Command, args []string) error {
		t, rest, err := targets.Split(cmd, e, args)
		if err != nil {
			return err
		}
		if err := v.parse(rest); err != nil {
			return err
		}
		if !record {
			return runVerb(cmd.Context(), e, &f, t, v)
		}
		if err := t.AddTap(cmd.Name()); err != nil {
			return err
		}
		begin := time.Now()
		err = runVerb(cmd.Context(), e, &f, t, v)
		if hasCaptureSince(t.CaptureName(), begin) {
			fmt.Fprintf(e.Stderr, "recorded: mcpwire show %s\n", kit.ShellLine(sources.OfCapture+t.CaptureName()))
		} else {
			fmt.Fprintln(e.Stderr, "nothing was recorded (-v shows why)")
		}
		return err
	}
	c.Flags().BoolVar(&record, "tap", false, "record the session of a stdio server, as mcpwire tap does")
	v.register(c.Flags())
	f.Register(c.Flags())
	return c
}

// hasCaptureSince reports whether a server has a capture that began after begin.
func hasCaptureSince(name string, begin time.Time) bool {
	dir, err := captures.Dir()
	if err != nil {
		return false
	}
	newest, err := captures.Find(dir, name)
	return err == nil && !newest.Started.Before(begin.Truncate(time.Second))
}

// runVerb connects, runs the verb, and disconnects.
func runVerb(ctx context.Context, e *kit.Env, f *targets.Flags, t targets.Spec, v verb) error {
	d, err := targets.NewDialer(e, t, f)
	if err != nil {
		return err
	}
	if own, ok := v.(interface {
		alone(context.Context, *targets.Dialer) (bool, error)
	}); ok {
		if done, err := own.alone(ctx, d); done {
			return err
		}
	}
	s := &session{e: e, d: d, trace: d.Trace, notes: d.Notes}
	d.Trace.OnNotification = s.onNotification
	var tweaks []func(*client.Options)
	if own, ok := v.(interface{ tweak(*client.Options) }); ok {
		tweaks = append(tweaks, own.tweak)
	}
	if s.Client, err = d.Dial(ctx, tweaks...); err != nil {
		return err
	}
	err = v.run(ctx, s)
	s.notes.Clear()
	if err != nil && ctx.Err() != nil && targets.IsInterrupt(ctx, err) {
		err = context.Canceled
	}
	err = s.failure(err)
	s.warnInvalid(err)
	if d.Target.IsStdio() {
		s.notes.Status.Step("waiting for %s to exit", d.Target.Name)
		defer s.notes.Clear()
	}
	if closing := s.Close(); err == nil && closing != nil {
		if f.Verbose {
			s.notes.Linef("mcpwire: %v", closing)
		}
	}
	return err
}

// onNotification shows the log messages of a server that reach the level.
func (s *session) onNotification(method string, params []byte) {
	if method == mcp.NotificationMessage {
		s.notes.LogParams(params)
	}
}

// failure is the failure of the dialer. If the server doesn't support the method, it adds what the
// server declared in the handshake.
func (s *session) failure(err error) error {
	err = s.d.Failure(err)
	f, ok := errors.AsType[*exit.Failure](err)
	if !ok || f.RPC == nil || jsonrpc.Code(f.RPC.Code) != jsonrpc.CodeMethodNotFound || s.Client == nil {
		return err
	}
	caps := s.Profile().Capabilities
	method := s.trace.RequestMethod(&jsonrpc.Error{Code: jsonrpc.Code(f.RPC.Code), Message: f.RPC.Message})
	for _, x := range []struct {
		prefix, what string
		declared     bool
	}{
		{"tools/", "tools", caps.Tools != nil},
		{"resources/", "resources", caps.Resources != nil},
		{"prompts/", "prompts", caps.Prompts != nil},
		{"completion/", "completions", caps.Completions != nil},
		{"logging/", "logging", caps.Logging != nil},
	} {
		if strings.HasPrefix(method, x.prefix) && !x.declared {
			own := *f
			own.Hint = "the server declares no " + x.what
			return &own
		}
	}
	return err
}

// warnInvalid prints a warning about invalid messages on the server's standard output, unless err
// mentions them: hosts may fail on them, though this program doesn't.
func (s *session) warnInvalid(err error) {
	first, n := s.trace.TakeInvalid()
	if n == 0 || !s.d.Target.IsStdio() || err != nil && first != "" && strings.Contains(err.Error(), first) {
		return
	}
	what := "what is not a message"
	if n > 1 {
		what = fmt.Sprintf("%d lines that are not messages, the first", n)
	}
	s.notes.Warnf("the server wrote to standard output %s: %s (mcpwire doctor shows more)", what, first)
}

// errOutput is wrapped by the error for output that could not be written.
var errOutput = errors.New("cannot write the output")

// write writes text to standard output.
func (s *session) write(text string) error {
	s.notes.Clear()
	if _, err := io.WriteString(s.e.Stdout, text); err != nil {
		return exit.Fail(exit.Unexpected, "output", "", fmt.Errorf("%w: %w", errOutput, err))
	}
	return nil
}

// received handles the last result of a method, and the error with which the client has rejected
// it. It returns the error of the command, which is not nil if parts of the result are malformed.
// With asJSON it prints the result as received; more says that the caller must print it otherwise.
func (s *session) received(method string, result json.RawMessage, asJSON bool, err error) (more bool, _ error) {
	if result == nil || client.IsServerError(err) {
		return false, err
	}
	_, left := era.WithoutMalformed(method, result)
	more = err == nil && !asJSON
	if left != nil {
		err = exit.Fail(exit.Answer, "malformed_result", "hosts may reject this result; --json prints it as received", fmt.Errorf("the result is incomplete: %d of its parts are malformed, the first: %w", len(left), left[0]))
	}
	if asJSON {
		if err := s.writeValue(result); err != nil {
			return false, err
		}
	}
	return more, err
}

// writeJSON writes the last result of a method unchanged.
func (s *session) writeJSON(method string) error {
	text, _ := s.trace.Result(method)
	if text == nil {
		return exit.Fail(exit.Unexpected, "failed", "", errors.New("no result of "+method))
	}
	return s.writeValue(text)
}

// writeValue writes a JSON value, escaped if the output is a terminal.
func (s *session) writeValue(text []byte) error {
	if kit.WriterIsTerminal(s.e.Stdout) {
		text = safe.JSON(text)
	}
	return s.write(string(text) + "\n")
}

// writeObject writes v as a JSON value.
func (s *session) writeObject(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.writeValue(text)
}

// writeText writes text of the server and ends it with a line break.
func (s *session) writeText(text string) error {
	if kit.WriterIsTerminal(s.e.Stdout) {
		text = safe.Text(strings.ReplaceAll(text, "\r\n", "\n"))
	}
	if len(text) == 0 || text[len(text)-1] != '\n' {
		text += "\n"
	}
	return s.write(text)
}
