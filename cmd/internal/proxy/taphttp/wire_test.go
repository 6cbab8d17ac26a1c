package taphttp_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"mcpwire/capture"
)

// A rawServer answers each connection's one request with the same bytes, and keeps what it was
// sent.
type rawServer struct {
	url  string
	got  chan string
	done chan struct{}
}

func newRawServer(t *testing.T, answer string) *rawServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawServer{url: "http://" + l.Addr().String() + "/mcp", got: make(chan string, 16), done: make(chan struct{})}
	go func() {
		defer close(s.done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.serve(c, answer)
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-s.done
	})
	return s
}

func (s *rawServer) serve(c net.Conn, answer string) {
	defer c.Close()
	var seen bytes.Buffer
	r := bufio.NewReader(io.TeeReader(c, &seen))
	req, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	io.Copy(io.Discard, req.Body)
	s.got <- seen.String()
	io.WriteString(c, answer)
}

// talk sends a request unchanged to the host of a URL and returns all bytes of the response.
func talk(t *testing.T, url, request string) string {
	t.Helper()
	host := strings.Split(url, "/")[2]
	c, err := net.Dial("tcp", host)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, strings.ReplaceAll(request, "$HOST", host))
	answer, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// head returns the lines of a head, sorted but for the first, without those that are for one hop.
// net/http keeps no order between fields.
func head(text string) []string {
	text, _, _ = strings.Cut(text, "\r\n\r\n")
	lines := strings.Split(text, "\r\n")
	lines = slices.DeleteFunc(lines, func(l string) bool {
		name, _, _ := strings.Cut(strings.ToLower(l), ":")
		return name == "connection" || name == "keep-alive" || name == "host" || name == "transfer-encoding"
	})
	slices.Sort(lines[1:])
	return lines
}

// body returns the body of a response without its chunks, and its trailer.
func body(t *testing.T, method, text string) (string, http.Header) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return string(b), resp.Trailer
}

func chunked(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(p), p)
	}
	b.WriteString("0\r\n\r\n")
	return b.String()
}

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	io.WriteString(w, text)
	w.Close()
	return b.String()
}

const postHead = "POST /mcp?x=%2F;y HTTP/1.1\r\nHost: $HOST\r\naccept: application/json, text/event-stream\r\nContent-Type: application/json\r\n" +
	"Mcp-Method: tools/list\r\nmcp-name: a\r\nX-Twice: 1\r\nX-Twice: 2\r\nOrigin: https://example.com\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nAccept-Encoding: gzip, br\r\n"

const message = `{"jsonrpc":"2.0","id":1,"result":{}}`

// TestBytes compares what a client sees of a server, and a server of a client, with and without the
// tap, for responses of all kinds.
func TestBytes(t *testing.T) {
	const inputRequest = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	post := postHead + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(inputRequest), inputRequest)
	get := "GET /mcp HTTP/1.1\r\nHost: $HOST\r\nAccept: text/event-stream\r\nLast-Event-ID: 7\r\nConnection: close\r\n\r\n"
	long := gzipped(strings.Repeat("data: {}\n\n", 100))
	ok := "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: abc\r\nX-b: 2\r\nx-A: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
	for _, tt := range []struct {
		name, request, answer string
		want                  []string // of the capture, after the head of the request
	}{
		{"json", post, ok + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(message), message),
			[]string{"msg: " + inputRequest, "res OK", "msg: " + message, "end"}},
		{"json in chunks", post, ok + "Transfer-Encoding: chunked\r\n\r\n" + chunked(message[:10], message[10:]),
			[]string{"msg: " + inputRequest, "res OK", "msg: " + message, "end"}},
		{"json until the end", post, ok + "Connection: close\r\n\r\n" + message, []string{"msg: " + inputRequest, "res OK", "msg: " + message, "end"}},
		{"chunked request", postHead + "Transfer-Encoding: chunked\r\n\r\n" + chunked(inputRequest[:5], inputRequest[5:]), ok + "Content-Length: 0\r\n\r\n",
			[]string{"msg: " + inputRequest, "res OK", "end"}},
		{"early hints", post, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok + "Content-Length: 0\r\n\r\n",
			[]string{"msg: " + inputRequest, "res Early Hints", "res OK", "end"}},
		{"accepted", post, "HTTP/1.1 202 Accepted\r\nDate: never\r\nContent-Length: 0\r\n\r\n", []string{"msg: " + inputRequest, "res Accepted", "end"}},
		{"no content", post, "HTTP/1.1 204 No Content\r\n\r\n", []string{"msg: " + inputRequest, "res No Content", "end"}},
		{"unauthorized", post, "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer resource_metadata=\"http://a/x\", scope=\"y\"\r\nContent-Length: 3\r\n\r\nno\n",
			[]string{"msg: " + inputRequest, "res Unauthorized", "body: no\n", "end"}},
		{"modern not found", post, "HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 36\r\n\r\n" + message,
			[]string{"msg: " + inputRequest, "res Not Found", "msg: " + message, "end"}},
		{"not allowed", get, "HTTP/1.1 405 Method Not Allowed\r\nAllow: POST\r\nPragma: no-cache\r\nContent-Length: 2\r\n\r\n{}",
			[]string{"res Method Not Allowed", "body: {}", "end"}},
		{"redirect", post, "HTTP/1.1 307 Temporary Redirect\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n", []string{"msg: " + inputRequest, "res Temporary Redirect", "end"}},
		{"head", "HEAD /mcp HTTP/1.1\r\nHost: $HOST\r\nConnection: close\r\n\r\n", ok + "Content-Length: 100\r\n\r\n", []string{"res OK", "end"}},
		{"trailer", post, ok + "Trailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n24\r\n" + message + "\r\n0\r\nX-Sum: 7\r\n\r\n",
			[]string{"msg: " + inputRequest, "res OK", "msg: " + message, "note: trailer X-Sum: 7", "end"}},
		{"compressed", post, ok + fmt.Sprintf("Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%s", len(gzipped(message)), gzipped(message)),
			[]string{"msg: " + inputRequest, "res OK", "msg: " + message, "end"}},
		{"compressed stream", get, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" +
			chunked(long[:20], long[20:21], long[21:]), slices.Concat([]string{"res OK"}, slices.Repeat([]string{"msg: {}"}, 100), []string{"end"})},
		{"unknown coding", post, ok + "Content-Encoding: br\r\nContent-Length: 3\r\n\r\n\x01\x02\x03",
			[]string{"msg: " + inputRequest, "res OK", "body enc=br: \x01\x02\x03", `note: the body could not be decoded: unknown content coding: "br"`, "end"}},
		{"stream", get, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" +
			chunked(": hello\n\n", "\n\nid: 1\ndata:\n\n", "retry: 5", "00\r\n\r\nevent: message\r", "\ndata: {\"a\":\r\ndata:1}\r\n\r\n", "id\ndata: 1\r\rnope\n\n: a\n: b\n\n\n", "data: cut off\n"),
			[]string{
				"res OK", "sse comment=hello", "sse id=1 data", "sse retry=500ms", "msg event=message: {\"a\":\n1}", "msg id=: 1",
				"note: a line of the event stream that clients ignore: nope", "sse", "sse comment=a\nb",
				"note: the event stream ended within an event, which clients discard", "body: cut off", "end",
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := newRawServer(t, tt.answer)
			direct := talk(t, server.url, tt.request)
			sent := <-server.got
			p := tap(t, server.url, nil, nil)
			through := talk(t, p.url, tt.request)
			if diff := cmp.Diff(head(direct), head(through)); diff != "" {
				t.Errorf("head of the response (-direct +tap):\n%s", diff)
			}
			method, _, _ := strings.Cut(tt.request, " ")
			wantBody, wantTrailer := body(t, method, direct[strings.LastIndex(direct, "HTTP/1.1"):])
			gotBody, gotTrailer := body(t, method, through[strings.LastIndex(through, "HTTP/1.1"):])
			if wantBody != gotBody {
				t.Errorf("body %q, want %q", gotBody, wantBody)
			}
			if diff := cmp.Diff(wantTrailer, gotTrailer); diff != "" {
				t.Errorf("trailer:\n%s", diff)
			}
			got := <-server.got
			want := slices.DeleteFunc(head(sent), func(l string) bool { return l == "X-Hop: 1" })
			if diff := cmp.Diff(want, head(got)); diff != "" {
				t.Errorf("head of the request (-direct +tap):\n%s", diff)
			}
			_, wantBody, _ = strings.Cut(sent, "\r\n\r\n")
			_, gotBody, _ = strings.Cut(got, "\r\n\r\n")
			if wantBody != gotBody && !strings.Contains(tt.name, "chunked") {
				t.Errorf("body of the request %q, want %q", gotBody, wantBody)
			}
			if diff := cmp.Diff(tt.want, p.lines()[1:]); diff != "" {
				t.Errorf("capture (-want +got):\n%s", diff)
			}
			checkHeads(t, p, tt.request, tt.answer)
		})
	}
}

// checkHeads checks that the capture has the fields of both heads in the order and the spelling of
// the wire.
func checkHeads(t *testing.T, p *tapped, request, answer string) {
	t.Helper()
	fields := func(text string) (list []string) {
		text, _, _ = strings.Cut(text, "\r\n\r\n")
		return strings.Split(text, "\r\n")[1:]
	}
	host := strings.Split(p.url, "/")[2]
	for _, e := range p.events() {
		var got []capture.Header
		var want []string
		switch {
		case e.Kind == capture.KindRequest:
			got, want = e.Request.Headers, fields(strings.ReplaceAll(request, "$HOST", host))
		case e.Kind == capture.KindResponse && e.Response.Status >= 200:
			got, want = e.Response.Headers, fields(answer[strings.LastIndex(answer, "HTTP/1.1"):])
		default:
			continue
		}
		var list []string
		for _, h := range got {
			list = append(list, h.Name+": "+h.Value)
		}
		if diff := cmp.Diff(want, list, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("fields of %s (-want +got):\n%s", e.Kind, diff)
		}
	}
}
