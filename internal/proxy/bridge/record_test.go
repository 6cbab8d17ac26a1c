package bridge

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/jsonrpc"
	"mcpwire/streamable"
)

// TestRecordHTTP checks the capture of a bridge with HTTP on both sides: the events of an exchange
// are in order, messages of both sides are linked, and credentials are redacted.
func TestRecordHTTP(t *testing.T) {
	for _, serverEra := range []Era{EraLegacy, EraModern} {
		for _, clientEra := range []Era{EraLegacy, EraModern} {
			t.Run(fmt.Sprintf("%v to %v", clientEra, serverEra), func(t *testing.T) { recordHTTP(t, "/mcp", clientEra, serverEra) })
		}
		t.Run(fmt.Sprintf("HTTP+SSE to %v", serverEra), func(t *testing.T) {
			text := recordHTTP(t, "/sse", EraLegacy, serverEra)
			if !strings.Contains(text, `"event":"endpoint"`) {
				t.Errorf("the capture has no endpoint event:\n%s", text)
			}
		})
	}
}

// recordHTTP connects a client to the path, makes all kinds of calls, and returns the capture.
func recordHTTP(t *testing.T, path string, clientEra, serverEra Era) string {
	t.Helper()
	secrets := []string{"sesame-0123456789", "crumb-0123456789", "in-the-url-0123456789"}
	handler := streamable.MustHandler(newServer(t, serverEra.Revisions()), nil)
	upstream := httptest.NewServer(handler)
	defer upstream.Close()
	var text bytes.Buffer
	w := capture.NewWriter(&text, nil)
	transport := streamable.NewTransport(upstream.URL+"/mcp?token="+secrets[2], &streamable.TransportOptions{
		HTTPClient: &http.Client{Transport: OuterTransport(requestReplacer{Transport(http.DefaultTransport)})},
		Header:     http.Header{"Authorization": {"Bearer " + secrets[0]}, "Cookie": {"a=" + secrets[1]}},
	})
	b := newBridge(t, &Options{HTTP: true, Record: w, Connect: func(ctx context.Context, _ io.Writer) (jsonrpc.Framer, error) { return transport.Connect(ctx) }})
	h, err := b.Handler(nil)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", b.Recorded(h))
	old := b.Recorded(h.SSE("/messages"))
	mux.Handle("/sse", old)
	mux.Handle("/messages", old)
	front := httptest.NewServer(mux)
	defer front.Close()
	tryAll(t, streamable.NewTransport(front.URL+path+"?token="+secrets[2], &streamable.TransportOptions{Header: http.Header{"Authorization": {"Bearer " + secrets[0]}}}), clientEra)
	h.Shutdown(t.Context())
	front.Close() // waits until the last exchange is recorded
	b.Close()
	handler.Shutdown(t.Context())
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, secret := range secrets {
		if strings.Contains(text.String(), secret) {
			t.Errorf("the capture contains %q", secret)
		}
	}
	if err := checkExchanges(t, text.Bytes()); t.Failed() || err != nil {
		t.Logf("%v\n%s", err, text.String())
	}
	return text.String()
}

// TestRecordResumed checks that the end of the HTTP responses of a resumed call is recorded when
// the call has its response, and not before.
func TestRecordResumed(t *testing.T) {
	var text bytes.Buffer
	w := capture.NewWriter(&text, nil)
	l := NewRecording(w, nil).newRecorder(capture.Upstream)
	ctx := context.WithValue(context.WithValue(t.Context(), recorderKey{}, l), postKey{}, &postedMessage{queuedMessage: queuedMessage{frame: []byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`), id: jsonrpc.IntID(1)}})
	side := OuterTransport(Transport(roundTrip(func(*http.Request) *http.Response {
		return &http.Response{StatusCode: http.StatusOK, Proto: "HTTP/1.1", Body: io.NopCloser(strings.NewReader("id: 1\ndata:\n\n"))}
	})))
	var last origin
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodGet} {
		r, err := http.NewRequestWithContext(ctx, method, "http://localhost/mcp", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := side.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		last.request, _ = resp.Request.Context().Value(requestKey{}).(*upstreamRequest)
	}
	l.note("the response")
	last.answered()
	l.note("later")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for e, err := range capture.NewReader(&text, nil).Events() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %d", e.Kind, e.Exchange))
	}
	want := []string{"head 0", "req 1", "msg 1", "res 1", "req 2", "res 2", "req 3", "res 3", "note 0", "end 1", "end 2", "end 3", "note 0", "tail 0"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
}

// An exitFramer records the exit of a process when it is closed.
type exitFramer struct {
	jsonrpc.Framer
	record func(*capture.Event)
}

func (f exitFramer) Close() error {
	f.record(&capture.Event{Kind: capture.KindExit, Exit: &capture.Exit{}})
	return f.Framer.Close()
}

// TestRecordWhoEnds checks that the end of the server's input is recorded before its exit if and
// only if the bridge ends the process.
func TestRecordWhoEnds(t *testing.T) {
	for _, tt := range []struct {
		name   string
		server func(*pipe) // what it does after it has got initialize
		want   string
	}{
		{"the bridge, after a timeout", func(*pipe) {}, "eof exit"},
		{"the server", func(p *pipe) { p.f.Close() }, "exit eof"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var text bytes.Buffer
			w := capture.NewWriter(&text, nil)
			f := newFakeServer(t)
			b, err := New(&Options{Record: w, Connect: func(ctx context.Context, stderr io.Writer) (jsonrpc.Framer, error) {
				framer, err := f.connect(ctx, stderr)
				return exitFramer{framer, Recorder(ctx)}, err
			}})
			if err != nil {
				t.Fatal(err)
			}
			client, _ := dialPipe(t, b)
			client.send(initialize)
			srv := f.next()
			srv.wants(initialize)
			tt.server(srv)
			client.reads(`"error"`)
			b.Close()
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			got := ""
			for e, err := range capture.NewReader(&text, nil).Events() {
				if err != nil {
					t.Fatal(err)
				}
				if e.Side == capture.Upstream && (e.Kind == capture.KindEOF || e.Kind == capture.KindExit) {
					got += string(e.Kind) + " "
				}
			}
			if got = strings.TrimSpace(got); got != tt.want {
				t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
			}
		})
	}
}

type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// A requestReplacer sets another request in the response, as a RoundTripper that logs in does.
type requestReplacer struct{ next http.RoundTripper }

func (f requestReplacer) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := f.next.RoundTrip(r.Clone(r.Context()))
	if resp != nil {
		resp.Request = r
	}
	return resp, err
}

// checkExchanges checks that the capture of a bridge between clients and a server over HTTP is
// consistent.
func checkExchanges(t *testing.T, text []byte) error {
	type key struct {
		side capture.Side
		x    uint64
	}
	state := map[key]string{}
	session := map[key]uint64{}
	sides := map[uint64]capture.Side{}
	linked := map[uint64]bool{}
	messages := map[uint64]string{}
	for e, err := range capture.NewReader(bytes.NewReader(text), nil).Events() {
		if err != nil {
			return err
		}
		k := key{e.Side, e.Exchange}
		sides[e.N] = e.Side
		if e.Exchange != 0 {
			if was, ok := session[k]; ok && was != e.Session {
				t.Errorf("event %d: exchange %d: got session %d, want %d", e.N, e.Exchange, e.Session, was)
			}
			session[k] = e.Session
		}
		was := state[k]
		switch e.Kind {
		case capture.KindTranslate:
			for _, to := range append([]uint64{e.Translation.Of}, e.Translation.To...) {
				linked[to] = true
			}
			continue
		case capture.KindRequest:
			state[k] = "requested"
		case capture.KindResponse:
			state[k] = "responded"
		case capture.KindEnd:
			state[k] = "ended"
		case capture.KindMessage:
			messages[e.N] = string(e.Data)
		default:
			continue
		}
		wants := map[capture.Kind]string{capture.KindRequest: "", capture.KindResponse: "requested", capture.KindEnd: "responded", capture.KindMessage: "requested"}[e.Kind]
		if e.Kind == capture.KindMessage && e.Dir == capture.ToClient {
			wants = "responded"
		}
		aborted := e.Kind == capture.KindEnd && was == "requested" && len(e.Data) > 0
		if was != wants && !aborted {
			t.Errorf("event %d: %s %s of exchange %d on side %s: got state %q, want %q", e.N, e.Kind, e.Dir, e.Exchange, e.Side, was, wants)
		}
	}
	for n, message := range messages { // except the bridge's own requests, and messages that the bridge does not forward
		own := false
		for _, part := range []string{`"mcpwire-`, "notifications/initialized", "notifications/subscriptions/acknowledged", "no handshake"} {
			own = own || strings.Contains(message, part)
		}
		if !linked[n] && !own {
			t.Errorf("event %d has no link: %s", n, message)
		}
	}
	for k, s := range state {
		if s != "ended" {
			t.Errorf("exchange %d on side %s: got state %q at the end, want ended", k.x, k.side, s)
		}
	}
	if len(messages) < 20 {
		t.Errorf("got %d messages, want at least 20", len(messages))
	}
	return nil
}
