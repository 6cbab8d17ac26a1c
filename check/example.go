package check

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// An Example is a short session in a text that people can read, see [Example.Events].
type Example struct {
	Revision mcp.Revision // that it is held against, and that $rev stands for
	Text     string
}

// Transcript returns the text with everything written out that it has short forms for: what went over the wire, line by line.
func (x Example) Transcript() string {
	var b strings.Builder
	for _, line := range x.lines() {
		b.WriteString(line)
		b.WriteByte('\n')
	}
	return b.String()
}

// Events returns the example as the events of a capture. The error says which line it does not understand.
//
// Each line of the text is one of these:
//
//	> JSON              a message of the client
//	< JSON              a message of the server
//	<(OPTIONS) JSON     one with something special, see below
//	! TEXT              a line that the server wrote to its standard error
//	exit 7              the server has ended, with a status
//	exit signal killed  a signal has ended it
//	eof >               the client has closed what it writes to; the server: eof <
//	wait 5s             time goes by
//	gap 3               three events are missing
//	init                a handshake; init client={…} server={…} says which capabilities there are
//	# TEXT              a remark
//
// A payload that begins with q" is a Go string with its quotes, for bytes that a line cannot hold: < q"\xff\n". Options are separated by commas: crlf, eof and header are
// framings, s=2 is another session, x=3 the HTTP exchange with that number, and event=, id=, retry= and comment= are fields of an event stream.
//
// A text that begins with the line "http" is about Streamable HTTP, one with "sse-transport" about HTTP+SSE. It has these lines besides, with header fields indented below them:
//
//	post JSON           a POST to /mcp of a message of the client, with the header fields that the revision asks for. A field below replaces one, "-Name" takes one away
//	get                 a GET, in the same way; and delete
//	reply 200 JSON      the answer to it in JSON, which ends the exchange; without JSON there is no body
//	stream              the answer is an event stream: what follows with < is in it
//	sse TEXT            an event of the stream that is no message, whose data is TEXT; options as above
//	end TEXT            the exchange is over, and if it was not the normal end, why
//	session ID          what is posted from here on has this Mcp-Session-Id
//
// Everywhere $rev stands for the date of the revision, $meta for the members of _meta that every modern request
// has, $version for the first of them and $client for the name of the second.
func (x Example) Events() (*capture.Head, []*capture.Event, error) {
	tr := &transcript{rev: x.Revision, head: &capture.Head{Version: capture.Version, ID: "example", Transport: "stdio", Redact: "off"}}
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

// lines returns the lines with their short forms written out, but for those of HTTP.
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

// handshake is what init stands for.
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

// A transcript turns lines into events.
type transcript struct {
	rev             mcp.Revision
	head            *capture.Head
	events          []*capture.Event
	elapsed         time.Duration
	lastExchange    uint64 // the last
	currentExchange uint64 // the one that lines without x= belong to
	session         string
	isStream        map[uint64]bool
}

func (tr *transcript) add(e capture.Event) *capture.Event {
	tr.elapsed += time.Millisecond
	e.N, e.T, e.Capture = uint64(len(tr.events)+1), tr.elapsed, tr.head.ID
	if e.Data != nil {
		e.Len = int64(len(e.Data))
	}
	tr.events = append(tr.events, &e)
	return &e
}

// addLine takes a line, and those that are indented below it.
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

// splitOptions takes the options off a word: <(crlf,s=2).
func splitOptions(word string) (string, map[string]string, error) {
	name, list, found := strings.Cut(word, "(")
	if !found {
		return word, nil, nil
	}
	list, closed := strings.CutSuffix(list, ")")
	if !closed {
		return "", nil, fmt.Errorf("options without an end (they must not have spaces)")
	}
	options := map[string]string{}
	for o := range strings.SplitSeq(list, ",") {
		key, value, _ := strings.Cut(o, "=")
		options[key] = value
	}
	return name, options, nil
}

// parsePayload returns the bytes that a text stands for.
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
	if tr.head.Transport == "stdio" {
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

// applyOptions sets what options say.
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
