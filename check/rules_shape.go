package check

import (
	"slices"
	"strconv"
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/era/shape"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
)

// rulesShape returns the rules about the members of messages. Package shape derives them from the
// schemas of the revisions.
func rulesShape() []rule {
	return []rule{
		shapeRule(shape.Missing, Error, rule{
			ID:    "shape/missing-member",
			Title: "A required member is missing",
			Why:   "Peers rely on it: typed clients and servers reject the whole message.",
			Fix:   "Send the member. An empty list is [], not absent.",
			Good:  Example{rev20251125, toolsList(`{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}`)},
			Bad:   Example{rev20251125, toolsList(`{"tools":[{"name":"a"}]}`)},
		}),
		shapeRule(shape.WrongType, Error, rule{
			ID:    "shape/wrong-type",
			Title: "A value has the wrong type",
			Why:   "Typed peers reject the whole message; others convert the value, each differently.",
			Fix:   "Send the type that the specification defines for the member. null is not the same as absent.",
			Good:  Example{rev20251125, toolsList(`{"tools":[{"name":"a","description":"d","inputSchema":{"type":"object"}}]}`)},
			Bad:   Example{rev20251125, toolsList(`{"tools":[{"name":"a","description":null,"inputSchema":{"type":"object"}}]}`)},
		}),
		shapeRule(shape.BadValue, Error, rule{
			ID:    "shape/bad-value",
			Title: "A value is not one of the allowed ones",
			Why:   "Peers do not know what it means.",
			Fix:   "Send one of the values that the specification lists.",
			Good:  Example{rev20251125, toolsList(`{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}`)},
			Bad:   Example{rev20251125, toolsList(`{"tools":[{"name":"a","inputSchema":{"type":"array"}}]}`)},
		}),
		shapeRule(shape.BadFormat, Error, rule{
			ID:    "shape/bad-format",
			Title: "A string is not a valid URI or not valid base64",
			Why:   "Decoders reject it, and the content is lost.",
			Fix:   "URIs begin with a scheme; binary data is base64 in the standard alphabet, with padding.",
			Good:  Example{rev20251125, resourceRead(`{"uri":"file:///a.png","blob":"iVBORw0K"}`)},
			Bad:   Example{rev20251125, resourceRead(`{"uri":"file:///a.png","blob":"iVBORw0"}`)},
		}),
		shapeRule(shape.Duplicate, Warning, rule{
			ID:    "shape/duplicate-member",
			Title: "A member appears twice",
			Why:   "Some parsers use the first value and some the last.",
			Fix:   "Write each name once.",
			Good:  Example{rev20251125, toolsList(`{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}`)},
			Bad:   Example{rev20251125, toolsList(`{"tools":[{"name":"a","name":"b","inputSchema":{"type":"object"}}]}`)},
		}),
		shapeRule(shape.WrongKind, Error, rule{
			ID:    "shape/wrong-kind",
			Title: "A request was sent as a notification, or a notification as a request",
			Why:   "The sender waits for a response that never arrives, or gets one that it does not expect.",
			Fix:   "Send requests with an id, and notifications without one.",
			Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"method\":\"notifications/roots/list_changed\"}"},
			Bad:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"notifications/roots/list_changed\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		}),
		shapeRule(shape.WrongDirection, Error, rule{
			ID:    "shape/wrong-direction",
			Title: "The wrong side sent a message",
			Why:   "The peer does not implement the method.",
			Fix:   "Send only messages that the specification defines for your side.",
			Good:  Example{rev20251125, "init\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"roots\":[]}}"},
			Bad:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"method not found\"}}"},
		}),
		shapeRule(shape.NotInRevision, Error, rule{
			ID:    "shape/not-in-revision",
			Title: "A feature that the negotiated revision does not have",
			Why:   "Both sides have negotiated a revision; the peer does not know features of other revisions.",
			Fix:   "Check the negotiated revision before using such a feature, or negotiate a newer revision.",
			Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
			Bad: Example{rev20260728, discovered + `> {"jsonrpc":"2.0","id":2,"method":"ping","params":{"_meta":{$meta}}}
< {"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"method not found"}}`},
		}),
	}
}

func toolsList(result string) string {
	return "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":" + result + "}"
}

func resourceRead(contents string) string {
	return "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"resources/read\",\"params\":{\"uri\":\"file:///a.png\"}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"contents\":[" + contents + "]}}"
}

// shapeRule returns the rule for one kind of shape finding.
func shapeRule(code shape.Code, severity Severity, r rule) rule {
	r.Severity, r.URL, r.kinds = severity, "schema", kindCall|kindResponse
	r.check = func(v *view) {
		for _, p := range v.shapeMismatches() {
			if p.Code == code {
				place := shapeRoot(v.msg) + p.Pointer
				if p.Pointer == "" && v.msg.is(kindCall) && (v.msg.params == nil || code == shape.WrongKind || code == shape.WrongDirection || code == shape.NotInRevision) {
					place = ""
				}
				v.report(place, "%s%s", entryName(v.msg.result, p.Pointer), p.Message)
			}
		}
	}
	return r
}

// entryName returns the name of the entry of a list that a pointer leads into, such as the tool of
// /tools/3/inputSchema, as the beginning of a sentence. It is "" without one.
func entryName(result []byte, pointer string) string {
	parts := strings.SplitN(pointer, "/", 4)
	if len(parts) < 3 {
		return ""
	}
	for i, entry := range elements(jsonwire.Lookup(result, parts[1])) {
		if name := jsonwire.Text(jsonwire.Lookup(entry, "name")); strconv.Itoa(i) == parts[2] && name != "" {
			return strings.TrimSuffix(parts[1], "s") + " " + strconv.Quote(clip.Prefix(name, 100)) + ": "
		}
	}
	return ""
}

func shapeRoot(m *message) string {
	switch m.kind {
	case kindResult:
		return "/result"
	case kindError:
		return "/error"
	}
	return "/params"
}

// shapeMismatches returns the differences between the message and its shape.
func (v *view) shapeMismatches() []shape.Finding {
	if !v.shapeChecked {
		v.shapeChecked = true
		v.shapeFindings = v.findShapeMismatches()
	}
	return v.shapeFindings
}

func (v *view) findShapeMismatches() []shape.Finding {
	m, rev := v.msg, v.rev
	s := shape.Message{Method: m.method, Dir: shape.ToServer}
	if v.e.Dir == capture.ToClient {
		s.Dir = shape.ToClient
	}
	switch {
	case m.is(kindRequest):
		s.Kind, s.Body = shape.Request, m.params
	case m.is(kindNotification):
		s.Kind, s.Body = shape.Notification, m.params
	case m.is(kindError):
		s.Kind, s.Body, s.Method = shape.ErrorObject, m.err, ""
		if rev == mcp.RevisionNone {
			// All revisions have the same error shape.
			rev = mcp.LatestLegacyRevision
		}
	default:
		s.Kind, s.Body, s.Method = shape.Result, m.result, ""
		if v.call == nil || v.modern && !v.session.modern && !modernAnswer(v) {
			// A legacy server may have mistaken a modern request for a legacy one.
			return nil
		}
		s.Method = v.call.method
	}
	if s.Body != nil && !isObject(s.Body) && !m.is(kindError) {
		// Another rule covers this.
		s.Body = nil
		if m.is(kindResult) {
			return nil
		}
	}
	problems := shape.Check(rev, s)
	if m.is(kindCall) && m.params != nil && s.Body == nil {
		// The params exist, with the wrong type.
		problems = slices.DeleteFunc(problems, func(p shape.Finding) bool { return p.Code == shape.Missing })
	}
	return problems
}
