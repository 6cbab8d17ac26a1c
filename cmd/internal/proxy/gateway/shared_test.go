package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
	"mcpwire/client"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/rpc/relay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// A heldServer is a legacy server that answers calls of tools when the test says so.
type heldServer struct {
	mu sync.Mutex
	// calls has the connection and the id of each call, by the name in its arguments.
	calls map[string]heldCall
	// answers has the responses to the server's requests.
	answers []string
}

type heldCall struct {
	f  jsonrpc.Framer
	id string
}

func (s *heldServer) connect(context.Context, io.Writer) (jsonrpc.Framer, error) {
	ours, theirs := net.Pipe()
	go s.serve(jsonrpc.NewFramer(theirs, nil))
	return jsonrpc.NewFramer(ours, nil), nil
}

func (s *heldServer) serve(f jsonrpc.Framer) {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		m := new(jsonrpc.Message)
		must(jsonrpc.Parse(append([]byte(nil), frame...), m, 0))
		result := `{}`
		switch {
		case m.Kind == jsonrpc.KindResponse:
			s.answered(string(m.Result))
		case m.Kind == jsonrpc.KindError:
			s.answered(fmt.Sprint(int(m.Err().Code), " ", m.Err().Message))
		case string(m.Method) == mcp.MethodInitialize:
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
		case string(m.Method) == mcp.MethodToolsList:
			result = `{"tools":[{"name":"x","inputSchema":{"type":"object"}}]}`
		case string(m.Method) == mcp.MethodToolsCall:
			arguments, _ := m.Param("arguments")
			var in struct{ Call string }
			must(json.Unmarshal(arguments, &in))
			s.mu.Lock()
			s.calls[in.Call] = heldCall{f, string(m.ID)}
			s.mu.Unlock()
			continue
		}
		if m.Kind == jsonrpc.KindRequest && f.WriteFrame([]byte(`{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":`+result+`}`)) != nil {
			return
		}
	}
}

func (s *heldServer) answered(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, text)
}

// write sends a frame on the connection of a call. ID in it stands for the id of the call.
func (s *heldServer) write(call, frame string) {
	s.mu.Lock()
	c := s.calls[call]
	s.mu.Unlock()
	must(c.f.WriteFrame([]byte(strings.ReplaceAll(frame, "ID", c.id))))
}

// The requests of a server to its client, with what a client that gets one finds in its message.
var inputFrames = map[string]string{
	mcp.MethodElicit:        `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"QUESTION","requestedSchema":{"type":"object","properties":{}}}}`,
	mcp.MethodCreateMessage: `{"jsonrpc":"2.0","id":"q","method":"sampling/createMessage","params":{"maxTokens":1,"messages":[{"role":"user","content":{"type":"text","text":"QUESTION"}}]}}`,
	mcp.MethodRootsList:     `{"jsonrpc":"2.0","id":"q","method":"roots/list"}`,
}

// TestSharedInput checks who gets a request of a legacy server on standard input and output that
// clients of several principals share: the principal whose call is in flight, and nobody if the
// call of another principal may be the cause.
func TestSharedInput(t *testing.T) {
	const refused = "-32603 isolation: shared cannot tell whose call this request belongs to: a server that asks its users needs isolation: principal"
	for _, tt := range []struct {
		name string
		// steps are "USER NAME" for a call, "end NAME" for its response and "cancel NAME".
		steps []string
		// to is the user who gets the request, or "" for nobody.
		to string
	}{
		{"one call", []string{"alice 1"}, "alice"},
		{"calls of one principal", []string{"alice 1", "alice 2"}, "alice"},
		{"calls of two principals", []string{"alice 1", "bob 2"}, ""},
		{"calls of two principals in the other order", []string{"bob 1", "alice 2"}, ""},
		{"calls of three principals", []string{"alice 1", "bob 2", "carol 3"}, ""},
		{"the other call has ended", []string{"bob 1", "alice 2", "end 1"}, "alice"},
		{"the later call has ended", []string{"alice 1", "bob 2", "end 2"}, "alice"},
		{"the other call was canceled", []string{"bob 1", "alice 2", "cancel 1"}, ""},
		{"no call", []string{"alice 1", "end 1", "bob 2", "end 2"}, ""},
		{"the only call was canceled", []string{"bob 1", "end 1", "alice 2", "cancel 2"}, ""},
		{"the own call was canceled", []string{"bob 0", "end 0", "alice 1", "cancel 1", "alice 2"}, "alice"},
		{"without principals", []string{" 1", " 2"}, "anybody"},
	} {
		for method, ask := range inputFrames {
			for _, modern := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/modern=%v", tt.name, method, modern), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						srv := &heldServer{calls: map[string]heldCall{}}
						u := Upstream{Name: "up", Isolation: IsolateNone, Bridge: bridge.Options{ServerEra: bridge.EraLegacy, Connect: srv.connect}}
						g := newGateway(t, &Options{Upstreams: []Upstream{u}})
						defer g.Close()
						clients := &sharedClients{t: t, g: g, modern: modern, sessions: map[string]*session{}, cancel: map[string]func(){}}
						defer clients.close()
						last := ""
						for _, step := range tt.steps {
							verb, call, _ := strings.Cut(step, " ")
							switch verb {
							case "end":
								srv.write(call, `{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}`)
							case "cancel":
								clients.cancel[call]()
							default:
								clients.call(verb, call)
								last = call
							}
							synctest.Wait()
						}
						srv.write(last, ask)
						clients.wait()
						got, answers := clients.asked(), ""
						if len(srv.answers) > 0 {
							answers = srv.answers[0]
						}
						switch {
						case tt.to == "anybody" && len(got) == 1:
						case tt.to == "" && answers != refused:
							t.Errorf("the server got %q, want %q", answers, refused)
							fallthrough
						default:
							if diff := cmp.Diff(strings.Fields(tt.to), got); diff != "" && len(got)+len(tt.to) > 0 {
								t.Errorf("who got the request (-want +got):\n%s", diff)
							}
						}
					})
				})
			}
		}
	}
}

// sharedClients are the clients of several users, all alike.
type sharedClients struct {
	t        *testing.T
	g        *Gateway
	modern   bool
	sessions map[string]*session
	cancel   map[string]func()

	mu  sync.Mutex
	got []string
}

func (c *sharedClients) context(user string) context.Context {
	if user == "" {
		return c.t.Context()
	}
	return as(c.t.Context(), user)
}

// call makes a call of a user that has a name.
func (c *sharedClients) call(user, name string) {
	ctx, cancel := context.WithCancel(c.context(user))
	arguments := `"name":"up__x","arguments":{"call":"` + name + `"}`
	if c.modern {
		c.cancel[name] = cancel
		meta := strings.Replace(modernMeta, `"elicitation":{}`, `"elicitation":{},"sampling":{},"roots":{}`, 1)
		go func() {
			c.note(user, request(c.t, ctx, c.g.Stateless(), mcp.MethodToolsCall, `{`+arguments+`,`+meta+`}`))
		}()
		return
	}
	s := c.sessions[user]
	if s == nil {
		s = c.g.Session(ctx, senderFunc(func(message []byte) error { c.note(user, string(message)); return nil })).(*session)
		c.sessions[user] = s
		request(c.t, ctx, s, mcp.MethodInitialize, `{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{},"sampling":{},"roots":{}},"clientInfo":{"name":"c","version":"1"}}`)
	}
	frame := jsonrpc.AppendRequest(nil, jsonrpc.StringID(name), mcp.MethodToolsCall, []byte("{"+arguments+"}"))
	parse := func(frame []byte) *jsonrpc.Message {
		m := new(jsonrpc.Message)
		must(jsonrpc.Parse(frame, m, 0))
		return m
	}
	c.cancel[name] = func() {
		frame := []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"` + name + `"}}`)
		s.Notification(ctx, frame, parse(frame))
	}
	go func() {
		_, _ = s.Request(ctx, frame, parse(frame), nil, nil) // the test ends it
		cancel()
	}()
}

// note records a message that a user got.
func (c *sharedClients) note(user, message string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if strings.Contains(message, "QUESTION") || strings.Contains(message, mcp.MethodRootsList) {
		c.got = append(c.got, user)
	}
}

// asked returns the users who got a request of the server.
func (c *sharedClients) asked() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got
}

// wait waits until all messages have arrived.
func (c *sharedClients) wait() {
	synctest.Wait()
	time.Sleep(time.Second) // the translation gathers requests
	synctest.Wait()
}

func (c *sharedClients) close() {
	for _, s := range c.sessions {
		s.Close()
	}
}

// TestSharedInputByStream checks that over HTTP, where the stream shows which call a request belongs
// to, each principal gets the requests of its own call at the same time.
func TestSharedInputByStream(t *testing.T) {
	for _, revision := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		t.Run(revision.String(), func(t *testing.T) {
			var ready sync.WaitGroup
			ready.Add(2)
			srv := server.MustNew("up", "1", &server.Options{Revisions: []mcp.Revision{mcp.LatestLegacyRevision}})
			must(server.AddTool(srv, "ask", "", func(ctx context.Context, in struct {
				Who string `json:"who"`
			}) (string, error) {
				ready.Done()
				ready.Wait() // both calls are in flight
				res, err := server.CallOf(ctx).Elicit(ctx, "q", &mcp.ElicitRequestParams{Message: in.Who, RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)})
				if err != nil {
					return "", err
				}
				return string(res.Content), nil
			}))
			t.Cleanup(func() { srv.Close(context.Background()) })
			g := newGateway(t, &Options{Upstreams: []Upstream{{Name: "up", Isolation: IsolateNone, Bridge: bridge.Options{Connect: overHTTP(t, srv), HTTP: true}}}})
			var mu sync.Mutex
			var got []string
			var calls sync.WaitGroup
			for _, user := range []string{"alice", "bob"} {
				opts := client.Options{Revisions: []mcp.Revision{revision}, Input: client.InputOptions{Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
					return &mcp.ElicitResult{Action: "accept", Content: json.RawMessage(`{"name":"` + user + " was asked as " + p.Message + `"}`)}, nil
				}}}
				c := dial(t, client.TransportFunc(func(context.Context) (jsonrpc.Framer, error) {
					ours, theirs := net.Pipe()
					ctx := auth.WithPrincipal(context.Background(), &auth.Principal{Issuer: "i", Subject: user})
					go g.Serve(ctx, jsonrpc.NewFramer(theirs, nil))
					return jsonrpc.NewFramer(ours, nil), nil
				}), opts)
				calls.Go(func() {
					text, err := client.CallTool[string](t.Context(), c, "up__ask", map[string]string{"who": user})
					mu.Lock()
					defer mu.Unlock()
					got = append(got, fmt.Sprint(text, err))
				})
			}
			calls.Wait()
			slices.Sort(got)
			want := []string{`{"name":"alice was asked as alice"}<nil>`, `{"name":"bob was asked as bob"}<nil>`}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("answers (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLabelElicitations checks that a user sees which upstream asks, in all pairs of eras.
func TestLabelElicitations(t *testing.T) {
	for _, clientEra := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		for _, serverEra := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
			for _, name := range []bool{false, true} {
				t.Run(fmt.Sprint(clientEra, " to ", serverEra, " ", name), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						srv := fullServer("up", serverEra)
						defer srv.Close(context.Background())
						g := newGateway(t, &Options{LabelElicitations: name, Upstreams: []Upstream{streamUpstream("up", srv)}})
						defer g.Close()
						var got []string
						opts := fullClientOptions(clientEra)
						answer := opts.Input.Elicit
						opts.Input.Elicit = func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
							got = append(got, p.Message)
							return answer(ctx, p)
						}
						c := dialStream(t, g, opts)
						defer c.Close()
						if text, err := client.CallTool[string](t.Context(), c, "up__form", nil); err != nil || text != `accept{"name":"x"}` {
							t.Errorf("got %q, %v", text, err)
						}
						want := []string{"Name?"}
						if name {
							want = []string{"up: Name?"}
						}
						if diff := cmp.Diff(want, got); diff != "" {
							t.Errorf("messages (-want +got):\n%s", diff)
						}
					})
				})
			}
		}
	}
}

// TestLabeledElicitations checks where in messages elicitations are.
func TestLabeledElicitations(t *testing.T) {
	g := newGateway(t, &Options{LabelElicitations: true, Upstreams: []Upstream{streamUpstream("up", toolServer("up"))}})
	defer g.Close()
	be, err := g.state.Load().upstreams[0].acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer be.release()
	const request = `{"jsonrpc":"2.0","id":1,"method":`
	for _, tt := range []struct {
		era      bridge.Era
		in, want string
	}{
		{bridge.EraLegacy, request + `"elicitation/create","params":{"message":"a"}}`, `"message":"up: a"`},
		{bridge.EraLegacy, request + `"sampling/createMessage","params":{"message":"a"}}`, `"message":"a"`},
		{bridge.EraLegacy, `{"jsonrpc":"2.0","id":1,"error":{"code":-32042,"message":"a","data":{"elicitations":[{"mode":"url","message":"b"},7,{"message":"c"}]}}}`, `"message":"a","data":{"elicitations":[{"mode":"url","message":"up: b"},7,{"message":"up: c"}]}`},
		{bridge.EraModern, `{"jsonrpc":"2.0","id":1,"result":{"inputRequests":{"k\"1":{"method":"elicitation/create","params":{"message":"a"}},"k2":{"method":"roots/list","params":{"message":"b"}},"k3":{"method":"elicitation/create"},"k4":7}}}`,
			`"k\"1":{"method":"elicitation/create","params":{"message":"up: a"}},"k2":{"method":"roots/list","params":{"message":"b"}},"k3":{"method":"elicitation/create"},"k4":7`},
		{bridge.EraModern, `{"jsonrpc":"2.0","method":"notifications/tasks","params":{"taskId":"x","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"a"}}}}}`, `"params":{"message":"up: a"}`},
		{bridge.EraModern, `{"jsonrpc":"2.0","id":1,"result":{"inputRequests":7,"message":"a"}}`, `"inputRequests":7,"message":"a"`},
	} {
		m := new(jsonrpc.Message)
		must(jsonrpc.Parse([]byte(tt.in), m, 0))
		s := g.scope(t.Context(), be, tt.era)
		got := ""
		if len(m.Method) > 0 {
			got = string(s.message([]byte(tt.in), m))
		} else {
			got = string(s.response(mcp.MethodToolsCall, []byte(tt.in)))
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %s, want %s in it", tt.in, got, tt.want)
		}
	}
}

// TestIsolatedAddresses checks that modern clients at different addresses do not share a server's
// process with isolation: client, although they have neither principals nor sessions.
func TestIsolatedAddresses(t *testing.T) {
	for _, tt := range []struct {
		isolation Isolation
		want      int // connections of clients
	}{{IsolateClients, 2}, {IsolatePrincipals, 1}, {IsolateNone, 1}} {
		for _, revision := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
			t.Run(fmt.Sprint(tt.isolation, " ", revision), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := server.MustNew("up", "1", &server.Options{Revisions: []mcp.Revision{revision}})
					defer srv.Close(context.Background())
					must(server.AddTool(srv, "a", "", func(context.Context, none) (string, error) { return "x", nil }))
					u := streamUpstream("up", srv)
					u.Isolation = tt.isolation
					g := newGateway(t, &Options{Upstreams: []Upstream{u}})
					defer g.Close()
					call := func(address string) {
						ctx := (*relay.Server)(nil).WithIdentity(t.Context(), "", address)
						if got := request(t, ctx, g.Stateless(), mcp.MethodToolsCall, `{"name":"up__a",`+modernMeta+"}"); !strings.Contains(got, `"text":"x"`) {
							t.Errorf("got %s", got)
						}
					}
					call("192.0.2.1")
					synctest.Wait()
					before := g.Upstreams()[0].Connections
					call("192.0.2.2")
					call("192.0.2.1")
					call("192.0.2.2")
					if got := g.Upstreams()[0].Connections - before; got != tt.want-1 {
						t.Errorf("got %d more connections for the second address, want %d", got, tt.want-1)
					}
				})
			})
		}
	}
}

// TestSlowReader checks that a caller waits for no time at all while another one of the same server
// does not read the messages of its call.
func TestSlowReader(t *testing.T) {
	for _, serverEra := range []bridge.Era{bridge.EraLegacy, bridge.EraModern} {
		for _, modern := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v server, modern client %t", serverEra, modern), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					srv := toolServer("s", "echo")
					must(server.AddTool(srv, "flood", "", func(ctx context.Context, _ none) (string, error) {
						for i := range 32 { // MiB
							if err := server.CallOf(ctx).Progress(float64(i), 32, strings.Repeat("x", 1<<20)); err != nil {
								return "", err
							}
						}
						return "done", nil
					}))
					up := streamUpstream("s", srv)
					up.Bridge.ServerEra = serverEra
					g := newGateway(t, &Options{Upstreams: []Upstream{up}})
					stuck := make(chan struct{})
					defer close(stuck)
					out := senderFunc(func([]byte) error { <-stuck; return nil })
					meta, p := `"_meta":{`, g.Stateless()
					if modern {
						meta = strings.TrimSuffix(modernMeta, "}") + ","
					} else {
						p = g.Session(t.Context(), out)
						request(t, t.Context(), p, mcp.MethodInitialize, `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`)
					}
					defer p.Close()
					frame := jsonrpc.AppendRequest(nil, jsonrpc.IntID(1), mcp.MethodToolsCall, []byte(`{"name":"s__flood","arguments":{},`+meta+`"progressToken":1}}`))
					m := new(jsonrpc.Message)
					must(jsonrpc.Parse(frame, m, 0))
					sent := false
					go p.Request(t.Context(), frame, m, senderFunc(func(b []byte) error { sent = true; return out(b) }), nil)
					synctest.Wait()
					quick := dialStream(t, g, client.Options{})
					start := time.Now()
					for range 3 {
						if got, err := client.CallTool[string](t.Context(), quick, "s__echo", none{}); got != "s" {
							t.Fatalf("got %q, %v", got, err)
						}
					}
					if waited := time.Since(start); waited > 0 || !sent {
						t.Errorf("three calls waited for %v; the other client got messages: %t", waited, sent)
					}
				})
			})
		}
	}
}
