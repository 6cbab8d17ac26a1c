package check

import (
	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// rulesJSONRPC returns the rules about the envelope of single messages
// (https://www.jsonrpc.org/specification).
func rulesJSONRPC() []rule {
	return []rule{{
		ID: "jsonrpc/not-a-message", Severity: Error,
		Title: "JSON that is not a JSON-RPC message",
		Why:   "Some peers ignore it, others close the connection. The usual cause is a log in JSON on standard output.",
		Fix:   "Write logs to standard error, and only requests, notifications and responses to the wire.",
		URL:   "basic",
		Good:  Example{rev20251125, "init\n! {\"level\":\"info\",\"msg\":\"ready\"}"},
		Bad:   Example{rev20251125, "init\n< {\"level\":\"info\",\"msg\":\"ready\"}"},
		kinds: kindOther,
		check: func(v *view) {
			if !v.msg.batch || len(trim(v.msg.raw)) > 2 {
				v.report("", "%s is neither a request nor a notification nor a response: it has no method, no result and no error", showJSON(v.msg.raw))
			}
		},
	}, {
		ID: "jsonrpc/version", Severity: Error,
		Title: "The member jsonrpc is missing or not \"2.0\"",
		Why:   "It distinguishes JSON-RPC 2.0 from other protocols; strict peers reject a message without it.",
		Fix:   `Begin every message with "jsonrpc":"2.0".`,
		URL:   "basic",
		Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   Example{rev20251125, "init\n> {\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		kinds: kindCall | kindResponse,
		check: func(v *view) {
			switch {
			case v.msg.version == nil:
				v.report("", `the member jsonrpc is missing; it must be "2.0"`)
			case jsonwire.Text(v.msg.version) != "2.0":
				v.report("/jsonrpc", `jsonrpc is %s; it must be "2.0"`, showJSON(v.msg.version))
			}
		},
	}, {
		ID: "jsonrpc/id-null", Severity: Error,
		Title: "A request has the id null",
		Why:   "The response cannot be matched to its request, and many peers treat such a request as a notification and never respond.",
		Fix:   "Give each request a string or an integer as its id; omit id from notifications.",
		URL:   "basic",
		Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{}}"},
		Bad:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}"},
		kinds: kindRequest,
		check: func(v *view) {
			if v.msg.id.IsNull() {
				v.report("/id", "the id of this request is null; it must be a string or an integer")
			}
		},
	}, {
		ID: "jsonrpc/id-type", Severity: Error,
		Title: "An id is neither a string nor an integer",
		Why:   "Fractions change when converted to floating-point numbers, and other types are not valid ids: the response does not match its request.",
		Fix:   "Use strings, or integers without fraction and exponent.",
		URL:   "basic",
		Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":15,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":15,\"result\":{}}"},
		Bad:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1.5,\"result\":{}}"},
		kinds: kindRequest | kindResponse,
		check: func(v *view) {
			if id := v.msg.id; len(id) > 0 && !id.IsNull() && !id.Valid() {
				v.report("/id", "the id is %s; it must be a string or an integer", showJSON(id))
			}
		},
	}, {
		ID: "jsonrpc/method-type", Severity: Error,
		Title: "The method is not a string",
		Why:   "The receiver cannot tell what is requested.",
		Fix:   "Send the method as a string.",
		URL:   "basic",
		Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":7}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32600,\"message\":\"no method\"}}"},
		kinds: kindCall,
		check: func(v *view) {
			if v.msg.badMethod != nil {
				v.report("/method", "method is %s; it must be a string", showJSON(v.msg.badMethod))
			}
		},
	}, {
		ID: "jsonrpc/params-type", Severity: Error,
		Title: "The params are not an object",
		Why:   "MCP parameters are always named: an array has no meaning, and null is not the same as absent.",
		Fix:   "Send an object, or omit params if there are none.",
		URL:   "basic",
		Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"vendor/add\",\"params\":{\"a\":1}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"vendor/add\",\"params\":[1,2]}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		kinds: kindCall,
		check: func(v *view) {
			if p := v.msg.params; p != nil && !isObject(p) {
				v.report("/params", "params are %s; they must be an object, or absent", showJSON(p))
			}
		},
	}, {
		ID: "jsonrpc/result-and-error", Severity: Error,
		Title: "A response has both a result and an error",
		Why:   "Some peers use the result and some the error, so they disagree on whether the request succeeded. \"error\":null next to a result counts too.",
		Fix:   "Send result or error, and omit the other.",
		URL:   "basic",
		Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{},\"error\":null}"},
		kinds: kindResponse,
		check: func(v *view) {
			if v.msg.result != nil && v.msg.err != nil {
				v.report("", "this response has both a result and an error (%s); it must have only one", showJSON(v.msg.err))
			}
		},
	}, {
		ID: "jsonrpc/result-type", Severity: Error,
		Title: "A result is not an object",
		Why:   "All MCP results are objects, even empty ones; clients look for members in them.",
		Fix:   "Send an object: {} if the result is empty.",
		URL:   "basic",
		Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"pong\"}"},
		kinds: kindResult,
		check: func(v *view) {
			if !isObject(v.msg.result) {
				v.report("/result", "the result is %s; it must be an object", showJSON(v.msg.result))
			}
		},
	}, {
		ID: "jsonrpc/duplicate-member", Severity: Warning,
		Title: "An object has a duplicate name",
		Why:   "Some parsers use the first value and some the last: one peer may check a different value than the next one uses.",
		Fix:   "Write each name once.",
		URL:   "https://www.rfc-editor.org/rfc/rfc8259#section-4",
		Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		kinds: kindAny,
		check: func(v *view) {
			switch {
			case v.msg.duplicate != "":
				v.report("/"+v.msg.duplicate, "the member %s appears twice", v.msg.duplicate)
			case v.e.Why == capture.RawDuplicate && v.msg.index == 0:
				v.report("", "a name appears twice in an object of this message")
			}
		},
	}, {
		ID: "jsonrpc/utf8", Severity: Error,
		Title:  "A message is not UTF-8",
		Why:    "JSON in any other encoding is unreadable for the peer, or decodes to other text.",
		Fix:    "Encode messages as UTF-8; on Windows, set the encoding of standard output.",
		URL:    "basic/transports",
		Good:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":\"é\",\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":\"é\",\"result\":{}}"},
		Bad:    Example{rev20251125, "init\n> q\"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":\\\"\\xe9\\\",\\\"method\\\":\\\"ping\\\"}\""},
		events: []capture.Kind{capture.KindInvalid},
		check: func(v *view) {
			if i := notUTF8(v.e.Data); i >= 0 && looksJSON(v.e.Data) && v.e.Part == 0 && len(v.e.Redacted) == 0 {
				v.report("", "byte %d of this message is not UTF-8: %s", i, show(v.e.Data[max(0, i-20):]))
			}
		},
	}, {
		ID: "jsonrpc/batch", Severity: Error, Revisions: hasStructuredOutput,
		Title: "A batch in a revision without batches",
		Why:   "Only $r2 has batches. Peers of other revisions reject the whole array.",
		Fix:   "Send each message by itself.",
		URL:   "basic",
		Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   Example{rev20251125, "init\n> [{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		kinds: kindAny,
		check: func(v *view) {
			if v.msg.batch && v.msg.index == 0 && !v.features().Batches {
				v.report("", "this is an array of messages, which %s does not have", v.rev)
			}
		},
	}, {
		ID: "jsonrpc/batch-empty", Severity: Error,
		Title: "A batch without messages",
		Why:   "An empty array is not a message, and its sender waits for a response that never arrives.",
		Fix:   "Send nothing.",
		URL:   "https://www.jsonrpc.org/specification#batch",
		Good:  Example{rev20250326, "init\n> [{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]\n< [{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}]"},
		Bad:   Example{rev20250326, "init\n> []"},
		kinds: kindOther,
		check: func(v *view) {
			if v.msg.batch && isArray(v.msg.raw) {
				v.report("", "this batch has no messages")
			}
		},
	}, {
		ID: "jsonrpc/batch-initialize", Severity: Error, Revisions: hasBatches,
		Title: "initialize in a batch",
		Why:   "Before the handshake no revision is negotiated, so neither side knows whether batches are allowed.",
		Fix:   "Send initialize by itself, and wait for the response.",
		URL:   "basic/lifecycle#initialization",
		Good:  Example{rev20250326, "init"},
		Bad: Example{rev20250326, `> [{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"$rev","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}]
< [{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"$rev","capabilities":{},"serverInfo":{"name":"server","version":"1"}}}]
> {"jsonrpc":"2.0","method":"notifications/initialized"}`},
		kinds: kindRequest, methods: []string{mcp.MethodInitialize}, dir: capture.ToServer,
		check: func(v *view) {
			if v.msg.batch {
				v.report("", "initialize is in a batch; it must be sent by itself")
			}
		},
	}, {
		ID: "jsonrpc/batch-mixed", Severity: Error, Revisions: hasBatches,
		Title: "A batch mixes responses and other messages",
		Why:   "A batch contains either requests and notifications, or responses. Over HTTP the two need different replies, so no reply fits a mixed batch.",
		Fix:   "Send responses in a batch of their own.",
		URL:   "basic/transports#sending-messages-to-the-server",
		Good: Example{rev20250326, `init
< {"jsonrpc":"2.0","id":7,"method":"roots/list"}
> [{"jsonrpc":"2.0","id":7,"result":{"roots":[]}}]`},
		Bad: Example{rev20250326, `init
< {"jsonrpc":"2.0","id":7,"method":"roots/list"}
> [{"jsonrpc":"2.0","id":7,"result":{"roots":[]}},{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}]`},
		kinds: kindCall | kindResponse, dir: capture.ToServer,
		check: checkMixedBatch,
	}}
}

// A batchMix records the kinds of messages in a batch so far.
type batchMix struct {
	n     uint64
	kinds kind
}

func checkMixedBatch(v *view) {
	if !v.msg.batch {
		return
	}
	m := stateOf[batchMix](&v.session.state)
	if m.n != v.e.N {
		*m = batchMix{n: v.e.N}
	}
	mixed := func(k kind) bool { return k&kindCall != 0 && k&kindResponse != 0 }
	before := mixed(m.kinds)
	if m.kinds |= v.msg.kind; mixed(m.kinds) && !before {
		v.report("", "this batch contains both responses and requests or notifications")
	}
}
