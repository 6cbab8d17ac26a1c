package taphttp

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/proxy/intercept"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/trace/httphead"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxHeldBody limits a body or event that can be held, in bytes. Longer ones are forwarded as they
// arrive.
const maxHeldBody = 8 << 20

// An interceptor holds messages of a handler. The capture then has two sides: downstream is what
// clients send and get, and upstream is what the server gets and sends.
type interceptor struct {
	breakpoints *intercept.Breakpoints
	matcher     *intercept.Matcher

	// mu guards the fields below.
	mu sync.Mutex
	// params has the arguments that headers repeat, by the tool's name.
	params map[string][]mcp.HeaderParam
}

// decide records a received message, whose event n is, and holds it if it matches. It returns what
// to do with the message, or an error if the client is gone or the exchange was aborted meanwhile:
// the message is not forwarded then.
func (x *exchange) decide(e *capture.Event) (r intercept.Release, n uint64, err error) {
	n = x.rec.received(e)
	m := x.h.interceptor.matcher.Match(x.rec.placed(e, capture.Downstream), n)
	if !m.Hold {
		return intercept.Release{Rule: "forwarded"}, n, nil
	}
	r = x.h.interceptor.breakpoints.Hold(m.HeldMessage, x.down.ctx.Done())
	note := r.Note
	if x.down.ctx.Err() != nil {
		note, err = "not forwarded: "+x.down.endReason("client", errClientGone), errClientGone
	}
	x.rec.note(m.Dir, "held "+printable(m.What())+", event "+strconv.FormatUint(n, 10)+": "+note)
	if r.HoldResponse && !m.Response {
		m.HoldResponse()
	}
	return r, n, err
}

// abort ends an exchange whose client is gone.
func (x *exchange) abort(err error) {
	x.rec.end(x.down.endReason("client", err))
	panic(http.ErrAbortHandler)
}

// receiveHead records the head of a response on the server's side, before it is forwarded. list has
// the fields as on the wire, or is nil.
func (x *exchange) receiveHead(resp *http.Response, conn *serverConn) (begin *capture.Event, list []capture.Header) {
	head, list := x.responseHead(resp, conn)
	begin = &capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Response: head}
	x.h.interceptor.matcher.Add(x.rec.placed(begin, capture.Downstream))
	x.rec.received(begin)
	x.responseBegan(resp)
	return begin, list
}

// intercept is forward for a handler that holds messages: it holds those of the request, of a JSON
// body and of an event stream before it forwards them. Everything else it forwards as forward does.
func (x *exchange) intercept() {
	body, err := x.requestBody()
	if err != nil {
		x.requestFailed(err)
		return
	}
	out := x.upstreamRequest(body)
	// Messages must be readable.
	setField(out.Header, "Accept-Encoding", "identity")
	if body.data != nil {
		deleteFields(out.Header, "Expect")
		if !x.interceptRequest(out, body.data) {
			return
		}
	} else {
		x.rec.requestSent(out)
	}
	resp, conn := x.roundTrip(out)
	if resp == nil {
		return
	}
	defer resp.Body.Close()
	coding := contentCoding(resp.Header)
	media := mediaType(resp.Header)
	switch {
	case x.down.r.Method == http.MethodHead || resp.ContentLength == 0 || !canDecode(coding):
		x.forwardResponse(resp, conn)
	case media == typeEvents:
		x.interceptStream(resp, conn, coding)
	case isJSON(media) && resp.ContentLength <= maxHeldBody:
		x.interceptBody(resp, conn, coding)
	default:
		x.forwardResponse(resp, conn)
	}
}

// interceptRequest records the body of a request, holds it if it is a message that matches, and
// does what was decided. It reports whether to send out.
func (x *exchange) interceptRequest(out *http.Request, data []byte) bool {
	decoded := boundedBuffer{budget: &x.h.budget, max: x.h.opts.MaxBody}
	defer decoded.release()
	e, err := x.rec.bodyEvent(capture.ToServer, data, x.down.r.Header, contentCoding(x.down.r.Header), true, &decoded)
	if e.Kind != capture.KindMessage || len(e.Data) > maxHeldBody || x.session.overSSE {
		x.rec.requestSent(out)
		x.rec.record(e)
		if err != nil {
			x.rec.noteUndecoded(capture.ToServer, err)
		}
		return true
	}
	r, n, err := x.decide(e)
	if err != nil {
		x.abort(err)
	}
	switch r.Action {
	case live.Drop:
		x.dropRequest(e.Data)
		return false
	case live.Answer:
		x.answerRequest(n, r.Data)
		return false
	case live.Edit:
		x.editRequest(out, e.Data, []byte(r.Data))
		e = &capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: []byte(r.Data)}
	}
	x.rec.requestSent(out)
	x.rec.link(n, x.rec.forwarded(e), r.Rule)
	return true
}

// dropRequest ends a POST whose message is not forwarded. A request fails at once, as if a gateway
// had lost it; otherwise its client would wait for a response that cannot come. Notifications and
// responses are accepted, since their sender expects nothing else.
func (x *exchange) dropRequest(data []byte) {
	if expectsResponse(data) {
		x.dropped("the request")
		return
	}
	x.rec.end("dropped by a viewer of the tap; the client got status 202")
	x.down.w.WriteHeader(http.StatusAccepted)
}

// dropped fails an exchange in which something was dropped. That is not the server's failure.
func (x *exchange) dropped(what string) {
	if x.rec.sent {
		x.rec.on(capture.Upstream, &capture.Event{Kind: capture.KindEnd})
		x.rec.sent = false
	}
	x.rec.end("dropped by a viewer of the tap; the client got status " + strconv.Itoa(http.StatusBadGateway))
	x.down.writeError(http.StatusBadGateway, "a viewer of the tap dropped "+what)
}

// expectsResponse reports whether a message is not just notifications or responses.
func expectsResponse(data []byte) bool {
	list := wireclient.Messages(data)
	return list == nil || slices.ContainsFunc(list, func(m jsonrpc.Message) bool { return m.Kind == jsonrpc.KindRequest || m.Kind == jsonrpc.KindInvalid })
}

// answerRequest answers the client in place of the server. of is the event of the request.
func (x *exchange) answerRequest(of uint64, data string) {
	answer := &capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Data: []byte(data)}
	x.h.interceptor.matcher.Add(x.rec.placed(answer, capture.Downstream))
	h, status := x.down.w.Header(), x.answerStatus(answer.Data)
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(data)))
	x.rec.on(capture.Downstream, &capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Response: &capture.Response{Status: status, Proto: x.down.r.Proto, Headers: httphead.Headers(h, false)}})
	x.rec.link(of, x.rec.on(capture.Downstream, answer), "answered")
	x.down.w.WriteHeader(status)
	why, err := "", x.down.write(answer.Data, true)
	if err != nil {
		why = x.down.endReason("client", err)
	}
	x.rec.end(why)
}

// answerStatus returns the HTTP status of a response: modern servers have some for errors.
func (x *exchange) answerStatus(data []byte) int {
	var m jsonrpc.Message
	if x.down.r.Header.Get(wireclient.HeaderMethod) == "" || jsonrpc.Parse(data, &m, 0) != nil || m.Kind != jsonrpc.KindError {
		return http.StatusOK
	}
	code, _ := jsonwire.ParseInt(jsonwire.Lookup(m.Error, "code"))
	e := &jsonrpc.Error{Code: jsonrpc.Code(code)}
	switch {
	case e.Code == jsonrpc.CodeMethodNotFound:
		return http.StatusNotFound
	case era.IsModernError(e):
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// editRequest replaces the message of a request, and what its headers say about it.
func (x *exchange) editRequest(out *http.Request, received, edited []byte) {
	out.Body, out.ContentLength = bytesBody(edited), int64(len(edited))
	out.GetBody = func() (io.ReadCloser, error) { return bytesBody(edited), nil }
	out.Header["Content-Length"] = []string{strconv.Itoa(len(edited))}
	deleteFields(out.Header, bodyFields...)
	x.h.interceptor.mirror(out.Header, received, edited)
}

// bodyFields are the fields that describe the bytes of a body, except its length. An edited body
// has no content coding.
var bodyFields = []string{"Content-Encoding", "Content-Md5", "Digest", "Content-Digest", "Repr-Digest"}

// mirror sets the header fields that repeat a modern request. Servers compare them.
func (ic *interceptor) mirror(h http.Header, received, edited []byte) {
	old := http.Header{}
	for name, values := range h {
		if isMirror(name) && len(values) > 0 {
			old.Set(name, values[0])
		}
	}
	m := wireclient.HeaderMirror{}
	if old.Get(wireclient.HeaderMethod) != "" {
		m.Version, _ = era.DecodeHeaderValue(old.Get(wireclient.HeaderVersion))
	}
	tool := toolOf(edited)
	var unknown []string
	if tool != "" {
		var params []mcp.HeaderParam
		params, unknown = ic.paramsOf(tool, received, old)
		m.Params = map[string][]mcp.HeaderParam{tool: params}
	}
	mirrored := http.Header{}
	m.Set(mirrored, edited)
	if len(mirrored) == 0 {
		return // a legacy message, or one that no header can match
	}
	for name := range old {
		deleteFields(h, name)
	}
	for _, name := range unknown {
		mirrored[name] = old[name]
	}
	for name, values := range mirrored {
		h[name] = values
	}
}

// isMirror reports whether a header field repeats a part of the message.
func isMirror(name string) bool {
	switch name = http.CanonicalHeaderKey(name); name {
	case wireclient.HeaderMethod, wireclient.HeaderName, wireclient.HeaderVersion:
		return true
	}
	return strings.HasPrefix(name, wireclient.HeaderParam)
}

// toolOf returns the tool that a message calls, or "".
func toolOf(message []byte) string {
	var m jsonrpc.Message
	if jsonrpc.Parse(message, &m, 0) != nil || string(m.Method) != mcp.MethodToolsCall {
		return ""
	}
	return jsonwire.Text(jsonwire.Lookup(m.Params, "name"))
}

// paramsOf returns the arguments of a tool that headers repeat. Without the list of tools, these
// are the arguments of the received call with the values of its headers, and unknown are the
// headers without such an argument.
func (ic *interceptor) paramsOf(tool string, received []byte, old http.Header) (params []mcp.HeaderParam, unknown []string) {
	ic.mu.Lock()
	params, known := ic.params[tool]
	ic.mu.Unlock()
	if known || toolOf(received) != tool {
		return params, nil
	}
	arguments := jsonwire.Lookup(received, "params", "arguments")
	for name, values := range old {
		header, ok := strings.CutPrefix(name, wireclient.HeaderParam)
		if !ok {
			continue
		}
		if path := argumentOf(arguments, header, values[0]); path != nil {
			params = append(params, mcp.HeaderParam{Header: header, Path: path})
		} else {
			unknown = append(unknown, name)
		}
	}
	return params, unknown
}

// maxArguments limits the arguments that are compared with a header.
const maxArguments = 1000

// argumentOf returns the path of the only argument with the value of a header, or of the one that
// also has its name, or nil.
func argumentOf(arguments []byte, header, value string) []string {
	var found [][]string
	left := maxArguments
	var walk func(object []byte, path []string)
	walk = func(object []byte, path []string) {
		for members := jsonwire.ObjectMembers(object); members.Next() && left > 0; left-- {
			v := members.Value()
			own := append(path[:len(path):len(path)], members.KeyString())
			if era.IsObject(v) && len(path) < 8 {
				walk(v, own)
			} else if text, ok := era.EncodeHeaderArgument(v); ok && text == value {
				found = append(found, own)
			}
		}
	}
	walk(arguments, nil)
	for _, path := range found {
		if strings.EqualFold(path[len(path)-1], header) {
			return path
		}
	}
	if len(found) == 1 {
		return found[0]
	}
	return nil
}

// learn keeps the arguments that headers repeat, if a message of the server lists tools.
func (ic *interceptor) learn(data []byte) {
	if !bytes.Contains(data, []byte("x-mcp-header")) {
		return
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(data, &m, 0) != nil || m.Kind != jsonrpc.KindResponse {
		return
	}
	ic.mu.Lock()
	defer ic.mu.Unlock()
	ic.params = wireclient.LearnParams(ic.params, m.Result)
}

// interceptBody holds a response whose body is a message that matches. The client gets the head
// with the body.
func (x *exchange) interceptBody(resp *http.Response, conn *serverConn, coding string) {
	begin, list := x.receiveHead(resp, conn)
	buffer := x.rec.newBuffer()
	buffer.max = min(buffer.max, maxHeldBody)
	body := io.Reader(resp.Body)
	if resp.ContentLength >= 0 {
		body = io.LimitReader(body, resp.ContentLength) // its end may come late
	}
	if rest, err := buffer.readFrom(body); err != io.EOF {
		// The rest is forwarded as it arrives, or is missing.
		if err != nil {
			body = failingReader{err}
		}
		resp.Body = readCloser{io.MultiReader(bytes.NewReader(buffer.buf), bytes.NewReader(rest), body), resp.Body}
		x.rec.forwarded(begin)
		x.sendHead(resp, list)
		x.sendBody(resp)
		return
	}
	data := buffer.buf
	decoded := boundedBuffer{budget: &x.h.budget, max: x.h.opts.MaxBody}
	defer decoded.release()
	e, err := x.rec.bodyEvent(capture.ToClient, data, resp.Header, coding, resp.StatusCode < 300, &decoded)
	switch {
	case len(data) == 0:
		x.rec.forwarded(begin)
	case e.Kind != capture.KindMessage || len(e.Data) > maxHeldBody:
		x.rec.forwarded(begin)
		x.rec.record(e)
		if err != nil {
			x.rec.noteUndecoded(capture.ToClient, err)
		}
	default:
		x.h.interceptor.learn(e.Data)
		r, n, err := x.decide(e)
		if err != nil {
			x.abort(err)
		}
		switch r.Action {
		case live.Drop:
			x.dropped("the response")
			return
		case live.Edit:
			data = []byte(r.Data)
			list = editHead(resp, list, len(data))
			begin.Response, _ = x.responseHead(resp, nil)
			e = &capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Data: data}
		}
		x.rec.forwarded(begin)
		x.rec.link(n, x.rec.forwarded(e), r.Rule)
	}
	x.sendHead(resp, list)
	why, werr := "", x.down.write(data, true)
	if werr != nil {
		why = x.down.endReason("client", werr)
	}
	x.endResponse(resp, why, werr)
}

type readCloser struct {
	io.Reader
	io.Closer
}

// A failingReader returns an error.
type failingReader struct{ err error }

// Read implements [io.Reader].
func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// editHead changes the header of a response for another body of n bytes, or of unknown length if n
// is negative. It returns the changed list.
func editHead(resp *http.Response, list []capture.Header, n int) []capture.Header {
	deleteFields(resp.Header, bodyFields...)
	deleteFields(resp.Header, "Content-Length", "Etag")
	resp.ContentLength, resp.TransferEncoding = int64(n), nil
	if n < 0 {
		resp.ContentLength = -1
	} else {
		resp.Header.Set("Content-Length", strconv.Itoa(n))
	}
	if list == nil {
		return nil
	}
	var kept []capture.Header
	for _, f := range list {
		if _, ok := resp.Header[http.CanonicalHeaderKey(f.Name)]; ok && !strings.EqualFold(f.Name, "Content-Length") {
			kept = append(kept, f)
		}
	}
	if n >= 0 {
		kept = append(kept, capture.Header{Name: "Content-Length", Value: strconv.Itoa(n)})
	}
	return kept
}

// canDecode reports whether the tap can decode a content coding.
func canDecode(coding string) bool {
	switch coding {
	case "", "gzip", "x-gzip", "deflate":
		return true
	}
	return false
}

// deleteFields removes fields in any spelling.
func deleteFields(h http.Header, names ...string) {
	for name := range h {
		for _, n := range names {
			if strings.EqualFold(name, n) {
				delete(h, name)
			}
		}
	}
}

// setField replaces a field in any spelling.
func setField(h http.Header, name, value string) {
	deleteFields(h, name)
	h[name] = []string{value}
}

// answerTimeout limits the time for the server to take a response of a viewer.
const answerTimeout = 30 * time.Second

// answerServer posts a viewer's response to a request of the server, in place of the client. of is
// the event of the request.
func (x *exchange) answerServer(of uint64, data string) {
	ctx, cancel := context.WithTimeout(x.down.ctx, answerTimeout)
	defer cancel()
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, x.h.upstream.Scheme+"://"+x.h.upstream.Host+x.down.r.URL.RequestURI(), strings.NewReader(data))
	if err != nil {
		x.rec.note(capture.ToServer, "the answer was not sent: "+printable(err.Error()))
		return
	}
	out.Header = x.upstreamHeader()
	deleteFields(out.Header, "Content-Length", "Expect", "Last-Event-Id", wireclient.HeaderMethod, wireclient.HeaderName)
	deleteFields(out.Header, bodyFields...)
	setField(out.Header, "Content-Type", "application/json")
	setField(out.Header, "Accept", "application/json, text/event-stream")
	setField(out.Header, "Accept-Encoding", "identity")
	own := x.h.newExchangeRecorder(x.session.number)
	own.requestSent(out)
	answer := &capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: []byte(data)}
	x.h.interceptor.matcher.Add(own.placed(answer, capture.Downstream))
	x.rec.link(of, own.on(capture.Upstream, answer), "answered")
	end := &capture.Event{Kind: capture.KindEnd}
	resp, err := x.h.transport.RoundTrip(out)
	if err != nil {
		end.Data = []byte(x.down.endReason("upstream", err))
	} else {
		own.on(capture.Upstream, &capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Response: httphead.Response(resp)})
		resp.Body.Close()
	}
	own.on(capture.Upstream, end)
}
