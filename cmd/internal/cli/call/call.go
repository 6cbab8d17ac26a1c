package call

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/client"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
)

const callLong = `Call a tool and print its result: text unchanged, a line for each other content
block, and the structured content if there is no text. The structured content
omits data if the data goes to a file, or if standard output is a terminal. With
-o a.png, data goes to that file, and further data to a-2.png and so on. --json
prints the result object exactly as received. Progress, log messages and
warnings go to standard error. The exit status is 5 if the tool fails, or if a
part of the result is malformed.

` + targets.ArgsHelp

const callExample = `  mcpwire call add a=2 b=3 -- mcpwire serve
  mcpwire call http://127.0.0.1:8080/mcp add a=2 b:=3 --json
  echo '{"text":"from a pipe"}' | mcpwire call echo --args - -- mcpwire serve
  mcpwire call cursor:browser screenshot -o page.png --timeout 2m`

// NewCommand returns the command call.
func NewCommand(e *kit.Env) *cobra.Command {
	return newVerbCommand(e, &cobra.Command{
		Use:     "call TARGET TOOL [NAME=TEXT | NAME:=JSON]... [FLAGS]",
		Short:   "call a tool",
		Long:    callLong,
		Example: callExample,
	}, &callVerb{e: e})
}

// A callVerb calls a tool.
type callVerb struct {
	e      *kit.Env
	json   bool
	args   string
	file   string
	level  logLevel
	noList bool
	task   bool
	tool   string
	list   []targets.Argument
	// object is the value of --args.
	object json.RawMessage

	// unknown reports that the server does not list the tool.
	unknown bool
}

func (v *callVerb) register(fs *pflag.FlagSet) {
	fs.BoolVar(&v.json, "json", false, "print the result object exactly as received")
	fs.StringVar(&v.args, "args", "", "all arguments at once: an `OBJECT`, @FILE, or - for standard input")
	fs.StringVarP(&v.file, "output", "o", "", "write images, audio and other data to `FILE`, or the text if there is no data; - is standard output")
	fs.Var(&v.level, "log-level", "request log messages of this `LEVEL` and above: debug, info, notice, warning, error, critical, alert or emergency")
	fs.BoolVar(&v.noList, "no-list", false, "do not request the tool's schema first; arguments are then not converted, and there are no warnings")
	fs.BoolVar(&v.task, "task", false, "let the server run the call as a task, and wait for it")
}

func (v *callVerb) parse(args []string) (err error) {
	if len(args) == 0 {
		return exit.UsageHintf("mcpwire list TARGET tools lists them", "call: missing the tool's name")
	}
	v.tool = args[0]
	if v.list, err = targets.ParseArguments("call", args[1:]); err != nil {
		return err
	}
	if v.args == "" {
		return nil
	}
	if len(v.list) > 0 {
		return exit.Usagef("call: --args sets all arguments; it cannot be combined with %s", safe.Line(v.list[0].Name))
	}
	if v.object, err = targets.ReadArgs(v.e, v.args); err != nil {
		return exit.Usagef("call: %w", err)
	}
	return nil
}

func (v *callVerb) tweak(o *client.Options) { o.Tasks = v.task }

func (v *callVerb) run(ctx context.Context, s *session) error {
	opts, err := v.level.options(ctx, s)
	if err != nil {
		return err
	}
	object, err := v.arguments(ctx, s)
	if err != nil {
		return err
	}
	opts = append(opts, client.WithProgress(s.notes.Progress))
	s.trace.Forget()
	result, err := v.call(ctx, s, object, opts)
	bad, _ := errors.AsType[*client.OutputError](err)
	if bad != nil {
		result, err = bad.Result, nil
	}
	if f, ok := errors.AsType[*exit.Failure](s.d.Failure(err)); ok && v.unknown && f.RPC != nil {
		f.Hint = "mcpwire list TARGET tools lists the tools"
		return f
	}
	more, err := s.received(mcp.MethodToolsCall, v.wireResult(s, result), v.json, err)
	if more {
		if err := v.print(s, result); err != nil {
			return err
		}
	}
	switch {
	case err != nil:
		return err
	case result.IsError:
		return exit.Fail(exit.Answer, "tool_error", "", fmt.Errorf("the tool %s failed%s", safe.Line(v.tool), errorText(result)))
	case bad != nil:
		return exit.Fail(exit.Answer, "output_mismatch", "hosts may reject this result; --no-list skips this check", fmt.Errorf("the result of %s does not match the tool's outputSchema: %w", safe.Line(v.tool), bad.Err))
	}
	return nil
}

func errorText(r *mcp.CallToolResult) string {
	for _, c := range r.Content {
		if t, ok := c.(mcp.TextContent); ok && strings.TrimSpace(t.Text) != "" {
			return ": " + clip.Characters(safe.FirstLine(t.Text), 500)
		}
	}
	return ""
}

// arguments returns the object to send. It first requests the tool's schema, to convert the
// arguments and to warn about wrong names before the server fails.
func (v *callVerb) arguments(ctx context.Context, s *session) (json.RawMessage, error) {
	var schema json.RawMessage
	found := false
	if !v.noList {
		var names []string
		for tool, err := range s.Tools(ctx) {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				s.notes.Warnf("cannot list the tools: %s", safe.Clip(err.Error(), 300))
				names = nil
				break
			}
			if found = tool.Name == v.tool; found {
				schema = tool.InputSchema
				break
			}
			names = append(names, tool.Name)
		}
		stale := staleUpstreams(s, mcp.MethodToolsList)
		if !found && stale != nil {
			noteStale(s, stale)
		} else if v.unknown = !found && names != nil; v.unknown {
			s.notes.Warnf("the server has no tool %s%s", safe.Line(v.tool), kit.DidYouMean(v.tool, names))
		}
	}
	if v.object != nil {
		if found {
			warnMembers(v.object, schema, s.notes.Warnf)
		}
		return v.object, nil
	}
	return targets.AppendArguments(v.list, schema, found, s.notes.Warnf), nil
}

// warnMembers warns about the members of --args as targets.AppendArguments does about arguments.
func warnMembers(object, schema json.RawMessage, warn func(string, ...any)) {
	var list []targets.Argument
	members := jsonwire.ObjectMembers(object)
	for members.Next() {
		list = append(list, targets.Argument{Name: members.KeyString(), Raw: members.Value()})
	}
	targets.AppendArguments(list, schema, true, warn)
}

func (v *callVerb) call(ctx context.Context, s *session, object json.RawMessage, opts []client.CallOption) (*mcp.CallToolResult, error) {
	if !v.task {
		return s.CallTool(ctx, v.tool, object, opts...)
	}
	task, err := s.StartTool(ctx, v.tool, object, append(opts, client.WithTaskStatus(func(t client.TaskState) {
		s.notes.Linef("task %s: %s %s", safe.Clip(t.ID, 100), safe.Line(string(t.Status)), safe.Clip(t.Message, 300))
	}))...)
	if err != nil {
		return nil, err
	}
	result, err := task.Wait(ctx)
	if ctx.Err() != nil && task.ID() != "" {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), targets.TermWait)
		defer cancel()
		// The result of the cancellation is irrelevant.
		_ = task.Cancel(stop)
	}
	return result, err
}

// print prints the result for people.
func (v *callVerb) print(s *session, r *mcp.CallToolResult) error {
	var parts []part
	for _, c := range r.Content {
		parts = append(parts, contentPart(c))
	}
	if r.StructuredContent != nil && !slices.ContainsFunc(parts, func(p part) bool { return p.text != "" }) {
		structured := r.StructuredContent
		// Data goes to the file, and is useless on a terminal.
		if v.file != "" || kit.WriterIsTerminal(s.e.Stdout) {
			structured = withoutData(nil, structured)
		}
		parts = append(parts, part{text: string(structured)})
	}
	return s.writeParts(parts, v.file)
}

// wireResult returns the result as received: that of the task if the call became one, otherwise
// that of the call. It returns nil if there was none and r is nil.
func (v *callVerb) wireResult(s *session, r *mcp.CallToolResult) json.RawMessage {
	if text, _ := s.trace.Result(mcp.MethodTasksResult); text != nil {
		return text
	}
	text, _ := s.trace.Result(mcp.MethodTasksGet)
	if result := jsonwire.Lookup(text, "result"); result != nil {
		return result
	}
	text, _ = s.trace.Result(mcp.MethodToolsCall)
	if text == nil && r != nil {
		return mcp.Append(nil, r, mcp.RevisionNone)
	}
	return text
}

// A logLevel is the value of --log-level.
type logLevel struct{ level mcp.LoggingLevel }

func (l *logLevel) Type() string { return "" }

func (l *logLevel) String() string {
	if l.level == mcp.LevelNone {
		return ""
	}
	return l.level.String()
}

func (l *logLevel) Set(s string) error {
	level, ok := mcp.ParseLoggingLevel(s)
	if !ok || level == mcp.LevelNone {
		return errors.New("want debug, info, notice, warning, error, critical, alert or emergency")
	}
	l.level = level
	return nil
}

// options returns the options of a call that asks for log messages, or nil without --log-level. It
// sets the level of a legacy server by a request instead.
func (l *logLevel) options(ctx context.Context, s *session) ([]client.CallOption, error) {
	if l.level == mcp.LevelNone {
		return nil, nil
	}
	if !s.d.Flags.Verbose {
		s.notes.Show(l.level)
	}
	if s.Revision().Modern() {
		return []client.CallOption{client.WithLog(l.level, func(*mcp.LoggingMessageNotificationParams) {})}, nil
	}
	err := s.SetLevel(ctx, l.level)
	if client.IsServerError(err) {
		s.notes.Warnf("the server rejects the log level: %s", safe.Clip(err.Error(), 300))
		err = nil
	}
	return nil, err
}
