package call

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
)

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
		members := jsonwire.ObjectMembers(text)
		for members.Next() {
			if members.KeyIs("params") {
				v.params = members.Value()
			}
		}
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
		b.WriteString("  " + verbUse(name) + "\n")
	}
	return s.write(b.String())
}

// verbUse returns the usage line of a command of the shell.
func verbUse(name string) string {
	switch name {
	case "call":
		return "call TOOL [NAME=TEXT | NAME:=JSON]...    call a tool"
	case "read":
		return "read URI                                 read a resource"
	case "prompt":
		return "prompt NAME [NAME=TEXT]...               get a prompt"
	case "list":
		return "list [tools|resources|templates|prompts] list what the server offers"
	case "info":
		return "info                                     show the identity and capabilities"
	case "complete":
		return "complete (prompt NAME | resource TEMPLATE) ARGUMENT VALUE"
	case "ping":
		return "ping [-c NUMBER]                         measure the response time"
	case "send":
		return "send METHOD [PARAMS]                     send a request or a notification"
	case "log":
		return "log LEVEL                                set the level of log messages"
	case "help":
		return "help [COMMAND]                           show help for a command"
	}
	return "quit                                     exit the shell"
}

// verbHelp returns the help of one command.
func verbHelp(name string, v verb) string {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	v.register(fs)
	text := verbUse(name) + "\n"
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
			if i += n; i == len(s) && !jsonClosed(s[i-n:]) {
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

// jsonClosed reports whether s is valid JSON.
func jsonClosed(s string) bool { return jsonwire.Valid([]byte(s), 0) == nil }

// levelNames returns the names of the log levels.
func levelNames() []string {
	var names []string
	for l := mcp.LevelDebug; l <= mcp.LevelEmergency; l++ {
		names = append(names, l.String())
	}
	return names
}
