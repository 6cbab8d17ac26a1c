package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// addHTTP takes the lines that only HTTP has.
func (tr *transcript) addHTTP(word string, options map[string]string, rest string, below []string) error {
	switch word {
	case "http", "sse-transport":
		tr.head.Transport = strings.TrimSuffix(word, "-transport")
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

// addRequest adds the head of a request, and its body if there is one.
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

// headers returns the fields that the revision asks for.
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
	if modern || tr.rev == mcp.Revision20250618 || tr.rev == mcp.Revision20251125 {
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
		add("Mcp-Name", era.EncodeHeaderValue(stringValue(member(m.params, param))))
	}
	return list
}

// editHeaders replaces, adds and takes away header fields. "Name+: value" adds one beside those of the same name.
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

// addReply adds a whole response.
func (tr *transcript) addReply(options map[string]string, rest string, below []string) error {
	status, body, _ := strings.Cut(rest, " ")
	code, err := strconv.Atoi(status)
	if err != nil {
		return fmt.Errorf("status %q: want a number", status)
	}
	exchange := tr.currentExchange
	var headers []capture.Header
	if body != "" {
		headers = []capture.Header{{Name: "Content-Type", Value: "application/json"}}
	}
	e := capture.Event{
		Kind: capture.KindResponse, Dir: capture.ToClient, Exchange: exchange,
		Response: &capture.Response{Status: code, Proto: "HTTP/1.1", Headers: editHeaders(headers, below)},
	}
	if err := applyOptions(&e, options); err != nil {
		return err
	}
	exchange = e.Exchange
	tr.add(e)
	if body != "" {
		options := map[string]string{"x": strconv.FormatUint(exchange, 10)}
		if err := tr.addMessage("<", options, body); err != nil {
			return err
		}
	}
	tr.add(capture.Event{Kind: capture.KindEnd, Exchange: exchange})
	return nil
}

// addStream adds the head of a response that is an event stream.
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

// addSSE adds an event of a stream that has no message.
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

// applySSE sets a field of an event of a stream.
func applySSE(e *capture.Event, key, value string) error {
	if e.SSE == nil {
		e.SSE = &capture.SSE{}
	}
	switch key {
	case "event":
		e.SSE.Event = value
	case "id":
		e.SSE.ID, e.SSE.HasID = value, true
	case "data": // that there is one, though it is empty
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
