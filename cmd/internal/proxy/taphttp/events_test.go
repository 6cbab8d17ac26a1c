package taphttp_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/proxy/taphttp"
)

// TestEndpoint shows that only the origin of an endpoint is changed, to that of the tap.
func TestEndpoint(t *testing.T) {
	for _, tt := range []struct{ name, sent, want, note string }{
		{"relative", "event: endpoint\ndata: /messages?sessionId=1\n\n", "event: endpoint\ndata: /messages?sessionId=1\n\n", ""},
		{"absolute", "event: endpoint\ndata: http://$UP/messages?sessionId=1\n\n", "event: endpoint\ndata: http://$TAP/messages?sessionId=1\n\n", "rewritten"},
		{"other name of the loopback", "event:endpoint\r\ndata:HTTP://localhost:$PORT\r\n\r\n", "event:endpoint\r\ndata:http://$TAP\r\n\r\n", "rewritten"},
		{"without a scheme", "data: //$UP/%2F?a#b\revent: endpoint\rid: 1\r\r", "data: //$TAP/%2F?a#b\revent: endpoint\rid: 1\r\r", "rewritten"},
		{"behind comments and a retry", ": hello\n\nretry: 5\n\nevent: endpoint\ndata: http://$UP/x\n\ndata: {}\n\n", ": hello\n\nretry: 5\n\nevent: endpoint\ndata: http://$TAP/x\n\ndata: {}\n\n", "rewritten"},
		{"behind a byte order mark", "\xef\xbb\xbfevent: endpoint\ndata: http://$UP/x\n\n", "\xef\xbb\xbfevent: endpoint\ndata: http://$TAP/x\n\n", "rewritten"},
		{"another origin", "event: endpoint\ndata: http://example.com/x\n\n", "event: endpoint\ndata: http://example.com/x\n\n", "bypasses the tap"},
		{"another scheme", "event: endpoint\ndata: https://$UP/x\n\n", "event: endpoint\ndata: https://$UP/x\n\n", "bypasses the tap"},
		{"no URL", "event: endpoint\ndata: http://[\n\n", "event: endpoint\ndata: http://[\n\n", "contains no URL"},
		{"a message", "data: http://$UP/x\n\nevent: endpoint\ndata: http://$UP/x\n\n", "data: http://$UP/x\n\nevent: endpoint\ndata: http://$UP/x\n\n", ""},
		{"too long", "event: endpoint\ndata: http://$UP/" + strings.Repeat("x", 20<<10) + "\n\n", "event: endpoint\ndata: http://$UP/" + strings.Repeat("x", 20<<10) + "\n\n", ""},
		{"no end", "event: endpoint\ndata: http://$UP/x\n", "event: endpoint\ndata: http://$UP/x\n", ""},
	} {
		for _, step := range []int{1 << 20, 7, 1} {
			if step == 1 && len(tt.sent) > 1000 {
				continue
			}
			t.Run(fmt.Sprintf("%s by %d", tt.name, step), func(t *testing.T) {
				fill := strings.NewReplacer()
				web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					for text := fill.Replace(tt.sent); text != ""; {
						n := min(step, len(text))
						io.WriteString(w, text[:n])
						w.(http.Flusher).Flush()
						text = text[n:]
					}
				}))
				defer web.Close()
				p := tap(t, web.URL+"/sse", nil, nil)
				up, through := must(url.Parse(web.URL)), must(url.Parse(p.url))
				fill = strings.NewReplacer("$UP", up.Host, "$PORT", up.Port(), "$TAP", through.Host)
				_, got, err := roundTrip(t, p.url, "")
				if want := fill.Replace(tt.want); got != want || err != nil {
					t.Errorf("%.300q, %v, want %.300q", got, err, want)
				}
				notes := ""
				for _, e := range p.events() {
					if e.Kind == capture.KindNote {
						notes += string(e.Data)
					}
					if e.Kind == capture.KindSSE && e.SSE.Event == "endpoint" && !strings.Contains(fill.Replace(tt.sent), string(e.Data)) {
						t.Errorf("the capture has %q, which the server did not send", e.Data)
					}
				}
				if !strings.Contains(notes, tt.note) || tt.note == "" && tt.name != "no end" && notes != "" {
					t.Errorf("notes %.300q", notes)
				}
			})
		}
	}
}

// TestSessions shows that all of a session of the protocol has one number, and that two sessions on
// one connection have two.
func TestSessions(t *testing.T) {
	sessions := 0
	p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
		if text := must(io.ReadAll(r.Body)); strings.Contains(string(text), "initialize") {
			sessions++
			w.Header().Set("Mcp-Session-Id", fmt.Sprintf("s%d", sessions))
		}
		w.WriteHeader(http.StatusAccepted)
	}, nil)
	one, two := &http.Transport{}, &http.Transport{}
	defer one.CloseIdleConnections()
	defer two.CloseIdleConnections()
	post := func(c *http.Transport, method, session string) {
		req := must(http.NewRequest("POST", p.url, strings.NewReader(`{"method":"`+method+`"}`)))
		if session != "" {
			req.Header.Set("Mcp-Session-Id", session)
			req.Header.Set("MCP-Protocol-Version", "2025-11-25")
		}
		if method == "modern" {
			req.Header.Set("MCP-Protocol-Version", "2026-07-28")
		}
		resp, err := c.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	post(one, "modern", "")
	post(one, "initialize", "") // after a probe: of the same session
	post(one, "a", "s1")
	post(one, "initialize", "")
	post(one, "b", "s2")
	post(two, "a", "s1")
	post(two, "modern", "")
	post(one, "modern", "")
	post(two, "a", "s2")
	var got []uint64
	for _, e := range p.events() {
		if e.Kind == capture.KindRequest {
			got = append(got, e.Session)
		}
	}
	if want := "[1 1 1 2 2 1 3 4 2]"; fmt.Sprint(got) != want {
		t.Errorf("sessions %v, want %s", got, want)
	}
}

// TestObserve checks that an observer gets all events, in order, before they are forwarded, also
// without a capture.
func TestObserve(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: "+message+"\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer web.Close()
	var seen []string
	last := uint64(0)
	h, err := taphttp.New(must(url.Parse(web.URL+"/mcp")), nil, &taphttp.Options{Grace: time.Millisecond, Observe: func(e *capture.Event) {
		if e.N != last+1 {
			t.Errorf("event %d behind %d", e.N, last)
		}
		last = e.N
		seen = append(seen, describe(e))
	}})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(h) // a listener that is not ours
	resp, err := front.Client().Post(front.URL+"/mcp", "application/json", strings.NewReader(ping))
	if err != nil {
		t.Fatal(err)
	}
	if line := must(bufio.NewReader(resp.Body).ReadString('\n')); line != "data: "+message+"\n" {
		t.Errorf("%q", line)
	}
	if err := h.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	resp.Body.Close()
	front.Close()
	if got, want := strings.Join(seen, "\n"), "req POST /mcp\nmsg: "+ping+"\nres OK\nmsg: "+message+"\nnote: the event stream broke off\nend: tap shut down"; got != want {
		t.Errorf("seen:\n%s\nwant:\n%s", got, want)
	}
}

func TestNew(t *testing.T) {
	for _, tt := range []struct{ url, want string }{
		{"ftp://a/", "neither http nor https"}, {"/mcp", "neither"}, {"http:///mcp", "no host"}, {"https://a:b@c/", "credentials"},
	} {
		if _, err := taphttp.New(must(url.Parse(tt.url)), nil, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.url, err)
		}
	}
	if _, err := taphttp.New(must(url.Parse("http://a/")), nil, &taphttp.Options{Hosts: []string{"a b"}}); err == nil {
		t.Error("a host that is none")
	}
}

// TestLocation shows that a redirect to the server's origin leads to the tap, and that the capture
// has what the server sent.
func TestLocation(t *testing.T) {
	for _, tt := range []struct{ name, sent, want, note string }{
		{"relative", "/mcp/?a=1", "/mcp/?a=1", ""},
		{"without a slash", "other", "other", ""},
		{"absolute", "http://$UP/mcp/?a=1#b", "http://$TAP/mcp/?a=1#b", "Location was rewritten"},
		{"other name of the loopback", "HTTP://localhost:$PORT/%2F", "http://$TAP/%2F", "Location was rewritten"},
		{"without a scheme", "//$UP/mcp/", "//$TAP/mcp/", "Location was rewritten"},
		{"another origin", "https://login.example.com/x", "https://login.example.com/x", "Location names another origin than the server's, and bypasses the tap"},
		{"another port", "http://127.0.0.1:1/mcp", "http://127.0.0.1:1/mcp", "bypasses the tap"},
		{"no URL", "http://[", "http://[", "contains no URL"},
	} {
		for _, field := range []string{"Location", "Content-Location"} {
			t.Run(tt.name+" "+field, func(t *testing.T) {
				fill := strings.NewReplacer()
				web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set(field, fill.Replace(tt.sent))
					w.WriteHeader(http.StatusTemporaryRedirect)
				}))
				defer web.Close()
				p := tap(t, web.URL+"/mcp", nil, nil)
				up, through := must(url.Parse(web.URL)), must(url.Parse(p.url))
				fill = strings.NewReplacer("$UP", up.Host, "$PORT", up.Port(), "$TAP", through.Host)
				req := must(http.NewRequestWithContext(t.Context(), http.MethodPost, p.url, strings.NewReader("{}")))
				resp, err := new(http.Transport).RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if got, want := resp.Header.Get(field), fill.Replace(tt.want); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
				notes := ""
				for _, e := range p.events() {
					if e.Kind == capture.KindNote {
						notes += string(e.Data)
					}
					if e.Kind != capture.KindResponse {
						continue
					}
					for _, h := range e.Response.Headers {
						if h.Name == field && h.Value != fill.Replace(tt.sent) {
							t.Errorf("the capture has %q, which the server did not send", h.Value)
						}
					}
				}
				if !strings.Contains(notes, tt.note) || tt.note == "" && notes != "" {
					t.Errorf("notes %q, want %q", notes, tt.note)
				}
			})
		}
	}
}
