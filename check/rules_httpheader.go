package check

import (
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/printable"
	"mcpwire/mcp"
)

// A headerMismatch records that a header of an exchange does not match the body. The server must
// reject the request.
type headerMismatch struct {
	header string
	// n is the number of the event.
	n uint64
}

// setHeaderMismatch records that a header is wrong.
func (v *view) setHeaderMismatch(header string) {
	*stateOf[headerMismatch](&v.exchange.state) = headerMismatch{header, v.e.N}
}

// rulesHTTPHeader returns the rules about headers that repeat the body, since 2026-07-28.
func rulesHTTPHeader() []rule {
	return []rule{{
		ID: "http/method-header", Severity: Error, Revisions: modernRevisions,
		Title: "The header Mcp-Method differs from the request's method",
		Why:   "Proxies route and count by the header; a server must reject a request in which the two differ.",
		Fix:   "Send Mcp-Method with every request, exactly as the method in the body.",
		URL:   "basic/transports/streamable-http#standard-mcp-request-headers",
		Good:  Example{rev20260728, "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{$meta}}}"},
		Bad:   Example{rev20260728, "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{$meta}}}\n  Mcp-Method: TOOLS/LIST"},
		kinds: kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			if !v.isPost() {
				return
			}
			switch f := v.exchange.requestFields("Mcp-Method"); {
			case len(f) == 0:
				v.report("", "this request has no header Mcp-Method")
				v.setHeaderMismatch("Mcp-Method")
			case f[0].value != v.msg.method:
				v.reportHead(f[0], "the header Mcp-Method says %s, the body %s", show(f[0].value), show(v.msg.method))
				v.setHeaderMismatch("Mcp-Method")
			}
		},
	}, {
		ID: "http/name-header", Severity: Error, Revisions: modernRevisions,
		Title: "The header Mcp-Name differs from the name in the request",
		Why:   "Proxies grant access by the header; a server must reject a request in which the two differ.",
		Fix:   "Send Mcp-Name with the name of the tool or prompt, the URI of the resource or the id of the task; encode text that is not plain ASCII as =?base64?…?=.",
		URL:   "basic/transports/streamable-http#standard-mcp-request-headers",
		Good:  Example{rev20260728, "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"prompts/get\",\"params\":{\"name\":\"\u4e16\",\"_meta\":{$meta}}}\n  Mcp-Name: =?base64?5LiW?="},
		Bad:   Example{rev20260728, "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"prompts/get\",\"params\":{\"name\":\"a\",\"_meta\":{$meta}}}\n  Mcp-Name: b"},
		kinds: kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			param := era.NameParam(v.msg.method)
			value := v.param(param)
			if param == "" || !v.isPost() || !isString(value) || v.redacted("/params/"+param) {
				return
			}
			v.compareHeader("Mcp-Name", jsonwire.Text(value))
		},
	}, {
		ID: "http/param-header", Severity: Error, Revisions: modernRevisions,
		Title: "A header Mcp-Param-… differs from the argument that it repeats",
		Why:   "Proxies route by the header; a server must reject a request in which the two differ.",
		Fix:   "Send the argument in the header that the schema's x-mcp-header names, exactly as in the body; encode text that is not plain ASCII as =?base64?…?=, and omit the header if the argument is null or absent.",
		URL:   "basic/transports/streamable-http#custom-headers-from-tool-parameters",
		Good:  Example{rev20260728, "http\n" + paramTool + "\n" + paramCall + "\n  Mcp-Param-Region: eu\n" + paramDone},
		Bad:   Example{rev20260728, "http\n" + paramTool + "\n" + paramCall + "\n  Mcp-Param-Region: us\n" + paramRefused},
		kinds: kindRequest, dir: capture.ToServer, methods: []string{mcp.MethodToolsCall},
		check: func(v *view) { v.compareParamHeaders(false) },
	}, {
		ID: "http/param-header-missing", Severity: Warning, Revisions: modernRevisions,
		Title: "An argument is not repeated in its header Mcp-Param-…",
		Why:   "The server must reject the request. A client that has not seen the tool's schema cannot know this; it must list the tools and try again.",
		Fix:   "List the tools before calling them, and repeat each argument whose schema has x-mcp-header.",
		URL:   "basic/transports/streamable-http#custom-headers-from-tool-parameters",
		Good:  Example{rev20260728, "http\n" + paramTool + "\n" + paramCall + "\n  Mcp-Param-Region: eu\n" + paramDone},
		Bad:   Example{rev20260728, "http\n" + paramTool + "\n" + paramCall + "\n" + paramRefused},
		kinds: kindRequest, dir: capture.ToServer, methods: []string{mcp.MethodToolsCall},
		check: func(v *view) { v.compareParamHeaders(true) },
	}, {
		ID: "http/header-not-checked", Severity: Error, Revisions: modernRevisions,
		Title: "The server accepts a request whose headers do not match its body",
		Why:   "A proxy admits the request by its headers, and the server handles it by its body: access rules have no effect.",
		Fix:   "Compare MCP-Protocol-Version, Mcp-Method, Mcp-Name and the known Mcp-Param-… with the body, and respond with -32020 and status 400 if they differ.",
		URL:   "basic/transports/streamable-http#server-validation",
		Good:  Example{rev20260728, "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{$meta}}}\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"resultType\":\"complete\",\"tools\":[],\"ttlMs\":0,\"cacheScope\":\"private\"}}"},
		Bad:   Example{rev20260728, "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{$meta}}}\n  Mcp-Method: ping\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"resultType\":\"complete\",\"tools\":[],\"ttlMs\":0,\"cacheScope\":\"private\"}}"},
		kinds: kindResult, dir: capture.ToClient, consequences: []string{"http/method-header"},
		check: func(v *view) {
			if v.call == nil || v.call.exchange == nil || v.call.exchange != v.exchange {
				return
			}
			if m := stateOf[headerMismatch](&v.exchange.state); m.header != "" {
				v.report("", "the request had a wrong header %s, but got a result", m.header).with(m.n)
			}
		},
	}}
}

const (
	paramTool    = `post {"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{$meta}}}` + "\n" + `reply 200 {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"deploy","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}]}}`
	paramCall    = `post {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"deploy","arguments":{"region":"eu"},"_meta":{$meta}}}`
	paramDone    = `reply 200 {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[]}}`
	paramRefused = `reply 400 {"jsonrpc":"2.0","id":2,"error":{"code":-32020,"message":"header mismatch"}}`
)

// compareHeader reports a header that is missing or differs from the text that it must repeat.
func (v *view) compareHeader(header, want string) {
	f := v.exchange.requestFields(header)
	if len(f) == 0 {
		v.report("", "this request has no header %s, which must repeat %s", header, show(want))
		v.setHeaderMismatch(header)
		return
	}
	if f[0].redacted {
		return
	}
	got, err := era.DecodeHeaderValue(f[0].value)
	switch {
	case err != nil:
		v.reportHead(f[0], "the header %s %v", header, err)
		v.setHeaderMismatch(header)
	case got != want:
		v.reportHead(f[0], "the header %s says %s, the body %s", header, show(got), show(want))
		v.setHeaderMismatch(header)
	}
}

// compareParamHeaders checks the headers that repeat arguments: only missing ones if missing is
// set, otherwise only those present.
func (v *view) compareParamHeaders(missing bool) {
	if !v.isPost() || v.call.tool == nil || v.call.paramsLost || v.redactedWithin("/params/arguments") {
		return
	}
	params, err := v.call.tool.headers()
	if err != nil {
		return
	}
	for _, p := range params {
		value := jsonwire.Lookup(v.msg.params, append([]string{"arguments"}, p.Path...)...)
		name := "Mcp-Param-" + p.Header
		f := v.exchange.requestFields(name)
		switch absent := value == nil || isNull(value); {
		case missing && !absent && len(f) == 0:
			v.report("", "this call has no header %s, which the tool's schema requires for %s", printable.Line(clip.Prefix(name, maxShown)), showJSON(value)).with(v.call.tool.n)
			v.setHeaderMismatch("Mcp-Param-…")
		case missing || len(f) == 0 || f[0].redacted:
		case absent:
			v.reportHead(f[0], "the header %s is present, but its argument is not", printable.Line(clip.Prefix(name, maxShown))).with(v.call.tool.n)
		default:
			v.compareParamHeader(f[0], value)
		}
	}
}

// compareParamHeader reports a header that differs from the value that it must repeat. Numbers are
// compared by value.
func (v *view) compareParamHeader(f field, value []byte) {
	got, err := era.DecodeHeaderValue(f.value)
	same := false
	switch {
	case err != nil:
	case isString(value):
		same = got == jsonwire.Text(value)
	case isNumber(value):
		same = jsonwire.Valid([]byte(got), 0) == nil && isNumber([]byte(got)) && sameNumber([]byte(got), value)
	default:
		same = got == string(value)
	}
	if !same {
		v.reportHead(f, "the header %s says %s, the argument is %s", printable.Line(clip.Prefix(f.name, maxShown)), show(f.value), showJSON(value)).with(v.call.tool.n)
		v.setHeaderMismatch("Mcp-Param-…")
	}
}

// sameNumber reports whether a and b are the same integer, ignoring a fraction of zeros.
func sameNumber(a, b []byte) bool {
	whole := func(n []byte) string {
		s := string(n)
		if i := strings.IndexByte(s, '.'); i >= 0 && strings.Trim(s[i+1:], "0") == "" {
			s = s[:i]
		}
		return s
	}
	return whole(a) == whole(b)
}
