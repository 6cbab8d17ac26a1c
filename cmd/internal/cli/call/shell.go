package call

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

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

const shellLong = `Connect to a server and run commands, one per line, until quit or the end of
input: call, read, prompt, list, info, complete and ping, with the same
arguments and flags as the commands of mcpwire but without TARGET, and send,
log, help and quit. Messages that the server sends on its own are shown as they
arrive.

On a terminal, Tab completes commands, tools, their arguments, resources and
prompts, the arrow keys recall earlier lines, and Ctrl-C cancels the running
command but not the shell. After an error the shell continues, unless
--fail-fast is given. Its exit status is that of the last command.

A word may be in 'single' or "double" quotes. JSON needs no quotes:
x:={"a": [1, 2]}.`

const shellExample = `  mcpwire shell -- mcpwire serve
  printf 'list tools\ncall add a=2 b=3\n' | mcpwire shell -- mcpwire serve`

// NewShellCommand returns the command shell.
func NewShellCommand(e *kit.Env) *cobra.Command {
	var f targets.Flags
	sh := &shell{}
	c := &cobra.Command{
		Use:               "shell TARGET [FLAGS]",
		Short:             "run commands on a server line by line",
		Long:              shellLong + "\n\n" + targets.Help,
		Example:           shellExample,
		Annotations:       map[string]string{kit.OwnSignals: "true"},
		ValidArgsFunction: targets.CompleteServers(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, rest, err := targets.Split(cmd, e, args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return exit.Usagef("shell: unexpected argument %q", clip.Characters(rest[0], 60))
			}
			d, err := targets.NewDialer(e, t, &f)
			if err != nil {
				return err
			}
			return sh.open(cmd.Context(), d)
		},
	}
	c.Flags().BoolVar(&sh.failFast, "fail-fast", false, "exit after the first command that fails")
	f.Register(c.Flags())
	return c
}

// A shell is a session that runs commands.
type shell struct {
	failFast bool

	s     *session
	lines lineSource
	words *vocabulary
	// level is the log level that calls to a modern server request.
	level mcp.LoggingLevel
	last  error
}

// A lineSource supplies the commands.
type lineSource interface {
	// line returns the next command. It returns io.EOF after the last one.
	line(ctx context.Context) (string, error)
	// failed reports the error of a command to the user.
	failed(err error)
	interactive() bool
}

// open connects and runs commands. SIGTERM ends it. SIGINT ends it too, or on a terminal only the
// running command.
func (sh *shell) open(ctx context.Context, d *targets.Dialer) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	sh.s = &session{e: d.Env, d: d, trace: d.Trace, notes: d.Notes}
	sh.words = newVocabulary(sh.s)
	if kit.IsTerminal(d.Env.Stdin) && kit.WriterIsTerminal(d.Env.Stderr) {
		t := newTermSource(d.Env, d.Notes, sh.words)
		d.Ask, sh.lines = t.ask, t
	} else {
		sh.lines = &pipeSource{prompter: kit.Prompter{In: d.Env.Stdin, Out: io.Discard}, stderr: d.Env.Stderr, errors: d.Env.Errors}
	}
	own := *d.Env
	own.Stdin = nil // stdin holds the commands
	sh.s.e = &own
	// Users of a shell want to see all messages from the server.
	d.Notes.Show(mcp.LevelNone)
	d.Trace.OnNotification = sh.onNotification
	d.Trace.Sent = nil // some are sent while the user edits a line
	connecting, done := signal.NotifyContext(ctx, os.Interrupt)
	c, err := d.Dial(connecting, func(o *client.Options) { o.Reconnect = client.ReconnectPolicy{} })
	done()
	if err != nil {
		if connecting.Err() != nil && errors.Is(err, context.Canceled) {
			return signalEnd(ctx)
		}
		return err
	}
	sh.s.Client = c
	defer c.Close()
	sh.welcome()
	sh.subscribe(ctx)
	err = sh.loop(ctx)
	d.Notes.Clear()
	return err
}

// onNotification shows a notification from the server.
func (sh *shell) onNotification(method string, params []byte) {
	switch method {
	case mcp.NotificationProgress, mcp.NotificationAcknowledged:
	case mcp.NotificationMessage:
		sh.s.notes.LogParams(params)
	default:
		sh.words.changed()
		sh.s.notes.Linef("• %s %s", safe.Clip(method, 100), safe.Clip(string(jsonwire.AppendCompact(nil, params)), 500))
	}
}

// subscribe subscribes to list changes. A failure is only noted.
func (sh *shell) subscribe(ctx context.Context) {
	c := sh.s.Profile().Capabilities
	filter := mcp.SubscriptionFilter{
		ToolsListChanged:     c.Tools != nil && c.Tools.ListChanged,
		PromptsListChanged:   c.Prompts != nil && c.Prompts.ListChanged,
		ResourcesListChanged: c.Resources != nil && c.Resources.ListChanged,
	}
	if !sh.lines.interactive() || !filter.ToolsListChanged && !filter.PromptsListChanged && !filter.ResourcesListChanged {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, subscribeTimeout)
	defer cancel()
	if _, err := sh.s.ListenFunc(ctx, filter, func(client.Event) {}); err != nil {
		sh.s.notes.Linef("no notifications of changes: %s", safe.Clip(err.Error(), 200))
	}
}

const subscribeTimeout = 3 * time.Second

func (sh *shell) welcome() {
	if !sh.lines.interactive() {
		return
	}
	info := sh.s.Profile().Server
	sh.s.notes.Linef("connected to %s %s, %s revision %v; help lists the commands", safe.Clip(info.Name, 100), safe.Clip(info.Version, 40), targets.EraName(sh.s.Revision()), sh.s.Revision())
}

// errQuit ends the shell.
var errQuit = errors.New("quit")

// loop runs commands until there are no more.
func (sh *shell) loop(ctx context.Context) error {
	for {
		line, err := sh.next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return sh.status()
		case ctx.Err() != nil || errors.Is(err, context.Canceled):
			return signalEnd(ctx)
		case err != nil:
			return err
		}
		interrupted, err := sh.one(ctx, line)
		if errors.Is(err, errQuit) {
			return sh.status()
		}
		if strings.TrimSpace(line) != "" {
			sh.last = err
		}
		if interrupted && !sh.lines.interactive() || ctx.Err() != nil {
			return signalEnd(ctx)
		}
		if err == nil {
			continue
		}
		sh.lines.failed(err)
		if sh.failFast || errors.Is(err, errOutput) {
			return sh.status()
		}
	}
}

// next waits for a command. A signal ends the wait, unless the terminal turns it into input.
func (sh *shell) next(ctx context.Context) (string, error) {
	if sh.lines.interactive() {
		sh.words.refresh(ctx)
	} else {
		var stop func()
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt)
		defer stop()
	}
	return sh.lines.line(ctx)
}

// status returns the exit status of the last command, whose error is already printed.
func (sh *shell) status() error {
	if sh.last == nil {
		return nil
	}
	return &exit.Status{Code: exit.Report(io.Discard, exit.AsText, sh.last, exit.Interrupted)}
}

// one runs a command. SIGINT interrupts it.
func (sh *shell) one(ctx context.Context, line string) (interrupted bool, err error) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	err = sh.run(ctx, line)
	sh.s.notes.Clear()
	if err == nil || errors.Is(err, errQuit) {
		return false, err
	}
	if ctx.Err() != nil && targets.IsInterrupt(ctx, err) {
		return true, context.Canceled
	}
	return false, sh.s.failure(err)
}

func (sh *shell) run(ctx context.Context, line string) error {
	words, err := splitLine(line)
	if err != nil {
		return exit.Usagef("%w", err)
	}
	if len(words) == 0 || strings.HasPrefix(words[0], "#") {
		return nil
	}
	v := sh.verb(words[0])
	if v == nil {
		return exit.UsageHintf("help lists the commands", "unknown command %q%s", clip.Characters(words[0], 40), kit.DidYouMean(words[0], shellVerbs()))
	}
	fs := pflag.NewFlagSet(words[0], pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	v.register(fs)
	if err := fs.Parse(words[1:]); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return sh.s.write(verbHelp(words[0], v))
		}
		return exit.Usagef("%s: %w", safe.Line(words[0]), err)
	}
	if err := v.parse(fs.Args()); err != nil {
		return err
	}
	return v.run(ctx, sh.s)
}

// shellVerbs returns the commands of the shell, in the order in which help lists them.
func shellVerbs() []string {
	return []string{"call", "read", "prompt", "list", "info", "complete", "ping", "send", "log", "help", "quit"}
}

// verb returns the command with a name, or nil.
func (sh *shell) verb(name string) verb {
	switch name {
	case "call":
		return &callVerb{e: sh.s.e, level: logLevel{sh.level}}
	case "read":
		return &readVerb{}
	case "prompt":
		return &promptVerb{}
	case "list":
		return &listVerb{}
	case "info":
		return &infoVerb{}
	case "complete":
		return &completeVerb{}
	case "ping":
		return &pingVerb{}
	case "send":
		return &requestVerb{}
	case "log":
		return &logVerb{shell: sh}
	case "help":
		return &helpVerb{shell: sh}
	case "quit", "exit":
		return &quitVerb{}
	}
	return nil
}

// A pipeSource reads commands from a file or pipe.
type pipeSource struct {
	prompter kit.Prompter
	stderr   io.Writer
	errors   exit.Format
}

func (p *pipeSource) interactive() bool { return false }

func (p *pipeSource) line(ctx context.Context) (string, error) { return p.prompter.Ask(ctx, "") }

func (p *pipeSource) failed(err error) { exit.Report(p.stderr, p.errors, err, exit.Interrupted) }

// signalEnd returns the error for a shell that a signal ended: SIGTERM ends the shell's context,
// SIGINT only that of a command.
func signalEnd(ctx context.Context) error {
	if ctx.Err() != nil {
		return &exit.Status{Code: exit.Terminated}
	}
	return &exit.Status{Code: exit.Interrupted}
}

// A noFlags is embedded in verbs without flags.
type noFlags struct{}

func (noFlags) register(*pflag.FlagSet) {}

// A requestVerb sends a message over the shell's connection.
type requestVerb struct {
	noFlags
	method string
	params json.RawMessage
	notify bool
}

func (v *requestVerb) parse(args []string) error {
	usage := exit.Usagef("send: want METHOD [PARAMS], or a message (mcpwire send, outside the shell, sends anything)")
	if len(args) == 0 || len(args) > 2 {
		return usage
	}
	if !strings.HasPrefix(args[0], "{") {
		v.method, v.notify = args[0], strings.HasPrefix(args[0], "notifications/")
		if len(args) == 2 {
			v.params = json.RawMessage(args[1])
		}
	} else {
		text := json.RawMessage(args[0])
		if len(args) > 1 || jsonwire.Valid(text, 0) != nil {
			return usage
		}
		e := newEnvelope(text)
		v.method, v.notify = e.method, e.id == nil
		v.params = jsonwire.Lookup(text, "params")
	}
	if v.method == "" || v.params != nil && (jsonwire.Valid(v.params, 0) != nil || v.params[0] != '{') {
		return usage
	}
	return nil
}

func (v *requestVerb) run(ctx context.Context, s *session) error {
	var params any
	if v.params != nil {
		params = v.params
	}
	if v.notify {
		return s.Notify(ctx, v.method, params)
	}
	s.trace.Forget()
	var result json.RawMessage
	if err := s.Call(ctx, v.method, params, &result); err != nil {
		return err
	}
	if text, _ := s.trace.Result(v.method); text != nil {
		result = text
	}
	return s.writeValue(result)
}

// A logVerb sets which log messages are shown.
type logVerb struct {
	noFlags
	shell *shell
	level logLevel
}

func (v *logVerb) parse(args []string) error {
	if len(args) != 1 {
		return exit.Usagef("log: want a level: debug, info, notice, warning, error, critical, alert or emergency")
	}
	if err := v.level.Set(args[0]); err != nil {
		return exit.Usagef("log: %w", err)
	}
	return nil
}

func (v *logVerb) run(ctx context.Context, s *session) error {
	v.shell.level = v.level.level
	if s.Revision().Modern() {
		s.notes.Linef("calls now request log messages of level %v and above", v.level.level)
		return nil
	}
	return s.SetLevel(ctx, v.level.level)
}

// A quitVerb ends the shell.
type quitVerb struct{ noFlags }

func (*quitVerb) parse(args []string) error {
	if len(args) > 0 {
		return exit.Usagef("quit takes no arguments")
	}
	return nil
}

func (*quitVerb) run(context.Context, *session) error { return errQuit }

// A helpVerb lists the commands, or describes one.
type helpVerb struct {
	noFlags
	shell *shell
	about string
}

func (v *helpVerb) parse(args []string) error {
	switch {
	case len(args) > 1:
		return exit.Usagef("help takes one command")
	case len(args) == 1 && v.shell.verb(args[0]) == nil:
		return exit.Usagef("unknown command %q%s", clip.Characters(args[0], 40), kit.DidYouMean(args[0], shellVerbs()))
	case len(args) == 1:
		v.about = args[0]
	}
	return nil
}

func (v *helpVerb) run(_ context.Context, s *session) error {
	if v.about != "" {
		return s.write(verbHelp(v.about, v.shell.verb(v.about)))
	}
	var b strings.Builder
	for _, name := range shellVerbs() {
		b.WriteString("  " + verbUses[name] + "\n")
	}
	return s.write(b.String())
}

// verbUses has the usage lines of the commands of the shell.
var verbUses = map[string]string{
	"call":     "call TOOL [NAME=TEXT | NAME:=JSON]...    call a tool",
	"read":     "read URI                                 read a resource",
	"prompt":   "prompt NAME [NAME=TEXT]...               get a prompt",
	"list":     "list [tools|resources|templates|prompts] list what the server offers",
	"info":     "info                                     show the identity and capabilities",
	"complete": "complete (prompt NAME | resource TEMPLATE) ARGUMENT VALUE",
	"ping":     "ping [-c NUMBER]                         measure the response time",
	"send":     "send METHOD [PARAMS]                     send a request or a notification",
	"log":      "log LEVEL                                set the level of log messages",
	"help":     "help [COMMAND]                           show help for a command",
	"quit":     "quit                                     exit the shell",
	"exit":     "quit                                     exit the shell",
}

// verbHelp returns the help of one command.
func verbHelp(name string, v verb) string {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	v.register(fs)
	text := verbUses[name] + "\n"
	if flags := fs.FlagUsagesWrapped(kit.HelpWidth); flags != "" {
		text += "\n" + flags
	}
	return text
}

// errOpenQuote is the error of splitLine for a line that continues.
var errOpenQuote = errors.New("a quote or a bracket is not closed")

// splitLine splits a line into words. Quotes at the beginning of a word or after its = group text,
// and so do the brackets of JSON there.
func splitLine(line string) (words []string, err error) {
	for i := 0; i < len(line); {
		if line[i] == ' ' || line[i] == '\t' {
			i++
			continue
		}
		word, n, err := splitWord(line[i:])
		words = append(words, word)
		if err != nil {
			return words, err
		}
		i += n
	}
	return words, nil
}

// splitWord returns the first word of s, and its length in s.
func splitWord(s string) (word string, n int, err error) {
	var b strings.Builder
	fresh := true // quotes or JSON may begin here
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == ' ' || c == '\t':
			return b.String(), i, nil
		case fresh && (c == '{' || c == '['):
			n := jsonLen(s[i:])
			b.WriteString(s[i : i+n])
			if i += n; i == len(s) && jsonwire.Valid([]byte(s[i-n:]), 0) != nil {
				return b.String(), i, errOpenQuote
			}
		case fresh && c == '"' && i > 1 && s[i-2] == ':':
			n := jsonLen(s[i:])
			b.WriteString(s[i : i+n])
			i += n
		case fresh && (c == '"' || c == '\''):
			text, n, ok := quotedText(s[i:])
			b.WriteString(text)
			if i += n; !ok {
				return b.String(), i, errOpenQuote
			}
		case c == '\\' && i+1 < len(s) && strings.IndexByte(" \t'\"\\", s[i+1]) >= 0:
			b.WriteByte(s[i+1])
			i += 2
		default:
			b.WriteByte(c)
			fresh = c == '='
			i++
			continue
		}
		fresh = false
	}
	return b.String(), len(s), nil
}

// quotedText returns the text between the quotes that s begins with, and its length in s.
func quotedText(s string) (text string, n int, ok bool) {
	var b strings.Builder
	quote := s[0]
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] == quote:
			return b.String(), i + 1, true
		case s[i] == '\\' && quote == '"' && i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\'):
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String(), len(s), false
}

// jsonLen returns the length of the JSON value that s begins with, found by its brackets and
// quotes, or len(s) if it is incomplete.
func jsonLen(s string) int {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		case '"':
			for i++; i < len(s) && s[i] != '"'; i++ {
				if s[i] == '\\' {
					i++
				}
			}
		}
		if depth <= 0 {
			return min(i+1, len(s))
		}
	}
	return len(s)
}

// levelNames returns the names of the log levels.
func levelNames() []string {
	var names []string
	for l := mcp.LevelDebug; l <= mcp.LevelEmergency; l++ {
		names = append(names, l.String())
	}
	return names
}
