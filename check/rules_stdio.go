package check

import (
	"slices"
	"strconv"
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/base/sparse"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/plural"
	"mcpwire/mcp"
)

// rulesStdio returns the rules about standard input and output
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio).
func rulesStdio() []rule {
	return []rule{{
		ID: "stdio/stray-output", Severity: Error,
		Title:  "Output that is not a message on standard output",
		Why:    "Standard output belongs to the protocol. Some hosts ignore a stray line, others report a parse error to the user or close the connection.",
		Fix:    "Print to standard error: console.error, print(…, file=sys.stderr), log.SetOutput(os.Stderr). Also look for print statements in dependencies, and for output of a shell or a package manager before the server starts.",
		URL:    "basic/transports",
		Good:   Example{rev20251125, "! hello from console.error\ninit"},
		Bad:    Example{rev20251125, "< hello from console.log\ninit"},
		events: []capture.Kind{capture.KindInvalid}, kinds: kindAny, dir: capture.ToClient,
		check: func(v *view) { reportStray(v, v.invalidLines().stray, capture.ToClient) },
		end:   func(v *view) { reportStray(v, partialOf(v.session, capture.ToClient).flush(), capture.ToClient) },
	}, {
		ID: "stdio/stray-input", Severity: Error,
		Title:  "Input that is not a message on the server's standard input",
		Why:    "Servers respond with a parse error, or stop.",
		Fix:    "Write only messages to the server.",
		URL:    "basic/transports",
		Good:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:    Example{rev20251125, "init\n> help\n< {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32700,\"message\":\"parse error\"}}"},
		events: []capture.Kind{capture.KindInvalid}, kinds: kindAny, dir: capture.ToServer,
		check: func(v *view) { reportStray(v, v.invalidLines().stray, capture.ToServer) },
		end:   func(v *view) { reportStray(v, partialOf(v.session, capture.ToServer).flush(), capture.ToServer) },
	}, {
		ID: "stdio/newline-in-message", Severity: Error,
		Title:  "A message contains line breaks",
		Why:    "Each line is a message: the peer sees one invalid message per line.",
		Fix:    "Write JSON without indentation, and escape line breaks in strings as \\n.",
		URL:    "basic/transports",
		Good:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:    Example{rev20251125, "init\n> {\n>   \"jsonrpc\": \"2.0\",\n>   \"method\": \"notifications/roots/list_changed\"\n> }"},
		events: []capture.Kind{capture.KindInvalid}, kinds: kindAny,
		check: func(v *view) {
			if p := v.invalidLines().fragments; len(p) > 0 {
				f := v.add("", "this message spans "+plural.Of(len(p), "line")+": "+show(p[0].data))
				f.Event = p[0].n
				f.with(p[len(p)-1].n)
			}
			if v.msg != nil && v.msg.index == 0 && v.e.Framing != capture.FramingHeader && v.e.Why == capture.RawNewline && v.session.transport == transportStdio {
				v.report("", "this message contains a line break")
			}
		},
	}, {
		ID: "stdio/content-length", Severity: Error,
		Title:  "A message has a Content-Length header",
		Why:    "That is the framing of the Language Server Protocol. MCP has one message per line: the peer treats the header as an invalid message.",
		Fix:    "Write the message and a newline, without a header.",
		URL:    "basic/transports",
		Good:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:    Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n<(header) {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		events: []capture.Kind{capture.KindInvalid}, kinds: kindAny,
		check: func(v *view) {
			if v.e.Framing == capture.FramingHeader && v.firstTime("content-length") {
				v.report("", "this message follows the header %s; it must be a single line", show(v.e.Prefix))
			}
		},
	}, {
		ID: "stdio/unterminated", Severity: Warning,
		Title: "The last line has no newline",
		Why:   "A reader that waits for the newline never sees the message.",
		Fix:   "Write a newline after each message, and flush before the process exits.",
		URL:   "basic/transports",
		Good:  Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   Example{rev20251125, "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n<(eof) {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		kinds: kindAny, events: []capture.Kind{capture.KindInvalid},
		check: func(v *view) {
			switch {
			case v.msg == nil:
				if cutOff(v.e) && len(v.e.Redacted) == 0 && v.session.transport == transportStdio {
					v.report("", "the stream ended in the middle of this message: %s", show(v.e.Data))
				}
			case v.e.Framing == capture.FramingNone && v.msg.index == 0:
				v.report("", "the stream ended after this message, without a newline")
			}
		},
	}, {
		ID: "stdio/blank-line", Severity: Info,
		Title:  "An empty line",
		Why:    "It is not a message. Most peers ignore it, some report a parse error.",
		Fix:    "Write one newline after each message.",
		URL:    "basic/transports",
		Good:   Example{rev20251125, "init"},
		Bad:    Example{rev20251125, "init\n<"},
		events: []capture.Kind{capture.KindInvalid},
		check: func(v *view) {
			if v.session.transport == transportStdio && len(trim(v.e.Data)) == 0 && v.e.Framing != capture.FramingNone && v.firstTime("blank line") {
				v.report("", "this line is empty")
			}
		},
	}, {
		ID: "stdio/exit-pending", Severity: Error,
		Title: "The server exited with requests pending",
		Why:   "Pending requests are lost, and the host only shows \"server disconnected\".",
		Fix:   "Check the server's last standard error output and its exit status. A server that exits on its own must respond first.",
		URL:   "basic/transports",
		Good: Example{rev20251125, `init
> {"jsonrpc":"2.0","id":1,"method":"ping"}
< {"jsonrpc":"2.0","id":1,"result":{}}
eof >
exit 0`},
		Bad: Example{rev20251125, `init
> {"jsonrpc":"2.0","id":1,"method":"ping"}
! panic: runtime error
exit 2`},
		events: []capture.Kind{capture.KindExit},
		check:  checkExitPending,
		end: func(v *view) {
			if v.session.exited == 0 && v.session.ended[capture.ToClient] != 0 && v.session.ended[capture.ToServer] == 0 && v.session.transport == transportStdio {
				reportPending(v, "the server closed its standard output")
			}
		},
	}, {
		ID: "stdio/exit-status", Severity: Warning,
		Title:  "The server exited with a nonzero status",
		Why:    "Hosts report it as a crash, and may not restart the server.",
		Fix:    "Exit with status 0 when standard input is closed; the last lines of standard error usually say what failed.",
		URL:    "basic/transports",
		Good:   Example{rev20251125, "init\neof >\nexit 0"},
		Bad:    Example{rev20251125, "init\neof >\nexit 1"},
		events: []capture.Kind{capture.KindExit},
		check: func(v *view) {
			code := v.e.Exit.Code
			if code > 0 && code < 128 && len(pendingCalls(v.session)) == 0 {
				v.report("", "the server exited with status %d", code)
			}
		},
	}, {
		ID: "stdio/after-exit", Severity: Warning,
		Title: "A message to a server that has exited",
		Why:   "The message is lost, and its sender waits.",
		Fix:   "Detect the exit of the process: restart it, or inform the user.",
		URL:   "basic/transports",
		Good:  Example{rev20251125, "init\neof >\nexit 0"},
		Bad:   Example{rev20251125, "init\nexit 0\n> {\"jsonrpc\":\"2.0\",\"method\":\"notifications/roots/list_changed\"}"},
		kinds: kindAny,
		check: func(v *view) {
			// Messages from the server's side now come from a tap in its place.
			if v.session.exited != 0 && v.msg.index == 0 && v.e.Dir == capture.ToServer {
				v.report("", "the server exited before this message").with(v.session.exited)
			}
		},
	}}
}

// invalidLines classifies the lines that are not valid JSON, once for each event.
func (v *view) invalidLines() invalidLines {
	if !v.invalidKnown {
		v.invalidKnown = true
		if v.msg != nil {
			v.invalid = invalidLines{stray: partialOf(v.session, v.e.Dir).flush()}
		} else {
			v.invalid = classifyInvalid(v)
		}
	}
	return v.invalid
}

func reportStray(v *view, lines []invalidLine, dir capture.Dir) {
	for _, l := range lines {
		if v.rule.findings+len(v.findings) > v.checker.limits.MaxPerRule {
			return
		}
		f := v.add("", show(l.data)+" is not a message")
		f.Event, f.Dir = l.n, dir
	}
}

// reported holds what was already reported in a session.
type reported struct{ seen map[string]bool }

// firstTime reports whether this is the first call for a subject in this session and direction.
func (v *view) firstTime(subject string) bool {
	o := stateOf[reported](&v.session.state)
	key := subject + string(v.e.Dir)
	if o.seen[key] || len(o.seen) >= maxRecent {
		return false
	}
	sparse.Set(&o.seen, key, true)
	return true
}

// pendingCalls returns the requests of the client that still need a response. If the client has
// closed its side, those before an answered request do not count: the server had ignored them, and
// the client did not wait for them.
func pendingCalls(s *session) []*call {
	var list []*call
	for _, c := range sortedCalls(s) {
		if s.ended[capture.ToServer] != 0 && c.n < s.newestAnswered {
			continue
		}
		if c.dir == capture.ToServer && c.canceled == 0 && c.method != mcp.MethodSubscriptionsListen && s.completeSince(c.n) {
			list = append(list, c)
		}
	}
	return list
}

func checkExitPending(v *view) {
	x := v.e.Exit
	// text reports that the client has closed its side.
	text := v.session.ended[capture.ToServer] != 0
	if v.session.transport != transportStdio || text && (x.Code == 0 || x.Signal != "" || x.Code >= 128) {
		return
	}
	how := "the server exited with status " + strconv.Itoa(x.Code)
	if x.Signal != "" {
		how = "the server was terminated by a signal (" + show(x.Signal) + ")"
	}
	reportPending(v, how)
}

func reportPending(v *view, how string) {
	list := pendingCalls(v.session)
	if v.session.newestAnswered == 0 {
		list = slices.DeleteFunc(list, isOwnProbe)
	}
	if len(list) == 0 || v.checker.callsEvicted {
		return
	}
	f := v.add("", how+" while "+plural.Of(len(list), "request")+" waited for an answer, the first for "+show(list[0].method))
	for _, c := range list {
		f.with(c.n)
	}
}

// isOwnProbe reports whether a request is one with which a command of this module finds out what
// the server speaks. A legacy server may exit at it; initialize then follows in another process.
func isOwnProbe(c *call) bool {
	id, _ := c.id.Text()
	ofBridge := strings.HasPrefix(id, "mcpwire-")
	switch c.method {
	case mcp.MethodDiscover:
		return ofBridge || jsonwire.Text(c.param("_meta", mcp.MetaClientInfo, "name")) == "mcpwire"
	case mcp.MethodPing:
		return ofBridge
	}
	return false
}
