package wireclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/net/sse"
	"mcpwire/mcp"
)

// A roundTrip is an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// respond returns a RoundTripper with a fixed response.
func respond(status int, kind string, body io.Reader) roundTrip {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Proto: "HTTP/1.1", Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(body), Request: r}, nil
	}
}

func TestRequest(t *testing.T) {
	c := &HTTP{
		UserAgent: "test/1", HeaderMirror: &HeaderMirror{}, MaxMessage: 100,
		Header: http.Header{"accept": {""}, "Host": {"virtual.example"}, "X-Tenant": {"a", "b"}, "Mcp-Method": {"wrong"}},
	}
	c.SetSessionHeader(HeaderSession, "S1")
	c.SetSessionHeader(HeaderVersion, "ü")
	if got := c.SessionHeader(HeaderVersion); got != "=?base64?w7w=?=" {
		t.Errorf("an odd revision is sent as %q", got)
	}
	c.SetSessionHeader(HeaderVersion, "")
	const message = `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	var got *http.Request
	var body []byte
	c.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		got = r
		body, _ = io.ReadAll(r.Body)
		return nil, &url.Error{Op: "Post", URL: "http://localhost/?secret", Err: io.ErrUnexpectedEOF}
	})
	x, err := c.NewExchange(t.Context(), &Request{URL: "http://user:word@localhost/mcp", Body: []byte(message), Edit: func(r *http.Request) { r.Header.Set("X-Edit", "1") }})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Do(); err != io.ErrUnexpectedEOF {
		t.Errorf("the error is %v, want it without the URL", err)
	}
	x.End(nil)
	want := http.Header{
		"User-Agent": {"test/1"}, "Content-Type": {"application/json"}, "Mcp-Session-Id": {"S1"}, "Mcp-Protocol-Version": {"2026-07-28"},
		"Mcp-Method": {"wrong"}, "X-Tenant": {"a", "b"}, "X-Edit": {"1"}, "Authorization": {"Basic dXNlcjp3b3Jk"},
	}
	if diff := cmp.Diff(want, got.Header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	if string(body) != message || got.Method != http.MethodPost || got.Host != "virtual.example" || got.ContentLength != int64(len(message)) {
		t.Errorf("%s %s of %d bytes: %s", got.Method, got.Host, got.ContentLength, body)
	}
	if _, err := c.NewExchange(t.Context(), &Request{URL: "http://local host/?secret"}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("the error is %v, want one without the URL", err)
	}
}

func TestMirror(t *testing.T) {
	const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
	params := map[string][]mcp.HeaderParam{"t": {{Header: "Region", Path: []string{"a", "region"}}, {Header: "Count", Path: []string{"n"}}, {Header: "List", Path: []string{"l"}}}}
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
		return h
	}
	for _, tt := range []struct {
		name, version, message string
		want                   http.Header
	}{
		{"legacy", "", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, header()},
		{"by default", "2026-07-28", `{"jsonrpc":"2.0","method":"n"}`, header(HeaderVersion, "2026-07-28", HeaderMethod, "n")},
		{"modern", "", `{"method":"tools/list","params":{` + meta + `}}`, header(HeaderVersion, "2026-07-28", HeaderMethod, "tools/list")},
		{"no method", "", `{"params":{` + meta + `}}`, header(HeaderVersion, "2026-07-28")},
		{"response", "2026-07-28", `{"jsonrpc":"2.0","id":1,"result":{}}`, header()},
		{"name", "", `{"method":"prompts/get","params":{"name":"Zürich",` + meta + `}}`, header(HeaderVersion, "2026-07-28", HeaderMethod, "prompts/get", HeaderName, "=?base64?WsO8cmljaA==?=")},
		{"name of another type", "", `{"method":"prompts/get","params":{"name":7,` + meta + `}}`, header(HeaderVersion, "2026-07-28", HeaderMethod, "prompts/get")},
		{"URI", "", `{"method":"resources/read","params":{"uri":"a:b",` + meta + `}}`, header(HeaderVersion, "2026-07-28", HeaderMethod, "resources/read", HeaderName, "a:b")},
		{"arguments", "", `{"method":"tools/call","params":{"name":"t","arguments":{"a":{"region":"eu"},"n":4.2e1,"l":[]},` + meta + `}}`,
			header(HeaderVersion, "2026-07-28", HeaderMethod, "tools/call", HeaderName, "t", "Mcp-Param-Region", "eu", "Mcp-Param-Count", "42")},
		{"batch", "2026-07-28", `[{"jsonrpc":"2.0","method":"n"}]`, header()},
		{"no JSON", "2026-07-28", `{"method":"n"`, header()},
		{"a numeric argument", "2026-07-28", `42`, header()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := http.Header{}
			(&HeaderMirror{Version: tt.version, Params: params}).Set(got, []byte(tt.message))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("header (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExchange(t *testing.T) {
	const answer = `{"jsonrpc":"2.0","id":1,"result":{}}`
	for _, tt := range []struct {
		name, kind string
		body       io.Reader
		maxStream  int
		// want are the texts that Next returns.
		want   []string
		err    error
		record []string
	}{
		{"JSON", "application/json; charset=utf-8", strings.NewReader(answer), 0, []string{answer}, io.EOF, []string{"msg s2c " + answer}},
		{"JSON of another type", "text/plain", strings.NewReader(answer), 0, []string{answer}, io.EOF, []string{"msg s2c " + answer}},
		{"text", "text/html", strings.NewReader("<h1>"), 0, []string{"<h1>"}, io.EOF, []string{"body s2c <h1>"}},
		{"nothing", "application/json", strings.NewReader(""), 0, nil, io.EOF, nil},
		{"large", "text/plain", strings.NewReader(strings.Repeat("x", 51)), 0, []string{strings.Repeat("x", 50)}, ErrTooLarge, []string{"body s2c " + strings.Repeat("x", 50) + " (cut)"}},
		{"broken", "text/plain", io.MultiReader(strings.NewReader("half"), iotest.ErrReader(io.ErrUnexpectedEOF)), 0, []string{"half"}, io.ErrUnexpectedEOF, []string{"body s2c half"}},
		{"stream", "text/event-stream", strings.NewReader("id: 1\ndata:\n\nevent: endpoint\ndata: /m\n\nevent: message\ndata: " + answer + "\n\n"), 0,
			[]string{"", "/m", answer}, io.EOF, []string{"sse s2c", "sse s2c /m", "msg s2c " + answer}},
		{"stream that is no JSON", "text/event-stream", strings.NewReader("data: hello\n\n"), 0, []string{"hello"}, io.EOF, []string{"msg s2c hello"}},
		{"large event", "text/event-stream", strings.NewReader("data: " + strings.Repeat("x", 51) + "\n\ndata: 1\n\n"), 0, []string{"1"}, io.EOF,
			[]string{"note s2c sse: event with more than 50 bytes of data was skipped", "msg s2c 1"}},
		{"large stream", "text/event-stream", strings.NewReader("data: 1\n\ndata: 2\n\n"), 12, []string{"1"}, ErrTooLarge, []string{"msg s2c 1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := newLog()
			c := &HTTP{Transport: respond(200, tt.kind, tt.body), MaxMessage: 50, MaxStream: tt.maxStream, Record: l.record, Session: 3}
			x, err := c.NewExchange(t.Context(), &Request{URL: "http://localhost/", Body: []byte("{}")})
			if err != nil || x.N != 1 || x.At != 2 {
				t.Fatalf("exchange %+v, %v", x, err)
			}
			if err := x.Do(); err != nil || x.Status() != 200 || x.At != 3 {
				t.Fatalf("exchange %+v, %v", x, err)
			}
			var got []string
			for {
				in, err := x.Next()
				if in != nil {
					got = append(got, string(in.Data))
				}
				if _, large := errors.AsType[*sse.TooLargeError](err); large {
					continue
				}
				if err != nil {
					if !errors.Is(err, tt.err) {
						t.Errorf("the error is %v, want %v", err, tt.err)
					}
					break
				}
			}
			x.End(errors.New("enough"))
			x.End(nil)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("received (-want +got):\n%s", diff)
			}
			want := append(append([]string{"req c2s", "msg c2s {}", "res s2c"}, tt.record...), "end enough")
			if diff := cmp.Diff(want, l.lines()); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
}

// TestExchangeCause shows that the error of an interrupted exchange is the cause of its context.
func TestExchangeCause(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	c := &HTTP{MaxMessage: 50, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		cancel(enough)
		<-r.Context().Done()
		return nil, r.Context().Err()
	})}
	x, err := c.NewExchange(ctx, &Request{Method: http.MethodGet, URL: "http://localhost/"})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Do(); err != enough {
		t.Errorf("the error is %v, want %v", err, enough)
	}
	if x.Status() != 0 {
		t.Errorf("the status is %d without a response", x.Status())
	}
	x.End(nil)
}

// TestLimit shows that the latest limit of an exchange ends it.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		c := &HTTP{MaxMessage: 50, Transport: roundTrip(func(q *http.Request) (*http.Response, error) {
			context.AfterFunc(q.Context(), func() { w.CloseWithError(q.Context().Err()) })
			return respond(200, "text/event-stream", r)(q)
		})}
		x, err := c.NewExchange(t.Context(), &Request{Method: http.MethodGet, URL: "http://localhost/"})
		if err != nil {
			t.Fatal(err)
		}
		defer x.End(nil)
		late, idle := errors.New("late"), errors.New("idle")
		x.Limit(time.Second, late)
		if err := x.Do(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for range 3 {
			x.Limit(700*time.Millisecond, idle)
			time.Sleep(600 * time.Millisecond)
		}
		if _, err := x.Next(); err != idle || time.Since(began) != 1900*time.Millisecond {
			t.Errorf("the error is %v after %v, want %v after 1.9s", err, time.Since(began), idle)
		}
	})
}

func TestFind(t *testing.T) {
	const stream = "event: endpoint\ndata: /m\n\ndata: 1\n\ndata: 2\n\n"
	for _, tt := range []struct {
		name, kind, body, data, want string
		err                          error
	}{
		{"first", "text/event-stream", stream, "/m", "/m", nil},
		{"later", "text/event-stream", stream, "2", "2", nil},
		{"none", "text/event-stream", stream, "3", "", io.EOF},
		{"body", "application/json", "{}", "3", "{}", nil},
		{"no body", "application/json", "", "3", "", nil},
		{"large body", "text/plain", strings.Repeat("x", 51), "3", strings.Repeat("x", 50), ErrTooLarge},
	} {
		c := &HTTP{Transport: respond(200, tt.kind, strings.NewReader(tt.body)), MaxMessage: 50}
		x, err := c.NewExchange(t.Context(), &Request{URL: "http://localhost/"})
		if err == nil {
			err = x.Do()
		}
		if err != nil {
			t.Fatal(err)
		}
		in, err := x.Find(func(in *Received) bool { return string(in.Data) == tt.data })
		x.End(nil)
		if in == nil {
			in = &Received{}
		}
		if string(in.Data) != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %q, %v, want %q, %v", tt.name, in.Data, err, tt.want, tt.err)
		}
	}
}

// TestHTTPSession shows the headers of a legacy session, and that it is deleted once if it has an
// id.
func TestHTTPSession(t *testing.T) {
	for _, tt := range []struct {
		name, id, version string
		want              []string
	}{
		{"with an id", "S1", "2025-11-25", []string{"POST S1 2025-11-25", "DELETE S1 2025-11-25 edited"}},
		{"without the header of the revision", "S1", "", []string{"POST S1 ", "DELETE S1  edited"}},
		{"without an id", "", "2025-11-25", []string{"POST  2025-11-25"}},
	} {
		var got []string
		c := &HTTP{MaxMessage: 50}
		c.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			line := r.Method + " " + r.Header.Get(HeaderSession) + " " + r.Header.Get(HeaderVersion)
			if r.Header.Get("X-Edit") != "" {
				line += " edited"
			}
			got = append(got, line)
			return respond(200, "", strings.NewReader(""))(r)
		})
		c.BeginSession(http.Header{HeaderSession: {tt.id}}, tt.version)
		x, err := c.NewExchange(t.Context(), &Request{URL: "http://localhost/", Body: []byte("{}")})
		if err == nil {
			err = x.Do()
		}
		if err != nil {
			t.Fatal(err)
		}
		x.End(nil)
		c.BeginSession(nil, "")
		c.EndSession(Request{URL: "http://localhost/", Edit: func(r *http.Request) { r.Header.Set("X-Edit", "1") }})
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestEndpoint(t *testing.T) {
	stream, err := url.Parse("http://localhost:1/sse?x=1")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ data, want, err string }{
		{" /messages?id=7#part\n", "http://localhost:1/messages?id=7", ""},
		{"messages", "http://localhost:1/messages", ""},
		{"http://localhost:1/m", "http://localhost:1/m", ""},
		{"https://localhost:1/m", "", "the endpoint is not at the same origin"},
		{"http://localhost:2/m", "", "the endpoint is not at the same origin"},
		{"http://user@localhost:1/m", "", "the endpoint is not at the same origin"},
		{"http://%zz", "", "the endpoint is not a URL"},
	} {
		got, err := Endpoint(stream, []byte(tt.data))
		if text := ""; err != nil || tt.err != "" {
			if err != nil {
				text = err.Error()
			}
			if text != tt.err {
				t.Errorf("%q: the error is %q, want %q", tt.data, text, tt.err)
			}
			continue
		}
		if got.String() != tt.want {
			t.Errorf("%q is %s, want %s", tt.data, got, tt.want)
		}
	}
}

func TestLimitedReader(t *testing.T) {
	for _, tt := range []struct {
		limit int
		want  string
		err   error
	}{{4, "abcd", nil}, {5, "abcd", nil}, {3, "abc", ErrTooLarge}, {0, "", ErrTooLarge}} {
		for _, in := range []io.Reader{strings.NewReader("abcd"), iotest.OneByteReader(strings.NewReader("abcd"))} {
			got, err := io.ReadAll(&limitedReader{in, tt.limit, tt.limit})
			if string(got) != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("at most %d: got %q, %v, want %q, %v", tt.limit, got, err, tt.want, tt.err)
			}
		}
	}
}
