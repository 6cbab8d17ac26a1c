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

// What [CallCommand] and [CurlCommand] return errors that wrap.
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
	case d.noCommand != "":
		return nil, fmt.Errorf("%w: %s", ErrNoCommand, d.noCommand)
	case d.request == nil || d.method == "":
		return nil, fmt.Errorf("%w: it is no message of a client", ErrNoCommand)
	}
	l := newShellLine()
	target, err := d.target(l)
	if err != nil {
		return nil, err
	}
	params := jsonwire.Lookup(d.request, "params")
	if !writeVerb(l, d.method, params, target) {
		l.reset()
		l.word("mcpwire")
		l.word("send")
		target.writeURL(l)
		if !l.json(d.request) {
			return nil, fmt.Errorf("%w: the message is no text", ErrNoCommand)
		}
	}
	if rev := d.Session.Negotiated; rev != "" && d.method != mcp.MethodInitialize && d.method != mcp.MethodDiscover {
		if _, known := mcp.ParseRevision(rev); known {
			l.word("--protocol")
			l.word(rev)
		}
	}
	target.writeFlags(l)
	if d.redactedInRequest > 0 && l.secrets() == 0 {
		l.note("something was hidden in the message when it was recorded, such as a number, which is 0 now")
	}
	return l.command()
}

// writeVerb writes the command that a method has, up to and with its arguments, and reports whether it could: what it says must be all that the message says.
func writeVerb(l *shellLine, method string, params []byte, target *target) bool {
	l.reset()
	l.word("mcpwire")
	switch method {
	case mcp.MethodToolsCall:
		name, ok := simpleName(params, "name", "arguments")
		if !ok {
			return false
		}
		l.word("call")
		target.writeURL(l)
		l.word(name)
		if arguments := jsonwire.Lookup(params, "arguments"); arguments != nil {
			l.word("--args")
			return arguments[0] == '{' && l.json(arguments)
		}
		return true
	case mcp.MethodResourcesRead:
		uri, ok := simpleName(params, "uri", "")
		if !ok {
			return false
		}
		l.word("read")
		target.writeURL(l)
		l.word(uri)
		return true
	case mcp.MethodPromptsGet:
		name, ok := simpleName(params, "name", "arguments")
		if !ok {
			return false
		}
		l.word("prompt")
		target.writeURL(l)
		l.word(name)
		return writePairs(l, jsonwire.Lookup(params, "arguments"))
	case mcp.MethodComplete:
		return writeCompletion(l, params, target)
	case mcp.MethodPing:
		l.word("ping")
		target.writeURL(l)
		return true
	}
	return writeList(l, method, params, target)
}

// writeList writes the command for one of the lists.
func writeList(l *shellLine, method string, params []byte, target *target) bool {
	what, ok := map[string]string{
		mcp.MethodToolsList: "tools", mcp.MethodResourcesList: "resources", mcp.MethodResourceTemplatesList: "templates", mcp.MethodPromptsList: "prompts",
	}[method]
	if !ok || !onlyMembers(params, "cursor", "") {
		return false
	}
	l.word("list")
	target.writeURL(l)
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

// writeCompletion writes the command for a completion.
func writeCompletion(l *shellLine, params []byte, target *target) bool {
	ref, argument := jsonwire.Lookup(params, "ref"), jsonwire.Lookup(params, "argument")
	kind, name := "prompt", textOf(jsonwire.Lookup(ref, "name"))
	if string(textOf(jsonwire.Lookup(ref, "type"))) == "ref/resource" {
		kind, name = "resource", textOf(jsonwire.Lookup(ref, "uri"))
	}
	words := []string{string(name), string(textOf(jsonwire.Lookup(argument, "name"))), string(textOf(jsonwire.Lookup(argument, "value")))}
	if !onlyMembers(params, "ref", "argument", "context") || !onlyMembers(argument, "name", "value") || !onlyMembers(jsonwire.Lookup(params, "context"), "arguments") {
		return false
	}
	l.word("complete")
	target.writeURL(l)
	l.word(kind)
	for i, w := range words {
		if w == "" && i < 2 || !pasteable(w) || strings.HasPrefix(w, "-") {
			return false
		}
		l.word(w)
	}
	return writePairs(l, jsonwire.Lookup(jsonwire.Lookup(params, "context"), "arguments"))
}

// writePairs writes the members of an object as NAME=TEXT.
func writePairs(l *shellLine, object []byte) bool {
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

// simpleName returns the parameter that says what a request is about, if it can be a word of a command, and there is nothing in the params but it, the other one, and metadata.
func simpleName(params []byte, name, other string) (string, bool) {
	text := string(textOf(jsonwire.Lookup(params, name)))
	return text, text != "" && pasteable(text) && !strings.HasPrefix(text, "-") && onlyMembers(params, name, other)
}

// onlyMembers reports whether an object has no members but these, each once, and metadata that the client of a command makes anew.
func onlyMembers(object []byte, names ...string) bool {
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
	return d.HTTP != nil || d.snapshot.HTTP != nil || d.Session.Transport == "http" || d.Session.Transport == "sse" || d.Kind == trace.HTTP
}
