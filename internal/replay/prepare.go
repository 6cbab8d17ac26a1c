package replay

import (
	"slices"

	"mcpwire/internal/jsonwire"
	"mcpwire/internal/resend"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// prepare returns a message as it is to be sent: with what the server has chosen this time. It is nil if the message is not to be sent, which is told then.
func (p *player) prepare(f *frame, el *element) ([]byte, error) {
	c := el.call
	switch {
	case c != nil && !p.rec.isSelected(c, p.opts):
		p.calls[c.index].state = done
		p.addResult(c.index, &Result{})
		return nil, nil
	case len(el.m.Method) == 0 || f.cut:
		p.skip(f, el, Skipped, "it is no message, or the recording does not have all of it", nil)
		return nil, nil
	case c == nil && p.isStaleCancellation(&el.m):
		return nil, nil
	}
	raw := el.raw
	if c != nil {
		var why string
		if raw, why = p.substitute(el); why != "" {
			p.skip(f, el, Skipped, why, nil)
			return nil, nil
		}
	}
	raw = p.fillRedacted(p.replaceTaskIDs(raw), el.redacted)
	hidden := p.redacted(raw, el.redacted)
	if len(hidden) == 0 && el.moreRedacted == 0 {
		return raw, nil
	}
	if c != nil && c.method == mcp.MethodInitialize {
		if len(hidden) == 0 {
			hidden = []string{""}
		}
		return nil, &resend.RedactedError{What: "handshake", Pointers: hidden, More: el.moreRedacted}
	}
	p.skip(f, el, Redacted, "something in it was hidden when it was recorded", hidden)
	return nil, nil
}

// skip notes that a message is not sent.
func (p *player) skip(f *frame, el *element, status Status, why string, hidden []string) {
	r := &Result{Status: status, OK: status == Skipped, Why: why, Redacted: hidden}
	if el.call != nil {
		p.resolve(el.call, r)
		return
	}
	r.N, r.Method = f.n, string(el.m.Method)
	if r.Method == "" {
		r.Method = "?"
	}
	p.report(r)
}

// isStaleCancellation reports whether a notification gives up a request that is not under way.
func (p *player) isStaleCancellation(m *jsonrpc.Message) bool {
	if string(m.Method) != mcp.NotificationCancelled {
		return false
	}
	id, _ := m.Param("requestId")
	return id != nil && !slices.ContainsFunc(p.pending, func(l *liveCall) bool { return idKey(l.id) == idKey(jsonrpc.ID(id)) })
}

// substitute returns a request with what an earlier answer has in it. why says that there is nothing to send it for.
func (p *player) substitute(el *element) (raw []byte, why string) {
	c := el.call
	if c.response == nil && c.status >= 400 {
		return nil, "the server refused it by its HTTP status when it was recorded"
	}
	raw = el.raw
	if c.page != nil {
		cursor := jsonwire.Lookup(p.calls[c.page.index].result(), "nextCursor")
		if len(cursor) == 0 || cursor[0] != '"' {
			return nil, "there is no further page this time"
		}
		raw = edit(raw, []string{"params", "cursor"}, func([]byte) []byte { return cursor })
	}
	if c.inputRound == nil {
		return raw, ""
	}
	result := p.calls[c.inputRound.index].result()
	requests, state := jsonwire.Lookup(result, "inputRequests"), jsonwire.Lookup(result, "requestState")
	if c.method != mcp.MethodTasksUpdate && jsonwire.Text(jsonwire.Lookup(result, "resultType")) != mcp.ResultTypeInputRequired || requests == nil && state == nil {
		return nil, "the server did not ask for input this time"
	}
	raw = edit(raw, []string{"params", "inputResponses"}, func(old []byte) []byte {
		if requests == nil {
			return nil
		}
		return inputResponses(jsonwire.Lookup(c.inputRound.result(), "inputRequests"), old, requests)
	})
	if c.method != mcp.MethodTasksUpdate {
		raw = edit(raw, []string{"params", "requestState"}, func([]byte) []byte { return state })
	}
	return raw, ""
}

// result is what the call was answered this time; nil if that is no result.
func (l *liveCall) result() []byte {
	if l.response == nil {
		return nil
	}
	return l.response.m.Result
}

// A response is one to a request for input.
type inputResponse struct {
	key    string
	method string
	value  []byte
	used   bool
}

// inputResponses returns what was answered to requests for input, under the keys that they have this time: those of the same key and method, then by method in their order. What is asked
// besides is declined.
func inputResponses(was, answered, now []byte) []byte {
	if len(now) == 0 || now[0] != '{' {
		return answered
	}
	var list []inputResponse
	if len(answered) > 0 && answered[0] == '{' {
		members := jsonwire.ObjectMembers(answered)
		for members.Next() && len(list) < maxInputRequests {
			key := members.KeyString()
			list = append(list, inputResponse{key: key, method: jsonwire.Text(jsonwire.Lookup(was, key, "method")), value: members.Value()})
		}
	}
	given := map[string][]byte{}
	for _, exact := range []bool{true, false} {
		members := jsonwire.ObjectMembers(now)
		for n := 0; members.Next() && n < maxInputRequests; n++ {
			key, method := members.KeyString(), jsonwire.Text(jsonwire.Lookup(members.Value(), "method"))
			if given[key] != nil {
				continue
			}
			i := slices.IndexFunc(list, func(r inputResponse) bool { return !r.used && r.method == method && (!exact || r.key == key) })
			switch {
			case i >= 0:
				list[i].used, given[key] = true, list[i].value
			case !exact && method == mcp.MethodElicit:
				given[key] = []byte(`{"action":"decline"}`)
			case !exact && method == mcp.MethodRootsList:
				given[key] = []byte(`{"roots":[]}`)
			}
		}
	}
	return orderedObject(now, given)
}

// maxInputRequests is how many requests for input are answered.
const maxInputRequests = 1000

// orderedObject is an object of values, in the order of another.
func orderedObject(order []byte, values map[string][]byte) []byte {
	out := []byte{'{'}
	members := jsonwire.ObjectMembers(order)
	for members.Next() {
		key := members.KeyString()
		v := values[key]
		if v == nil {
			continue
		}
		delete(values, key)
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(out, quoted(key)...), ':')
		out = append(out, v...)
	}
	return append(out, '}')
}

// fillRedacted puts in what the caller says stood in places that were hidden.
func (p *player) fillRedacted(raw []byte, listed []string) []byte {
	if len(p.opts.Set) == 0 {
		return raw
	}
	for _, pointer := range resend.RedactedIn(raw, listed) {
		if value := p.opts.Set[pointer]; value != nil {
			raw = edit(raw, pointerPath(pointer), func([]byte) []byte { return value })
		}
	}
	return raw
}

// redacted returns the places of a message that are hidden still.
func (p *player) redacted(raw []byte, listed []string) (list []string) {
	for _, pointer := range resend.RedactedIn(raw, listed) {
		if p.opts.Set[pointer] == nil {
			list = append(list, pointer)
		}
	}
	return list
}
