package detail

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"mcpwire/internal/jsonwire"
	"mcpwire/internal/printable"
	"mcpwire/internal/wireview"
	"mcpwire/mcp"
)

// What [CallCommand] and [Curl] return errors that wrap.
var (
	ErrNoCommand = errors.New("there is no command for this")
	ErrNotHTTP   = errors.New("it did not go over HTTP")
)

// A Command is an exchange as a command line for a shell.
type Command struct {
	Text      string   `json:"text"`                // may be pasted into a shell of POSIX as it is
	Variables []string `json:"variables,omitempty"` // environment variables in Text that stand for secrets which the capture does not have
	Notes     []string `json:"notes,omitempty"`     // what there is to know about it, in words
}

// CallCommand returns the request as a command of this program: "mcpwire call …" and the like, and "mcpwire send …" for what has none of its own.
func CallCommand(d *Detail) (*Command, error) {
	switch {
	case d.sender != "":
		return nil, fmt.Errorf("%w: %s", ErrNoCommand, d.sender)
	case d.request == nil || d.method == "":
		return nil, fmt.Errorf("%w: it is no message of a client", ErrNoCommand)
	}
	l := newShellLine()
	target, err := d.target(l)
	if err != nil {
		return nil, err
	}
	params := jsonwire.Lookup(d.request, "params")
	if !verb(l, d.method, params, target) {
		l.reset()
		l.word("mcpwire")
		l.word("send")
		target.before(l)
		if !l.json(d.request) {
			return nil, fmt.Errorf("%w: the message is no text", ErrNoCommand)
		}
	}
	if rev := d.Session.Answered; rev != "" && d.method != mcp.MethodInitialize && d.method != mcp.MethodDiscover {
		if _, known := mcp.ParseRevision(rev); known {
			l.word("--protocol")
			l.word(rev)
		}
	}
	target.after(l)
	if d.hidden > 0 && l.secrets() == 0 {
		l.note("something was hidden in the message when it was recorded, such as a number, which is 0 now")
	}
	return l.command()
}

// verb writes the command that a method has, up to and with its arguments, and reports whether it could: what it says must be all that the message says.
func verb(l *shellLine, method string, params []byte, target *target) bool {
	l.reset()
	l.word("mcpwire")
	switch method {
	case mcp.MethodToolsCall:
		name, ok := plainName(params, "name", "arguments")
		if !ok {
			return false
		}
		l.word("call")
		target.before(l)
		l.word(name)
		if arguments := jsonwire.Lookup(params, "arguments"); arguments != nil {
			l.word("--args")
			return arguments[0] == '{' && l.json(arguments)
		}
		return true
	case mcp.MethodResourcesRead:
		uri, ok := plainName(params, "uri", "")
		if !ok {
			return false
		}
		l.word("read")
		target.before(l)
		l.word(uri)
		return true
	case mcp.MethodPromptsGet:
		name, ok := plainName(params, "name", "arguments")
		if !ok {
			return false
		}
		l.word("prompt")
		target.before(l)
		l.word(name)
		return pairs(l, jsonwire.Lookup(params, "arguments"))
	case mcp.MethodComplete:
		return completion(l, params, target)
	case mcp.MethodPing:
		l.word("ping")
		target.before(l)
		return true
	}
	return list(l, method, params, target)
}

// list writes the command for one of the lists.
func list(l *shellLine, method string, params []byte, target *target) bool {
	what, ok := map[string]string{
		mcp.MethodToolsList: "tools", mcp.MethodResourcesList: "resources", mcp.MethodResourceTemplatesList: "templates", mcp.MethodPromptsList: "prompts",
	}[method]
	if !ok || !only(params, "cursor", "") {
		return false
	}
	l.word("list")
	target.before(l)
	l.word(what)
	if cursor := jsonwire.Lookup(params, "cursor"); cursor != nil {
		text := string(textOf(cursor))
		if text == "" || !pasteable(text) {
			return false
		}
		l.word("--page=" + text)
	}
	return true
}

// completion writes the command for a completion.
func completion(l *shellLine, params []byte, target *target) bool {
	ref, argument := jsonwire.Lookup(params, "ref"), jsonwire.Lookup(params, "argument")
	kind, name := "prompt", textOf(jsonwire.Lookup(ref, "name"))
	if string(textOf(jsonwire.Lookup(ref, "type"))) == "ref/resource" {
		kind, name = "resource", textOf(jsonwire.Lookup(ref, "uri"))
	}
	words := []string{string(name), string(textOf(jsonwire.Lookup(argument, "name"))), string(textOf(jsonwire.Lookup(argument, "value")))}
	if !only(params, "ref", "argument", "context") || !only(argument, "name", "value") || !only(jsonwire.Lookup(params, "context"), "arguments") {
		return false
	}
	l.word("complete")
	target.before(l)
	l.word(kind)
	for i, w := range words {
		if w == "" && i < 2 || !pasteable(w) || strings.HasPrefix(w, "-") {
			return false
		}
		l.word(w)
	}
	return pairs(l, jsonwire.Lookup(jsonwire.Lookup(params, "context"), "arguments"))
}

// pairs writes the members of an object as NAME=TEXT.
func pairs(l *shellLine, object []byte) bool {
	if object == nil {
		return true
	}
	if object[0] != '{' {
		return false
	}
	var seen []string
	for m := jsonwire.ObjectMembers(object); m.Next(); {
		name, v := m.KeyString(), m.Value()
		if name == "" || strings.ContainsAny(name, "=:") || strings.HasPrefix(name, "-") || v[0] != '"' || !pasteable(name) || slices.Contains(seen, name) || len(seen) > 50 {
			return false
		}
		seen = append(seen, name)
		text := string(textOf(v))
		if !pasteable(text) || strings.HasPrefix(text, "@") {
			return false
		}
		l.word(name + "=" + text)
	}
	return true
}

// plainName returns the parameter that says what a request is about, if it can be a word of a command, and there is nothing in the params but it, the other one, and metadata.
func plainName(params []byte, name, other string) (string, bool) {
	text := string(textOf(jsonwire.Lookup(params, name)))
	return text, text != "" && pasteable(text) && !strings.HasPrefix(text, "-") && only(params, name, other)
}

// only reports whether an object has no members but these, each once, and metadata that the client of a command makes anew.
func only(object []byte, names ...string) bool {
	if object == nil {
		return true
	}
	if object[0] != '{' {
		return false
	}
	var seen []string
	for m := jsonwire.ObjectMembers(object); m.Next(); {
		name := m.KeyString()
		if name != "_meta" && (name == "" || !slices.Contains(names, name)) || slices.Contains(seen, name) {
			return false
		}
		seen = append(seen, name)
	}
	return true
}

// pasteable reports whether a text has nothing in it that a terminal or a line editor would take for a command when it is pasted, or that cannot be seen.
func pasteable(s string) bool { return printable.Line(s) == s }

// isHTTP reports whether the row went over HTTP.
func (d *Detail) isHTTP() bool {
	return d.HTTP != nil || d.row.HTTP != nil || d.Session.Transport == "http" || d.Session.Transport == "sse" || d.Kind == wireview.HTTP
}
