package detail

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"mcpwire/capture"
	"mcpwire/cmd/internal/text/shellword"
	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/printable"
	"mcpwire/internal/trace/httphead"
	"mcpwire/mcp"
)

// The errors of [CallCommand] and [CurlCommand] wrap these.
var (
	ErrNoCommand = errors.New("no command for this row")
	ErrNotHTTP   = errors.New("it was not sent over HTTP")
)

// A Command is an exchange as a shell command line.
type Command struct {
	// Text is safe to paste into a POSIX shell.
	Text string `json:"text"`
	// Variables are the environment variables in Text, for secrets that the capture does not have.
	Variables []string `json:"variables,omitempty"`
	// Notes are remarks about the command, for people.
	Notes []string `json:"notes,omitempty"`
}

// CallCommand returns the request as a command of this program, such as "mcpwire call …", or
// "mcpwire send …" for a method without its own command.
func CallCommand(d *Detail) (*Command, error) {
	switch {
	case d.noCommand != "":
		return nil, fmt.Errorf("%w: %s", ErrNoCommand, d.noCommand)
	case d.request == nil || d.method == "":
		return nil, fmt.Errorf("%w: it is not a message of a client", ErrNoCommand)
	}
	l := &shellLine{}
	target, err := d.target()
	if err != nil {
		return nil, err
	}
	params := jsonwire.Lookup(d.request, "params")
	if !writeVerb(l, d.method, params, target) {
		*l = shellLine{}
		l.verb(target, "send")
		if !l.json(d.request) {
			return nil, fmt.Errorf("%w: the message is not text", ErrNoCommand)
		}
	}
	if rev := d.Session.Negotiated; rev != "" && d.method != mcp.MethodInitialize && d.method != mcp.MethodDiscover {
		if _, known := mcp.ParseRevision(rev); known {
			l.add("--protocol", rev)
		}
	}
	target.writeFlags(l)
	if d.redactedInRequest > 0 && l.secrets() == 0 {
		l.note("the recorded message has a redacted value, such as a number, which is 0 now")
	}
	return l.command()
}

// writeVerb writes the command for a method, up to its arguments. It returns false if the command
// could not express the whole message.
func writeVerb(l *shellLine, method string, params []byte, target *target) bool {
	arguments := jsonwire.Lookup(params, "arguments")
	// named writes a verb with the parameter that names what it is about.
	named := func(verb, param, other string) bool {
		name := jsonwire.Text(jsonwire.Lookup(params, param))
		l.verb(target, verb, name)
		return name != "" && pasteable(name) && !strings.HasPrefix(name, "-") && onlyMembers(params, param, other)
	}
	switch method {
	case mcp.MethodToolsCall:
		if !named("call", "name", "arguments") {
			return false
		}
		if arguments != nil {
			l.add("--args")
		}
		return arguments == nil || arguments[0] == '{' && l.json(arguments)
	case mcp.MethodResourcesRead:
		return named("read", "uri", "")
	case mcp.MethodPromptsGet:
		return named("prompt", "name", "arguments") && writePairs(l, arguments)
	case mcp.MethodComplete:
		return writeCompletion(l, params, target)
	case mcp.MethodPing:
		l.verb(target, "ping")
		return true
	}
	return writeList(l, method, params, target)
}

// writeList writes the command for a list method.
func writeList(l *shellLine, method string, params []byte, target *target) bool {
	what, ok := map[string]string{
		mcp.MethodToolsList: "tools", mcp.MethodResourcesList: "resources", mcp.MethodResourceTemplatesList: "templates", mcp.MethodPromptsList: "prompts",
	}[method]
	if !ok || !onlyMembers(params, "cursor", "") {
		return false
	}
	l.verb(target, "list", what)
	if cursor := jsonwire.Lookup(params, "cursor"); cursor != nil {
		text := string(textOf(cursor))
		if text == "" || !pasteable(text) {
			return false
		}
		l.add("--page=" + text)
	}
	return true
}

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
	l.verb(target, "complete", kind)
	for i, w := range words {
		if w == "" && i < 2 || !pasteable(w) || strings.HasPrefix(w, "-") {
			return false
		}
		l.add(w)
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
		l.add(name + "=" + text)
	}
	return true
}

// onlyMembers reports whether an object has only the given members, each at most once, and
// metadata that the client of a command creates itself.
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

// pasteable reports whether a text has no control or invisible characters that could affect a
// terminal or line editor.
func pasteable(s string) bool { return printable.Line(s) == s }

func (d *Detail) isHTTP() bool {
	return d.HTTP != nil || d.snapshot.HTTP != nil || d.Session.Transport == "http" || d.Session.Transport == "sse" || d.Kind == trace.HTTP
}

// A target names the server in a command.
type target struct {
	url     string
	headers []capture.Header
	command []string
	dir     string
	notes   []string
}

func (d *Detail) target() (*target, error) {
	if d.isHTTP() {
		address, note := requestAddress(d.snapshot.Session.URL, d.requestHead)
		if address == "" {
			return nil, fmt.Errorf("%w: the capture does not have the server's URL, which the command needs", ErrNoCommand)
		}
		t := &target{url: address}
		if note != "" {
			t.notes = append(t.notes, note)
		}
		if d.requestHead != nil {
			t.headers = credentials(d.requestHead.Headers)
		}
		return t, nil
	}
	if d.start == nil || len(d.start.Command) == 0 {
		return nil, fmt.Errorf("%w: the capture does not have the server's command", ErrNoCommand)
	}
	t := &target{command: d.start.Command, dir: d.start.Dir}
	if len(d.start.Env) > 0 {
		t.notes = append(t.notes, "the server may need its recorded environment; the capture has only the names of the variables")
	}
	return t, nil
}

// requestAddress returns the URL that a request was sent to. head may be nil.
func requestAddress(server string, head *capture.Request) (address, note string) {
	request := ""
	if head != nil {
		request = head.URL
	}
	if base, err := url.Parse(server); err == nil && base.Host != "" {
		return httphead.TargetURL(server, request), ""
	}
	if head == nil {
		return "", ""
	}
	if host := trace.HeaderValue(head.Headers, "Host"); host != "" && strings.HasPrefix(request, "/") {
		return "http://" + host + request, "the URL is the one that the client used; it may belong to a tap"
	}
	return "", ""
}

// writeFlags writes the flags, and a target that is a command.
func (ta *target) writeFlags(l *shellLine) {
	for _, h := range ta.headers {
		l.writeHeader(h)
	}
	if ta.dir != "" {
		l.add("--cwd=" + ta.dir)
	}
	if ta.command != nil {
		l.add("--")
		l.add(ta.command...)
	}
	l.notes = append(l.notes, ta.notes...)
}

// writeHeader writes a header flag of this program. The program expands ${VARIABLES} itself, so
// that secrets are not visible in process lists.
func (l *shellLine) writeHeader(h capture.Header) {
	if strings.Contains(h.Value, "${") || !pasteable(h.Value) {
		l.note("the header " + printable.Line(h.Name) + " is omitted: its value cannot be part of a command line")
		return
	}
	value := placeholder().ReplaceAllStringFunc(h.Value, func(p string) string {
		return "${" + l.variable(p, placeholder().FindStringSubmatch(p)[1], h.Name) + "}"
	})
	l.words = append(l.words, "-H", shellword.Quote(h.Name+": "+value))
}

// credentials returns the headers that our client does not send by itself and that the server may
// require.
func credentials(list []capture.Header) (own []capture.Header) {
	for _, h := range list {
		name := strings.ToLower(h.Name)
		if name == "authorization" || strings.HasPrefix(name, "x-") && !strings.HasPrefix(name, "x-forwarded-") && name != "x-real-ip" {
			if isToken(h.Name) && !slices.ContainsFunc(own, func(o capture.Header) bool { return strings.EqualFold(o.Name, h.Name) }) {
				own = append(own, h)
			}
		}
	}
	return own
}

// isToken reports whether a text is a valid header name
// (https://www.rfc-editor.org/rfc/rfc9110#section-5.6.2).
func isToken(s string) bool {
	return s != "" && strings.Trim(s, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// hopByHop are the headers of the connection rather than the request
// (https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1), and those that curl sets itself.
var hopByHop = []string{
	"connection", "keep-alive", "proxy-connection", "proxy-authorization", "proxy-authenticate", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings",
	"content-length", "host", "expect", "accept-encoding",
}

// CurlCommand returns the request as a curl command line.
func CurlCommand(d *Detail) (*Command, error) {
	if !d.isHTTP() {
		return nil, fmt.Errorf("%w, but over stdio", ErrNotHTTP)
	}
	if d.requestHead == nil {
		return nil, fmt.Errorf("%w: its HTTP request is not in the capture, or belongs to another row", ErrNoCommand)
	}
	return CurlRequest(d.snapshot.Session.URL, d.requestHead, d.Request != nil, d.body)
}

// CurlRequest returns any HTTP request as a curl command line. server is the server's URL
// according to the capture, or "". If hasBody is set and body is nil, the error wraps
// [ErrNoCommand].
func CurlRequest(server string, head *capture.Request, hasBody bool, body []byte) (*Command, error) {
	address, note := requestAddress(server, head)
	if address == "" {
		return nil, fmt.Errorf("%w: the capture does not have the server's URL, which the command needs", ErrNoCommand)
	}
	l := &shellLine{}
	l.add("curl", "--include", "--no-buffer", "--globoff", "--request", head.Method, "--url", address)
	l.curlHeaders(head.Headers, hasBody)
	if hasBody {
		if err := l.curlBody(body); err != nil {
			return nil, err
		}
	}
	c, err := l.command()
	if err == nil && note != "" {
		c.Notes = append(c.Notes, note)
	}
	return c, err
}

func (l *shellLine) curlHeaders(list []capture.Header, body bool) {
	var has []string
	for _, h := range list {
		name := strings.ToLower(h.Name)
		has = append(has, name)
		switch {
		case slices.Contains(hopByHop, name):
			if name == "accept-encoding" {
				l.words = append(l.words, "--compressed")
			}
			continue
		case !isToken(h.Name) || !pasteable(h.Value):
			l.note("the header " + printable.Line(h.Name) + " is omitted: it cannot be part of a command line")
			continue
		case strings.TrimSpace(h.Value) == "":
			// With a colon, curl would drop the header.
			l.words = append(l.words, "--header", shellword.Quote(h.Name+";"))
			continue
		}
		l.words = append(l.words, "--header", l.quote(h.Name+": "+h.Value, h.Name))
	}
	own := []string{"User-Agent", "Accept"} // curl sends these by itself
	if body {
		own = append(own, "Content-Type")
	}
	for _, name := range own {
		if !slices.Contains(has, strings.ToLower(name)) {
			l.words = append(l.words, "--header", shellword.Quote(name+":"))
		}
	}
}

func (l *shellLine) curlBody(body []byte) error {
	l.add("--data-raw") // gives no meaning to a first character
	switch {
	case body == nil:
		return fmt.Errorf("%w: the body is too long for a command line, or was not recorded completely: save its payload, and use curl --data-binary @FILE", ErrNoCommand)
	case jsonwire.Valid(body, 0) == nil:
		if trimmed := bytes.TrimSpace(body); jsonwire.HasSpace(trimmed) && bytes.ContainsAny(trimmed, "\t\r\n") {
			l.note("white space between JSON tokens is omitted")
		} else if pasteable(string(trimmed)) {
			l.words = append(l.words, l.quote(string(trimmed), ""))
			return nil
		}
		l.json(body)
	case pasteable(string(body)):
		l.add(string(body))
	default:
		return fmt.Errorf("%w: the body has bytes that a command line should not contain: save its payload, and use curl --data-binary @FILE", ErrNoCommand)
	}
	return nil
}

// A shellLine builds a command line from untrusted text. The shell parses each word as one literal
// word, and a terminal treats the pasted line as plain text.
type shellLine struct {
	words []string
	// variables are keyed by placeholder.
	variables shellword.Variables
	notes     []string
	invalid   string
}

func (l *shellLine) note(text string) { l.notes = append(l.notes, text) }

// secrets returns the number of different secrets in the line.
func (l *shellLine) secrets() int { return len(l.variables.Names()) }

// add adds words. Placeholders of secrets become variables.
func (l *shellLine) add(words ...string) {
	for _, text := range words {
		if !pasteable(text) {
			l.invalid = "it has characters that a command line should not contain"
			return
		}
		l.words = append(l.words, l.quote(text, ""))
	}
}

// verb begins a command of this program: its name, the target if that is a URL, and arguments.
func (l *shellLine) verb(target *target, name string, args ...string) {
	l.add("mcpwire", name)
	if target.url != "" {
		l.add(target.url)
	}
	l.add(args...)
}

// json adds a JSON text as a word and escapes invisible characters. It returns false if it cannot.
func (l *shellLine) json(text []byte) bool {
	if jsonwire.Valid(text, 0) != nil {
		return false
	}
	if jsonwire.HasSpace(text) {
		text = jsonwire.AppendCompact(nil, text)
	}
	safe := printable.JSON(text)
	if !bytes.Equal(safe, text) {
		l.note("invisible characters are escaped in the JSON, with the same meaning")
	}
	before := len(l.variables.Names())
	l.words = append(l.words, l.quote(string(safe), ""))
	if len(l.variables.Names()) > before {
		l.note("the variables are inside JSON strings: escape quotes and backslashes in their values")
	}
	return true
}

// quote quotes a word for the shell. Variables are named after hint or, if that is empty, after
// the kind of secret.
func (l *shellLine) quote(text, hint string) string {
	if shellword.IsPlain(text) {
		return text
	}
	var b strings.Builder
	for text != "" {
		at := placeholder().FindStringSubmatchIndex(text)
		if at == nil {
			break
		}
		if at[0] > 0 {
			b.WriteString(shellword.Quote(text[:at[0]]))
		}
		b.WriteString(`"$` + l.variable(text[at[0]:at[1]], text[at[2]:at[3]], hint) + `"`)
		text = text[at[1]:]
	}
	if text != "" || b.Len() == 0 {
		b.WriteString(shellword.Quote(text))
	}
	return b.String()
}

// variable returns the name of the variable for a secret.
func (l *shellLine) variable(placeholder, kind, hint string) string {
	return l.variables.Name(placeholder, "MCPWIRE_", cmp.Or(hint, kind))
}

func (l *shellLine) command() (*Command, error) {
	if l.invalid != "" {
		return nil, fmt.Errorf("%w: %s", ErrNoCommand, l.invalid)
	}
	if n := len(l.variables.Names()); n > 0 {
		l.note(fmt.Sprintf("set %s first: the capture does not have the secrets", strings.Join(l.variables.Names(), ", ")))
	}
	return &Command{Text: strings.Join(l.words, " "), Variables: l.variables.Names(), Notes: l.notes}, nil
}
