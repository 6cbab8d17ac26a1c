package web_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/view/watch"
	"mcpwire/cmd/internal/view/web"
)

// hang limits each wait of a test.
const hang = 60 * time.Second

// A recording is a capture that a test makes.
type recording struct {
	t testing.TB
	*capture.File
	id int
}

// record begins a capture in dir, with a handshake in it.
func record(t testing.TB, dir, name string, opts *capture.Options) *recording {
	t.Helper()
	o := capture.Options{}
	if opts != nil {
		o = *opts
	}
	o.Tool, o.Transport, o.Name = "test", "stdio", name
	f, err := capture.Create(filepath.Join(dir, name+capture.Suffix), &o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	r := &recording{t: t, File: f}
	r.begin()
	return r
}

// begin records how a session begins.
func (r *recording) begin() {
	r.Record(&capture.Event{Kind: capture.KindStart, Session: 1, Start: &capture.Start{Command: []string{"node", "server.js"}, PID: 4711}})
	r.client(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"host","version":"1"}}}`)
	r.server(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"srv","version":"2"}}}`)
	r.client(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func (r *recording) client(msg string) uint64 {
	return r.Record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Session: 1, Framing: capture.FramingLF, Data: []byte(msg)})
}

func (r *recording) server(msg string) uint64 {
	return r.Record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Session: 1, Framing: capture.FramingLF, Data: []byte(msg)})
}

// ask records a request, and returns its id.
func (r *recording) ask(tool, args string) (id string, n uint64) {
	r.id++
	id = strconv.Itoa(r.id)
	return id, r.client(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":` + quote(tool) + `,"arguments":` + args + `}}`)
}

// reply records the response.
func (r *recording) reply(id, text string) uint64 {
	return r.server(`{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":` + quote(text) + `}]}}`)
}

// call records both, and returns the numbers of their events.
func (r *recording) call(tool, args, text string) (n, rn uint64) {
	id, n := r.ask(tool, args)
	return n, r.reply(id, text)
}

func (r *recording) flush() {
	r.t.Helper()
	if err := r.Flush(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// done ends the capture.
func (r *recording) done() string {
	r.t.Helper()
	if err := r.Close(); err != nil {
		r.t.Fatal(err)
	}
	return r.Name()
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// A site is a running server with an authenticated client.
type site struct {
	t      testing.TB
	hub    *watch.Hub
	server *web.Server
	base   string // http://127.0.0.1:PORT
	client *http.Client
	// keyless says that requests have the key only if a test gives it.
	keyless bool
	stop    func()
}

// serve runs a server over captures.
func serve(t testing.TB, wopts *watch.Options, opts *web.Options) *site {
	t.Helper()
	s := serveStrange(t, wopts, opts)
	res := s.get("/?token=" + s.server.Token())
	if res.status != http.StatusOK {
		t.Fatalf("with the token, the status is %d: %s", res.status, res.body)
	}
	return s
}

// serveStrange is serve with a client that is not authenticated.
func serveStrange(t testing.TB, wopts *watch.Options, opts *web.Options) *site {
	t.Helper()
	if wopts == nil {
		wopts = &watch.Options{}
	}
	s := &site{t: t, hub: watch.New(wopts)}
	s.server = web.New(s.hub, opts)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.base = "http://" + l.Addr().String()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	s.client = &http.Client{Jar: jar, Transport: keyTransport{transport, s}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.hub.Run(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("Run: %v", err)
		}
	})
	running.Go(func() {
		if err := s.server.Serve(ctx, l); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	s.stop = sync.OnceFunc(func() {
		transport.CloseIdleConnections()
		cancel()
		running.Wait()
		transport.CloseIdleConnections()
	})
	t.Cleanup(s.stop)
	return s
}

// A keyTransport adds the key to requests, as the page does.
type keyTransport struct {
	*http.Transport
	s *site
}

// RoundTrip implements http.RoundTripper.
func (t keyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !t.s.keyless && r.Header.Get("X-Mcpwire") == "" {
		r = r.Clone(r.Context())
		r.Header.Set("X-Mcpwire", t.s.server.Key())
	}
	return t.Transport.RoundTrip(r)
}

type result struct {
	status int
	header http.Header
	body   string
}

// do sends a request with headers, given as "Name: value", and reads the answer.
func (s *site) do(method, path, body string, headers ...string) result {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
		}
		req.Header.Add(name, value)
	}
	res, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return result{res.StatusCode, res.Header, string(text)}
}

func (s *site) get(path string, headers ...string) result {
	s.t.Helper()
	return s.do(http.MethodGet, path, "", headers...)
}

// post sends a request as the page does.
func (s *site) post(path, body string) result {
	s.t.Helper()
	return s.do(http.MethodPost, path, body, "Origin: "+s.base, "Sec-Fetch-Site: same-origin")
}

// into reads JSON.
func (r result) into(t testing.TB, v any) {
	t.Helper()
	if r.status != http.StatusOK {
		t.Fatalf("status %d: %s", r.status, r.body)
	}
	if err := json.Unmarshal([]byte(r.body), v); err != nil {
		t.Fatalf("%v in %.300s", err, r.body)
	}
}

// A row has the members of a row that tests check.
type row struct {
	Q        uint64   `json:"q"`
	P        uint64   `json:"p"`
	N        uint64   `json:"n"`
	RN       uint64   `json:"rn"`
	Capture  string   `json:"c"`
	Server   string   `json:"srv"`
	Kind     string   `json:"k"`
	At       float64  `json:"at"`
	Method   string   `json:"m"`
	Target   string   `json:"tg"`
	ID       string   `json:"id"`
	Status   string   `json:"st"`
	Wall     *float64 `json:"l"`
	Done     bool     `json:"done"`
	Summary  string   `json:"sum"`
	Glyph    string   `json:"g"`
	Era      string   `json:"era"`
	Rev      string   `json:"rev"`
	Findings []int    `json:"findings"`
	Excerpt  string   `json:"x"`
}

// A page is the state that a page keeps of a stream.
type page struct {
	t      testing.TB
	body   io.ReadCloser
	lines  *bufio.Reader
	id     string
	events []string // names, without those that repeat
	hello  map[string]any
	rows   map[uint64]row
	cards  map[string]map[string]any
	source []map[string]any
	total  total
	synced bool
	resets int
	search []map[string]any
	facets map[string][]map[string]any
}

// A total says of how many rows the page has how many.
type total struct {
	Rows, Evicted, Matches, Read uint64
	Running                      int
	Whole                        bool
}

// follow opens a stream.
func (s *site) follow(query url.Values, headers ...string) *page {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), hang)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/api/stream?"+query.Encode(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	p := &page{t: s.t, body: res.Body, lines: bufio.NewReader(res.Body), rows: map[uint64]row{}, cards: map[string]map[string]any{}}
	s.t.Cleanup(func() { cancel(); res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(res.Body)
		s.t.Fatalf("the stream has status %d: %s", res.StatusCode, text)
	}
	if got := res.Header.Get("Content-Type"); got != "text/event-stream; charset=utf-8" {
		s.t.Fatalf("the stream has type %q", got)
	}
	return p
}

// next takes the next event in.
func (p *page) next() (name string, err error) {
	var data []byte
	for {
		line, err := p.lines.ReadString('\n')
		if err != nil {
			return "", err
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "event":
			name = value
		case "id":
			p.id = value
		case "data":
			data = append(data, value...)
		case "":
			if name != "" {
				return name, p.take(name, data)
			}
		}
	}
}

func (p *page) take(name string, data []byte) error {
	var err error
	if len(p.events) == 0 || p.events[len(p.events)-1] != name {
		p.events = append(p.events, name)
	}
	switch name {
	case "hello":
		p.hello = nil
		var h struct{ Total total }
		err = errors.Join(json.Unmarshal(data, &p.hello), json.Unmarshal(data, &h))
		p.total = h.Total
		if p.hello["reset"] == true {
			p.resets++
			clear(p.rows)
			clear(p.cards)
		}
	case "rows":
		var rows []row
		err = json.Unmarshal(data, &rows)
		if len(rows) > 500 {
			return fmt.Errorf("%d rows at once", len(rows))
		}
		for _, r := range rows {
			p.rows[r.Q] = r
		}
	case "gone":
		var gone []uint64
		err = json.Unmarshal(data, &gone)
		for _, q := range gone {
			delete(p.rows, q)
		}
	case "sessions":
		var cards []map[string]any
		err = json.Unmarshal(data, &cards)
		for _, c := range cards {
			p.cards[fmt.Sprint(c["capture"], c["session"])] = c
		}
	case "sources":
		p.source = nil
		err = json.Unmarshal(data, &p.source)
	case "searching":
		var s map[string]any
		err = json.Unmarshal(data, &s)
		p.search = append(p.search, s)
	case "total":
		p.total = total{}
		err = json.Unmarshal(data, &p.total)
	case "facets":
		p.facets = nil
		err = json.Unmarshal(data, &p.facets)
	case "synced":
		p.synced = true
	default:
		err = fmt.Errorf("an event %q", name)
	}
	return err
}

// until takes events until something holds.
func (p *page) until(what string, holds func() bool) {
	p.t.Helper()
	for !holds() {
		if _, err := p.next(); err != nil {
			p.t.Fatalf("waiting for %s: %v; events %v; %d rows", what, err, p.events, len(p.rows))
		}
	}
}

// find returns the row of the timeline that calls a tool.
func (p *page) find(tool string) (row, bool) {
	for _, r := range p.rows {
		if r.Target == tool {
			return r, true
		}
	}
	return row{}, false
}

// calls waits for a call to have a status, and returns its row.
func (p *page) calls(tool, status string) (found row) {
	p.t.Helper()
	p.until("the call of "+tool, func() bool {
		r, ok := p.find(tool)
		found = r
		return ok && r.Status == status
	})
	return found
}

func (p *page) close() { p.body.Close() }

// readCapture reads a capture.
func readCapture(t testing.TB, text []byte) (heads int, messages []string) {
	t.Helper()
	r := capture.NewReader(bytes.NewReader(text), nil)
	for e, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		switch e.Kind {
		case capture.KindHead:
			heads++
		case capture.KindGap:
			t.Errorf("there is a gap: %+v", e.Gap)
		case capture.KindMessage:
			messages = append(messages, string(e.Data))
		}
	}
	return heads, messages
}

func mustURL(t testing.TB, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
