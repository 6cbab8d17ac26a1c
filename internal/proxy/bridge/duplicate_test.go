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
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// A lastWins is a legacy server that reads messages as most JSON libraries do: of a member that
// appears more than once, the last counts.
type lastWins struct {
	mu  sync.Mutex
	ran []string // the tools
}

func (s *lastWins) connect(t *testing.T) func(context.Context, io.Writer) (jsonrpc.Framer, error) {
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

func (s *lastWins) serve(f jsonrpc.Framer) {
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
	dupHello = `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	dupMeta  = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
)

// duplicateCalls are calls of "safe", or so it seems. %s is more params.
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
					var s lastWins
					b := newBridge(t, &Options{Connect: s.connect(t), ServerEra: EraLegacy, Shared: shared})
					ask := duplicateClient(t, b, transport, clientEra)
					meta := ""
					if clientEra == EraModern {
						meta = "," + dupMeta
					}
					for _, call := range duplicateCalls {
						got := ask(fmt.Sprintf(call.text, meta))
						if !strings.Contains(got, `"code":-32602`) || !strings.Contains(got, call.want) || !strings.Contains(got, `"id":1`) {
							t.Errorf("%s: got %s, want -32602 and %s", call.name, got, call.want)
						}
					}
					if got := ask(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","arguments":{"a":[{"x":1},{"x":1}]}%s}}`, meta)); !strings.Contains(got, "ran safe") {
						t.Errorf("a call without duplicates: %s", got)
					}
					if transport != "sse" && clientEra == EraLegacy {
						got := ask(fmt.Sprintf(`[`+duplicateCalls[0].text+`,{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"other"}}]`, ""))
						if !strings.Contains(got, `"code":-32602`) || !strings.Contains(got, "ran other") {
							t.Errorf("a batch: %s", got)
						}
					}
					s.mu.Lock()
					defer s.mu.Unlock()
					want := []string{"safe"}
					if transport != "sse" && clientEra == EraLegacy {
						want = append(want, "other")
					}
					if diff := cmp.Diff(want, s.ran); diff != "" {
						t.Errorf("tools that ran (-want +got):\n%s", diff)
					}
				})
			}
		}
	}
}

// duplicateClient connects a client, and returns what makes a request of it and returns the answer.
func duplicateClient(t *testing.T, b *Bridge, transport string, clientEra Era) func(text string) string {
	switch transport {
	case "pipe":
		p, _ := client0(t, b)
		if clientEra == EraLegacy {
			p.send(dupHello)
			p.reads(`"id":"hello"`)
			p.send(confirmed)
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
		ask := func(text string) string {
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
			ask(dupHello)
			if _, err := io.WriteString(out, confirmed+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		return ask
	case "sse":
		return oldClient(t, served(t, b, nil).URL)
	}
	url := served(t, b, nil).URL + "/mcp"
	header := []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "safe"}
	if clientEra == EraLegacy {
		_, h, _ := post(t, url, dupHello)
		header = []string{"Mcp-Session-Id", h.Get("Mcp-Session-Id")}
		post(t, url, confirmed, header...)
	}
	return func(text string) string {
		_, _, answer := post(t, url, text, header...)
		return answer
	}
}

// oldClient connects a client by the HTTP+SSE transport.
func oldClient(t *testing.T, url string) func(text string) string {
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
		t.Fatalf("the stream has ended: %v", lines.Err())
		return ""
	}
	where := url + data()
	ask := func(text string) string {
		post(t, where, text)
		return data()
	}
	ask(dupHello)
	post(t, where, confirmed)
	return ask
}

// TestDuplicateMembersAndScopes shows that a request with two names of tools, or one that is made a
// notification, does not avoid the check of scopes.
func TestDuplicateMembersAndScopes(t *testing.T) {
	tokens, err := auth.NewStatic(auth.StaticToken{Token: "a-long-and-random-text", Subject: "ann", Scopes: []string{"read"}})
	if err != nil {
		t.Fatal(err)
	}
	guard, err := auth.NewGuard(&auth.GuardOptions{Verifier: tokens})
	if err != nil {
		t.Fatal(err)
	}
	var s lastWins
	b := newBridge(t, &Options{Connect: s.connect(t), ServerEra: EraLegacy})
	url := served(t, b, &streamable.Options{Guard: guard, Scopes: func(method, name string) []string {
		if method == mcp.MethodToolsCall && name != "safe" {
			return []string{"admin"}
		}
		return []string{"read"}
	}}).URL + "/mcp"
	header := []string{"Authorization", "Bearer a-long-and-random-text"}
	_, h, _ := post(t, url, dupHello, header...)
	header = append(header, "Mcp-Session-Id", h.Get("Mcp-Session-Id"))
	post(t, url, confirmed, header...)
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
		t.Errorf("tools that ran (-want +got):\n%s", diff)
	}
}

// TestDuplicateMembersOfServer shows that a message of the server with a duplicate member is not
// forwarded either, and that its receiver does not wait in vain.
func TestDuplicateMembersOfServer(t *testing.T) {
	farm := newFarm(t)
	client, _ := client0(t, farm.bridge(with(legacy, nil)))
	client.send(hello)
	srv := farm.next()
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
	// An answer of the client's, for which the server waits.
	srv.send(`{"jsonrpc":"2.0","id":"q2","method":"elicitation/create","params":{"message":"a"}}`)
	client.reads(`"id":"q2"`)
	client.send(`{"jsonrpc":"2.0","id":"q2","result":{"action":"accept","content":{"a":1,"a":2}}}`)
	srv.reads(`"id":"q2","error":{"code":-32600`, `member \"a\"`)
}

// TestDuplicateMembersOfMany shows that a message with very many members takes only the memory of
// its size.
func TestDuplicateMembersOfMany(t *testing.T) {
	var s lastWins
	b := newBridge(t, &Options{Connect: s.connect(t), ServerEra: EraLegacy})
	ask := duplicateClient(t, b, "http", EraLegacy)
	var text strings.Builder
	text.WriteString(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"safe","arguments":{`)
	for i := range 280_000 {
		fmt.Fprintf(&text, `"%d":0,`, i)
	}
	whole := text.String()
	got := []bool{
		strings.Contains(ask(whole+`"x":0}}}`), "ran safe"),
		strings.Contains(ask(whole+`"\u0030":0}}}`), `member \"0\"`),
	}
	if !slices.Equal(got, []bool{true, true}) {
		t.Errorf("got %v", got)
	}
}
