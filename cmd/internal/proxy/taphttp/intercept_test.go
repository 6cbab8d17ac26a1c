package taphttp_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/proxy/intercept"
	"mcpwire/cmd/internal/proxy/taphttp"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/internal/test/pipes"
)

// A viewer decides about the messages that a tap holds.
type viewer struct {
	t      *testing.T
	b      *intercept.Breakpoints
	states chan *live.Intercepted
	last   uint64
}

// newViewer returns a viewer and the breakpoints that it watches.
func newViewer(t *testing.T, text string, timeout time.Duration) *viewer {
	t.Helper()
	f, err := filter.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	v := &viewer{t: t, b: intercept.New(f, timeout), states: make(chan *live.Intercepted, 1000)}
	v.b.Publish(func(s *live.Intercepted) { v.states <- s })
	return v
}

// next waits for the next held message.
func (v *viewer) next() live.HeldMessage {
	for s := range v.states {
		for _, m := range s.Messages {
			if m.ID > v.last {
				v.last = m.ID
				return m
			}
		}
	}
	panic("unreachable")
}

// decide waits for the next held message and decides about it. If the decision is rejected with
// want, it passes the message on.
func (v *viewer) decide(d live.Decision, want string) live.HeldMessage {
	m := v.next()
	d.ID = m.ID
	err := v.b.Decide(&d)
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		v.t.Errorf("%s: the decision: %v, want %q", d.Action, err, want)
	}
	if err != nil {
		if err := v.b.Decide(&live.Decision{ID: m.ID, Action: live.Pass}); err != nil {
			v.t.Error(err)
		}
	}
	return m
}

// A posted is a request that a server has received.
type posted struct {
	body   string
	header http.Header
}

// An eraCase has the messages of an era.
type eraCase struct {
	name                    string
	call, editedCall        string
	event, editedEvent      string
	header                  map[string]string
	stream                  func(url string) *http.Request
	canAnswerEvents, modern bool
}

func modernMeta(more string) string {
	return `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}` + more
}

func newPost(url, body string, header map[string]string) *http.Request {
	r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for name, value := range header {
		r.Header.Set(name, value)
	}
	return r
}

var eraCases = []eraCase{
	{
		name:       "legacy",
		call:       `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":1}}}`,
		editedCall: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"b","arguments":{"x":"longer"}}}`,
		event:      `{"jsonrpc":"2.0","id":"s1","method":"roots/list"}`, editedEvent: `{"jsonrpc":"2.0","id":"s1","method":"ping"}`,
		header: map[string]string{"Mcp-Session-Id": "abc", "MCP-Protocol-Version": "2025-11-25"},
		stream: func(url string) *http.Request {
			r, _ := http.NewRequest(http.MethodGet, url, nil)
			r.Header.Set("Accept", "text/event-stream")
			r.Header.Set("Mcp-Session-Id", "abc")
			return r
		},
		canAnswerEvents: true,
	},
	{
		name:       "modern",
		call:       `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":1},` + modernMeta("") + `}}`,
		editedCall: `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"b","arguments":{"x":"longer"},` + modernMeta("") + `}}`,
		event:      `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`, editedEvent: `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"edited"}}`,
		header: map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "a"},
		stream: func(url string) *http.Request { // modern servers have no GET streams
			return newPost(url, `{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen","params":{"notifications":{},`+modernMeta("")+`}}`,
				map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"})
		},
		modern: true,
	},
}

const (
	jsonResult   = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[]}}`
	editedResult = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[],"edited":true}}`
	lastEvent    = "id: 2\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/last\"}\n\n"
	answerText   = `{"jsonrpc":"2.0","id":1,"result":{"answer":"by hand"}}`
	streamAnswer = `{"jsonrpc":"2.0","id":"s1","result":{"roots":[]}}`
)

func heldEvent(data string) string {
	return ": comment\n\nid: 1\nretry: 50\nevent: message\ndata: " + data + "\n\n"
}

// TestIntercept checks each action for each kind of message in both eras: what the client and the
// server get, and that the capture has both versions.
func TestIntercept(t *testing.T) {
	type result struct {
		status int
		body   string // what the client gets
		posts  int    // that the server gets
	}
	for _, era := range eraCases {
		var listen int
		if era.modern {
			listen = 1 // the stream is a POST
		}
		edit := map[string]string{"request": era.editedCall, "response": editedResult, "event of a POST": era.editedEvent, "event of a stream": era.editedEvent}
		event := heldEvent(era.event) + lastEvent
		without := ": comment\n\nid: 1\nretry: 50\n\n" + lastEvent
		for _, tt := range []struct {
			place, filter string
			action        live.Action
			want          result
			record        string
			rejected      string
		}{
			{"request", "tool:a -status:ok", live.Pass, result{200, jsonResult, 1}, "passed", ""},
			{"request", "tool:a -status:ok", live.Edit, result{200, jsonResult, 1}, "edited", ""},
			{"request", "tool:a -status:ok", live.Drop, result{502, "mcpwire tap: a viewer of the tap dropped the request\n", 0}, "dropped", ""},
			{"request", "tool:a -status:ok", live.Delay, result{200, jsonResult, 1}, "delayed", ""},
			{"request", "tool:a -status:ok", live.Answer, result{200, answerText, 0}, "answered", ""},
			{"request", "tool:a -status:ok", "", result{200, jsonResult, 1}, "timeout", ""},

			{"response", "status:ok tool:a", live.Pass, result{200, jsonResult, 1}, "passed", ""},
			{"response", "status:ok tool:a", live.Edit, result{200, editedResult, 1}, "edited", ""},
			{"response", "status:ok tool:a", live.Drop, result{502, "mcpwire tap: a viewer of the tap dropped the response\n", 1}, "dropped", ""},
			{"response", "status:ok tool:a", live.Delay, result{200, jsonResult, 1}, "delayed", ""},
			{"response", "status:ok tool:a", live.Answer, result{200, jsonResult, 1}, "passed", "only a request"},
			{"response", "status:ok tool:a", "", result{200, jsonResult, 1}, "timeout", ""},

			{"event of a POST", "method:roots/list | method:notifications/message", live.Pass, result{200, event, 1}, "passed", ""},
			{"event of a POST", "method:roots/list | method:notifications/message", live.Edit, result{200, heldEvent(era.editedEvent) + lastEvent, 1}, "edited", ""},
			{"event of a POST", "method:roots/list | method:notifications/message", live.Drop, result{200, without, 1}, "dropped", ""},
			{"event of a POST", "method:roots/list | method:notifications/message", live.Delay, result{200, event, 1}, "delayed", ""},
			{"event of a POST", "method:roots/list | method:notifications/message", live.Answer, result{200, without, 2}, "answered", ""},
			{"event of a POST", "method:roots/list | method:notifications/message", "", result{200, event, 1}, "timeout", ""},

			{"event of a stream", "method:roots/list | method:notifications/message", live.Pass, result{200, event, listen}, "passed", ""},
			{"event of a stream", "method:roots/list | method:notifications/message", live.Edit, result{200, heldEvent(era.editedEvent) + lastEvent, listen}, "edited", ""},
			{"event of a stream", "method:roots/list | method:notifications/message", live.Drop, result{200, without, listen}, "dropped", ""},
			{"event of a stream", "method:roots/list | method:notifications/message", live.Delay, result{200, event, listen}, "delayed", ""},
			{"event of a stream", "method:roots/list | method:notifications/message", live.Answer, result{200, without, listen + 1}, "answered", ""},
			{"event of a stream", "method:roots/list | method:notifications/message", "", result{200, event, listen}, "timeout", ""},
		} {
			isEvent := strings.HasPrefix(tt.place, "event")
			if isEvent && tt.action == live.Answer && !era.canAnswerEvents {
				tt.want.body, tt.want.posts, tt.record, tt.rejected = event, tt.want.posts-1, "passed", "only a request"
			}
			t.Run(era.name+"/"+tt.place+"/"+string(tt.action), func(t *testing.T) {
				timeout := time.Hour
				if tt.action == "" {
					timeout = time.Millisecond
				}
				v := newViewer(t, tt.filter, timeout)
				var mu sync.Mutex
				var posts []posted
				p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					if r.Method == http.MethodPost {
						mu.Lock()
						posts = append(posts, posted{string(body), r.Header})
						mu.Unlock()
					}
					switch {
					case strings.Contains(string(body), `"roots"`): // a response to the server
						w.WriteHeader(http.StatusAccepted)
					case isEvent:
						w.Header().Set("Content-Type", "text/event-stream")
						io.WriteString(w, event)
					default:
						w.Header().Set("Content-Type", "application/json")
						io.WriteString(w, jsonResult)
					}
				}, &taphttp.Options{Breakpoints: v.b, Name: "s"})
				decided := make(chan struct{})
				go func() {
					defer close(decided)
					d := live.Decision{Action: tt.action, Data: edit[tt.place], DelayMS: 1}
					if tt.action == live.Answer {
						d.Data = answerText
						if isEvent {
							d.Data = streamAnswer
						}
					}
					if tt.action != "" {
						v.decide(d, tt.rejected)
					}
				}()
				request := newPost(p.url, era.call, era.header)
				if tt.place == "event of a stream" {
					request = era.stream(p.url)
				}
				resp, err := http.DefaultClient.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil {
					t.Error(err)
				}
				<-decided
				http.DefaultClient.CloseIdleConnections()
				events := p.events()
				got := result{resp.StatusCode, string(body), len(posts)}
				if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(result{})); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if n := resp.ContentLength; n >= 0 && n != int64(len(body)) {
					t.Errorf("Content-Length is %d for %d bytes", n, len(body))
				}
				if tt.place == "request" && tt.action == live.Edit {
					want := posted{era.editedCall, posts[0].header.Clone()}
					want.header.Set("Content-Length", strconv.Itoa(len(era.editedCall)))
					if era.modern {
						want.header.Set("Mcp-Name", "b")
					}
					if diff := cmp.Diff(want, posts[0], cmp.AllowUnexported(posted{})); diff != "" {
						t.Errorf("the server gets (-want +got):\n%s", diff)
					}
				}
				if isEvent && tt.action == live.Answer && era.canAnswerEvents {
					if last := posts[len(posts)-1]; last.body != streamAnswer || last.header.Get("Mcp-Session-Id") != "abc" {
						t.Errorf("the server gets the answer %q with the header %v", last.body, last.header)
					}
				}
				checkSides(t, events, tt.record)
			})
		}
	}
}

// checkSides checks that a capture of a tap that held a message has two sides that are complete,
// and says what was decided.
func checkSides(t *testing.T, events []*capture.Event, record string) {
	t.Helper()
	var text []string
	open := map[string]int{}
	for _, e := range events {
		switch e.Kind {
		case capture.KindTranslate:
			text = append(text, "link "+e.Translation.Rule)
		case capture.KindNote:
			text = append(text, "note "+string(e.Data))
		case capture.KindRequest:
			open[fmt.Sprint(e.Side, e.Exchange)]++
		case capture.KindEnd:
			open[fmt.Sprint(e.Side, e.Exchange)]--
			if e.Side == capture.Upstream && record == "dropped" && len(e.Data) > 0 {
				t.Errorf("the server's exchange ends with %q", e.Data)
			}
		}
		if e.Exchange > 0 && (e.Side == "" || e.Exchange%2 == 0 != (e.Side == capture.Upstream)) {
			t.Errorf("event %d, %s, is of side %q and exchange %d", e.N, e.Kind, e.Side, e.Exchange)
		}
	}
	for x, n := range open {
		if n != 0 {
			t.Errorf("exchange %s has %d more requests than ends", x, n)
		}
	}
	all := strings.Join(text, "\n")
	if !strings.Contains(all, "note held ") || !strings.Contains(all, record) {
		t.Errorf("the capture lacks what was decided, %q:\n%s", record, all)
	}
}

// sides returns the messages of a capture with their sides, and how they are linked.
func sides(events []*capture.Event) (list []string) {
	for _, e := range events {
		switch e.Kind {
		case capture.KindMessage:
			list = append(list, fmt.Sprintf("%s %s %s", e.Side, e.Dir, e.Data))
		case capture.KindTranslate:
			list = append(list, e.Translation.Rule)
		}
	}
	return list
}

// TestInterceptRecord checks the order and the sides of a capture, and that heads are recorded as
// they were sent.
func TestInterceptRecord(t *testing.T) {
	era := eraCases[1]
	v := newViewer(t, "tool:a", 0)
	p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, jsonResult)
	}, &taphttp.Options{Breakpoints: v.b})
	go func() {
		v.decide(live.Decision{Action: live.Edit, Data: era.editedCall, HoldResponse: true}, "")
		v.decide(live.Decision{Action: live.Edit, Data: editedResult}, "")
	}()
	send(t, newPost(p.url, era.call, era.header), 200, editedResult)
	events := p.events()
	want := []string{
		"downstream c2s " + era.call, "upstream c2s " + era.editedCall, "edited",
		"upstream s2c " + jsonResult, "downstream s2c " + editedResult, "edited",
	}
	if diff := cmp.Diff(want, sides(events)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	field := func(list []capture.Header, name string) (values string) {
		for _, f := range list {
			if strings.EqualFold(f.Name, name) {
				values += f.Value
			}
		}
		return values
	}
	var heads []string
	for _, e := range events {
		switch e.Kind {
		case capture.KindRequest:
			heads = append(heads, fmt.Sprint(e.Side, " ", field(e.Request.Headers, "Mcp-Name"), " ", field(e.Request.Headers, "Content-Length")))
		case capture.KindResponse:
			heads = append(heads, fmt.Sprint(e.Side, " ", e.Response.Status, " ", field(e.Response.Headers, "Content-Length")))
		}
	}
	want = []string{
		fmt.Sprint("downstream a ", len(era.call)), fmt.Sprint("upstream b ", len(era.editedCall)),
		fmt.Sprint("upstream 200 ", len(jsonResult)), fmt.Sprint("downstream 200 ", len(editedResult)),
	}
	if diff := cmp.Diff(want, heads); diff != "" {
		t.Errorf("heads (-want +got):\n%s", diff)
	}
}

// send sends a request and checks the response.
func send(t *testing.T, r *http.Request, status int, body string) *http.Response {
	t.Helper()
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer resp.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	text, err := io.ReadAll(resp.Body)
	if resp.StatusCode != status || string(text) != body || err != nil {
		t.Errorf("the client gets %d %q, %v, want %d %q", resp.StatusCode, text, err, status, body)
	}
	return resp
}

// TestInterceptHeaders checks the headers that repeat an edited call, as a modern server compares
// them.
func TestInterceptHeaders(t *testing.T) {
	const tools = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"a","inputSchema":{"type":"object","properties":{"x":{"type":"string","x-mcp-header":"Region"},"y":{"type":"string"}}}}]}}`
	call := func(name, arguments string) string {
		return `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"` + name + `","arguments":` + arguments + `,` + modernMeta("") + `}}`
	}
	for _, tt := range []struct {
		name           string
		listed         bool
		param          string // the header of the client
		edited         string
		want           http.Header
		receivedMethod string
	}{
		{"by the list of tools", true, "Mcp-Param-Region", call("a", `{"x":"eu","y":"us"}`), http.Header{"Mcp-Name": {"a"}, "Mcp-Param-Region": {"eu"}}, ""},
		{"encoded", true, "Mcp-Param-Region", call("a", `{"x":"Zürich"}`), http.Header{"Mcp-Name": {"a"}, "Mcp-Param-Region": {"=?base64?WsO8cmljaA==?="}}, ""},
		{"removed", true, "Mcp-Param-Region", call("a", `{}`), http.Header{"Mcp-Name": {"a"}}, ""},
		{"another spelling", true, "mcp-param-REGION", call("a", `{"x":"eu"}`), http.Header{"Mcp-Name": {"a"}, "Mcp-Param-Region": {"eu"}}, ""},
		{"guessed by the value", false, "Mcp-Param-Region", call("a", `{"x":"eu"}`), http.Header{"Mcp-Name": {"a"}, "Mcp-Param-Region": {"eu"}}, ""},
		{"guessed by value and name", false, "Mcp-Param-Y", call("a", `{"x":"eu","y":"af"}`), http.Header{"Mcp-Name": {"a"}, "Mcp-Param-Y": {"af"}}, ""},
		{"no guess", false, "Mcp-Param-Other", call("a", `{"x":"eu","y":"af"}`), http.Header{"Mcp-Name": {"a"}, "Mcp-Param-Other": {"us"}}, ""},
		{"another tool", false, "Mcp-Param-Region", call("b", `{"x":"eu"}`), http.Header{"Mcp-Name": {"b"}}, ""},
		{"another method", true, "Mcp-Param-Region", `{"jsonrpc":"2.0","id":2,"method":"ping","params":{` + modernMeta("") + `}}`, http.Header{}, "ping"},
		{"no JSON", true, "Mcp-Param-Region", `{`, http.Header{"Mcp-Name": {"a"}, "Mcp-Param-Region": {"us"}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := newViewer(t, "tool:a", 0)
			got := http.Header{}
			p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if body, _ := io.ReadAll(r.Body); strings.Contains(string(body), "tools/list") {
					io.WriteString(w, tools)
					return
				}
				for name, values := range r.Header {
					if strings.HasPrefix(name, "Mcp-") {
						got[name] = values
					}
				}
				io.WriteString(w, `{"jsonrpc":"2.0","id":2,"result":{}}`)
			}, &taphttp.Options{Breakpoints: v.b})
			if tt.listed {
				send(t, newPost(p.url, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+modernMeta("")+`}}`, map[string]string{"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}), 200, tools)
			}
			go v.decide(live.Decision{Action: live.Edit, Data: tt.edited}, "")
			arguments := `{"x":"us"}`
			if tt.param != "Mcp-Param-Region" && !tt.listed {
				arguments = `{"x":"us","y":"us"}`
			}
			r := newPost(p.url, call("a", arguments), eraCases[1].header)
			r.Header[tt.param] = []string{"us"}
			send(t, r, 200, `{"jsonrpc":"2.0","id":2,"result":{}}`)
			tt.want["Mcp-Method"], tt.want["Mcp-Protocol-Version"] = []string{"tools/call"}, []string{"2026-07-28"}
			if tt.receivedMethod != "" {
				tt.want["Mcp-Method"] = []string{tt.receivedMethod}
			}
			p.stop()
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("the server gets (-want +got):\n%s", diff)
			}
		})
	}
}

// TestInterceptCoding checks compressed bodies and streams: what is passed on has its coding if it
// is a body, and what is edited has none.
func TestInterceptCoding(t *testing.T) {
	call, edited := eraCases[0].call, eraCases[0].editedCall
	for _, tt := range []struct {
		name, filter, media string
		coded               bool // the request
		response            string
		action              live.Action
		data                string
		want                posted // of the server
		client              string // what the client gets, decoded
		clientCoding        string
	}{
		{"request passed", "tool:a -status:ok", "application/json", true, jsonResult, live.Pass, "", posted{call, http.Header{"Content-Encoding": {"gzip"}}}, jsonResult, "gzip"},
		{"request edited", "tool:a -status:ok", "application/json", true, jsonResult, live.Edit, edited, posted{edited, http.Header{}}, jsonResult, "gzip"},
		{"response passed", "status:ok", "application/json", false, jsonResult, live.Pass, "", posted{call, http.Header{}}, jsonResult, "gzip"},
		{"response edited", "status:ok", "application/json", false, jsonResult, live.Edit, editedResult, posted{call, http.Header{}}, editedResult, ""},
		{"event passed", "status:ok", "text/event-stream", false, "data: " + jsonResult + "\n\n", live.Pass, "", posted{call, http.Header{}}, "data: " + jsonResult + "\n\n", ""},
		{"event edited", "status:ok", "text/event-stream", false, "data: " + jsonResult + "\n\n", live.Edit, editedResult, posted{call, http.Header{}}, "data: " + editedResult + "\n\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := newViewer(t, tt.filter, 0)
			var got posted
			p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Accept-Encoding") != "identity" {
					t.Errorf("the server is asked for %q", r.Header.Get("Accept-Encoding"))
				}
				got.header = http.Header{}
				body := io.Reader(r.Body)
				if c := r.Header.Get("Content-Encoding"); c != "" {
					got.header.Set("Content-Encoding", c)
					body, _ = gzip.NewReader(r.Body)
				}
				text, err := io.ReadAll(body)
				if err != nil {
					t.Error(err)
				}
				got.body = string(text)
				w.Header().Set("Content-Type", tt.media)
				w.Header().Set("Content-Encoding", "gzip")
				io.WriteString(w, gzipped(tt.response))
			}, &taphttp.Options{Breakpoints: v.b})
			go v.decide(live.Decision{Action: tt.action, Data: tt.data}, "")
			body := call
			header := map[string]string{"Accept-Encoding": "gzip"}
			if tt.coded {
				body, header["Content-Encoding"] = gzipped(call), "gzip"
			}
			resp, err := http.DefaultTransport.RoundTrip(newPost(p.url, body, header))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			coding := resp.Header.Get("Content-Encoding")
			text, err := io.ReadAll(resp.Body)
			if coding == "gzip" {
				var r io.Reader
				if r, err = gzip.NewReader(bytes.NewReader(text)); err == nil {
					text, err = io.ReadAll(r)
				}
			}
			http.DefaultClient.CloseIdleConnections()
			p.stop()
			if string(text) != tt.client || coding != tt.clientCoding || err != nil {
				t.Errorf("the client gets %q with the coding %q, %v, want %q with %q", text, coding, err, tt.client, tt.clientCoding)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(posted{})); diff != "" {
				t.Errorf("the server gets (-want +got):\n%s", diff)
			}
		})
	}
}

// TestInterceptPosts checks what becomes of batches, and of POSTs with other messages than a
// request.
func TestInterceptPosts(t *testing.T) {
	const (
		note     = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
		response = `{"jsonrpc":"2.0","id":"s1","result":{"roots":[]}}`
		batch    = `[{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"a"}}]`
		notes    = `[{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}]`
		results  = `[{"jsonrpc":"2.0","id":3,"result":{"content":[]}}]`
	)
	for _, tt := range []struct {
		name, filter, body string
		d                  live.Decision
		rejected           string
		status             int
		want               string // what the client gets
		server             string // what the server gets
	}{
		{"a notification", "method:notifications/initialized", note, live.Decision{Action: live.Drop}, "", 202, "", ""},
		{"a notification that cannot be answered", "method:notifications/initialized", note, live.Decision{Action: live.Answer, Data: answerText}, "only a request", 202, "", note},
		{"a response", `"roots"`, response, live.Decision{Action: live.Drop}, "", 202, "", ""},
		{"a batch by its second message", "tool:a -status:ok", batch, live.Decision{Action: live.Edit, Data: notes}, "", 202, "", notes},
		{"a batch with a request", "tool:a -status:ok", batch, live.Decision{Action: live.Drop}, "", 502, "mcpwire tap: a viewer of the tap dropped the request\n", ""},
		{"a batch without a request", "method:notifications/roots/list_changed", notes, live.Decision{Action: live.Drop}, "", 202, "", ""},
		{"a batch of responses", "tool:a status:ok", batch, live.Decision{Action: live.Edit, Data: `[]`}, "", 200, "[]", batch},
		{"what is not JSON-RPC", "kind:invalid", `{"jsonrpc":"2.0"`, live.Decision{Action: live.Drop}, "", 502, "mcpwire tap: a viewer of the tap dropped the request\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := newViewer(t, tt.filter, 0)
			got := ""
			p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if got = string(body); got != batch {
					w.WriteHeader(http.StatusAccepted)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, results)
			}, &taphttp.Options{Breakpoints: v.b})
			go v.decide(tt.d, tt.rejected)
			send(t, newPost(p.url, tt.body, nil), tt.status, tt.want)
			p.stop()
			if got != tt.server {
				t.Errorf("the server gets %q, want %q", got, tt.server)
			}
		})
	}
}

// TestInterceptAnswerStatus checks that an error has the status that a modern server gives it.
func TestInterceptAnswerStatus(t *testing.T) {
	for _, tt := range []struct {
		era, code int
		want      int
	}{{0, -32601, 200}, {1, -32601, 404}, {1, -32021, 400}, {1, -32602, 200}} {
		v := newViewer(t, "tool:a", 0)
		p := tapHandler(t, func(http.ResponseWriter, *http.Request) { t.Error("the server was asked") }, &taphttp.Options{Breakpoints: v.b})
		answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"error":{"code":%d,"message":"no"}}`, tt.code)
		go v.decide(live.Decision{Action: live.Answer, Data: answer}, "")
		send(t, newPost(p.url, eraCases[tt.era].call, eraCases[tt.era].header), tt.want, answer)
		p.stop()
	}
}

// TestInterceptOld checks that messages over the transport of 2024-11-05 are not held, that they are
// recorded on both sides, and that a note says so.
func TestInterceptOld(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`
	messages := []string{`{"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":"s1","method":"roots/list"}`}
	v := newViewer(t, "tool:a | method:roots/list", 0)
	called := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /mcp", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "event: endpoint\ndata: http://"+r.Host+"/messages?id=1\n\n")
		http.NewResponseController(w).Flush()
		<-called
		for _, m := range messages {
			io.WriteString(w, "event: message\ndata: "+m+"\n\n")
		}
	})
	mux.HandleFunc("POST /messages", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusAccepted)
		close(called)
	})
	p := tapHandler(t, mux.ServeHTTP, &taphttp.Options{Breakpoints: v.b})
	resp, err := http.DefaultClient.Get(p.url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	stream := bufio.NewReader(resp.Body)
	base := strings.TrimSuffix(p.url, "/mcp") + "/messages?id=1"
	for _, want := range []string{"event: endpoint\n", "data: " + base + "\n", "\n"} {
		if line, err := stream.ReadString('\n'); err != nil || line != want {
			t.Fatalf("the client gets %q, %v, want %q", line, err, want)
		}
	}
	send(t, newPost(base, call, nil), 202, "")
	rest, err := io.ReadAll(stream)
	if err != nil {
		t.Fatal(err)
	}
	if want := "event: message\ndata: " + messages[0] + "\n\nevent: message\ndata: " + messages[1] + "\n\n"; string(rest) != want {
		t.Errorf("the client gets %q, want %q", rest, want)
	}
	http.DefaultClient.CloseIdleConnections()
	events := p.events()
	want := []string{
		"endpoint", "downstream c2s " + call, "upstream c2s " + call, "forwarded",
		"upstream s2c " + messages[0], "downstream s2c " + messages[0], "forwarded",
		"upstream s2c " + messages[1], "downstream s2c " + messages[1], "forwarded",
	}
	if diff := cmp.Diff(want, sides(events)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	if !slices.ContainsFunc(events, func(e *capture.Event) bool {
		return e.Kind == capture.KindNote && strings.Contains(string(e.Data), "HTTP+SSE, whose messages are not held")
	}) {
		t.Error("no note says that messages are not held")
	}
}

// TestInterceptLines checks that events are forwarded byte for byte if none of them is held,
// however they are cut, and in which lines an edited one is sent.
func TestInterceptLines(t *testing.T) {
	const message = `{"jsonrpc":"2.0","method":"notifications/message"}`
	for _, tt := range []struct{ name, stream, want string }{
		{"LF", "event: message\nid: 1\ndata: " + message + "\n\ndata: {}\n\n", "event: message\nid: 1\ndata: [1]\n\ndata: {}\n\n"},
		{"CRLF", ": c\r\n\r\ndata:" + message + "\r\nid: 1\r\n\r\ndata: {}\r\n\r\n", ": c\r\n\r\ndata:[1]\r\nid: 1\r\n\r\ndata: {}\r\n\r\n"},
		{"CR", "data:" + message + "\rretry: 7\r\rdata: {}\r\r", "data:[1]\rretry: 7\r\rdata: {}\r\r"},
		{"two lines of data", ":in\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"method\":\"notifications/message\"}\n:out\n\n", ":in\ndata: [1]\n:out\n\n"},
		{"byte order mark", "\xef\xbb\xbfdata: " + message + "\n\n", "data: [1]\n\n"},
		{"mark and comment", "\xef\xbb\xbf: c\n\ndata: " + message + "\n\n", "\xef\xbb\xbf: c\n\ndata: [1]\n\n"},
		{"an incomplete event", "data: " + message + "\n\ndata: {", "data: [1]\n\ndata: {"},
		{"other events", "event: other\ndata: " + message + "\n\nid: 4\n\nretry\n\n\n\n", ""},
	} {
		for _, edits := range []bool{false, true} {
			for size := range 3 {
				want, text := tt.stream, "none"
				if edits && tt.want != "" {
					want, text = tt.want, "method:notifications/message"
				}
				v := newViewer(t, text, 0)
				p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					for rest := tt.stream; rest != ""; {
						n := len(rest)
						if size > 0 {
							n = min(n, 2*size-1)
						}
						io.WriteString(w, rest[:n])
						http.NewResponseController(w).Flush()
						rest = rest[n:]
					}
				}, &taphttp.Options{Breakpoints: v.b})
				if edits && tt.want != "" {
					go v.decide(live.Decision{Action: live.Edit, Data: "[1]"}, "")
				}
				r, _ := http.NewRequest(http.MethodGet, p.url, nil)
				send(t, r, 200, want)
				p.stop()
				if t.Failed() {
					t.Fatalf("%s, edited %v, size %d", tt.name, edits, size)
				}
			}
		}
	}
}

// TestInterceptLong checks that bodies and events that are too long to be held pass unchanged.
func TestInterceptLong(t *testing.T) {
	const maxBody = 64 << 10
	call := func(size int) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":"` + strings.Repeat("x", size) + `"}}}`
	}
	result := strings.Replace(call(maxBody), `"method":"tools/call","params"`, `"result"`, 1)
	for _, tt := range []struct {
		media, request, response string
		maxBody                  int
	}{
		{"application/json", call(maxBody), result, maxBody},
		{"text/event-stream", call(maxBody), ": c\n\ndata: " + result + "\n\n" + lastEvent, maxBody},
		{"application/json", call(8 << 20), jsonResult, 0},
	} {
		v := newViewer(t, "tool:a kind:request -status:ok | has:result.name", 0)
		p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
			if text, _ := io.ReadAll(r.Body); string(text) != tt.request {
				t.Errorf("the server gets %d bytes", len(text))
			}
			w.Header().Set("Content-Type", tt.media)
			io.WriteString(w, tt.response)
		}, &taphttp.Options{Breakpoints: v.b, MaxBody: tt.maxBody})
		send(t, newPost(p.url, tt.request, nil), 200, tt.response)
		for _, e := range p.events() {
			if e.Kind == capture.KindNote && strings.Contains(string(e.Data), "held") {
				t.Errorf("%s: %s", tt.media, e.Data)
			}
		}
	}
}

// TestInterceptOther checks that other traffic passes unchanged: pages, empty and broken bodies,
// and failures.
func TestInterceptOther(t *testing.T) {
	v := newViewer(t, "method:nothing", 0)
	p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		switch r.URL.Path {
		case "/page":
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<p>")
		case "/empty":
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNoContent)
		case "/chunks":
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, "[")
			http.NewResponseController(w).Flush()
			io.WriteString(w, "]")
		case "/broken":
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "9")
			io.WriteString(w, `{"a`)
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case "/gone":
			panic(http.ErrAbortHandler)
		}
	}, &taphttp.Options{Breakpoints: v.b})
	get := func(path string) *http.Request {
		r, _ := http.NewRequest(http.MethodGet, strings.TrimSuffix(p.url, "/mcp")+path, nil)
		return r
	}
	send(t, get("/page"), 200, "<p>")
	send(t, get("/empty"), 204, "")
	send(t, get("/chunks"), 200, "[]")
	resp, err := http.DefaultTransport.RoundTrip(get("/broken"))
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(resp.Body); string(text) != `{"a` || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a broken body: %q, %v", text, err)
	}
	resp.Body.Close()
	send(t, get("/gone"), 502, "mcpwire tap: no response from the server: upstream: EOF\n")
	var ends []string
	for _, e := range p.events() {
		if e.Kind == capture.KindEnd && len(e.Data) > 0 {
			ends = append(ends, fmt.Sprintf("%s %d %s", e.Side, e.Exchange, e.Data))
		}
	}
	want := []string{
		"upstream 8 upstream: unexpected EOF", "downstream 7 upstream: unexpected EOF",
		"upstream 10 no response from the server: upstream: EOF", "downstream 9 no response from the server: upstream: EOF",
	}
	if diff := cmp.Diff(want, ends); diff != "" {
		t.Errorf("ends (-want +got):\n%s", diff)
	}
}

// TestInterceptGone checks that a message of a client that disconnects is released, and not
// forwarded.
func TestInterceptGone(t *testing.T) {
	for _, place := range []string{"request", "response", "event"} {
		t.Run(place, func(t *testing.T) {
			text := map[string]string{"request": "tool:a -status:ok", "response": "status:ok", "event": "method:notifications/message"}[place]
			v := newViewer(t, text, 0)
			asked := false
			p := tapHandler(t, func(w http.ResponseWriter, r *http.Request) {
				asked = true
				io.Copy(io.Discard, r.Body)
				if place == "event" {
					w.Header().Set("Content-Type", "text/event-stream")
					io.WriteString(w, heldEvent(eraCases[1].event)+lastEvent)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, jsonResult)
			}, &taphttp.Options{Breakpoints: v.b})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				v.next()
				cancel()
			}()
			resp, err := http.DefaultTransport.RoundTrip(newPost(p.url, eraCases[0].call, nil).WithContext(ctx))
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the client gets %v", err)
			}
			for s := range v.states { // until it is released
				if len(s.Messages) == 0 {
					break
				}
			}
			http.DefaultClient.CloseIdleConnections()
			events := p.events()
			checkSides(t, events, "not forwarded: client closed")
			if asked != (place != "request") {
				t.Errorf("the server was asked: %v", asked)
			}
			for _, line := range sides(events) {
				if place != "request" && strings.HasPrefix(line, "downstream s2c") {
					t.Errorf("recorded as forwarded: %s", line)
				}
			}
		})
	}
}

// interceptBubble runs a tap with breakpoints with the clock of a bubble.
func interceptBubble(t *testing.T, text string, h http.HandlerFunc, test func(t *testing.T, v *viewer, l *pipes.Listener, stop func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		up := pipes.Listen()
		server := &http.Server{Handler: h}
		go server.Serve(up)
		v := newViewer(t, text, 0)
		handler, err := taphttp.New(&url.URL{Scheme: "http", Host: "localhost:80", Path: "/mcp"}, nil, &taphttp.Options{Breakpoints: v.b, Dial: up.DialContext})
		if err != nil {
			t.Fatal(err)
		}
		l := pipes.Listen()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			handler.Serve(ctx, l, nil)
		}()
		stop := func() {
			cancel()
			<-done
		}
		test(t, v, l, stop)
		stop()
		server.Close()
	})
}

// TestInterceptTime checks how long messages are held: a request, its response and an event until
// the timeout, and with a delay.
func TestInterceptTime(t *testing.T) {
	post := func(body string) string {
		return fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
	for _, tt := range []struct {
		name, filter string
		decide       func(v *viewer)
		want         time.Duration
	}{
		{"nobody decides", "tool:a", func(v *viewer) { v.next() }, intercept.DefaultTimeout},
		{"twice", "tool:a | status:ok", func(v *viewer) {
			v.decide(live.Decision{Action: live.Pass, HoldResponse: true}, "")
		}, intercept.DefaultTimeout},
		{"a delay", "tool:a", func(v *viewer) { v.decide(live.Decision{Action: live.Delay, DelayMS: 90_000}, "") }, 90 * time.Second},
		{"an event", "method:notifications/message", func(v *viewer) { v.next() }, intercept.DefaultTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			interceptBubble(t, tt.filter, func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if tt.name == "an event" {
					w.Header().Set("Content-Type", "text/event-stream")
					io.WriteString(w, heldEvent(eraCases[1].event)+lastEvent)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				io.WriteString(w, jsonResult)
			}, func(t *testing.T, v *viewer, l *pipes.Listener, stop func()) {
				begin := time.Now()
				_, r := sendTo(t, l, post(eraCases[0].call))
				go tt.decide(v)
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadAll(resp.Body); err != nil {
					t.Error(err)
				}
				if took := time.Since(begin); took != tt.want || resp.StatusCode != 200 {
					t.Errorf("status %d after %v, want 200 after %v", resp.StatusCode, took, tt.want)
				}
			})
		})
	}
}

// TestInterceptShutdown checks that a shutdown passes on what is held, at once.
func TestInterceptShutdown(t *testing.T) {
	interceptBubble(t, "tool:a", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, jsonResult)
	}, func(t *testing.T, v *viewer, l *pipes.Listener, stop func()) {
		body := eraCases[0].call
		_, r := sendTo(t, l, fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
		v.next()
		begin := time.Now()
		go stop()
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != 200 || time.Since(begin) != 0 {
			t.Fatalf("%v, %v after %v", resp, err, time.Since(begin))
		}
		if text, err := io.ReadAll(resp.Body); string(text) != jsonResult || err != nil {
			t.Errorf("%q, %v", text, err)
		}
	})
}

// TestInterceptWaits checks that only later events of the same stream wait behind a held one, and
// that the server waits too.
func TestInterceptWaits(t *testing.T) {
	const all = 1 << 20
	var sent atomic.Int64
	interceptBubble(t, "method:notifications/message", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, jsonResult)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: "+eraCases[1].event+"\n\n")
		for sent.Load() < all {
			n, err := io.WriteString(w, "data: "+strings.Repeat("x", 1<<10)+"\n\n")
			if err != nil {
				return
			}
			sent.Add(int64(n))
		}
	}, func(t *testing.T, v *viewer, l *pipes.Listener, stop func()) {
		_, stream := sendTo(t, l, getStream)
		resp, err := http.ReadResponse(stream, nil)
		if err != nil {
			t.Fatal(err)
		}
		m := v.next()
		_, r := sendTo(t, l, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 200 {
			t.Errorf("another exchange: %v, %v", resp, err)
		} else if _, err := io.ReadAll(resp.Body); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if n := sent.Load(); n > 200<<10 {
			t.Errorf("%d bytes were taken from the server behind a held event", n)
		}
		if err := v.b.Decide(&live.Decision{ID: m.ID, Action: live.Drop}); err != nil {
			t.Error(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		if n < all || err != nil {
			t.Errorf("%d bytes came, %v", n, err)
		}
	})
}

// TestInterceptExpect checks that a client that waits for 100 Continue gets it from the tap.
func TestInterceptExpect(t *testing.T) {
	v := newViewer(t, "tool:a", 0)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Expect") != "" {
			t.Error("the server is asked to request the body")
		}
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, jsonResult)
	}))
	t.Cleanup(web.Close)
	p := tap(t, web.URL+"/mcp", &taphttp.Options{Breakpoints: v.b}, nil)
	go v.decide(live.Decision{Action: live.Pass}, "")
	r := newPost(p.url, eraCases[0].call, map[string]string{"Expect": "100-continue"})
	send(t, r, 200, jsonResult)
}
