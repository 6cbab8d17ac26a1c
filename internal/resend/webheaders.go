package resend

import (
	"bytes"
	"context"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-"
	headerLast    = "Last-Event-Id"

	typeJSON   = "application/json"
	typeEvents = "text/event-stream"

	eventEndpoint = "endpoint"
)

// request makes an HTTP request. The user's headers win; one with a single empty value takes ours out.
func (hc *httpConn) request(ctx context.Context, method string, to *url.URL, body []byte) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, withoutURL(err)
	}
	if body == nil {
		r.Body, r.GetBody, r.ContentLength = nil, nil, 0
	}
	name, _, _ := strings.Cut(hc.s.opts.Tool, " ")
	r.Header.Set("User-Agent", name)
	switch method {
	case http.MethodPost:
		r.Header.Set("Content-Type", typeJSON)
		r.Header.Set("Accept", typeJSON+", "+typeEvents)
	case http.MethodGet:
		r.Header.Set("Accept", typeEvents)
	}
	hc.mu.Lock()
	for name, values := range hc.sessionHeader {
		r.Header[name] = slices.Clone(values)
	}
	hc.mu.Unlock()
	if body != nil && hc.s.o.Transport == HTTP {
		hc.setStandardHeaders(r.Header, body)
	}
	for name, values := range hc.s.opts.Headers {
		name = http.CanonicalHeaderKey(name)
		switch {
		case name == "Host" && len(values) > 0:
			r.Host = values[0]
		case len(values) == 1 && values[0] == "":
			r.Header.Del(name)
		default:
			r.Header[name] = slices.Clone(values)
		}
	}
	return r, nil
}

// setStandardHeaders sets the headers that repeat what a modern message says
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#standard-request-headers).
func (hc *httpConn) setStandardHeaders(h http.Header, body []byte) {
	var m jsonrpc.Message
	if jsonrpc.Parse(body, &m, 0) != nil || len(m.Method) == 0 {
		return
	}
	version := revisionOf(body)
	if version == "" && hc.s.o.Modern { // a notification need not say it
		version = hc.s.o.Revision
	}
	if version == "" {
		return
	}
	h.Set(headerVersion, era.EncodeHeaderValue(version))
	h.Set(headerMethod, era.EncodeHeaderValue(string(m.Method)))
	param := era.NameParam(m.Method)
	text, _ := m.Param(param)
	if param == "" || len(text) == 0 || text[0] != '"' {
		return
	}
	name := jsonwire.Text(text)
	h.Set(headerName, era.EncodeHeaderValue(name))
	if string(m.Method) != mcp.MethodToolsCall {
		return
	}
	arguments, _ := m.Param("arguments")
	for _, p := range hc.s.o.Params[name] {
		if value, ok := paramValue(arguments, p.Path); ok {
			h[http.CanonicalHeaderKey(headerParam+p.Header)] = []string{value}
		}
	}
}

// paramValue returns the value of the header for the argument at a path; there is none for what is absent, null, or no scalar.
func paramValue(arguments []byte, path []string) (string, bool) {
	value := arguments
	for _, name := range path {
		if value = jsonwire.Lookup(value, name); value == nil {
			return "", false
		}
	}
	if len(value) == 0 {
		return "", false
	}
	switch value[0] {
	case '"':
		return era.EncodeHeaderValue(jsonwire.Text(value)), true
	case 't', 'f':
		return string(value), true
	case 'n', '{', '[':
		return "", false
	}
	f, _ := strconv.ParseFloat(string(value), 64)
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 && bytes.ContainsAny(value, ".eE") {
		return strconv.FormatFloat(f, 'f', 0, 64), true // 42.0 is an integer
	}
	return string(value), true
}

// headerFields are the fields of a request as it goes out, but for those that net/http adds.
func headerFields(r *http.Request) []capture.Header {
	list := []capture.Header{{Name: "Host", Value: r.Host}}
	if r.ContentLength > 0 {
		list = append(list, capture.Header{Name: "Content-Length", Value: strconv.FormatInt(r.ContentLength, 10)})
	}
	return append(list, sortedFields(r.Header)...)
}

func sortedFields(h http.Header) []capture.Header {
	var list []capture.Header
	for name, values := range h {
		for _, v := range values {
			list = append(list, capture.Header{Name: name, Value: v})
		}
	}
	slices.SortStableFunc(list, func(a, b capture.Header) int { return strings.Compare(a.Name, b.Name) })
	return list
}
