package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
	"mcpwire/server"
)

type (
	sumArgs struct {
		Numbers []int `json:"numbers" schema:"maxItems=3"`
	}
	total struct {
		Sum int `json:"sum"`
	}
)

func addSum(_ context.Context, in sumArgs) (total, error) {
	var s total
	for _, n := range in.Numbers {
		s.Sum += n
	}
	switch s.Sum {
	case 13:
		return s, errors.New("secret")
	case 14:
		return s, fmt.Errorf("no: %w", jsonrpc.Errorf(14, "not fourteen"))
	case 15:
		panic("fifteen")
	}
	return s, nil
}

// withMethods returns a server with the methods com.example/sum and com.example/raw. The latter
// returns its params.
func withMethods(t *testing.T) *server.Server {
	t.Helper()
	srv := server.MustNew("test", "1", nil)
	err := errors.Join(
		server.AddMethod(srv, "com.example/sum", addSum),
		server.AddMethod(srv, "com.example/who", func(ctx context.Context, in map[string]any) (map[string]string, error) {
			c := server.CallOf(ctx)
			return map[string]string{"method": c.Method(), "revision": c.Revision().String(), "members": fmt.Sprint(len(in))}, nil
		}),
		srv.AddRawMethod("com.example/raw", func(_ *server.Call, params json.RawMessage) (json.RawMessage, error) {
			var in struct{ Answer json.RawMessage }
			if err := json.Unmarshal(params, &in); err != nil || in.Answer == nil {
				return nil, err
			}
			return in.Answer, nil
		}),
	)
	if err != nil {
		t.Fatal(err)
	}
	return srv
}

// Spec: S14
func TestCustomMethods(t *testing.T) {
	const tail = `"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"test","version":"1"}}}`
	for _, tt := range []struct{ method, params, legacy, modern string }{
		{"sum", `{"numbers":[1,2]}`, `{"sum":3}`, `{"sum":3,` + tail},
		{"sum", `{"numbers":[1,2],"_meta":{"x":1}}`, `{"sum":3}`, ""},
		{"sum", `{"numbers":[1,2],"_\u006deta":{"x":1}}`, `{"sum":3}`, ""},
		{"sum", `{"numbers":[1,2,3,4]}`, `-32602 invalid params: params.numbers: expected at most 3 items, got 4`, `same`},
		{"sum", `{"number":1}`, `-32602 invalid params: params: unknown property "number"; allowed: "numbers"; params: missing required property "numbers"`, `same`},
		{"sum", `{"numbers":[13]}`, `-32603 internal error`, `same`},
		{"sum", `{"numbers":[14]}`, `14 not fourteen`, `same`},
		{"sum", `{"numbers":[15]}`, `-32603 internal error`, `same`},
		{"who", `{"a":1}`, `{"members":"1","method":"com.example/who","revision":"2025-06-18"}`, `{"members":"1","method":"com.example/who","revision":"2026-07-28",` + tail},
		{"who", `{}`, `{"members":"0","method":"com.example/who","revision":"2025-06-18"}`, `{"members":"0","method":"com.example/who","revision":"2026-07-28",` + tail},
		{"raw", `{"answer":{"a":1,"_meta":{"b":2}}}`, `{"a":1,"_meta":{"b":2}}`, `{"a":1,` + strings.Replace(tail, `{"io`, `{"b":2,"io`, 1)},
		{"raw", `{"answer":{"resultType":"complete"}}`, `{}`, `{` + tail},
		{"raw", `{}`, `{}`, `{` + tail},
		{"raw", `{"answer":[]}`, `-32603 internal error`, `same`},
		{"none", `{}`, `-32601 method not found: com.example/none`, `same`},
	} {
		if tt.modern == "same" {
			tt.modern = tt.legacy
		}
		for revision, want := range map[string]string{"2025-06-18": tt.legacy, modern: tt.modern} {
			if want == "" {
				continue
			}
			got, err := connect(t, withMethods(t), revision).call(t.Context(), "com.example/"+tt.method, tt.params)
			if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
				got = fmt.Sprint(int(e.Code), " ", e.Message)
			}
			if got != want {
				t.Errorf("%s %s in %s: got %s, want %s", tt.method, tt.params, revision, got, want)
			}
		}
	}
	c := connect(t, withMethods(t), "2024-11-05")
	if got, err := c.conn.Call(t.Context(), "com.example/raw", nil); string(got) != "{}" || err != nil {
		t.Errorf("without params: %s, %v", got, err)
	}
	c = connect(t, withMethods(t), modern)
	if _, err := c.conn.Call(t.Context(), "com.example/raw", []byte(`{}`)); code(err) != jsonrpc.CodeInvalidRequest {
		t.Errorf("modern without metadata, and without a handshake: %v", err)
	}
}

// TestForeignMeta shows that a bridge forwards metadata of other parties even if its keys violate
// the rules.
func TestForeignMeta(t *testing.T) {
	const foreign = `"_fastmcp":{"tags":["a"]}`
	srv := server.MustNew("test", "1", nil)
	meta := json.RawMessage("{" + foreign + "}")
	if err := srv.AddRawTool(mcp.Tool{Name: "t", Meta: meta}, func(*server.Call, json.RawMessage) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.TextContent{Text: "ok", Meta: meta}}, Meta: meta}, nil
	}); err != nil {
		t.Fatal(err)
	}
	c := connect(t, srv, modern)
	if list := c.must("tools/list", "{}"); strings.Count(list, foreign) != 1 {
		t.Errorf("got %s", list)
	}
	if result := c.must("tools/call", `{"name":"t"}`); strings.Count(result, foreign) != 2 {
		t.Errorf("got %s", result)
	}
}

// TestCallMeta shows that handlers can read and keep the _meta of a request in every revision.
func TestCallMeta(t *testing.T) {
	var got []json.RawMessage
	srv := with(t, nil, func(_ context.Context, call *server.Call) (*mcp.CallToolResult, error) {
		got = append(got, call.Meta())
		return nil, nil
	})
	for _, revision := range []string{"2024-11-05", modern} {
		c := connect(t, srv, revision)
		c.must("tools/call", `{"_meta":{"com.example/tenant":7},"name":"t"}`)
		c.must("tools/call", `{"_meta":{"com.example/tenant":8},"name":"t"}`)
		c.must("tools/call", `{"name":"t"}`)
	}
	want := []json.RawMessage{
		json.RawMessage(`{"com.example/tenant":7}`), json.RawMessage(`{"com.example/tenant":8}`), nil,
		json.RawMessage(`{` + modernMeta + `,"com.example/tenant":7}`), json.RawMessage(`{` + modernMeta + `,"com.example/tenant":8}`), json.RawMessage(`{` + modernMeta + `}`),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMethodNames(t *testing.T) {
	raw := func(*server.Call, json.RawMessage) (json.RawMessage, error) { return nil, nil }
	handleNotification := func(context.Context, json.RawMessage) {}
	for _, tt := range []struct{ name, method, notification string }{
		{"com.example/x", "", ""},
		{"x", "", ""},
		{"", "name", "name"},
		{"a\xff", "UTF-8", "UTF-8"},
		{"rpc.x", "JSON-RPC", "JSON-RPC"},
		{"tools/call", "protocol", "request"},
		{"ping", "protocol", "request"},
		{"initialize", "protocol", "request"},
		{"server/discover", "protocol", "request"},
		{"tasks/update", "protocol", "request"},
		{"sampling/createMessage", "protocol", "request"},
		{"roots/list", "protocol", "request"},
		{"notifications/x", "notification", ""},
		{"notifications/initialized", "notification", ""},
		{"notifications/cancelled", "notification", "ends the context"},
	} {
		srv := server.MustNew("test", "1", nil)
		for what, got := range map[string][2]string{
			"AddRawMethod":   {fmt.Sprint(srv.AddRawMethod(tt.name, raw)), tt.method},
			"AddMethod":      {fmt.Sprint(server.AddMethod(server.MustNew("test", "1", nil), tt.name, addSum)), tt.method},
			"OnNotification": {fmt.Sprint(srv.OnNotification(tt.name, handleNotification)), tt.notification},
		} {
			if got[1] == "" && got[0] != "<nil>" || got[1] != "" && !strings.Contains(got[0], got[1]) {
				t.Errorf("%s(%q): %s, want one about %q", what, tt.name, got[0], got[1])
			}
		}
	}
	srv := withMethods(t)
	for what, err := range map[string]error{
		"a duplicate":                 server.AddMethod(srv, "com.example/raw", addSum),
		"a raw duplicate":             srv.AddRawMethod("com.example/sum", raw),
		"a notification's duplicate ": errors.Join(srv.OnNotification("x", handleNotification), srv.OnNotification("x", handleNotification)),
	} {
		if !errors.Is(err, server.ErrDuplicate) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, tt := range map[string]struct {
		err  error
		want string
	}{
		"no function":                  {server.AddMethod[sumArgs, total](srv, "a", nil), "function"},
		"no raw function":              {srv.AddRawMethod("a", nil), "function"},
		"no function for notification": {srv.OnNotification("a", nil), "function"},
		"input":                        {server.AddMethod(srv, "a", func(context.Context, int) (total, error) { return total{}, nil }), "AddRawMethod for the input"},
		"output":                       {server.AddMethod(srv, "a", func(context.Context, sumArgs) ([]int, error) { return nil, nil }), "AddRawMethod for the output"},
		"a type without a schema":      {server.AddMethod(srv, "a", func(context.Context, struct{ C chan int }) (total, error) { return total{}, nil }), "input"},
		"an output without a schema":   {server.AddMethod(srv, "a", func(context.Context, sumArgs) (struct{ C chan int }, error) { panic(0) }), "output"},
	} {
		if tt.err == nil || !strings.Contains(tt.err.Error(), strings.Split(tt.want, " for ")[0]) {
			t.Errorf("%s: %v", what, tt.err)
		}
	}
}

// TestOnNotification shows that functions get their notifications in order, with a Call that
// identifies the sender.
func TestOnNotification(t *testing.T) {
	for _, middleware := range []bool{false, true} {
		t.Run(fmt.Sprintf("middleware %t", middleware), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := server.MustNew("test", "1", nil)
				if middleware {
					srv.Use(passOn)
				}
				var mu sync.Mutex
				var got []string
				for _, method := range []string{"notifications/initialized", "notifications/roots/list_changed", "com.example/n"} {
					if err := srv.OnNotification(method, func(ctx context.Context, params json.RawMessage) {
						call := server.CallOf(ctx)
						mu.Lock()
						defer mu.Unlock()
						got = append(got, fmt.Sprintf("%s %s %s %s", call.Method(), params, call.Revision(), server.PrincipalID(call)))
						if call.Method() == "com.example/n" && len(params) == 0 {
							panic("without params")
						}
					}); err != nil {
						t.Fatal(err)
					}
				}
				ctx := server.WithPrincipalID(context.Background(), "p")
				notify := func(c *client, method, params string) {
					t.Helper()
					var text []byte
					if params != "" {
						text = []byte(params)
					}
					if err := c.conn.Notify(t.Context(), method, text); err != nil {
						t.Fatal(err)
					}
				}
				c := connectIn(ctx, t, srv, "2025-06-18")
				for i := range 3 {
					notify(c, "com.example/n", fmt.Sprintf(`{"i":%d}`, i))
				}
				notify(c, "com.example/n", "")
				notify(c, "com.example/none", "")
				notify(c, "notifications/roots/list_changed", "")
				notify(c, "com.example/n", `[]`)
				notify(c, "com.example/n", `{"i":1,"i":2}`)
				synctest.Wait()
				c = connectIn(ctx, t, srv, modern)
				notify(c, "com.example/n", `{"i":4}`)
				notify(c, "com.example/n", `{"_meta":{`+modernMeta+`}}`)
				notify(c, "com.example/n", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"1999-01-01"}}`)
				synctest.Wait()
				want := []string{
					"notifications/initialized  2025-06-18 p",
					`com.example/n {"i":0} 2025-06-18 p`,
					`com.example/n {"i":1} 2025-06-18 p`,
					`com.example/n {"i":2} 2025-06-18 p`,
					"com.example/n  2025-06-18 p",
					"notifications/roots/list_changed  2025-06-18 p",
					`com.example/n {"i":4} none p`,
					`com.example/n {"_meta":{` + modernMeta + `}} 2026-07-28 p`,
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestNotificationMiddleware shows that a middleware can change or drop a notification.
func TestNotificationMiddleware(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server.MustNew("test", "1", nil)
		var got []string
		if err := srv.OnNotification("com.example/n", func(ctx context.Context, params json.RawMessage) {
			got = append(got, fmt.Sprint(string(params), ctx.Value(contextKey{})))
		}); err != nil {
			t.Fatal(err)
		}
		srv.Use(func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				switch string(m.Params) {
				case `{"n":1}`:
					m.Params = json.RawMessage(`{"n":2}`)
				case `{"n":3}`:
					return nil, nil
				case `{"n":4}`:
					m.Params = json.RawMessage(`{"n"`)
				}
				return next(context.WithValue(ctx, contextKey{}, "!"), m)
			}
		})
		c := connect(t, srv, "2025-06-18")
		for i := range 6 {
			if err := c.conn.Notify(t.Context(), "com.example/n", fmt.Appendf(nil, `{"n":%d}`, i)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{`{"n":0}!`, `{"n":2}!`, `{"n":2}!`, `{"n":5}!`}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// Spec: S37 S38
func TestExtensions(t *testing.T) {
	opts := &server.Options{
		Extensions:   map[string]json.RawMessage{"com.example/b": json.RawMessage("{ \"a\": [1, \n2] }"), "com.example/a": json.RawMessage("{}"), "io.modelcontextprotocol/tasks": json.RawMessage("{}")},
		Experimental: map[string]json.RawMessage{"thing": json.RawMessage(`{"x":1}`)},
	}
	srv := server.MustNew("test", "1", opts)
	opts.Extensions["com.example/a"] = json.RawMessage("[]") // New has copied the options
	if err := server.AddTool(srv, "t", "", func(ctx context.Context, _ empty) (string, error) {
		settings, ok := server.CallOf(ctx).ClientExtension("com.example/a")
		if !ok {
			return "core", nil
		}
		return string(settings), nil
	}); err != nil {
		t.Fatal(err)
	}
	const both = `"experimental":{"thing":{"x":1}},"extensions":{"com.example/a":{},"com.example/b":{"a":[1,2]}`
	c := connect(t, srv, modern)
	if got, want := c.must("server/discover", "{}"), both+`,"io.modelcontextprotocol/tasks":{}}`; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s in it", got, want)
	}
	for _, tt := range []struct{ capabilities, want string }{
		{`{}`, "core"},
		{`{"extensions":{"com.example/b":{}}}`, "core"},
		{`{"extensions":{"com.example/a":{"on":true}}}`, `{"on":true}`},
	} {
		meta := strings.Replace(modernMeta, `"io.modelcontextprotocol/clientCapabilities":{}`, `"io.modelcontextprotocol/clientCapabilities":`+tt.capabilities, 1)
		got, err := c.conn.Call(t.Context(), "tools/call", []byte(`{"name":"t","_meta":{`+meta+`}}`))
		want, _ := json.Marshal(tt.want)
		if err != nil || !strings.Contains(string(got), string(want)) {
			t.Errorf("modern, %s: got %s, %v, want %s in it", tt.capabilities, got, err, want)
		}
		c := connect(t, srv, modern)
		c.revision = "2025-11-25"
		if got, want := c.must("initialize", `{"protocolVersion":"2025-11-25","capabilities":`+tt.capabilities+`}`), both+"}"; !strings.Contains(got, want) {
			t.Errorf("got %s, want %s in it", got, want)
		}
		if err := c.conn.Notify(t.Context(), "notifications/initialized", nil); err != nil {
			t.Fatal(err)
		}
		if r, err := c.result("t", "{}"); err != nil || r.Text != tt.want {
			t.Errorf("legacy, %s: got %+v, %v", tt.capabilities, r, err)
		}
	}
	if got := connect(t, server.MustNew("test", "1", nil), modern).must("server/discover", "{}"); strings.Contains(got, `"extensions"`) || strings.Contains(got, `"experimental"`) {
		t.Errorf("without extensions: %s", got)
	}
	for _, tt := range []struct {
		opts server.Options
		want string
	}{
		{server.Options{Extensions: map[string]json.RawMessage{"a": json.RawMessage("{}")}}, "prefix"},
		{server.Options{Extensions: map[string]json.RawMessage{"com.example/a": nil}}, "invalid JSON"},
		{server.Options{Extensions: map[string]json.RawMessage{"com.example/a": json.RawMessage("true")}}, "object"},
		{server.Options{Experimental: map[string]json.RawMessage{"a": json.RawMessage("[]")}}, "object"},
	} {
		if _, err := server.New("test", "1", &tt.opts); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("New: got %v, want an error about %q", err, tt.want)
		}
	}
}

// TestExtensionRequired shows that a handler can reject a client without an extension with the
// protocol's error.
//
// Spec: S38
func TestExtensionRequired(t *testing.T) {
	srv := with(t, nil, func(_ context.Context, call *server.Call) (*mcp.CallToolResult, error) {
		if _, ok := call.ClientExtension("com.example/a"); !ok {
			return nil, mcp.MissingRequiredClientCapability(mcp.ClientCapabilities{Extensions: map[string]json.RawMessage{"com.example/a": json.RawMessage("{}")}})
		}
		return nil, nil
	})
	_, err := connect(t, srv, modern).tool("t", "{}")
	e, _ := errors.AsType[*jsonrpc.Error](err)
	if e == nil || e.Code != mcp.CodeMissingRequiredClientCapability || string(e.Data) != `{"requiredCapabilities":{"extensions":{"com.example/a":{}}}}` {
		t.Errorf("got %v %s", err, e.Data)
	}
}

// TestAddExtension declares an extension after New, which must not change the options of other
// servers.
func TestAddExtension(t *testing.T) {
	opts := &server.Options{Extensions: map[string]json.RawMessage{"com.example/a": json.RawMessage(`{"n":1}`)}}
	srv, other := server.MustNew("test", "1", opts), server.MustNew("test", "1", opts)
	for _, add := range []struct{ id, settings string }{{"com.example/b", `{}`}, {"com.example/a", `{"n":2}`}} {
		if err := srv.AddExtension(add.id, json.RawMessage(add.settings)); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []struct{ id, settings string }{{"b", `{}`}, {"com.example/c", `[]`}, {"com.example/c", `{`}} {
		if err := srv.AddExtension(bad.id, json.RawMessage(bad.settings)); err == nil {
			t.Errorf("AddExtension(%q, %s) was accepted", bad.id, bad.settings)
		}
	}
	for _, tt := range []struct {
		srv  *server.Server
		want string
	}{{srv, `"extensions":{"com.example/a":{"n":2},"com.example/b":{}}`}, {other, `"extensions":{"com.example/a":{"n":1}}`}} {
		if got := connect(t, tt.srv, modern).must("server/discover", "{}"); !strings.Contains(got, tt.want) {
			t.Errorf("got %s, want %s in it", got, tt.want)
		}
	}
}
