package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// TestAllMessages has an auditor check all transcripts.
//
// Spec: S1 S3 S4 S5 S6 S7 S8 S9 S10 S11 S12 S14 S15 S16 S17 S18 S19 S20 S21 S22 S50 S53 S55 S58
// Spec: S59 S60 S61 S63 S65 S112 S113 S114 S115 S116 S117 S161 S162
func TestAllMessages(t *testing.T) {
	total := 0
	for _, s := range scripts(t) {
		framing := s.framing
		if framing == "" {
			framing = "line"
		}
		spoken := s.options.Revisions
		legacy := s.speaksOne || spoken != nil && !slices.Contains(spoken, mcp.LatestRevision)
		raw := slices.ContainsFunc(s.steps, func(s step) bool { return slices.ContainsFunc(s.send, func(f frame) bool { return f.raw }) })
		runScripts(t, s, func(t *testing.T, revision string) *scriptRun {
			a := newAuditor(t.Errorf)
			a.legacy, a.raw = legacy, raw
			t.Cleanup(func() { total += a.said })
			return &scriptRun{script: s, revision: revision, framing: framing, open: openNetPipe, bubble: true, observe: a.observe}
		})
	}
	if total < 500 {
		t.Errorf("only %d messages were checked", total)
	}
}

// TestAuditor shows that the auditor finds violations: each row is a conversation that ends with
// one.
func TestAuditor(t *testing.T) {
	const (
		call        = `> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","progressToken":"p"}}}`
		listen      = `> {"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"},"notifications":{"toolsListChanged":true}}}`
		ack         = `< {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1},"notifications":{"toolsListChanged":true}}}`
		initialized = `> {"jsonrpc":"2.0","id":0,"method":"initialize"}` + "\n" + `< {"jsonrpc":"2.0","id":0,"result":{}}`
		// Part of a notification.
		progress = `< {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":`
		changed  = `< {"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}`
		done     = `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"}}`
		failed   = `< {"jsonrpc":"2.0","id":1,"error":{"message":"m","code":`
		modern   = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
	)
	for name, lines := range map[string][]string{
		"no JSON-RPC":                           {call, `< {"jsonrpc":"1.0","id":1,"result":{"resultType":"complete"}}`},
		"not JSON":                              {`< {`},
		"batch that is not JSON":                {`< [{]`},
		"two lines":                             {call, "< {\"jsonrpc\":\"2.0\",\r\"id\":1,\"result\":{\"resultType\":\"complete\"}}"},
		"result and error":                      {call, `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete"},"error":{"code":1,"message":""}}`},
		"nothing":                               {call, `< {"jsonrpc":"2.0","id":1}`},
		"another id":                            {call, `< {"jsonrpc":"2.0","id":"1","result":{"resultType":"complete"}}`},
		"result without an id":                  {call, `< {"jsonrpc":"2.0","result":{"resultType":"complete"}}`},
		"second response":                       {call, done, done},
		"response to a notification":            {`> {"jsonrpc":"2.0","method":"tools/call"}`, done},
		"response after a cancellation":         {call, `> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, done},
		"result that is no object":              {call, `< {"jsonrpc":"2.0","id":1,"result":1}`},
		"no resultType":                         {call, `< {"jsonrpc":"2.0","id":1,"result":{}}`},
		"no resultType in a batch":              {call, `< [{"jsonrpc":"2.0","id":1,"result":{}}]`},
		"no caching hints":                      {`> {"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modern + `}}`, done},
		"negative ttlMs":                        {`> {"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modern + `}}`, `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":-1,"cacheScope":"private"}}`},
		"caching hints in a result without any": {call, `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":1,"cacheScope":"private"}}`},
		"wrong key of _meta":                    {call, `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"9/x":1}}}`},
		"wrong key of a notification":           {`< {"jsonrpc":"2.0","method":"m","params":{"_meta":{"-x":1}}}`},
		"no code":                               {call, `< {"jsonrpc":"2.0","id":1,"error":{"message":"m"}}`},
		"no message":                            {call, `< {"jsonrpc":"2.0","id":1,"error":{"code":1}}`},
		"code that is no integer":               {call, failed + `1.5}}`},
		"reserved code":                         {call, failed + `-32050}}`},
		"HeaderMismatch":                        {call, failed + `-32020}}`},
		"old resource not found":                {call, failed + `-32002}}`},
		"old URL elicitation":                   {call, failed + `-32042}}`},
		"supported version":                     {call, failed + `-32022,"data":{"supported":["2026-07-28"],"requested":"2026-07-28"}}}`},
		"no versions":                           {call, failed + `-32022,"data":{"requested":"x"}}}`},
		"no capabilities":                       {call, failed + `-32021}}`},
		"request":                               {`< {"jsonrpc":"2.0","id":1,"method":"ping"}`},
		"request with id null":                  {initialized, `< {"jsonrpc":"2.0","id":1.5,"method":"ping"}`},
		"request with an id twice":              {initialized, `< {"jsonrpc":"2.0","id":1,"method":"ping"}`, `> {"jsonrpc":"2.0","id":1,"result":{}}`, `< {"jsonrpc":"2.0","id":1,"method":"ping"}`},
		"progress without a request":            {progress + `1}}`},
		"progress after the end":                {call, progress + `1}}`, done, progress + `2}}`},
		"progress that does not increase":       {call, progress + `1}}`, progress + `1}}`},
		"progress under another token":          {call, strings.Replace(progress, `"p"`, `"q"`, 1) + `1}}`},
		"log message without a level":           {call, `< {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error","data":1}}`},
		"log message below the level": {`> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/logLevel":"error"}}}`,
			`< {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`},
		"log message of a subscription":         {listen, ack, strings.Replace(changed, "tools/list_changed", "message", 1)},
		"cancellation of a request":             {call, `< {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`},
		"change before acknowledgment":          {listen, changed},
		"change outside the filter":             {listen, ack, strings.Replace(changed, "tools", "prompts", 1)},
		"change without a subscription":         {listen, ack, `< {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`},
		"change of another subscription":        {listen, ack, strings.Replace(changed, `:1}`, `:"1"}`, 1)},
		"change after the end":                  {listen, ack, done, changed},
		"change after cancellation":             {listen, ack, `> {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, changed},
		"acknowledgment without a subscription": {ack},
		"second acknowledgment":                 {listen, ack, ack},
		"acknowledgment of another request":     {listen, strings.Replace(ack, `"toolsListChanged":true`, `"promptsListChanged":true`, 1)},
		"acknowledgment without an id":          {listen, `< {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{}}}`},
		"legacy request with a bad token":       {initialized, progress + `1}}`},
	} {
		t.Run(name, func(t *testing.T) {
			var complaints []string
			a := newAuditor(func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) })
			for _, line := range lines {
				if complaints != nil {
					t.Errorf("the auditor complains too early: %q", complaints)
				}
				for said := range strings.SplitSeq(line, "\n") {
					a.observe(said[0] == '>', said[2:])
				}
			}
			if complaints == nil {
				t.Error("the auditor does not complain")
			}
		})
	}
}

// TestPagesShareTheirScope checks the caching hints of every page.
//
// Spec: S118
func TestPagesShareTheirScope(t *testing.T) {
	for _, public := range []bool{false, true} {
		srv := server.MustNew("test", "1", &server.Options{Limits: server.Limits{PageSize: 1}, Cache: server.CacheOptions{ListPublic: public, ListTTL: time.Minute}})
		for i := range 4 {
			addNumber(t, srv, i)
		}
		c := connect(t, srv, modern)
		want := `"cacheScope":"private"`
		if public {
			want = `"cacheScope":"public"`
		}
		cursor := ""
		for page := range 4 {
			params := "{}"
			if cursor != "" {
				params = fmt.Sprintf(`{"cursor":%q}`, cursor)
			}
			if got := c.must("tools/list", params); !strings.Contains(got, want) || strings.Count(got, "cacheScope") != 1 {
				t.Errorf("page %d: got %s, want %s in it", page, got, want)
			}
			var err error
			if _, cursor, err = c.list(cursor); err != nil {
				t.Fatal(err)
			}
		}
		if cursor != "" {
			t.Error("there are more pages")
		}
	}
}

// TestListForEveryone shows that a list does not depend on the client, the connection, or earlier
// requests.
//
// Spec: S130
func TestListForEveryone(t *testing.T) {
	srv := newWireServer(t, nil, nil)
	srv.RemoveTools("grow", "shrink") // these tools change the list on purpose
	first := connect(t, srv, modern)
	want := first.must("tools/list", "{}")
	other := connect(t, srv, "2025-06-18")
	for _, c := range []*client{first, other} {
		for range 2 {
			for _, call := range warmCalls {
				if !strings.HasPrefix(call, `"name":"gate"`) { // gate waits
					c.must("tools/call", "{"+call+"}")
				}
			}
		}
	}
	other.must("logging/setLevel", `{"level":"debug"}`)
	first.call(context.Background(), "tools/call", `{"name":"crash"}`)
	other.revision = modern // after a handshake
	for name, got := range map[string]string{
		"the same connection": first.must("tools/list", "{}"),
		"a legacy connection": other.must("tools/list", "{}"),
		"another connection":  connect(t, srv, modern).must("tools/list", "{}"),
		"another client":      connect(t, srv, modern).must("tools/list", `{"_meta":{"io.modelcontextprotocol/clientInfo":{"name":"other","version":"2"}}}`),
	} {
		if got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}

// TestAcknowledgementFirst subscribes repeatedly while tools are added and removed.
//
// Spec: S112 S113
func TestAcknowledgementFirst(t *testing.T) {
	srv := numbered(t, 1, 0)
	local, remote := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(context.Background(), jsonrpc.NewFramer(remote, nil)) }()
	stop, send := make(chan struct{}), make(chan string, 2)
	var wg sync.WaitGroup
	t.Cleanup(func() {
		close(stop)
		close(send)
		local.Close()
		wg.Wait()
		// a notification may be in flight
		if err := <-served; err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
	})
	for i := range 2 {
		wg.Go(func() {
			name := fmt.Sprint("changing ", i)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := server.AddTool(srv, name, "", func(context.Context, empty) (string, error) { return "", nil }); err != nil {
					t.Error(err)
					return
				}
				srv.RemoveTools(name)
			}
		})
	}
	wg.Go(func() {
		for text := range send {
			io.WriteString(local, text+"\n")
		}
	})
	lines := bufio.NewScanner(local)
	acked := map[string]bool{}
	// next returns the subscription of the next notification, and whether it is an acknowledgment.
	next := func() (id string, ack bool) {
		if !lines.Scan() {
			t.Fatal(lines.Err())
		}
		m := new(wireMessage)
		if err := json.Unmarshal(lines.Bytes(), m); err != nil {
			t.Fatal(err)
		}
		if m.Method == nil { // a surplus notification was sent
			t.Fatalf("got %s", lines.Text())
		}
		id, ack = string(m.params().Meta[subscribed]), *m.Method == mcp.NotificationAcknowledged
		if ack == acked[id] {
			t.Fatalf("subscription %s, acknowledged %t: got %s", id, acked[id], lines.Text())
		}
		acked[id] = true
		return id, ack
	}
	const rounds = 1500
	for round := range rounds {
		id := fmt.Sprint(round)
		send <- `{"jsonrpc":"2.0","id":` + id + `,"method":"subscriptions/listen","params":{"_meta":{` + modernMeta + `},"notifications":{"toolsListChanged":true}}}`
		for got, ack := next(); got != id || !ack; got, ack = next() {
		}
		if round < rounds-1 {
			send <- `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
		}
	}
	for got, ack := next(); got != fmt.Sprint(rounds-1) || ack; got, ack = next() {
	}
}

// TestTaskIDCounts shows that the task id of the params is used, not the one of the metadata.
//
// Spec: T23 T24
func TestTaskIDCounts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		c := dialTasks(t, newTaskServer(t, server.TaskOptions{}), coreTasks, "")
		slow, failed := c.start("slow", "").TaskID, c.start("fails", "").TaskID
		synctest.Wait()
		params := func(id, related string) string {
			return `"taskId":"` + id + `","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"` + related + `"}}`
		}
		for _, tt := range []struct{ method, id, related, want string }{
			{"tasks/get", slow, failed, `"status":"working"`},
			{"tasks/get", failed, slow, `"status":"failed"`},
			{"tasks/get", slow, "none", `"status":"working"`},
			{"tasks/result", slow, failed, `"text":"done"`},
			{"tasks/result", failed, slow, `"isError":true`},
		} {
			if got := c.must(tt.method, params(tt.id, tt.related)); !strings.Contains(got, tt.want) || !strings.Contains(got, `"taskId":"`+tt.id+`"`) {
				t.Errorf("%s of %s, related to %s: got %s, want %s", tt.method, tt.id, tt.related, got, tt.want)
			}
		}
		first, second := c.start("slow", "").TaskID, c.start("slow", "").TaskID
		if got := parseTask(t, c.must("tasks/cancel", params(first, second))); got.TaskID != first || got.Status != "cancelled" {
			t.Errorf("cancelled: got %+v", got)
		}
		if got := c.get(second); got.Status != "working" {
			t.Errorf("the other task: got %+v", got)
		}
	})
}
