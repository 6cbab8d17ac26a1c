package check

import (
	"strconv"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

func status(code int) string { return strconv.Itoa(code) }

// sessionEnd records that the server or the client has ended a session.
type sessionEnd struct {
	// notFound is the number of the event with status 404.
	notFound  uint64
	notFoundT time.Duration
	// deleted is the number of the event that accepted a DELETE.
	deleted uint64
}

// observeEnd records that a session has ended.
func observeEnd(v *view) {
	if v.exchange == nil || v.exchange.requestHeader("Mcp-Session-Id") == "" {
		return
	}
	e := stateOf[sessionEnd](&v.session.state)
	switch {
	case v.exchange.status == 404 && e.notFound == 0:
		e.notFound, e.notFoundT = v.e.N, v.e.T
	case v.exchange.method == "DELETE" && isSuccess(v.exchange.status) && e.deleted == 0:
		e.deleted = v.e.N
	}
}

// streamState records the event streams of a session.
type streamState struct {
	// ids maps the ids of stream events to the numbers of their capture events.
	ids map[string]uint64
	// interruptions maps the last event id of a stream to its interruption.
	interruptions map[string]interruption
}

// An interruption says when a stream ended and how long the client must wait before it resumes.
type interruption struct {
	from  time.Duration
	retry time.Duration
	n     uint64
}

// A streamPosition records the last event of a stream.
type streamPosition struct {
	id    string
	retry time.Duration
	n     uint64
}

const (
	maxEventIDs      = 16384 // of a session
	maxInterruptions = 64
)

// observeStream follows the events of a stream.
func observeStream(v *view) {
	if v.exchange == nil || v.exchange.session == nil || v.modern {
		return
	}
	p := stateOf[streamPosition](&v.exchange.state)
	if v.e.Kind == capture.KindEnd {
		if p.id != "" && p.retry > 0 {
			setBounded(&stateOf[streamState](&v.session.state).interruptions, maxInterruptions, p.id, interruption{v.e.T, p.retry, p.n})
		}
		return
	}
	if e := v.e.SSE; e != nil {
		if e.HasRetry {
			p.retry, p.n = e.Retry, v.e.N
		}
		if e.HasID && len(e.ID) <= maxPairedID {
			p.id = e.ID
			s := stateOf[streamState](&v.session.state)
			if _, ok := s.ids[e.ID]; !ok {
				setBounded(&s.ids, maxEventIDs, e.ID, v.e.N)
			}
		}
	}
}

// retryTolerance is the part of the retry time that must have passed. Clocks of client and recorder
// differ.
const retryTolerance = 0.9

// rulesHTTPSession returns the rules about sessions and resumable streams, which Streamable HTTP
// had until 2025-11-25.
func rulesHTTPSession() []rule {
	return []rule{{
		ID: "http/session-missing", Severity: Error, Revisions: hasSessions,
		Title: "A request has no session id",
		Why:   "The server cannot tell which session the request belongs to, and rejects it.",
		Fix:   "Send the Mcp-Session-Id of the initialize response with each request after it.",
		URL:   "basic/transports#session-management",
		Good:  Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n  -Mcp-Session-Id\nreply 400"},
		kinds: kindAny, dir: capture.ToServer,
		check: func(v *view) {
			if !v.isPost() || v.modern || v.msg.method == mcp.MethodInitialize || len(v.exchange.requestFields("Mcp-Session-Id")) > 0 || v.session.initializeResult != 0 {
				return
			}
			for key, s := range v.checker.sessions {
				if key.capture == v.e.Capture && key.number == v.session.key.number && key.id != "" && key.id[0] != '~' && s.initializeResult != 0 && s.transport == transportHTTP {
					v.report("", "this POST has no header Mcp-Session-Id, but the server assigned one").with(s.initializeResult)
					return
				}
			}
		},
	}, {
		ID: "http/session-kept", Severity: Error, Revisions: hasSessions,
		Title: "The client continues a session that the server has ended",
		Why:   "The server rejects every request: the host appears connected, but nothing works.",
		Fix:   "After a 404 to a request with a session id, send initialize without one, and continue in the new session.",
		URL:   "basic/transports#session-management",
		Good:  Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nreply 404"},
		Bad:   Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nreply 404\nwait 2s\npost {\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}\nreply 404"},
		kinds: kindAny, dir: capture.ToServer,
		check: func(v *view) {
			if !v.isPost() || v.exchange.requestHeader("Mcp-Session-Id") == "" {
				return
			}
			if e := stateOf[sessionEnd](&v.session.state); e.notFound != 0 && v.exchange.t > e.notFoundT+time.Second {
				v.report("", "the server responded with 404 to this session id, and the client still uses it").with(e.notFound)
			}
		},
	}, {
		ID: "http/session-after-delete", Severity: Error, Revisions: hasSessions,
		Title:  "The server accepts requests for a session that the client has ended",
		Why:    "The session id is a credential; after the client has ended the session, it must not be valid.",
		Fix:    "Respond with 404 to the id of a session that has ended.",
		URL:    "basic/transports#session-management",
		Good:   Example{rev20251125, "http\ninit\ndelete\nreply 204\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nreply 404"},
		Bad:    Example{rev20251125, "http\ninit\ndelete\nreply 204\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		events: []capture.Kind{capture.KindResponse},
		check: func(v *view) {
			if v.exchange.requestHeader("Mcp-Session-Id") == "" || !isSuccess(v.exchange.status) || v.exchange.method == "DELETE" {
				return
			}
			if e := stateOf[sessionEnd](&v.session.state); e.deleted != 0 && v.exchange.n > e.deleted {
				v.add("", "the client has ended this session, but the server responds with status "+status(v.exchange.status)).with(e.deleted)
			}
		},
	}, {
		ID: "http/session-id-characters", Severity: Error, Revisions: hasSessions,
		Title:  "A session id contains invalid characters",
		Why:    "Clients and proxies truncate or reject headers with other characters, and the session is lost.",
		Fix:    "Use only visible ASCII characters in ids, such as base64url.",
		URL:    "basic/transports#session-management",
		Good:   Example{rev20251125, "http\ninit"},
		Bad:    Example{rev20251125, "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n  -MCP-Protocol-Version\nreply 200 {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}\n  Mcp-Session-Id: a b"},
		events: []capture.Kind{capture.KindResponse},
		check: func(v *view) {
			for _, f := range v.exchange.responseFields("Mcp-Session-Id") {
				for i := range len(f.value) {
					if f.value[i] < 0x21 || f.value[i] > 0x7e {
						v.reportHead(f, "the session id is %s", show(f.value))
						break
					}
				}
			}
		},
	}, {
		ID: "http/event-id-twice", Severity: Error, Revisions: hasSessions,
		Title: "Two events of a session have the same id",
		Why:   "A client that resumes after that id gets the rest of the wrong stream, or misses messages.",
		Fix:   "Number events across all streams of a session.",
		URL:   "basic/transports#resumability-and-redelivery",
		Good:  Example{rev20251125, "http\ninit\nget\nstream\nsse(id=1,data)\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nstream\nsse(id=2,data)\n<(id=3) {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nend"},
		Bad:   Example{rev20251125, "http\ninit\nget\nstream\nsse(id=1,data)\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nstream\nsse(id=1,data)\n<(id=2) {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nend"},
		kinds: kindAny, dir: capture.ToClient, events: []capture.Kind{capture.KindSSE},
		check: func(v *view) {
			if v.exchange == nil || v.e.SSE == nil || !v.e.SSE.HasID || v.e.SSE.ID == "" || v.exchange.requestHeader("Last-Event-ID") != "" || v.session.transport != transportHTTP || !v.session.certain {
				return
			}
			if n := stateOf[streamState](&v.session.state).ids[v.e.SSE.ID]; n != 0 && n != v.e.N {
				v.add("", "the id "+show(v.e.SSE.ID)+" was used for an earlier event").with(n)
			}
		},
	}, {
		ID: "http/retry", Severity: Error, Revisions: hasCoreTasks,
		Title:  "The client reconnects sooner than the server requested",
		Why:    "A server closes streams to reduce load; clients that do not wait defeat that.",
		Fix:    "Before resuming a stream, wait for the milliseconds in its last retry field.",
		URL:    "basic/transports#listening-for-messages-from-the-server",
		Good:   Example{rev20251125, "http\ninit\nget\nstream\nsse(id=1,data,retry=500)\nend\nwait 1s\nget\n  Last-Event-ID: 1\nstream\nend"},
		Bad:    Example{rev20251125, "http\ninit\nget\nstream\nsse(id=1,data,retry=500)\nend\nwait 100ms\nget\n  Last-Event-ID: 1\nstream\nend"},
		events: []capture.Kind{capture.KindRequest},
		check: func(v *view) {
			if v.exchange == nil || v.exchange.method != "GET" {
				return
			}
			p, ok := stateOf[streamState](&v.session.state).interruptions[v.exchange.requestHeader("Last-Event-ID")]
			if waited := v.e.T - p.from; ok && float64(waited) < retryTolerance*float64(p.retry) {
				v.add("", "the client waited "+waited.Round(time.Millisecond).String()+", but the server requested "+p.retry.String()).with(p.n)
			}
		},
	}}
}

// rulesHTTPStream returns the rules about event streams.
func rulesHTTPStream() []rule {
	return []rule{{
		ID: "http/stream-unfinished", Severity: Warning, Revisions: hasStreamableHTTP,
		Title:  "A stream ends without the response to its request",
		Why:    "The client cannot know the outcome of the request; without sessions, the response is lost.",
		Fix:    "Send the response, then close the stream. In a session, a server may close it earlier if it has sent an event with an id, from which the client resumes.",
		URL:    "basic/transports#sending-messages-to-the-server",
		Good:   Example{rev20251125, "http\ninit\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\nstream\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nend"},
		Bad:    Example{rev20260728, "http\npost {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{\"_meta\":{$meta}}}\nstream\nend"},
		events: []capture.Kind{capture.KindEnd},
		check: func(v *view) {
			if v.exchange == nil || v.exchange.call == nil || v.exchange.answered || !v.exchange.isEventStream() || len(v.e.Data) > 0 || v.exchange.call.canceled != 0 || !v.session.completeSince(v.exchange.n) {
				return
			}
			// The client no longer wants a response.
			if stateOf[sessionEnd](&v.session.state).deleted != 0 {
				return
			}
			if v.exchange.call.method == mcp.MethodSubscriptionsListen || !v.modern && stateOf[streamPosition](&v.exchange.state).id != "" {
				return
			}
			v.add("", "the stream has ended, but "+show(v.exchange.call.method)+" got no response").with(v.exchange.call.n)
		},
	}, {
		ID: "http/event-name", Severity: Warning, Revisions: hasStreamableHTTP,
		Title:  "A message is in an event with another name",
		Why:    "Clients read events named message or without a name, and ignore others.",
		Fix:    "Omit the event field, or set it to message.",
		URL:    "basic/transports#sending-messages-to-the-server",
		Good:   Example{rev20251125, "http\ninit\nget\nstream\n<(event=message) {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}"},
		Bad:    Example{rev20251125, "http\ninit\nget\nstream\nsse(event=update) {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}"},
		events: []capture.Kind{capture.KindSSE},
		check: func(v *view) {
			if v.exchange == nil || v.session.transport != transportHTTP || v.e.SSE.Event == "" || v.e.SSE.Event == "message" || v.e.SSE.Event == "endpoint" {
				return
			}
			if version := jsonwire.Lookup(validated(v.e.Data), "jsonrpc"); version != nil {
				v.add("", "this event is named "+show(v.e.SSE.Event)+" and contains a message")
			}
		},
	}}
}
