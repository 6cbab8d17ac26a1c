package tap

import (
	"bytes"
	"strconv"

	"mcpwire/capture"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
)

// inject sends the host a message of our own. Nothing else may be writing to it, and no frame be under way.
func (sv *supervisor) inject(msg []byte, headers bool) {
	e := capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Session: sv.rec.session.Load(), Data: msg, Framing: capture.FramingLF}
	if headers {
		e.Framing, e.Prefix = capture.FramingHeader, "Content-Length: "+strconv.Itoa(len(msg))+"\r\n\r\n"
	}
	sv.rec.record(&e)
	if err := writeAll(sv.Stdout, appendRaw(nil, &e)); err != nil {
		sv.hostLost("the host has closed its end of standard output: " + err.Error())
	}
}

// failUnanswered answers what a server has not answered, and cancels what it has asked.
func (sv *supervisor) failUnanswered(l unanswered, message string) {
	if n := len(l.calls); n > 0 {
		what := " requests"
		if n == 1 {
			what = " request"
		}
		sv.rec.note("answering " + strconv.Itoa(n) + what + " in place of the server that has ended")
	}
	refusal := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: message}
	for i := 0; i < len(l.calls); {
		first := l.calls[i]
		if first.batch == 0 {
			sv.inject(jsonrpc.AppendError(nil, first.id, refusal, false), l.headers)
			i++
			continue
		}
		answer := []byte{'['}
		for ; i < len(l.calls) && l.calls[i].batch == first.batch; i++ {
			if len(answer) > 1 {
				answer = append(answer, ',')
			}
			answer = jsonrpc.AppendError(answer, l.calls[i].id, refusal, false)
		}
		sv.inject(append(answer, ']'), l.headers)
	}
	for _, id := range l.serverRequests {
		sv.rec.note("cancelling request " + printable(id) + " of the server that has ended")
		params := append(append([]byte(`{"requestId":`), id...), `,"reason":"the server was restarted"}`...)
		sv.inject(jsonrpc.AppendNotification(nil, "notifications/cancelled", params), l.headers)
	}
}

// prepareRestart makes the session ready for another server.
func (sv *supervisor) prepareRestart(reason string) {
	l := sv.state.reset()
	sv.failUnanswered(l, "the server was restarted before it answered: "+reason)
	if l.initialize != nil {
		sv.queue.pushFront(*l.initialize)
	}
}

// giveUp answers all that will never be answered, including what waits.
func (sv *supervisor) giveUp(reason string) {
	for _, e := range sv.queue.abandon() {
		sv.state.handleHostFrame(&e)
	}
	l := sv.state.reset()
	if l.initialize != nil {
		eachMessage(l.initialize.Data, func(m *jsonrpc.Message, _ bool) { l.calls = append([]*call{{id: m.ID.Clone()}}, l.calls...) })
	}
	l.serverRequests = nil
	sv.failUnanswered(l, "the server has ended and is not started again: "+reason)
}

// notifyListChanged tells the host what it should ask the new server for again. result is the server's answer to the handshake.
func (sv *supervisor) notifyListChanged(result []byte) {
	if old, now := sv.state.negotiated(), jsonwire.Lookup(result, "protocolVersion"); !bytes.Equal(old, now) {
		sv.rec.note("the new server has agreed on revision " + printable(now) + "; the host still believes it is " + printable(old))
	}
	capabilities := jsonwire.Lookup(result, "capabilities")
	for _, name := range [...]string{"tools", "prompts", "resources"} {
		if jsonwire.Lookup(capabilities, name) == nil {
			continue
		}
		sv.rec.note("telling the host that " + name + " may have changed")
		sv.inject(jsonrpc.AppendNotification(nil, "notifications/"+name+"/list_changed", nil), sv.state.usesHeaders())
	}
}

// printable returns a short text of a peer, quoted, for notes.
func printable(text []byte) string {
	const longest = 80
	if len(text) > longest {
		return strconv.QuoteToASCII(string(text[:longest])) + "…"
	}
	return strconv.QuoteToASCII(string(text))
}
