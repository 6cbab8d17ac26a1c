package check_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

type form struct {
	Name string `json:"name" schema:"minLength=2"`
	Age  int    `json:"age,omitempty"`
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// newServer returns a server with some of each primitive.
func newServer(t *testing.T, rev mcp.Revision) *server.Server {
	srv := server.MustNew("everything", "1", &server.Options{Revisions: []mcp.Revision{rev}, Limits: server.Limits{PageSize: 3}, Tasks: &server.TaskOptions{PollInterval: time.Millisecond}})
	must(t,
		server.AddTool(srv, "add", "", func(_ context.Context, in struct{ A, B int }) (map[string]int, error) {
			return map[string]int{"sum": in.A + in.B}, nil
		}),
		server.AddTool(srv, "slow", "", func(ctx context.Context, _ struct{}) (string, error) {
			c := server.CallOf(ctx)
			for i := range 3 {
				_ = c.Progress(float64(i)+0.5, 3, "")
				_ = c.Log(mcp.LevelWarning, "slow", i)
			}
			return "done", nil
		}),
		server.AddTool(srv, "picture", "", func(context.Context, struct{}) ([]mcp.ContentBlock, error) {
			return []mcp.ContentBlock{mcp.ImageContent{Data: []byte("PNG"), MIMEType: "image/png"}}, nil
		}),
		server.AddTool(srv, "fail", "", func(context.Context, struct{}) (string, error) { return "", errors.New("no luck") }),
		server.AddTool(srv, "wait", "", func(ctx context.Context, _ struct{}) (string, error) {
			_ = server.CallOf(ctx).Progress(1, 3, "")
			<-ctx.Done()
			return "", ctx.Err()
		}),
		srv.AddRawTool(mcp.Tool{Name: "deploy", InputSchema: json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)},
			func(*server.Call, json.RawMessage) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.TextContent{Text: "deployed"}}}, nil
			}),
		srv.AddRawTool(mcp.Tool{Name: "refuse", InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`)},
			func(*server.Call, json.RawMessage) (*mcp.CallToolResult, error) {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "not today"}
			}),
		server.AddToolWith(srv, mcp.Tool{Name: "job", Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportOptional}}, func(context.Context, struct{}) (string, error) {
			return "the work is done", nil
		}),
		server.AddResource(srv, mcp.Resource{URI: "file:///a", Name: "a"}, server.Static("text")),
		server.AddResource(srv, mcp.Resource{URI: "file:///b", Name: "b"}, server.Static([]byte{1, 2, 3})),
		server.AddResourceTemplate(srv, mcp.ResourceTemplate{URITemplate: "note:///{id}", Name: "note"}, func(_ context.Context, v server.Vars) (string, error) {
			return "a note", nil
		}),
		server.AddPrompt(srv, mcp.Prompt{Name: "review"}, func(_ context.Context, in struct {
			Language string `json:"language" schema:"enum=go|rust"`
		}) (string, error) {
			return "Review this " + in.Language, nil
		}),
		addAsking(srv),
	)
	return srv
}

// addAsking adds tools that send input requests.
func addAsking(srv *server.Server) error {
	text := func(s string) mcp.SamplingContent { return mcp.SamplingContent{mcp.TextContent{Text: s}} }
	tools := map[string]func(c *server.Call) (string, error){
		"ask": func(c *server.Call) (string, error) {
			a, err := server.Elicit[form](c, "who", "Who?")
			return string(a.Action), err
		},
		"connect": func(c *server.Call) (string, error) {
			a, err := c.ElicitURL(c, "page", "Connect", "https://example.com/connect")
			if err != nil {
				return "", err
			}
			return string(a.Action), nil
		},
		"sample": func(c *server.Call) (string, error) {
			r, err := c.Sample(c, "m", &mcp.CreateMessageRequestParams{MaxTokens: 5, Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: text("2+2?")}}})
			if err != nil {
				return "", err
			}
			return r.Model, nil
		},
		"plan": func(c *server.Call) (string, error) {
			r, err := c.Sample(c, "m", &mcp.CreateMessageRequestParams{MaxTokens: 5,
				Tools: []mcp.Tool{{Name: "map", InputSchema: json.RawMessage(`{"type":"object"}`)}},
				Messages: []mcp.SamplingMessage{
					{Role: mcp.RoleUser, Content: text("Where?")},
					{Role: mcp.RoleAssistant, Content: mcp.SamplingContent{mcp.ToolUseContent{ID: "u1", Name: "map"}}},
					{Role: mcp.RoleUser, Content: mcp.SamplingContent{mcp.ToolResultContent{ToolUseID: "u1", Content: []mcp.ContentBlock{mcp.TextContent{Text: "here"}}}}},
				}})
			if err != nil {
				return "", err
			}
			return r.Model, nil
		},
		"roots": func(c *server.Call) (string, error) {
			roots, err := c.Roots(c, "r")
			if err != nil {
				return "", err
			}
			return roots[0].URI, nil
		},
	}
	for _, name := range []string{"ask", "connect", "sample", "plan", "roots"} {
		fn := tools[name]
		if err := server.AddTool(srv, name, "", func(ctx context.Context, _ struct{}) (string, error) { return fn(server.CallOf(ctx)) }); err != nil {
			return err
		}
	}
	return nil
}

// features are the capabilities of a client of a revision.
func features(rev mcp.Revision) *client.Options {
	opts := &client.Options{
		Revisions: []mcp.Revision{rev}, Input: client.InputOptions{
			SampleTools: true,
			Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				if p.URL != "" {
					return &mcp.ElicitResult{Action: mcp.ElicitActionAccept}, nil
				}
				return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: json.RawMessage(`{"name":"Ann"}`)}, nil
			},
			ElicitModes: []mcp.ElicitMode{mcp.ElicitModeForm, mcp.ElicitModeURL},
			Sample: func(context.Context, *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
				return &mcp.CreateMessageResult{Role: mcp.RoleAssistant, Model: "m", Content: mcp.SamplingContent{mcp.TextContent{Text: "4"}}}, nil
			},
			Roots: func(context.Context) ([]mcp.Root, error) { return []mcp.Root{{URI: "file:///home"}}, nil },
		}, Tasks: true,
	}
	return opts
}

// converse uses all features of a client.
func converse(t *testing.T, recording *recording, srv *server.Server, transport client.Transport, rev mcp.Revision) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, transport, features(rev))
	must(t, err)
	defer c.Close()
	lists(ctx, t, c)
	for _, name := range []string{"slow", "ask", "connect", "sample", "plan", "roots", "picture", "fail"} {
		if _, err := c.CallTool(ctx, name, nil, client.WithProgress(func(*mcp.ProgressNotificationParams) {}), client.WithLog(mcp.LevelInfo, func(*mcp.LoggingMessageNotificationParams) {})); err != nil {
			t.Logf("%s: %v", name, err)
		}
	}
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			if _, err := c.CallTool(ctx, "add", map[string]int{"A": 1, "B": i}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	_, err = c.CallTool(ctx, "add", map[string]int{"A": 1, "B": 2})
	must(t, err)
	_, err = c.CallTool(ctx, "deploy", map[string]string{"region": "eu"})
	must(t, err)
	if _, err = c.CallTool(ctx, "refuse", map[string]int{"n": 1}); err == nil {
		t.Error("refuse: no error")
	}
	if rev == mcp.Revision20251125 || c.Revision().Modern() {
		job, err := c.StartTool(ctx, "job", nil)
		must(t, err)
		_, err = job.Wait(ctx)
		must(t, err)
		_, err = job.Poll(ctx)
		must(t, err)
	}
	waiting, stop := context.WithCancel(ctx)
	_, _ = c.CallTool(waiting, "wait", nil, client.WithProgress(func(*mcp.ProgressNotificationParams) { stop() }))
	stop()
	recording.await(canceledCall)
	recording.later(10 * time.Minute)
	resources(ctx, t, c)
	listen(ctx, t, srv, c)
}

func lists(ctx context.Context, t *testing.T, c *client.Client) {
	for _, err := range c.Tools(ctx) {
		must(t, err)
	}
	for _, err := range c.Resources(ctx) {
		must(t, err)
	}
	for _, err := range c.ResourceTemplates(ctx) {
		must(t, err)
	}
	for _, err := range c.Prompts(ctx) {
		must(t, err)
	}
	if !c.Revision().Modern() {
		must(t, c.Ping(ctx), c.SetLevel(ctx, mcp.LevelInfo), c.RootsChanged(ctx))
	}
}

func resources(ctx context.Context, t *testing.T, c *client.Client) {
	for _, uri := range []string{"file:///a", "file:///b", "note:///1"} {
		_, err := c.ReadResource(ctx, uri)
		must(t, err)
	}
	_, _ = c.ReadResource(ctx, "file:///none")
	_, err := c.GetPrompt(ctx, "review", map[string]string{"language": "go"})
	must(t, err)
	_, err = c.Complete(ctx, mcp.PromptReference{Name: "review"}, mcp.CompleteArgument{Name: "language", Value: "g"}, nil)
	must(t, err)
}

// listen subscribes and waits for two changes.
func listen(ctx context.Context, t *testing.T, srv *server.Server, c *client.Client) {
	s, err := c.Listen(ctx, mcp.SubscriptionFilter{ToolsListChanged: true, ResourceSubscriptions: []string{"file:///a"}})
	must(t, err)
	srv.ResourceUpdated("file:///a")
	srv.RemoveTools("wait")
	kinds := map[client.EventKind]bool{}
	for e, err := range s.Events(ctx) {
		must(t, err)
		if kinds[e.Kind] = true; len(kinds) == 2 {
			break
		}
	}
	must(t, s.Close())
}

// A recording records a session.
type recording struct {
	mu       sync.Mutex
	changed  *sync.Cond
	head     *capture.Head
	exchange uint64
	began    time.Time
	events   []capture.Event
}

func newRecording(transport capture.Transport) *recording {
	p := &recording{head: &capture.Head{ID: "recording", Transport: transport}, began: time.Now()}
	p.changed = sync.NewCond(&p.mu)
	return p
}

func (p *recording) record(e capture.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e.N, e.T = uint64(len(p.events)+1), time.Since(p.began)
	e.Data = bytes.Clone(e.Data)
	p.events = append(p.events, e)
	p.changed.Broadcast()
}

// await waits until ok is true of the events.
func (p *recording) await(ok func([]capture.Event) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !ok(p.events) {
		p.changed.Wait()
	}
}

// idle reports whether no exchange is pending.
func idle(events []capture.Event) bool {
	open := 0
	for _, e := range events {
		switch e.Kind {
		case capture.KindRequest:
			open++
		case capture.KindEnd:
			open--
		}
	}
	return open == 0
}

// canceledCall reports whether a call of the tool wait was canceled.
func canceledCall(events []capture.Event) bool {
	called := slices.IndexFunc(events, func(e capture.Event) bool {
		return e.Dir == capture.ToServer && bytes.Contains(e.Data, []byte(`"name":"wait","arguments"`))
	})
	return called >= 0 && slices.ContainsFunc(events[called:], func(e capture.Event) bool {
		return bytes.Contains(e.Data, []byte("notifications/cancelled")) || e.Kind == capture.KindEnd && e.Exchange == events[called].Exchange
	})
}

// later moves the clock of the recording forward.
func (p *recording) later(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = p.began.Add(-d)
}

// check numbers the events and returns the findings.
func (p *recording) check(events []capture.Event) []check.Finding {
	k := check.New(nil)
	var all []check.Finding
	for i, e := range events {
		e.N = uint64(i + 1)
		all = append(all, k.Add(p.head, &e)...)
	}
	return append(all, k.Close()...)
}

func (p *recording) wantClean(t *testing.T) {
	t.Helper()
	for _, f := range p.check(p.events) {
		t.Errorf("%s (%v) at event %d %s: %s\n%.500s", f.Rule.ID, f.Rule.Severity, f.Event, f.Pointer, f.Message, line(&p.events[f.Event-1]))
	}
	if len(p.events) < 10 {
		t.Errorf("only %d events", len(p.events))
	}
}

// wantCleanRedacted checks that redaction causes no findings: it writes the events, reads them and
// checks them.
func (p *recording) wantCleanRedacted(t *testing.T) {
	t.Helper()
	var file bytes.Buffer
	enc := capture.NewEncoder(&file, &capture.Redaction{Names: []string{"name", "text", "uri", "A"}})
	must(t, enc.Encode(&capture.Event{Kind: capture.KindHead, Head: p.head}))
	for _, e := range p.events {
		must(t, enc.Encode(&e))
	}
	must(t, enc.Flush())
	if !bytes.Contains(file.Bytes(), []byte("~redacted:")) {
		t.Error("nothing was redacted")
	}
	for f, err := range check.Run(capture.NewReader(&file, nil), nil) {
		must(t, err)
		t.Errorf("redacted: %s at event %d %s: %s", f.Rule.ID, f.Event, f.Pointer, f.Message)
	}
}

// A tappedFramer records the frames of a client.
type tappedFramer struct {
	jsonrpc.Framer
	recording *recording
}

func (f *tappedFramer) ReadFrame() ([]byte, error) {
	msg, err := f.Framer.ReadFrame()
	if err == nil {
		f.recording.record(capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Framing: capture.FramingLF, Data: msg})
	}
	return msg, err
}

func (f *tappedFramer) WriteFrame(msg []byte) error {
	f.recording.record(capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Framing: capture.FramingLF, Data: msg})
	return f.Framer.WriteFrame(msg)
}

// A pipeTransport serves a server over an in-memory connection.
type pipeTransport struct {
	srv       *server.Server
	recording *recording
	wg        *sync.WaitGroup
}

func (c pipeTransport) Connect(ctx context.Context) (jsonrpc.Framer, error) {
	local, remote := net.Pipe()
	c.wg.Go(func() { _ = c.srv.Serve(context.WithoutCancel(ctx), jsonrpc.NewFramer(remote, nil)) })
	return &tappedFramer{jsonrpc.NewFramer(local, nil), c.recording}, nil
}

func TestClean(t *testing.T) {
	for name, recording := range recordings(t) {
		t.Run(name, func(t *testing.T) {
			recording.wantClean(t)
			recording.wantCleanRedacted(t)
		})
	}
}

// listen records what goes through a handler.
func (p *recording) listen(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		p.mu.Lock()
		p.exchange++
		x := p.exchange
		p.mu.Unlock()
		p.record(capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Exchange: x,
			Request: &capture.Request{Method: r.Method, URL: r.URL.RequestURI(), Proto: r.Proto, Headers: pairs(r.Header)}})
		if len(body) > 0 {
			p.record(capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Exchange: x, Data: body})
		}
		tw := &recordedWriter{ResponseWriter: w, recording: p, x: x}
		h.ServeHTTP(tw, r)
		tw.end()
	})
}

func pairs(h http.Header) (list []capture.Header) {
	for name, values := range h {
		for _, v := range values {
			list = append(list, capture.Header{Name: name, Value: v})
		}
	}
	return list
}

// A recordedWriter records a response.
type recordedWriter struct {
	http.ResponseWriter
	recording *recording
	x         uint64
	status    int
	buf       bytes.Buffer
}

// SetWriteDeadline is the only method of the underlying writer that the handler gets: a hijacked
// connection could not be recorded.
func (w *recordedWriter) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(w.ResponseWriter).SetWriteDeadline(t)
}

func (w *recordedWriter) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

func (w *recordedWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
		w.recording.record(capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Exchange: w.x,
			Response: &capture.Response{Status: status, Proto: "HTTP/1.1", Headers: pairs(w.Header())}})
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recordedWriter) streams() bool {
	return strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream")
}

func (w *recordedWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.buf.Write(b)
	for w.streams() {
		i := bytes.Index(w.buf.Bytes(), []byte("\n\n"))
		if i < 0 {
			break
		}
		w.event(string(w.buf.Next(i + 2)))
	}
	return w.ResponseWriter.Write(b)
}

// event records an event of a stream.
func (w *recordedWriter) event(block string) {
	e := capture.Event{Kind: capture.KindSSE, Dir: capture.ToClient, Exchange: w.x, SSE: &capture.SSE{}}
	for line := range strings.Lines(block) {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "data":
			e.SSE.HasData = true
			e.Data = append(e.Data, value...)
		case "event":
			e.SSE.Event = value
		case "id":
			e.SSE.ID, e.SSE.HasID = value, true
		case "retry":
			ms, _ := strconv.Atoi(value)
			e.SSE.Retry, e.SSE.HasRetry = time.Duration(ms)*time.Millisecond, true
		case "":
			e.SSE.Comment, e.SSE.HasComment = value, true
		}
	}
	if len(e.Data) > 0 && e.SSE.Event != "endpoint" {
		e.Kind = capture.KindMessage
	}
	w.recording.record(e)
}

func (w *recordedWriter) end() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.streams() && w.buf.Len() > 0 {
		kind := capture.KindMessage
		if !json.Valid(w.buf.Bytes()) {
			kind = capture.KindBody
		}
		w.recording.record(capture.Event{Kind: kind, Dir: capture.ToClient, Exchange: w.x, Data: w.buf.Bytes()})
	}
	w.recording.record(capture.Event{Kind: capture.KindEnd, Exchange: w.x})
}
