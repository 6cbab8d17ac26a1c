package taphttp_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/proxy/taphttp"
)

// roundTrip posts a text and returns the response with its body, and the error of reading it.
func roundTrip(t *testing.T, url, text string, headers ...string) (*http.Response, string, error) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	method, body := "POST", io.Reader(strings.NewReader(text))
	if text == "" {
		method, body = "GET", nil
	}
	req := must(http.NewRequestWithContext(t.Context(), method, url, body))
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	return resp, string(got), err
}

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

// TestCutOff shows that a response that breaks off does so for the client, too, and is not recorded
// as complete.
func TestCutOff(t *testing.T) {
	for name, tt := range map[string]struct {
		answer, body string
		want         []string
	}{
		"length": {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"a\":", `{"a":`,
			[]string{"res OK", `body: {"a":`, "note: the body broke off", "end: upstream: unexpected EOF"}},
		"stream": {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: {}\n\r\n1\r\n\n\r\n7\r\ndata: 1\r\n", "data: {}\n\ndata: 1",
			[]string{"res OK", "msg: {}", "note: the event stream ended within an event, which clients discard", "body: 1", "note: the event stream broke off", "end: upstream: unexpected EOF"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := tap(t, newRawServer(t, tt.answer).url, nil, nil)
			_, got, err := roundTrip(t, p.url, ping)
			if !errors.Is(err, io.ErrUnexpectedEOF) || got != tt.body {
				t.Errorf("%q, %v", got, err)
			}
			if diff := cmp.Diff(tt.want, p.lines()[2:]); diff != "" {
				t.Errorf("capture (-want +got):\n%s", diff)
			}
		})
	}
}

// TestNoResponse shows that the tap answers if the server sends nothing that is HTTP, and that the
// capture does not attribute that response to the server.
func TestNoResponse(t *testing.T) {
	for name, answer := range map[string]string{
		"closed": "", "no http": "SSH-2.0-OpenSSH\r\n", "status": "HTTP/1.1 000 No\r\n\r\n", "switch": "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
		"endless header": "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 10<<10), "negative": "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"two lengths": "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
	} {
		t.Run(name, func(t *testing.T) {
			p := tap(t, newRawServer(t, answer).url, &taphttp.Options{MaxHeader: 4 << 10}, nil)
			resp, got, err := roundTrip(t, p.url, ping)
			if resp.StatusCode != http.StatusBadGateway || !strings.HasPrefix(got, "mcpwire tap: no response from the server: ") || err != nil {
				t.Errorf("%d %q, %v", resp.StatusCode, got, err)
			}
			lines := p.lines()
			if len(lines) != 3 || !strings.HasPrefix(lines[2], "end: no response from the server: upstream") {
				t.Errorf("capture %q", lines)
			}
		})
	}
}

// TestBomb checks that a decompression bomb is forwarded and recorded unchanged.
func TestBomb(t *testing.T) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	zeros := bytes.Repeat([]byte("a"), 1<<20)
	io.WriteString(w, "data: {}\n\ndata: ")
	for range 40 {
		w.Write(zeros)
	}
	w.Close()
	for _, media := range []string{"text/event-stream", "application/json", "application/x-ndjson"} {
		for _, length := range []bool{false, true} {
			p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", media)
				w.Header().Set("Content-Encoding", "gzip")
				if length {
					w.Header().Set("Content-Length", fmt.Sprint(b.Len()))
				}
				w.Write(b.Bytes())
			}, &taphttp.Options{MaxBody: 1 << 20})
			if _, got, err := roundTrip(t, p.url, ping, "Accept-Encoding", "gzip"); got != b.String() || err != nil {
				t.Errorf("%s: %d bytes of %d, %v", media, len(got), b.Len(), err)
			}
			if text := strings.Join(p.lines(), "\n"); !strings.Contains(text, "the decoded body is too large") || !strings.Contains(text, "body enc=gzip") {
				t.Errorf("%s: %.2000q", media, text)
			}
		}
	}
}

// TestLargeBodies shows that bodies above the limit are forwarded, and are recorded in parts, or
// cut.
func TestLargeBodies(t *testing.T) {
	large := `{"jsonrpc":"2.0","id":1,"x":"` + strings.Repeat("x", 300_000) + `"}`
	for _, media := range []string{"application/json", "text/event-stream", "text/plain", "application/x-ndjson"} {
		p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
			text := must(io.ReadAll(r.Body))
			if string(text) != large {
				t.Errorf("%d bytes of %d", len(text), len(large))
			}
			w.Header().Set("Content-Type", media)
			if media == "text/event-stream" {
				large = "data: " + large + "\n\n"
				defer func() { large = strings.TrimSpace(strings.TrimPrefix(large, "data: ")) }()
			}
			io.WriteString(w, large)
		}, &taphttp.Options{MaxBody: 100_000})
		want := large
		if media == "text/event-stream" {
			want = "data: " + large + "\n\n"
		}
		if _, got, err := roundTrip(t, p.url, large); got != want || err != nil {
			t.Errorf("%s: %d bytes of %d, %v", media, len(got), len(want), err)
		}
		bytes := map[capture.Dir]int64{}
		for _, e := range p.events() {
			if e.Kind == capture.KindBody || e.Kind == capture.KindMessage || e.Kind == capture.KindInvalid {
				bytes[e.Dir] += e.Len
				if len(e.Data) > 100_000 {
					t.Errorf("%s: %d bytes in one piece", media, len(e.Data))
				}
			}
		}
		if bytes[capture.ToServer] != int64(len(large)) || bytes[capture.ToClient] != int64(len(large)) {
			t.Errorf("%s: %v bytes in the capture, want %d each", media, bytes, len(large))
		}
	}
}

// TestClientDisconnects shows that the server sees at once that a client disconnects.
func TestClientDisconnects(t *testing.T) {
	for name, begin := range map[string]bool{"before the response": false, "in a stream": true} {
		t.Run(name, func(t *testing.T) {
			gone := make(chan struct{})
			started := make(chan struct{})
			p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if begin {
					w.Header().Set("Content-Type", "text/event-stream")
					io.WriteString(w, ": hello\n\n")
					w.(http.Flusher).Flush()
				}
				close(started)
				<-r.Context().Done()
				close(gone)
			}, nil)
			c := must(net.Dial("tcp", strings.Split(p.url, "/")[2]))
			fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(ping), ping)
			<-started
			c.Close()
			<-gone
			lines := p.lines()
			if last := lines[len(lines)-1]; last != "end: client closed" {
				t.Errorf("capture %q", lines)
			}
		})
	}
}

// TestHalfARequest shows that a request that breaks off is recorded as such.
func TestHalfARequest(t *testing.T) {
	asked := false
	p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) { asked = true }, nil)
	c := must(net.Dial("tcp", strings.Split(p.url, "/")[2]))
	io.WriteString(c, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
	c.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, c)
	c.Close()
	if diff := cmp.Diff([]string{"req POST /mcp", "body: {", "end: the request broke off: client closed"}, p.lines()); diff != "" || asked {
		t.Errorf("capture (-want +got):\n%s", diff)
	}
}

// TestRefused checks which requests the tap does not forward.
func TestRefused(t *testing.T) {
	asked := 0
	p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) { asked++ }, &taphttp.Options{Hosts: []string{"Dev.example.com:99"}})
	for _, tt := range []struct {
		headers []string
		status  int
	}{
		{nil, 200},
		{[]string{"Host", "localhost:1"}, 200},
		{[]string{"Host", "[::1]:80"}, 200},
		{[]string{"Host", "192.0.2.7"}, 200},
		{[]string{"Host", "dev.EXAMPLE.com."}, 200},
		{[]string{"Host", "evil.example.com"}, 403},
		{[]string{"Host", "localhost.evil.example.com"}, 403},
		{[]string{"Host", "127.0.0.1.nip.io"}, 403},
		{[]string{"Connection", "Upgrade", "Upgrade", "websocket"}, 501},
		{[]string{"Connection", "Upgrade, HTTP2-Settings", "Upgrade", "h2c", "HTTP2-Settings", "AA"}, 200},
	} {
		before := asked
		resp, text, _ := roundTrip(t, p.url, ping, tt.headers...)
		if resp.StatusCode != tt.status || (asked > before) != (tt.status == 200) {
			t.Errorf("%q: %d %s", tt.headers, resp.StatusCode, text)
		}
	}
	refused := 0
	for _, line := range p.lines() {
		if strings.HasPrefix(line, "end: rejected by the tap with status ") {
			refused++
		}
	}
	if refused != 4 {
		t.Errorf("%d refusals in the capture", refused)
	}
}

// TestExpect checks that the server decides whether a client that expects 100-continue gets it.
func TestExpect(t *testing.T) {
	for _, wanted := range []bool{true, false} {
		p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Expect") != "100-continue" {
				t.Errorf("Expect: %q", r.Header.Get("Expect"))
			}
			if !wanted {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			text := must(io.ReadAll(r.Body))
			w.Write(text)
		}, nil)
		c := must(net.Dial("tcp", strings.Split(p.url, "/")[2]))
		r := bufio.NewReader(c)
		fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(ping))
		line := must(r.ReadString('\n'))
		want := []string{"req POST /mcp", "res Unauthorized", "end"}
		if wanted {
			if line != "HTTP/1.1 100 Continue\r\n" {
				t.Errorf("%q", line)
			}
			io.WriteString(c, ping)
			want = []string{"req POST /mcp", "res Continue", "msg: " + ping, "res OK", "msg: " + ping, "end"}
		} else if line != "HTTP/1.1 401 Unauthorized\r\n" {
			t.Errorf("%q", line)
		}
		if wanted {
			r.ReadString('\n')
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if text := must(io.ReadAll(resp.Body)); string(text) != ping {
				t.Errorf("%q", text)
			}
		}
		c.Close()
		if diff := cmp.Diff(want, p.lines()); diff != "" {
			t.Errorf("capture (-want +got):\n%s", diff)
		}
	}
}

// TestLines exchanges lines between a client and a server, each while the other still sends.
func TestLines(t *testing.T) {
	p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		w.Header().Set("Content-Type", "application/x-ndjson")
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			fmt.Fprintln(w, lines.Text())
			w.(http.Flusher).Flush()
		}
	}, nil)
	in, out := io.Pipe()
	req := must(http.NewRequest("POST", p.url, in))
	req.Header.Set("Content-Type", "application/x-ndjson")
	var want []string
	go io.WriteString(out, "{\"n\":0}\n")
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(resp.Body)
	for i := range 5 {
		text := fmt.Sprintf("{\"n\":%d}", i)
		if got := must(lines.ReadString('\n')); got != text+"\n" {
			t.Errorf("%q", got)
		}
		if i < 4 {
			fmt.Fprintf(out, "{\"n\":%d}\n", i+1)
		}
		want = append(want, text)
	}
	out.Close()
	io.Copy(io.Discard, lines)
	resp.Body.Close()
	got := map[capture.Dir][]string{}
	for _, e := range p.events() {
		if e.Kind == capture.KindMessage && e.Framing == capture.FramingLF {
			got[e.Dir] = append(got[e.Dir], string(e.Data))
		}
	}
	if diff := cmp.Diff(map[capture.Dir][]string{capture.ToServer: want, capture.ToClient: want}, got); diff != "" {
		t.Errorf("capture (-want +got):\n%s", diff)
	}
}

// TestShutdownIsSeen shows that Serve ends standing streams, and that the capture says so.
func TestShutdownIsSeen(t *testing.T) {
	p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, ": hello\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}, nil)
	resp, err := http.DefaultTransport.RoundTrip(must(http.NewRequestWithContext(context.Background(), "GET", p.url, nil)))
	if err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(resp.Body)
	if line := must(r.ReadString('\n')); line != ": hello\n" {
		t.Errorf("%q", line)
	}
	lines := p.lines()
	if _, err := io.Copy(io.Discard, r); err == nil {
		t.Error("the stream ended as if it were whole")
	}
	resp.Body.Close()
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if diff := cmp.Diff([]string{"req GET /mcp", "res OK", "sse comment=hello", "note: the event stream broke off", "end: tap shut down"}, lines); diff != "" {
		t.Errorf("capture (-want +got):\n%s", diff)
	}
}
