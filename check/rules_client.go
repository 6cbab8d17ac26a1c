package check

import (
	"net/url"
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
	"mcpwire/schema"
)

// rulesClient returns the rules about input that servers request from clients (roots, sampling and
// elicitation), by requests or within results.
func rulesClient() []rule {
	return []rule{{
		ID: "roots/uri", Severity: Error,
		Title: "A root is not a file:// URI",
		Why:   "Roots are folders and files; servers cannot use another scheme.",
		Fix:   "Begin the URI of a root with file://.",
		URL:   "client/roots",
		Good:  Example{rev20251125, exRoots("file:///home/me/project")},
		Bad:   Example{rev20251125, exRoots("https://example.com/project")},
		kinds: kindResult | kindRequest, dir: capture.ToServer,
		check: func(v *view) {
			if v.msg.is(kindResult) && v.call != nil && v.call.method == mcp.MethodRootsList {
				rootURIs(v, "/result", v.msg.result)
			}
			for key, answer := range members(v.param("inputResponses")) {
				rootURIs(v, "/params/inputResponses"+pointer(key), answer)
			}
		},
	}, {
		ID: "elicitation/schema", Severity: Error, Revisions: hasStructuredOutput,
		Title: "Clients cannot show a form",
		Why:   "Forms are flat: each property is a string, a number, a boolean or a choice. Clients have no input field for anything else.",
		Fix:   "Send several flat forms, or request text.",
		URL:   "client/elicitation#requested-schema",
		Good:  Example{rev20251125, exElicit(`"name":{"type":"string"}`, `{"action":"decline"}`)},
		Bad:   Example{rev20251125, exElicit(`"name":{"type":"object","properties":{"first":{"type":"string"}}}`, `{"action":"decline"}`)},
		kinds: kindRequest | kindResult, dir: capture.ToClient,
		consequences: []string{"shape/bad-value"},
		check: func(v *view) {
			for place, params := range inputRequests(v, mcp.MethodElicit) {
				flatForm(v, place, params)
			}
		},
	}, {
		ID: "elicitation/content", Severity: Warning, Revisions: hasNegotiatedVersionHeader,
		Title: "The response to a form does not match the form's schema",
		Why:   "The server validates the response and sends the form again, or fails.",
		Fix:   "Validate the fields before sending the response; send content only with accept.",
		URL:   "client/elicitation",
		Good:  Example{rev20251125, exElicit(`"age":{"type":"integer"}`, `{"action":"accept","content":{"age":7}}`)},
		Bad:   Example{rev20251125, exElicit(`"age":{"type":"integer"}`, `{"action":"accept","content":{"age":"seven"}}`)},
		kinds: kindResult, methods: []string{mcp.MethodElicit}, dir: capture.ToServer,
		check: func(v *view) {
			if v.call.paramsLost || jsonwire.Text(v.result("action")) != string(mcp.ElicitActionAccept) || v.call.param("requestedSchema") == nil {
				return
			}
			content := v.result("content")
			if content == nil {
				content = []byte("{}")
			}
			problems := visible(formProblems(v.call.param("requestedSchema"), content), func(place string) bool { return v.redactedWithin("/result/content" + place) })
			if len(problems) > 0 {
				v.report("/result/content", "the content does not match the requested schema: %s", joinProblems(problems)).with(v.call.n)
			}
		},
	}, {
		ID: "elicitation/secret", Severity: Warning, Revisions: hasStructuredOutput,
		Title: "A form requests a secret",
		Why:   "Form input passes through the host, and often through a model. Passwords, keys and payment details must not.",
		Fix:   "Use URL mode, with a page of your own.",
		URL:   "client/elicitation",
		Good:  Example{rev20251125, exElicit(`"city":{"type":"string"}`, `{"action":"decline"}`)},
		Bad:   Example{rev20251125, exElicit(`"password":{"type":"string"}`, `{"action":"decline"}`)},
		kinds: kindRequest | kindResult, dir: capture.ToClient,
		check: func(v *view) {
			for place, params := range inputRequests(v, mcp.MethodElicit) {
				for name := range members(jsonwire.Lookup(params, "requestedSchema", "properties")) {
					if secretName(name) {
						v.report(place+"/requestedSchema/properties"+pointer(name), "the form requests %s", show(name))
					}
				}
			}
		},
	}, {
		ID: "elicitation/url", Severity: Error, Revisions: hasURLElicitation,
		Title: "The URL of an elicitation cannot be opened",
		Why:   "Users are shown the URL and open it in a browser.",
		Fix:   "Send an absolute URL with https.",
		URL:   "client/elicitation",
		Good:  Example{rev20251125, exElicitURL("https://example.com/connect")},
		Bad:   Example{rev20251125, exElicitURL("https://")},
		kinds: kindRequest | kindResult, dir: capture.ToClient,
		check: func(v *view) {
			for place, params := range inputRequests(v, mcp.MethodElicit) {
				page := jsonwire.Lookup(params, "url")
				if jsonwire.Text(jsonwire.Lookup(params, "mode")) != string(mcp.ElicitModeURL) || !isString(page) || v.redactedWithin(place+"/url") {
					continue
				}
				if u, err := url.Parse(jsonwire.Text(page)); err != nil || u.Scheme == "" || u.Host == "" {
					v.report(place+"/url", "%s is not a URL that can be opened", showJSON(page))
				}
			}
		},
	}, {
		ID: "elicitation/complete-unknown", Severity: Error, Revisions: hasCoreTasks,
		Title: "A completion notification for an unknown elicitation",
		Why:   "The client cannot tell which elicitation the user has completed.",
		Fix:   "Send the elicitationId of the request, to the client that got it.",
		URL:   "client/elicitation#completion-notifications-for-url-mode-elicitation",
		Good:  Example{rev20251125, exElicitURL("https://example.com/connect") + "\n" + exElicitDone("e")},
		Bad:   Example{rev20251125, exElicitURL("https://example.com/connect") + "\n" + exElicitDone("f")},
		kinds: kindNotification, methods: []string{mcp.NotificationElicitationComplete}, dir: capture.ToClient,
		check: func(v *view) {
			id := v.param("elicitationId")
			elicitations := stateOf[elicited](&v.session.state)
			if isString(id) && v.session.complete() && !v.session.restarted && !elicitations.ids.full() && !v.redacted("/params/elicitationId") && !elicitations.ids.has(idKey(id), v.checker.seed) {
				v.report("/params/elicitationId", "no elicitation had the elicitationId %s", showJSON(id))
			}
		},
	}, {
		ID: "sampling/tool-results", Severity: Error, Revisions: hasURLElicitation,
		Title: "Tool results do not follow their tool uses",
		Why:   "Model APIs require each tool use to be followed immediately by its result, in a message with nothing else; they reject other conversations.",
		Fix:   "Put a tool_result block for every tool_use block of a message into the next message, and nothing else.",
		URL:   "client/sampling",
		Good:  Example{rev20251125, exSampling(exToolUse + `,{"role":"user","content":[{"type":"tool_result","toolUseId":"u1","content":[]}]}`)},
		Bad:   Example{rev20251125, exSampling(exToolUse + `,{"role":"user","content":{"type":"text","text":"go on"}}`)},
		kinds: kindRequest | kindResult, dir: capture.ToClient,
		check: func(v *view) {
			for place, params := range inputRequests(v, mcp.MethodCreateMessage) {
				samplingMessages(v, place+"/messages", jsonwire.Lookup(params, "messages"))
			}
		},
	}, {
		ID: "sampling/context", Severity: Warning, Revisions: hasCoreTasks,
		Title: "includeContext is sent to a client without sampling.context",
		Why:   "The client does not support it: the model responds without the context that the server expects.",
		Fix:   "Omit includeContext, and put what the model needs to know into the messages.",
		URL:   "client/sampling",
		Good:  Example{rev20251125, exSampling(`{"role":"user","content":{"type":"text","text":"hi"}}`)},
		Bad:   Example{rev20251125, exSampling(`{"role":"user","content":{"type":"text","text":"hi"}}],"includeContext":"thisServer","stopSequences":["x"`)},
		kinds: kindRequest, methods: []string{mcp.MethodCreateMessage}, dir: capture.ToClient,
		check: func(v *view) {
			c := jsonwire.Text(v.param("includeContext"))
			if (c == string(mcp.IncludeContextThisServer) || c == string(mcp.IncludeContextAllServers)) && isObject(v.session.clientCaps) && !declared(v.session.clientCaps, []string{"sampling", "context"}) {
				v.report("/params/includeContext", "includeContext is %s, but the client has not declared sampling.context", show(c))
			}
		},
	}}
}

func exRoots(uri string) string {
	return `init
< {"jsonrpc":"2.0","id":1,"method":"roots/list"}
> {"jsonrpc":"2.0","id":1,"result":{"roots":[{"uri":"` + uri + `"}]}}`
}

func exElicit(properties, result string) string {
	return `init
< {"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"Who are you?","requestedSchema":{"type":"object","properties":{` + properties + `}}}}
> {"jsonrpc":"2.0","id":1,"result":` + result + `}`
}

func exElicitURL(page string) string {
	return `init client={"elicitation":{"url":{}}}
< {"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"mode":"url","message":"Connect","url":"` + page + `","elicitationId":"e"}}
> {"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`
}

func exElicitDone(id string) string {
	return `< {"jsonrpc":"2.0","method":"notifications/elicitation/complete","params":{"elicitationId":"` + id + `"}}`
}

const exToolUse = `{"role":"user","content":{"type":"text","text":"hi"}},{"role":"assistant","content":[{"type":"tool_use","id":"u1","name":"a","input":{}}]}`

func exSampling(messages string) string {
	return `init client={"sampling":{"tools":{}}}
< {"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"maxTokens":10,"messages":[` + messages + `]}}
> {"jsonrpc":"2.0","id":1,"result":{"role":"assistant","model":"m","content":{"type":"text","text":"hello"}}}`
}

// elicited holds the elicitationIds of a session.
type elicited struct{ ids idSet }

var observeElicited = []observer{{
	kinds: kindRequest, methods: []string{mcp.MethodElicit}, dir: capture.ToClient,
	observe: func(v *view) { rememberElicitation(v, v.param("elicitationId")) },
}, {
	kinds: kindError, dir: capture.ToClient,
	observe: func(v *view) {
		for _, e := range elements(jsonwire.Lookup(v.msg.err, "data", "elicitations")) {
			rememberElicitation(v, jsonwire.Lookup(e, "elicitationId"))
		}
	},
}}

func rememberElicitation(v *view, id []byte) {
	if isString(id) {
		stateOf[elicited](&v.session.state).ids.add(idKey(id), v.checker.seed)
	}
}

// inputRequests yields the params of input requests with a method, and their places. The message is
// such a request, or an input_required result with such requests.
func inputRequests(v *view, method string) func(yield func(string, []byte) bool) {
	return func(yield func(string, []byte) bool) {
		if v.msg.is(kindRequest) {
			if v.msg.method == method {
				yield("/params", v.msg.params)
			}
			return
		}
		for key, q := range members(v.result("inputRequests")) {
			if jsonwire.Text(jsonwire.Lookup(q, "method")) == method && !yield("/result/inputRequests"+pointer(key)+"/params", jsonwire.Lookup(q, "params")) {
				return
			}
		}
	}
}

// rootURIs reports the roots of a ListRootsResult at place that do not have file URIs.
func rootURIs(v *view, place string, result []byte) {
	for i, r := range elements(jsonwire.Lookup(result, "roots")) {
		if uri := jsonwire.Lookup(r, "uri"); isString(uri) && !strings.HasPrefix(strings.ToLower(jsonwire.Text(uri)), "file://") {
			v.report(place+"/roots"+pointer(i)+"/uri", "%s must begin with file://", showJSON(uri))
		}
	}
}

// flatForm reports the parts of the requestedSchema at place that are not flat.
func flatForm(v *view, place string, params []byte) {
	for name, p := range members(jsonwire.Lookup(params, "requestedSchema", "properties")) {
		here := place + "/requestedSchema/properties" + pointer(name)
		switch t := jsonwire.Text(jsonwire.Lookup(p, "type")); {
		case t == "string" || t == "number" || t == "integer" || t == "boolean":
		case t == "array" && era.Of(v.rev).MultiSelect && isObject(jsonwire.Lookup(p, "items")) && (jsonwire.Lookup(p, "items", "enum") != nil || jsonwire.Lookup(p, "items", "anyOf") != nil):
		case t == "" && (jsonwire.Lookup(p, "enum") != nil || jsonwire.Lookup(p, "oneOf") != nil):
		default:
			v.report(here, "the field %s is %s; it must be a string, a number, a boolean or a choice", show(name), showJSON(p))
		}
	}
}

func formProblems(form, content []byte) []schema.Problem {
	if !isObject(form) || !isObject(content) || len(form) > maxToolText {
		return nil
	}
	return compile(form).validate(content)
}

// secretName reports whether a field name certainly names a secret. It does not find all.
func secretName(name string) bool {
	n := strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' || r == '.' {
			return -1
		}
		return r
	}, strings.ToLower(name))
	switch n {
	case "password", "passwd", "passphrase", "secret", "apikey", "accesstoken", "secretkey", "privatekey", "clientsecret", "creditcard", "cardnumber", "creditcardnumber", "cvv", "cvc", "pin", "ssn", "otp":
		return true
	}
	return strings.HasSuffix(n, "password") || strings.HasSuffix(n, "apikey")
}

// samplingMessages reports misplaced tool uses and tool results in the messages at place.
func samplingMessages(v *view, place string, messages []byte) {
	// uses holds the tool uses of the previous message that have no result yet.
	var uses map[string]bool
	from := 0
	for i, m := range elements(messages) {
		results, others, found := map[string]bool{}, 0, map[string]bool{}
		for _, b := range contentOf(m) {
			switch jsonwire.Text(jsonwire.Lookup(b, "type")) {
			case "tool_use":
				found[clip.Prefix(jsonwire.Text(jsonwire.Lookup(b, "id")), maxPairedID)] = true
			case "tool_result":
				results[clip.Prefix(jsonwire.Text(jsonwire.Lookup(b, "toolUseId")), maxPairedID)] = true
			default:
				others++
			}
		}
		here := place + pointer(i)
		if len(results) > 0 && (others > 0 || len(found) > 0) {
			v.report(here+"/content", "this message mixes tool results with other content")
		}
		for id := range uses {
			if !results[id] {
				v.report(here, "the tool use %s in message %d has no result in the next message", show(id), from+1)
				break
			}
		}
		for id := range results {
			if !uses[id] {
				v.report(here, "the result for %s has no tool use in the previous message", show(id))
				break
			}
		}
		uses, from = found, i
	}
}

// contentOf yields the content blocks of a message, whose content is one block or an array.
func contentOf(m []byte) func(yield func(int, []byte) bool) {
	c := jsonwire.Lookup(m, "content")
	if isArray(c) {
		return elements(c)
	}
	return func(yield func(int, []byte) bool) {
		if isObject(c) {
			yield(0, c)
		}
	}
}
