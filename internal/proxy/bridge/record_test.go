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

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/jsonrpc"
	"mcpwire/streamable"
)

// TestRecordHTTP shows that if both sides use HTTP, the capture has each exchange in a possible
// order and each message once, with the links between messages and without credentials.
func TestRecordHTTP(t *testing.T) {
	for _, serverEra := range []Era{EraLegacy, EraModern} {
		for _, clientEra := range []Era{EraLegacy, EraModern} {
			t.Run(fmt.Sprintf("%v to %v", clientEra, serverEra), func(t *testing.T) { recordHTTP(t, "/mcp", clientEra, serverEra) })
		}
		t.Run(fmt.Sprintf("the older transport to %v", serverEra), func(t *testing.T) {
			text := recordHTTP(t, "/sse", EraLegacy, serverEra)
			if !strings.Contains(text, `"event":"endpoint"`) {
				t.Errorf("the capture does not say where messages are posted:\n%s", text)
			}
		})
	}
}

// recordHTTP has a client of the path do what it can, and returns the capture.
func recordHTTP(t *testing.T, path string, clientEra, serverEra Era) string {
	t.Helper()
	secrets := []string{"sesame-0123456789", "crumb-0123456789", "in-the-url-0123456789"}
	behind := streamable.MustHandler(newServer(t, serverEra.revisions()), nil)
	upstream := httptest.NewServer(behind)
	defer upstream.Close()
	var text bytes.Buffer
	w := capture.NewWriter(&text, nil)
	transport := streamable.Dial(upstream.URL+"/mcp?token="+secrets[2], &streamable.DialOptions{
		HTTPClient: &http.Client{Transport: OuterTransport(forgetful{Transport(http.DefaultTransport)})},
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
	tryAll(t, streamable.Dial(front.URL+path+"?token="+secrets[2], &streamable.DialOptions{Header: http.Header{"Authorization": {"Bearer " + secrets[0]}}}), clientEra)
	h.Shutdown(t.Context())
	front.Close() // waits until the last exchange has been recorded
	b.Close()
	behind.Shutdown(t.Context())
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, secret := range secrets {
		if strings.Contains(text.String(), secret) {
			t.Errorf("the capture has %q", secret)
		}
	}
	if err := exchanges(t, text.Bytes()); t.Failed() || err != nil {
		t.Logf("%v\n%s", err, text.String())
	}
	return text.String()
}

// TestRecordResumed shows that the end of a response that a call was to be answered on is recorded
// once the call was answered, and not before.
func TestRecordResumed(t *testing.T) {
	var text bytes.Buffer
	w := capture.NewWriter(&text, nil)
	l := newRecording(w).newRecorder(capture.Upstream)
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
	l.note("the answer")
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
		t.Errorf("-want +got\n%s", d)
	}
}

type roundTrip func(*http.Request) *http.Response

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r), nil }

// forgetful forgets which request a response is to, as what logs in does.
type forgetful struct{ next http.RoundTripper }

func (f forgetful) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := f.next.RoundTrip(r.Clone(r.Context()))
	if resp != nil {
		resp.Request = r
	}
	return resp, err
}

// exchanges complains of what cannot be so in the capture of a bridge between clients and a server
// on HTTP.
func exchanges(t *testing.T, text []byte) error {
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
				t.Errorf("event %d: exchange %d is of session %d and of %d", e.N, e.Exchange, was, e.Session)
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
			state[k] = "asked"
		case capture.KindResponse:
			state[k] = "answered"
		case capture.KindEnd:
			state[k] = "over"
		case capture.KindMessage:
			messages[e.N] = string(e.Data)
		default:
			continue
		}
		wants := map[capture.Kind]string{capture.KindRequest: "", capture.KindResponse: "asked", capture.KindEnd: "answered", capture.KindMessage: "asked"}[e.Kind]
		if e.Kind == capture.KindMessage && e.Dir == capture.ToClient {
			wants = "answered"
		}
		givenUp := e.Kind == capture.KindEnd && was == "asked" && len(e.Data) > 0
		if was != wants && !givenUp {
			t.Errorf("event %d, %s %s of exchange %d on side %s, comes when that is %q, want %q", e.N, e.Kind, e.Dir, e.Exchange, e.Side, was, wants)
		}
	}
	for n, message := range messages { // except the bridge's own requests, and messages for the bridge alone
		own := false
		for _, part := range []string{`"mcpwire-`, "notifications/initialized", "notifications/subscriptions/acknowledged", "no handshake"} {
			own = own || strings.Contains(message, part)
		}
		if !linked[n] && !own {
			t.Errorf("event %d is not linked with anything: %s", n, message)
		}
	}
	for k, s := range state {
		if s != "over" {
			t.Errorf("exchange %d on side %s is %q in the end", k.x, k.side, s)
		}
	}
	if len(messages) < 20 {
		t.Errorf("there are %d messages, want more", len(messages))
	}
	return nil
}
