package check

import (
	"errors"
	"slices"
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/plural"
	"mcpwire/mcp"
	"mcpwire/schema"
	"mcpwire/schema/fullschema"
)

// exTool is a tool for examples.
const exTool = `{"name":"add","inputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}`

// exToolCall returns an example of a tool call.
func exToolCall(tool, arguments, result string) string {
	return toolsList(`{"tools":[`+tool+`]}`) + `
> {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"add","arguments":` + arguments + `}}
< {"jsonrpc":"2.0","id":2,` + result + `}`
}

const exDone = `"result":{"content":[{"type":"text","text":"done"}]}`

// rulesTools returns the rules about tools
// (https://modelcontextprotocol.io/specification/2026-07-28/server/tools).
func rulesTools() []rule {
	return []rule{{
		ID: "tools/arguments", Severity: Warning,
		Title: "Arguments do not match inputSchema",
		Why:   "The server must validate arguments and reject these: the model gets an error instead of a result.",
		Fix:   "Give the model the schema as the server sent it, and validate before the call. If the arguments are right, fix the tool's inputSchema.",
		URL:   "server/tools#calling-tools",
		Good:  Example{rev20251125, exToolCall(exTool, `{"n":1}`, exDone)},
		Bad:   Example{rev20251125, exToolCall(exTool, `{"n":"one"}`, `"result":{"content":[{"type":"text","text":"n must be an integer"}],"isError":true}`)},
		kinds: kindRequest, methods: []string{mcp.MethodToolsCall}, dir: capture.ToServer,
		check: func(v *view) {
			if p := argumentProblems(v.call, v.msg.params, func(place string) bool { return v.redactedWithin("/params/arguments" + place) }); len(p) > 0 {
				v.report("/params/arguments", "the arguments do not match the inputSchema of %s: %s", show(jsonwire.Text(v.param("name"))), joinProblems(p)).with(v.call.tool.n)
			}
		},
	}, {
		ID: "tools/arguments-accepted", Severity: Warning,
		Title:        "The server accepted arguments that do not match inputSchema",
		Why:          "Servers must validate tool arguments: unchecked values come from a model, or from an attacker.",
		Fix:          "Validate against the tool's inputSchema, and return isError with a text that says what is wrong.",
		URL:          "server/tools",
		Good:         Example{rev20251125, exToolCall(exTool, `{"n":1}`, exDone)},
		Bad:          Example{rev20251125, exToolCall(exTool, `{}`, exDone)},
		consequences: []string{"tools/arguments"},
		kinds:        kindResult, methods: []string{mcp.MethodToolsCall}, dir: capture.ToClient,
		check: func(v *view) {
			if !v.complete() || isTrue(v.result("isError")) || v.call.paramsLost {
				return
			}
			if p := argumentProblems(v.call, v.call.params, func(place string) bool { return overlaps(v.call.redacted, "/params/arguments"+place) }); len(p) > 0 {
				v.report("", "the server accepted arguments that do not match the inputSchema of %s: %s", show(jsonwire.Text(v.call.param("name"))), joinProblems(p)).with(v.call.n)
			}
		},
	}, {
		ID: "tools/arguments-refused", Severity: Info, Revisions: hasURLElicitation,
		Title:        "Invalid arguments caused a JSON-RPC error",
		Why:          "The model does not see protocol errors, so it cannot correct itself. Since $r4, invalid arguments cause a result with isError.",
		Fix:          `Return {"isError":true,"content":[…]} with a text that says what is wrong with the arguments.`,
		URL:          "server/tools",
		Good:         Example{rev20251125, exToolCall(exTool, `{"n":1}`, exDone)},
		Bad:          Example{rev20251125, exToolCall(exTool, `{}`, `"error":{"code":-32602,"message":"n is missing"}`)},
		consequences: []string{"tools/arguments"},
		kinds:        kindError, methods: []string{mcp.MethodToolsCall}, dir: capture.ToClient,
		check: func(v *view) {
			if v.msg.code() != -32602 || v.call.paramsLost || !isObject(v.call.param("arguments")) {
				return
			}
			if p := argumentProblems(v.call, v.call.params, func(place string) bool { return overlaps(v.call.redacted, "/params/arguments"+place) }); len(p) > 0 {
				v.report("/error", "the arguments do not match (%s), and the response is an error that models do not see", joinProblems(p)).with(v.call.n)
			}
		},
	}, {
		ID: "tools/output-schema", Severity: Error, Revisions: hasStructuredOutput,
		Title: "structuredContent does not match outputSchema",
		Why:   "Clients validate it and drop the result; programs that rely on the schema break.",
		Fix:   "Return a value that matches outputSchema, or fix outputSchema.",
		URL:   "server/tools#output-schema",
		Good:  Example{rev20251125, exToolCall(exOutputTool, `{}`, `"result":{"content":[{"type":"text","text":"{\"n\":1}"}],"structuredContent":{"n":1}}`)},
		Bad:   Example{rev20251125, exToolCall(exOutputTool, `{}`, `"result":{"content":[{"type":"text","text":"{}"}],"structuredContent":{}}`)},
		kinds: kindResult, methods: []string{mcp.MethodToolsCall}, dir: capture.ToClient,
		check: func(v *view) {
			content := v.result("structuredContent")
			if !v.complete() || isTrue(v.result("isError")) || content == nil || v.call.tool == nil || !v.call.tool.output {
				return
			}
			problems := visible(v.call.tool.outputValidator().validate(content), func(place string) bool { return v.redactedWithin("/result/structuredContent" + place) })
			if len(problems) > 0 {
				v.report("/result/structuredContent", "structuredContent does not match the outputSchema of %s: %s", show(jsonwire.Text(v.call.param("name"))), joinProblems(problems)).with(v.call.tool.n)
			}
		},
	}, {
		ID: "tools/structured-missing", Severity: Error, Revisions: hasStructuredOutput,
		Title: "A tool with an outputSchema returned no structuredContent",
		Why:   "Clients rely on the schema: they expect structuredContent and reject a result without it.",
		Fix:   "Return structuredContent, unless the result is an error, or remove outputSchema.",
		URL:   "server/tools#output-schema",
		Good:  Example{rev20251125, exToolCall(exOutputTool, `{}`, `"result":{"content":[{"type":"text","text":"no such thing"}],"isError":true}`)},
		Bad:   Example{rev20251125, exToolCall(exOutputTool, `{}`, `"result":{"content":[{"type":"text","text":"{\"n\":1}"}]}`)},
		kinds: kindResult, methods: []string{mcp.MethodToolsCall}, dir: capture.ToClient,
		check: func(v *view) {
			if v.complete() && !isTrue(v.result("isError")) && v.result("structuredContent") == nil && v.result("task") == nil && v.call.tool != nil && v.call.tool.output {
				v.report("/result", "%s has an outputSchema, but this result has no structuredContent", show(jsonwire.Text(v.call.param("name")))).with(v.call.tool.n)
			}
		},
	}, {
		ID: "tools/structured-only", Severity: Warning, Revisions: hasStructuredOutput,
		Title: "structuredContent without text content",
		Why:   "Older clients and many models read only content: for them the result is empty.",
		Fix:   "Put the same JSON into a text block of content.",
		URL:   "server/tools#tool-result",
		Good:  Example{rev20251125, exToolCall(exTool, `{"n":1}`, `"result":{"content":[{"type":"text","text":"{\"n\":1}"}],"structuredContent":{"n":1}}`)},
		Bad:   Example{rev20251125, exToolCall(exTool, `{"n":1}`, `"result":{"content":[],"structuredContent":{"n":1}}`)},
		kinds: kindResult, methods: []string{mcp.MethodToolsCall}, dir: capture.ToClient,
		check: func(v *view) {
			if !v.complete() || v.result("structuredContent") == nil || !isArray(v.result("content")) {
				return
			}
			for range elements(v.result("content")) {
				return
			}
			v.report("/result/content", "the result has structuredContent, but content is empty")
		},
	}, {
		ID: "tools/unknown", Severity: Warning,
		Title: "A call to a tool that the server does not list",
		Why:   "The model invented the name, or the host uses an outdated list.",
		Fix:   "Call only tools in tools/list, and list them again after notifications/tools/list_changed.",
		URL:   "server/tools#calling-tools",
		Good:  Example{rev20251125, exToolCall(exTool, `{"n":1}`, exDone)},
		Bad:   Example{rev20251125, exToolCall(`{"name":"sub","inputSchema":{"type":"object"}}`, `{}`, `"error":{"code":-32602,"message":"unknown tool: add"}`)},
		kinds: kindRequest, methods: []string{mcp.MethodToolsCall}, dir: capture.ToServer,
		check: func(v *view) {
			if unlisted(v, v.call) && !v.redacted("/params/name") {
				v.report("/params/name", "%s is not in the server's list of %s", showJSON(v.param("name")), plural.Of(len(v.session.tools.byName), "tool"))
			}
		},
	}, {
		ID: "tools/unknown-as-result", Severity: Warning,
		Title:        "A call to an unknown tool got a result",
		Why:          "An unknown tool is a protocol error, -32602; isError is for tools that ran and failed.",
		Fix:          "Respond with error -32602.",
		URL:          "server/tools",
		Good:         Example{rev20251125, exToolCall(exTool, `{"n":1}`, exDone)},
		Bad:          Example{rev20251125, exToolCall(`{"name":"sub","inputSchema":{"type":"object"}}`, `{}`, `"result":{"content":[{"type":"text","text":"unknown tool"}],"isError":true}`)},
		consequences: []string{"tools/unknown"},
		kinds:        kindResult, methods: []string{mcp.MethodToolsCall}, dir: capture.ToClient,
		check: func(v *view) {
			if v.complete() && isTrue(v.result("isError")) && unlisted(v, v.call) {
				v.report("/result/isError", "%s is not a tool of this server; the response must be an error", show(jsonwire.Text(v.call.param("name")))).with(v.call.n)
			}
		},
	}}
}

// exOutputTool is a tool with an outputSchema.
const exOutputTool = `{"name":"add","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}`

func isTrue(v []byte) bool { return string(v) == "true" }

// unlisted reports whether the server certainly does not list the tool of a call.
func unlisted(v *view, c *call) bool {
	b := &v.session.tools
	return c.tool == nil && !c.paramsLost && b.complete && v.session.complete() && isString(c.param("name")) && b.byName[jsonwire.Text(c.param("name"))] == nil
}

// argumentProblems returns the problems of a tool call's arguments. hidden reports redacted places.
func argumentProblems(c *call, params []byte, hidden func(place string) bool) []schema.Problem {
	if c == nil || c.tool == nil {
		return nil
	}
	arguments := jsonwire.Lookup(params, "arguments")
	if arguments == nil {
		arguments = []byte("{}")
	}
	if !isObject(arguments) {
		// rulesShape covers this.
		return nil
	}
	return visible(c.tool.inputValidator().validate(arguments), hidden)
}

// visible removes problems that redaction may cause.
func visible(problems []schema.Problem, hidden func(place string) bool) []schema.Problem {
	return slices.DeleteFunc(problems, func(p schema.Problem) bool { return hidden(p.Pointer) })
}

var errUnsupported = errors.New("needs an engine")

// schemaFault returns why a schema is certainly invalid in its dialect, or "".
func schemaFault(text []byte) string {
	_, err := schema.Compile(text, func([]byte) (func([]byte) error, error) { return nil, errUnsupported })
	// It may be in another dialect.
	if errors.Is(err, errUnsupported) {
		err = fullschema.Check(text)
	}
	if err == nil {
		return ""
	}
	return strings.TrimPrefix(err.Error(), "schema: ")
}

// externalRef returns a $ref of a schema that points into the network, with its place.
func externalRef(v []byte, place string, depth int) (ref, at string) {
	if depth > 64 {
		return "", ""
	}
	switch {
	case isObject(v):
		for m := jsonwire.ObjectMembers(v); m.Next(); {
			name := m.KeyString()
			if name == "$ref" && isString(m.Value()) {
				if s := jsonwire.Text(m.Value()); (strings.HasPrefix(s, "http://") || strings.HasPrefix(s, "https://")) && !strings.Contains(s, "//json-schema.org/") {
					return s, place + "/$ref"
				}
			}
			if name == "const" || name == "enum" || name == "default" || name == "examples" {
				continue
			}
			if ref, at = externalRef(m.Value(), place+pointer(name), depth+1); ref != "" {
				return ref, at
			}
		}
	case isArray(v):
		for i, e := range elements(v) {
			if ref, at = externalRef(e, place+pointer(i), depth+1); ref != "" {
				return ref, at
			}
		}
	}
	return "", ""
}
