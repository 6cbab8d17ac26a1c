package check_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"mcpwire/capture"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// short returns the tests' name of a revision: r1 is the oldest.
func short(rev mcp.Revision) string {
	return "r" + string(rune('1'+slices.Index(mcp.Revisions(), rev)))
}

// recordings records clean sessions: of the packages client and server in each revision, over
// stdio-r1 … and http-r2 …, over sse-r1, and raw-r1 … and web-r2 …, in which a client sends
// messages that package client does not send.
func recordings(t *testing.T) iter.Seq2[string, *recording] {
	all := map[string]*recording{}
	for _, rev := range mcp.Revisions() {
		all["stdio-"+short(rev)] = recordStdio(t, rev)
		all["raw-"+short(rev)] = recordRaw(t, rev)
		if rev == mcp.Revision20241105 {
			all["sse-"+short(rev)] = recordSSE(t, rev)
			continue
		}
		all["http-"+short(rev)] = recordHTTP(t, rev)
		all["web-"+short(rev)] = recordWeb(t, rev)
	}
	names := slices.Sorted(maps.Keys(all))
	return func(yield func(string, *recording) bool) {
		for _, name := range names {
			if !yield(name, all[name]) {
				return
			}
		}
	}
}

func recordStdio(t *testing.T, rev mcp.Revision) *recording {
	recording := newRecording("stdio")
	recording.record(capture.Event{Kind: capture.KindStart})
	var wg sync.WaitGroup
	srv := newServer(t, rev)
	converse(t, recording, srv, pipeTransport{srv, recording, &wg}, rev)
	wg.Wait()
	recording.record(capture.Event{Kind: capture.KindEOF, Dir: capture.ToServer})
	recording.record(capture.Event{Kind: capture.KindExit, Exit: &capture.Exit{}})
	return recording
}

func recordHTTP(t *testing.T, rev mcp.Revision) *recording {
	recording := newRecording("http")
	srv := newServer(t, rev)
	h := streamable.MustHandler(srv, nil)
	ts := httptest.NewServer(recording.listen(h))
	converse(t, recording, srv, streamable.NewTransport(ts.URL, nil), rev)
	_ = h.Shutdown(context.Background())
	ts.Close()
	return recording
}

func recordSSE(t *testing.T, rev mcp.Revision) *recording {
	recording := newRecording("sse")
	srv := newServer(t, rev)
	h := streamable.MustHandler(srv, nil)
	old := h.SSE("/messages")
	mux := http.NewServeMux()
	mux.Handle("/sse", old)
	mux.Handle("/messages", old)
	ts := httptest.NewServer(recording.listen(mux))
	converse(t, recording, srv, streamable.NewTransport(ts.URL+"/sse", nil), rev)
	_ = h.Shutdown(context.Background())
	ts.Close()
	return recording
}

const (
	rawHello = `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"$rev","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}`
	rawReady = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	rawPing  = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	rawMeta  = `"_meta":{"io.modelcontextprotocol/protocolVersion":"$rev","io.modelcontextprotocol/clientCapabilities":{}}`
)

// rawLines are the lines that the raw client of a revision sends, each with the number of lines of
// the response.
func rawLines(rev mcp.Revision) (lines []string) {
	if rev == mcp.Revision20260728 {
		return []string{
			`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + rawMeta + `}}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{` + strings.Replace(rawMeta, "$rev", "1999-01-01", 1) + `}}`,
			`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"roots",` + rawMeta + `}}`,
			`{"jsonrpc":"2.0","id":4,"method":"vendor/none","params":{` + rawMeta + `}}`,
			`{"jsonrpc":"2.0","id":5,"method":"prompts/list","params":{` + rawMeta + `}}`,
			`{"jsonrpc":"2.0","id":6,"method":"server/discover","params":{` + rawMeta + `}}`,
		}
	}
	lines = []string{rawHello, rawReady, rawPing, `{"jsonrpc":"2.0","id":3,"method":"vendor/none"}`, `{"jsonrpc":"2.0","id":4,"method":"prompts/list"}`}
	if rev == mcp.Revision20250326 {
		lines = append(lines, `[{"jsonrpc":"2.0","id":5,"method":"ping"},{"jsonrpc":"2.0","method":"vendor/news"},{"jsonrpc":"2.0","id":6,"method":"tools/list"}]`)
	}
	return lines
}

// recordRaw sends lines to the server one by one.
func recordRaw(t *testing.T, rev mcp.Revision) *recording {
	recording := newRecording("stdio")
	local, remote := net.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() { _ = newServer(t, rev).Serve(context.Background(), jsonrpc.NewFramer(remote, nil)) })
	in := bufio.NewScanner(local)
	in.Buffer(nil, 1<<20)
	for _, text := range rawLines(rev) {
		text = strings.ReplaceAll(text, "$rev", rev.String())
		recording.record(capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Framing: capture.FramingLF, Data: []byte(text)})
		_, err := io.WriteString(local, text+"\n")
		must(t, err)
		if text != rawReady && in.Scan() {
			recording.record(capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Framing: capture.FramingLF, Data: in.Bytes()})
		}
	}
	must(t, in.Err(), local.Close())
	wg.Wait()
	recording.record(capture.Event{Kind: capture.KindEOF, Dir: capture.ToServer})
	recording.record(capture.Event{Kind: capture.KindExit, Exit: &capture.Exit{}})
	return recording
}

// A webClient posts the given messages.
type webClient struct {
	t       *testing.T
	url     string
	rev     mcp.Revision
	session string
}

// do sends a request and waits for the end of its response, or for its first event.
func (c *webClient) do(method, body string, headers ...string) *http.Response {
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url, strings.NewReader(strings.ReplaceAll(body, "$rev", c.rev.String())))
	must(c.t, err)
	req.Header.Set("Accept", "text/event-stream")
	if method == http.MethodPost {
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Content-Type", "application/json")
	}
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
	}
	if !strings.Contains(body, `"initialize"`) {
		req.Header.Set("MCP-Protocol-Version", c.rev.String())
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	must(c.t, err)
	if method == http.MethodGet {
		_, err = bufio.NewReader(res.Body).ReadString('\n')
	} else {
		_, err = io.Copy(io.Discard, res.Body)
	}
	must(c.t, err, res.Body.Close())
	return res
}

// recordWeb records what packages client and streamable never do: a 401, a resumed stream, the use
// of a session after its end.
func recordWeb(t *testing.T, rev mcp.Revision) *recording {
	recording := newRecording("http")
	h := streamable.MustHandler(newServer(t, rev), &streamable.Options{Retry: 1})
	guarded := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Guard") != "" {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="https://example.com/.well-known/oauth-protected-resource"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
	ts := httptest.NewServer(recording.listen(guarded))
	c := &webClient{t: t, url: ts.URL + "/mcp", rev: rev}
	if rev == mcp.Revision20260728 {
		list := `{"jsonrpc":"2.0","id":"l","method":"prompts/list","params":{` + rawMeta + `}}`
		c.do("POST", list, "Mcp-Method", "prompts/list", "X-Guard", "1")
		for _, text := range rawLines(rev) {
			_, method, _ := strings.Cut(text, `"method":"`)
			method, _, _ = strings.Cut(method, `"`)
			version := rev.String()
			if strings.Contains(text, "1999") {
				version = "1999-01-01"
			}
			c.do("POST", text, "Mcp-Method", method, "Mcp-Name", "roots", "MCP-Protocol-Version", version)
		}
	} else {
		c.do("POST", rawHello, "X-Guard", "1")
		c.session = c.do("POST", rawHello).Header.Get("Mcp-Session-Id")
		c.do("POST", rawReady)
		c.do("GET", "")
		recording.await(idle)
		recording.later(time.Second)
		c.do("GET", "", "Last-Event-ID", lastEventID(recording))
		recording.await(idle)
		c.do("POST", rawPing)
		recording.later(time.Minute)
		c.do("POST", strings.Replace(rawPing, "2,", "3,", 1))
		c.do("DELETE", "")
		c.do("POST", strings.Replace(rawPing, "2,", "4,", 1))
		c.session = ""
		c.session = c.do("POST", strings.Replace(rawHello, `"i"`, `"again"`, 1)).Header.Get("Mcp-Session-Id")
		c.do("POST", rawReady)
	}
	_ = h.Shutdown(context.Background())
	ts.Close()
	return recording
}

// lastEventID returns the id of the latest event of a stream.
func lastEventID(p *recording) (id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.events {
		if e.SSE != nil && e.SSE.HasID {
			id = e.SSE.ID
		}
	}
	return id
}

// line writes an event as text that mutations can edit: a word or a sign, the event's other
// attributes, then the bytes.
func line(e *capture.Event) string {
	var b strings.Builder
	sign := map[capture.Dir]string{capture.ToServer: ">", capture.ToClient: "<", "": "-"}[e.Dir]
	fmt.Fprintf(&b, "%s %s x%d\n", sign, e.Kind, e.Exchange)
	head := func(first string, headers []capture.Header) {
		b.WriteString(first + "\n")
		var lines []string
		for _, h := range headers {
			lines = append(lines, h.Name+": "+h.Value+"\n")
		}
		slices.Sort(lines)
		b.WriteString(strings.Join(lines, ""))
	}
	switch {
	case e.Request != nil:
		head(e.Request.Method+" "+e.Request.URL, e.Request.Headers)
	case e.Response != nil:
		head(strconv.Itoa(e.Response.Status), e.Response.Headers)
	case e.Exit != nil:
		fmt.Fprintf(&b, "%d\n", e.Exit.Code)
	case e.SSE != nil:
		fmt.Fprintf(&b, "event: %s\nid: %s\nretry: %d\n", e.SSE.Event, e.SSE.ID, e.SSE.Retry.Milliseconds())
	case e.Framing != "":
		fmt.Fprintf(&b, "framing: %s\n", e.Framing)
	}
	return b.String() + "\n" + string(e.Data)
}

// parseLine is the inverse of line: it returns e with the values of the text.
func parseLine(text string, e capture.Event) capture.Event {
	top, data, _ := strings.Cut(text, "\n\n")
	first, rest, _ := strings.Cut(top, "\n")
	words := strings.Fields(first)
	e.Kind, e.Data = capture.Kind(words[1]), []byte(data)
	e.Exchange, _ = strconv.ParseUint(words[2][1:], 10, 64)
	if e.Kind == capture.KindMessage && (!utf8.ValidString(data) || !json.Valid(e.Data)) {
		e.Kind = capture.KindInvalid
	}
	first, rest, _ = strings.Cut(rest, "\n")
	switch {
	case e.Request != nil:
		method, url, _ := strings.Cut(first, " ")
		e.Request = &capture.Request{Method: method, URL: url, Proto: e.Request.Proto, Headers: headerLines(rest)}
	case e.Response != nil:
		status, _ := strconv.Atoi(first)
		e.Response = &capture.Response{Status: status, Proto: e.Response.Proto, Headers: headerLines(rest)}
	case e.Exit != nil:
		code, _ := strconv.Atoi(first)
		e.Exit = &capture.Exit{Code: code}
	case e.SSE != nil:
		s := *e.SSE
		for _, h := range headerLines(first + "\n" + rest) {
			switch h.Name {
			case "event":
				s.Event = h.Value
			case "id":
				s.ID, s.HasID = h.Value, s.HasID || h.Value != ""
			case "retry":
				ms, _ := strconv.Atoi(h.Value)
				s.Retry, s.HasRetry = time.Duration(ms)*time.Millisecond, s.HasRetry || ms != 0
			}
		}
		e.SSE = &s
	case e.Framing != "":
		_, f, _ := strings.Cut(first, ": ")
		f, why, _ := strings.Cut(f, " ")
		e.Why = capture.RawReason(why)
		e.Framing = capture.Framing(f)
		if e.Framing == capture.FramingHeader {
			e.Prefix = fmt.Sprintf("Content-Length: %d\r\n\r\n", len(e.Data))
		}
	}
	return e
}

func headerLines(text string) (list []capture.Header) {
	for l := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSuffix(l, "\n"), ": "); ok {
			list = append(list, capture.Header{Name: name, Value: value})
		}
	}
	return list
}
