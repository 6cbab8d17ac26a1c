package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// An Example is a short session in a readable text form; see [Example.Events].
type Example struct {
	// Revision is the revision to check against, and the value of $rev.
	Revision mcp.Revision
	// Text is the session.
	Text string
}

// Transcript returns the text with its short forms expanded, one line for each message.
func (x Example) Transcript() string {
	var b strings.Builder
	for _, line := range x.lines() {
		b.WriteString(line)
		b.WriteByte('\n')
	}
	return b.String()
}

// Events returns the example as the events of a capture. An error names the invalid line.
//
// Each line of the text is one of these:
//
//	> JSON              a message of the client
//	< JSON              a message of the server
//	<(OPTIONS) JSON     a message with options, see below
//	! TEXT              a line on the server's standard error
//	exit 7              the server exits with a status
//	exit signal killed  a signal kills the server
//	eof >               the client closes its output; eof < is the server
//	wait 5s             time passes
//	gap 3               three events are missing
//	init                a handshake; init client={…} server={…} sets capabilities
//	# TEXT              a remark
//
// A payload that begins with q" is a Go string literal, for bytes that are not text: q"\xff\n".
// Options are separated by commas. crlf, eof and header are framings, cut marks a truncated
// message, s=2 selects another session and x=3 an HTTP exchange. event=, id=, data, retry= and
// comment= set fields of an event stream.
//
// A text that begins with the line "http" describes Streamable HTTP, one with "sse-transport"
// HTTP+SSE. It may also have these lines, with header fields indented below them:
//
//	post JSON           the client POSTs a message to /mcp with the required header
//	                    fields; a field below replaces one, "-Name" removes one
//	get                 a GET, in the same way; also delete
//	reply 200 JSON      a JSON response, which ends the exchange; JSON may be absent
//	stream              an event-stream response; later < lines are in it
//	sse TEXT            a stream event without a message, with data TEXT
//	end TEXT            the exchange ends; TEXT is the reason if it is abnormal
//	session ID          later requests have this Mcp-Session-Id
//
// $rev is the date of the revision, $meta the members of _meta that every modern request has,
// $version the first of them and $client the name of the second.
func (x Example) Events() (*capture.Head, []*capture.Event, error) {
	tr := &transcript{rev: x.Revision, head: &capture.Head{Version: capture.Version, ID: "example", Transport: capture.TransportStdio, Redact: "off"}}
	lines := x.lines()
	for len(lines) > 0 {
		line := lines[0]
		var below []string
		for lines = lines[1:]; len(lines) > 0 && strings.HasPrefix(lines[0], " "); lines = lines[1:] {
			below = append(below, strings.TrimSpace(lines[0]))
		}
		if err := tr.addLine(line, below); err != nil {
			return nil, nil, fmt.Errorf("example line %q: %w", line, err)
		}
	}
	return tr.head, tr.events, nil
}

// lines returns the lines with short forms expanded, except those of HTTP.
func (x Example) lines() []string {
	all := strings.NewReplacer("$rev", x.Revision.String(), "$meta", x.meta(), "$version", quoted(mcp.MetaProtocolVersion)+`:"`+x.Revision.String()+`"`, "$client", quoted(mcp.MetaClientCapabilities)).Replace(x.Text)
	var lines []string
	http := false
	for line := range strings.Lines(all) {
		line = strings.TrimRight(line, "\n")
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case word == "":
		case word == "init":
			lines = append(lines, x.handshake(rest, http)...)
		default:
			http = http || word == "http" || word == "sse-transport"
			lines = append(lines, strings.TrimLeft(line[:1], "\t")+line[1:])
		}
	}
	return lines
}

func (x Example) meta() string {
	return quoted(mcp.MetaProtocolVersion) + `:"` + x.Revision.String() + `",` + quoted(mcp.MetaClientCapabilities) + `:{}`
}

func quoted(s string) string { return string(jsonwire.AppendQuote(nil, s)) }

const (
	exampleClient = `{"roots":{"listChanged":true},"sampling":{},"elicitation":{}}`
	exampleServer = `{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"prompts":{"listChanged":true},"logging":{},"completions":{}}`
)

// handshake returns the lines that init stands for.
func (x Example) handshake(options string, http bool) []string {
	client, server := exampleClient, exampleServer
	for option := range strings.FieldsSeq(options) {
		switch name, value, _ := strings.Cut(option, "="); name {
		case "client":
			client = value
		case "server":
			server = value
		}
	}
	version := `"protocolVersion":"` + x.Revision.String() + `",`
	request := `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{` + version + `"capabilities":` + client + `,"clientInfo":{"name":"host","version":"1"}}}`
	result := `{"jsonrpc":"2.0","id":"init","result":{` + version + `"capabilities":` + server + `,"serverInfo":{"name":"server","version":"1"}}}`
	const done = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	if http {
		return []string{"post " + request, "  -MCP-Protocol-Version", "reply 200 " + result, "  Mcp-Session-Id: S1", "session S1", "post " + done, "reply 202"}
	}
	return []string{"> " + request, "< " + result, "> " + done}
}

// A transcript converts lines to events.
type transcript struct {
	rev          mcp.Revision
	head         *capture.Head
	events       []*capture.Event
	elapsed      time.Duration
	lastExchange uint64
	// currentExchange is the exchange of lines without x=.
	currentExchange uint64
	session         string
	isStream        map[uint64]bool
}

func (tr *transcript) add(e capture.Event) {
	tr.elapsed += time.Millisecond
	e.N, e.T, e.Capture = uint64(len(tr.events)+1), tr.elapsed, tr.head.ID
	if e.Data != nil {
		e.Len = int64(len(e.Data))
	}
	tr.events = append(tr.events, &e)
}

// addLine handles a line and the lines indented below it.
func (tr *transcript) addLine(line string, below []string) error {
	word, rest, _ := strings.Cut(line, " ")
	word, options, err := splitOptions(word)
	if err != nil {
		return err
	}
	rest = strings.TrimSpace(rest)
	switch word {
	case "#":
		return nil
	case ">", "<":
		return tr.addMessage(word, options, rest)
	case "!":
		data, err := parsePayload(rest)
		tr.add(capture.Event{Kind: capture.KindStderr, Data: data})
		return err
	case "exit":
		return tr.addExit(rest)
	case "eof":
		tr.add(capture.Event{Kind: capture.KindEOF, Dir: direction(rest)})
		return nil
	case "start":
		tr.add(capture.Event{Kind: capture.KindStart, Start: &capture.Start{Command: strings.Fields(rest)}})
		return nil
	case "wait":
		d, err := time.ParseDuration(rest)
		tr.elapsed += d
		return err
	case "gap":
		n, err := strconv.ParseUint(rest, 10, 32)
		tr.add(capture.Event{Kind: capture.KindGap, Gap: &capture.Gap{Lost: n, Why: capture.GapQueue}})
		return err
	}
	return tr.addHTTP(word, options, rest, below)
}

func direction(sign string) capture.Dir {
	if sign == "<" {
		return capture.ToClient
	}
	return capture.ToServer
}

// splitOptions splits a word such as <(crlf,s=2) into name and options.
func splitOptions(word string) (string, map[string]string, error) {
	name, list, found := strings.Cut(word, "(")
	if !found {
		return word, nil, nil
	}
	list, closed := strings.CutSuffix(list, ")")
	if !closed {
		return "", nil, fmt.Errorf("options are not closed (they must not contain spaces)")
	}
	options := map[string]string{}
	for o := range strings.SplitSeq(list, ",") {
		key, value, _ := strings.Cut(o, "=")
		options[key] = value
	}
	return name, options, nil
}

// parsePayload returns the bytes that a text denotes.
func parsePayload(text string) ([]byte, error) {
	if quoted, ok := strings.CutPrefix(text, "q"); ok && strings.HasPrefix(quoted, `"`) {
		s, err := strconv.Unquote(quoted)
		return []byte(s), err
	}
	return []byte(text), nil
}

func (tr *transcript) addMessage(sign string, options map[string]string, rest string) error {
	data, err := parsePayload(rest)
	if err != nil {
		return err
	}
	e := capture.Event{Kind: capture.KindMessage, Dir: direction(sign), Data: data}
	if tr.head.Transport == capture.TransportStdio {
		e.Framing = capture.FramingLF
	} else if e.Exchange = tr.currentExchange; tr.isStream[tr.currentExchange] && sign == "<" {
		e.SSE = &capture.SSE{}
	}
	if err := applyOptions(&e, options); err != nil {
		return err
	}
	if jsonwire.Valid(data, 0) != nil && !e.Cut {
		e.Kind = capture.KindInvalid
	}
	tr.add(e)
	return nil
}

func applyOptions(e *capture.Event, options map[string]string) (err error) {
	if _, ok := options["event"]; ok && e.SSE == nil {
		e.SSE = &capture.SSE{}
	}
	for key, value := range options {
		switch key {
		case "crlf", "eof", "header":
			e.Framing = capture.Framing(key)
			if key == "header" {
				e.Prefix = fmt.Sprintf("Content-Length: %d\r\n\r\n", len(e.Data))
			}
		case "cut":
			e.Cut = true
		case "s":
			e.Session, err = strconv.ParseUint(value, 10, 64)
		case "x":
			e.Exchange, err = strconv.ParseUint(value, 10, 64)
		case "red":
			e.Redacted = append(e.Redacted, value)
		default:
			err = applySSE(e, key, value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (tr *transcript) addExit(rest string) error {
	x := &capture.Exit{Code: -1}
	if signal, ok := strings.CutPrefix(rest, "signal "); ok {
		x.Signal = signal
	} else {
		code, err := strconv.Atoi(rest)
		if err != nil {
			return err
		}
		x.Code = code
	}
	tr.add(capture.Event{Kind: capture.KindExit, Exit: x})
	return nil
}

// addHTTP handles the lines that only HTTP has.
func (tr *transcript) addHTTP(word string, options map[string]string, rest string, below []string) error {
	switch word {
	case "http", "sse-transport":
		tr.head.Transport = capture.Transport(strings.TrimSuffix(word, "-transport"))
		tr.isStream = map[uint64]bool{}
		return nil
	case "session":
		tr.session = rest
		return nil
	}
	if tr.isStream == nil {
		return fmt.Errorf("unknown word %q", word)
	}
	switch word {
	case "post", "get", "delete":
		return tr.addRequest(strings.ToUpper(word), rest, below)
	case "reply":
		return tr.addReply(options, rest, below)
	case "stream":
		return tr.addStream(options, below)
	case "sse":
		return tr.addSSE(options, rest)
	case "end":
		e := capture.Event{Kind: capture.KindEnd, Exchange: tr.currentExchange}
		if rest != "" {
			e.Data = []byte(rest)
		}
		if err := applyOptions(&e, options); err != nil {
			return err
		}
		tr.add(e)
		return nil
	}
	return fmt.Errorf("unknown word %q", word)
}

// addRequest adds the head of a request, and its body if any.
func (tr *transcript) addRequest(method, body string, below []string) error {
	tr.lastExchange++
	tr.currentExchange = tr.lastExchange
	url := "/mcp"
	data, err := parsePayload(body)
	if err != nil {
		return err
	}
	headers := editHeaders(tr.headers(method, data), below)
	if i := slices.IndexFunc(headers, func(h capture.Header) bool { return h.Name == ":path" }); i >= 0 {
		url = headers[i].Value
		headers = slices.Delete(headers, i, i+1)
	}
	tr.add(capture.Event{
		Kind: capture.KindRequest, Dir: capture.ToServer, Exchange: tr.currentExchange,
		Request: &capture.Request{Method: method, URL: url, Proto: "HTTP/1.1", Headers: headers},
	})
	if len(data) > 0 {
		return tr.addMessage(">", nil, body)
	}
	return nil
}

// headers returns the header fields that the revision requires.
func (tr *transcript) headers(method string, body []byte) []capture.Header {
	modern := era.Of(tr.rev).Modern
	list := []capture.Header{{Name: "Host", Value: "127.0.0.1:9000"}}
	add := func(name, value string) { list = append(list, capture.Header{Name: name, Value: value}) }
	switch method {
	case "POST":
		add("Content-Type", "application/json")
		add("Accept", "application/json, text/event-stream")
	case "GET":
		add("Accept", "text/event-stream")
	}
	if era.Of(tr.rev).VersionHeader {
		add("MCP-Protocol-Version", tr.rev.String())
	}
	if tr.session != "" {
		add("Mcp-Session-Id", tr.session)
	}
	if !modern || jsonwire.Valid(body, 0) != nil {
		return list
	}
	m := parseMessage(trim(body))
	add("Mcp-Method", m.method)
	if param := era.NameParam(m.method); param != "" {
		add("Mcp-Name", era.EncodeHeaderValue(jsonwire.Text(jsonwire.Lookup(m.params, param))))
	}
	return list
}

// editHeaders replaces, adds and removes header fields. "Name+: value" adds a field and keeps
// others with that name.
func editHeaders(list []capture.Header, changes []string) []capture.Header {
	for _, c := range changes {
		name, value, _ := strings.Cut(strings.TrimPrefix(c, ":"), ":")
		if strings.HasPrefix(c, ":") {
			name = ":" + name
		}
		drop := strings.TrimPrefix(name, "-")
		same := func(h capture.Header) bool { return strings.EqualFold(h.Name, drop) }
		switch {
		case strings.HasSuffix(name, "+"):
			list = append(list, capture.Header{Name: strings.TrimSuffix(name, "+"), Value: strings.TrimSpace(value)})
			continue
		case drop != name:
			list = slices.DeleteFunc(list, same)
			continue
		}
		h := capture.Header{Name: name, Value: strings.TrimSpace(value)}
		if i := slices.IndexFunc(list, same); i >= 0 {
			list[i] = h
		} else {
			list = append(list, h)
		}
	}
	return list
}

// addReply adds a complete response.
func (tr *transcript) addReply(options map[string]string, rest string, below []string) error {
	status, body, _ := strings.Cut(rest, " ")
	code, err := strconv.Atoi(status)
	if err != nil {
		return fmt.Errorf("status %q: want a number", status)
	}
	var headers []capture.Header
	if body != "" {
		headers = []capture.Header{{Name: "Content-Type", Value: "application/json"}}
	}
	e := capture.Event{
		Kind: capture.KindResponse, Dir: capture.ToClient, Exchange: tr.currentExchange,
		Response: &capture.Response{Status: code, Proto: "HTTP/1.1", Headers: editHeaders(headers, below)},
	}
	if err := applyOptions(&e, options); err != nil {
		return err
	}
	tr.add(e)
	if body != "" {
		options := map[string]string{"x": strconv.FormatUint(e.Exchange, 10)}
		if err := tr.addMessage("<", options, body); err != nil {
			return err
		}
	}
	tr.add(capture.Event{Kind: capture.KindEnd, Exchange: e.Exchange})
	return nil
}

// addStream adds the head of an event-stream response.
func (tr *transcript) addStream(options map[string]string, below []string) error {
	e := capture.Event{
		Kind: capture.KindResponse, Dir: capture.ToClient, Exchange: tr.currentExchange,
		Response: &capture.Response{Status: 200, Proto: "HTTP/1.1", Headers: editHeaders([]capture.Header{{Name: "Content-Type", Value: "text/event-stream"}}, below)},
	}
	if err := applyOptions(&e, options); err != nil {
		return err
	}
	tr.isStream[e.Exchange] = true
	tr.add(e)
	return nil
}

// addSSE adds a stream event without a message.
func (tr *transcript) addSSE(options map[string]string, rest string) error {
	e := capture.Event{Kind: capture.KindSSE, Dir: capture.ToClient, Exchange: tr.currentExchange, SSE: &capture.SSE{}}
	if rest != "" || len(options) == 0 || options["event"] != "" {
		e.SSE.HasData = true
		e.Data = []byte(rest)
	}
	if err := applyOptions(&e, options); err != nil {
		return err
	}
	tr.add(e)
	return nil
}

// applySSE sets a field of a stream event.
func applySSE(e *capture.Event, key, value string) error {
	if e.SSE == nil {
		e.SSE = &capture.SSE{}
	}
	switch key {
	case "event":
		e.SSE.Event = value
	case "id":
		e.SSE.ID, e.SSE.HasID = value, true
	case "data": // present, but empty
		e.SSE.HasData = true
		if e.Data == nil {
			e.Data = []byte{}
		}
	case "comment":
		e.SSE.Comment, e.SSE.HasComment = value, true
	case "retry":
		ms, err := strconv.Atoi(value)
		e.SSE.Retry, e.SSE.HasRetry = time.Duration(ms)*time.Millisecond, true
		return err
	default:
		return fmt.Errorf("unknown option %q", key)
	}
	return nil
}
