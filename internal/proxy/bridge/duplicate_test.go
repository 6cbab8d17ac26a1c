package bridge

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
	"mcpwire/internal/test/race"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// A lenientServer is a legacy server that parses messages as most JSON libraries do: the last of
// several members with the same name is used.
type lenientServer struct {
	mu sync.Mutex
	// ran has the names of the called tools.
	ran []string
}

func (s *lenientServer) connect(t *testing.T) func(context.Context, io.Writer) (jsonrpc.Framer, error) {
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	return func(context.Context, io.Writer) (jsonrpc.Framer, error) {
		ours, theirs := net.Pipe()
		wg.Go(func() {
			defer theirs.Close()
			s.serve(jsonrpc.NewFramer(theirs, nil))
		})
		return jsonrpc.NewFramer(ours, nil), nil
	}
}

func (s *lenientServer) serve(f jsonrpc.Framer) {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name string }
		}
		if json.Unmarshal(frame, &m) != nil {
			continue
		}
		result := "{}"
		switch m.Method {
		case mcp.MethodInitialize:
			result = `{"protocolVersion":"2025-03-26","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
		case mcp.MethodToolsCall:
			s.mu.Lock()
			s.ran = append(s.ran, m.Params.Name)
			s.mu.Unlock()
			result = `{"content":[{"type":"text","text":"ran ` + m.Params.Name + `"}]}`
		case mcp.MethodDiscover:
			_ = f.WriteFrame(jsonrpc.AppendError(nil, jsonrpc.ID(m.ID), jsonrpc.MethodNotFound(m.Method), false))
			continue
		}
		if len(m.ID) > 0 && f.WriteFrame(jsonrpc.AppendResult(nil, jsonrpc.ID(m.ID), []byte(result))) != nil {
			return
		}
	}
}

const (
	dupInitialize = `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	modernMeta    = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
)

// duplicateCalls are calls of "safe" with a duplicate member. %s is replaced by more params.
var duplicateCalls = []struct{ name, text, want string }{
	{"name", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","name":"danger","arguments":{}%s}}`, `member \"name\"`},
	{"escaped", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","n\u0061me":"danger","arguments":{}%s}}`, `member \"name\"`},
	{"case", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","Name":"danger","arguments":{}%s}}`, `member \"Name\"`},
	{"arguments", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","arguments":{"a":{"path":"/tmp","path":"/etc"}}%s}}`, `member \"path\"`},
	{"metadata", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","arguments":{},"x":{"token":1,"token":2}%s}}`, `member \"token\"`},
}

// TestDuplicateMembers checks that the bridge rejects a message with duplicate members, which a
// server may read differently, and that the error names the member.
func TestDuplicateMembers(t *testing.T) {
	for _, transport := range []string{"pipe", "http", "sse", "lines"} {
		for _, clientEra := range []Era{EraLegacy, EraModern} {
			if transport == "sse" && clientEra == EraModern {
				continue
			}
			for _, shared := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%v/shared=%v", transport, clientEra, shared), func(t *testing.T) {
					var s lenientServer
					b := newBridge(t, &Options{Connect: s.connect(t), ServerEra: EraLegacy, Shared: shared})
					send := duplicateClient(t, b, transport, clientEra)
					meta := ""
					if clientEra == EraModern {
						meta = "," + modernMeta
					}
					for _, call := range duplicateCalls {
						got := send(fmt.Sprintf(call.text, meta))
						if !strings.Contains(got, `"code":-32602`) || !strings.Contains(got, call.want) || !strings.Contains(got, `"id":1`) {
							t.Errorf("%s: got %s, want -32602 and %s", call.name, got, call.want)
						}
					}
					if got := send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","arguments":{"a":[{"x":1},{"x":1}]}%s}}`, meta)); !strings.Contains(got, "ran safe") {
						t.Errorf("call without duplicates: got %s", got)
					}
					if transport != "sse" && clientEra == EraLegacy {
						got := send(fmt.Sprintf(`[`+duplicateCalls[0].text+`,{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"other"}}]`, ""))
						if !strings.Contains(got, `"code":-32602`) || !strings.Contains(got, "ran other") {
							t.Errorf("batch: got %s", got)
						}
					}
					s.mu.Lock()
					defer s.mu.Unlock()
					want := []string{"safe"}
					if transport != "sse" && clientEra == EraLegacy {
						want = append(want, "other")
					}
					if diff := cmp.Diff(want, s.ran); diff != "" {
						t.Errorf("called tools (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}

// duplicateClient connects a client, and returns a function that makes a request and returns the
// response.
func duplicateClient(t *testing.T, b *Bridge, transport string, clientEra Era) func(text string) string {
	switch transport {
	case "pipe":
		p, _ := dialPipe(t, b)
		if clientEra == EraLegacy {
			p.send(dupInitialize)
			p.reads(`"id":"hello"`)
			p.send(initialized)
		}
		return func(text string) string {
			p.send(text)
			return p.read()
		}
	case "lines":
		url := served(t, b, &streamable.Options{NDJSON: true}).URL + "/mcp"
		in, out := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, in)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-ndjson")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answers := bufio.NewReader(resp.Body)
		t.Cleanup(func() {
			out.Close()
			resp.Body.Close()
		})
		send := func(text string) string {
			if _, err := io.WriteString(out, text+"\n"); err != nil {
				t.Fatal(err)
			}
			line, err := answers.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			return line
		}
		if clientEra == EraLegacy {
			send(dupInitialize)
			if _, err := io.WriteString(out, initialized+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		return send
	case "sse":
		return sseClient(t, served(t, b, nil).URL)
	}
	url := served(t, b, nil).URL + "/mcp"
	header := []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "safe"}
	if clientEra == EraLegacy {
		_, h, _ := post(t, url, dupInitialize)
		header = []string{"Mcp-Session-Id", h.Get("Mcp-Session-Id")}
		post(t, url, initialized, header...)
	}
	return func(text string) string {
		_, _, response := post(t, url, text, header...)
		return response
	}
}

// sseClient connects a client over HTTP+SSE, and returns a function that makes a request and
// returns the response.
func sseClient(t *testing.T, url string) func(text string) string {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/sse", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	data := func() string {
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return text
			}
		}
		t.Fatalf("the stream ended: %v", lines.Err())
		return ""
	}
	where := url + data()
	send := func(text string) string {
		post(t, where, text)
		return data()
	}
	send(dupInitialize)
	post(t, where, initialized)
	return send
}

// TestDuplicateMembersAndScopes checks that a request with two tool names, or without an id, does
// not bypass the check of scopes.
func TestDuplicateMembersAndScopes(t *testing.T) {
	tokens, err := auth.NewStatic(auth.StaticToken{Token: "a-long-and-random-text", Subject: "ann", Scopes: []string{"read"}})
	if err != nil {
		t.Fatal(err)
	}
	guard, err := auth.NewGuard(&auth.GuardOptions{Verifier: tokens})
	if err != nil {
		t.Fatal(err)
	}
	var s lenientServer
	b := newBridge(t, &Options{Connect: s.connect(t), ServerEra: EraLegacy})
	url := served(t, b, &streamable.Options{Guard: guard, Scopes: func(method, name string) []string {
		if method == mcp.MethodToolsCall && name != "safe" {
			return []string{"admin"}
		}
		return []string{"read"}
	}}).URL + "/mcp"
	header := []string{"Authorization", "Bearer a-long-and-random-text"}
	_, h, _ := post(t, url, dupInitialize, header...)
	header = append(header, "Mcp-Session-Id", h.Get("Mcp-Session-Id"))
	post(t, url, initialized, header...)
	for _, test := range []struct {
		text   string
		status int
		want   string
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe"}}`, 200, "ran safe"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"danger"}}`, 403, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","name":"danger"}}`, 200, "-32602"},
		{`[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","name":"danger"}}]`, 200, "-32602"},
		{`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"danger"}}`, 400, "-32600"},
		{`{"jsonrpc":"2.0","method":"tools/call","ID":1,"params":{"name":"danger"}}`, 400, "-32600"},
		{`{"jsonrpc":"2.0","method":"notifications/x","params":{"a":1,"a":1}}`, 400, "-32602"},
		{`[{"jsonrpc":"2.0","method":"tools/call","params":{"name":"danger"}},{"jsonrpc":"2.0","id":1,"method":"ping"}]`, 200, `"result":{}`},
	} {
		status, _, got := post(t, url, test.text, header...)
		if status != test.status || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %d %s, want %d with %s", test.text, status, got, test.status, test.want)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if diff := cmp.Diff([]string{"safe"}, s.ran); diff != "" {
		t.Errorf("called tools (-want +got):\n%s", diff)
	}
}

// TestDuplicateMembersOfServer checks that a message of the server with a duplicate member is not
// forwarded, and that both sides get an error instead.
func TestDuplicateMembersOfServer(t *testing.T) {
	f := newFakeServer(t)
	client, _ := dialPipe(t, f.bridge(with(legacy, nil)))
	client.send(initialize)
	srv := f.next()
	handshake(client, srv)
	client.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	srv.reads(`"id":1`)
	srv.send(
		`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"a","message":"b"}}`,
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":{"a":1,"a":2}}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a","name":"b","inputSchema":{}}]}}`,
	)
	client.reads(`"id":1,"error":{"code":-32603`, `the server's response cannot be forwarded`, `member \"name\" appears more than once`)
	srv.reads(`"id":"q","error":{"code":-32602`, `member \"message\"`)
	// A response of the client to a request of the server.
	srv.send(`{"jsonrpc":"2.0","id":"q2","method":"elicitation/create","params":{"message":"a"}}`)
	client.reads(`"id":"q2"`)
	client.send(`{"jsonrpc":"2.0","id":"q2","result":{"action":"accept","content":{"a":1,"a":2}}}`)
	srv.reads(`"id":"q2","error":{"code":-32600`, `member \"a\"`)
}

// TestDuplicateMembersOfMany checks a message with very many members.
func TestDuplicateMembersOfMany(t *testing.T) {
	var s lenientServer
	b := newBridge(t, &Options{Connect: s.connect(t), ServerEra: EraLegacy})
	send := duplicateClient(t, b, "http", EraLegacy)
	var text strings.Builder
	text.WriteString(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","arguments":{`)
	for i := range race.Choose(50_000, 280_000) {
		fmt.Fprintf(&text, `"%d":0,`, i)
	}
	whole := text.String()
	got := []bool{
		strings.Contains(send(whole+`"x":0}}}`), "ran safe"),
		strings.Contains(send(whole+`"\u0030":0}}}`), `member \"0\"`),
	}
	if !slices.Equal(got, []bool{true, true}) {
		t.Errorf("got %v", got)
	}
}
