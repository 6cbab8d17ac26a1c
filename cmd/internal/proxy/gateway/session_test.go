package gateway

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/client"
	"mcpwire/internal/era"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// TestLogLevel checks that a call is forwarded when the server has responded to the log level that
// the client set before, or after a timeout.
func TestLogLevel(t *testing.T) {
	const listWait = 2 * time.Second
	for _, tt := range []struct {
		name string
		// before sets the level before the first call, which performs the handshake.
		before bool
		// delay is the server's delay of the response to logging/setLevel. Zero means no response.
		delay, want time.Duration
	}{
		{"open", false, time.Second, time.Second},
		{"opened later", true, time.Second, time.Second},
		{"no response", false, 0, listWait},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				levels := make(chan string, 10)
				calls := make(chan time.Time, 10)
				up := Upstream{Name: "up", Isolation: IsolateClients, Bridge: bridge.Options{ServerEra: bridge.EraLegacy, Connect: func(context.Context, io.Writer) (jsonrpc.Framer, error) {
					ours, theirs := net.Pipe()
					go serveLogger(jsonrpc.NewFramer(theirs, nil), tt.delay, levels, calls)
					return jsonrpc.NewFramer(ours, nil), nil
				}}}
				g := newGateway(t, &Options{ListWait: listWait, Upstreams: []Upstream{up}})
				defer g.Close()
				s := g.Session(t.Context(), senderFunc(func([]byte) error { return nil }))
				defer s.Close()
				request(t, t.Context(), s, mcp.MethodInitialize, `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`)
				call := func() { request(t, t.Context(), s, mcp.MethodToolsCall, `{"name":"up__x"}`) }
				if !tt.before {
					call()
					<-calls
				}
				began := time.Now()
				if got := request(t, t.Context(), s, mcp.MethodSetLevel, `{"level":"error"}`); time.Since(began) > 0 {
					t.Errorf("logging/setLevel took %v: %s", time.Since(began), got)
				}
				call()
				if got := (<-calls).Sub(began); got != tt.want {
					t.Errorf("time until the call: got %v, want %v", got, tt.want)
				}
				if got := <-levels; got != "error" {
					t.Errorf("level: got %q", got)
				}
			})
		})
	}
}

// serveLogger serves a legacy client. It responds to logging/setLevel after a delay, or never if
// that is 0, and sends the level to levels and the time of each call to calls.
func serveLogger(f jsonrpc.Framer, delay time.Duration, levels chan<- string, calls chan<- time.Time) {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		m := new(jsonrpc.Message)
		must(jsonrpc.Parse(append([]byte(nil), frame...), m, 0))
		result := `{}`
		switch string(m.Method) {
		case mcp.MethodInitialize:
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"s","version":"1"}}`
		case mcp.MethodToolsList:
			result = `{"tools":[{"name":"x","inputSchema":{"type":"object"}}]}`
		case mcp.MethodToolsCall:
			calls <- time.Now()
			result = `{"content":[]}`
		case mcp.MethodSetLevel:
			level, _ := textParam(m, "level")
			levels <- level
			if delay == 0 {
				continue
			}
			time.Sleep(delay)
		}
		if m.Kind == jsonrpc.KindRequest {
			if f.WriteFrame([]byte(`{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":`+result+`}`)) != nil {
				return
			}
		}
	}
}

// serveConditional serves a legacy client. It has a tool only for clients that support sampling and
// elicitation, and asks each client for its roots. It sends the responses to roots.
func serveConditional(f jsonrpc.Framer, roots chan<- string) {
	tools := ""
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
			roots <- string(m.Result)
		case string(m.Method) == mcp.MethodInitialize:
			capabilities, _ := m.Param("capabilities")
			if era.Lookup(capabilities, "sampling") != nil && era.Lookup(capabilities, "elicitation") != nil {
				tools = `{"name":"ask","inputSchema":{"type":"object"}}`
			}
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
		case string(m.Method) == mcp.NotificationInitialized:
			if f.WriteFrame([]byte(`{"jsonrpc":"2.0","id":"roots","method":"roots/list"}`)) != nil {
				return
			}
		case string(m.Method) == mcp.MethodToolsList:
			result = `{"tools":[` + tools + `]}`
		}
		if m.Kind == jsonrpc.KindRequest {
			if f.WriteFrame([]byte(`{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":`+result+`}`)) != nil {
				return
			}
		}
	}
}

// TestConditionalTools checks that tools are listed that a server has only for clients with certain
// capabilities, and that the gateway answers requests of the server meanwhile.
func TestConditionalTools(t *testing.T) {
	for _, revision := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
		t.Run(revision.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				roots := make(chan string, 10)
				up := streamUpstream("up", nil)
				up.Bridge.ServerEra = bridge.EraLegacy
				up.Bridge.Connect = func(context.Context, io.Writer) (jsonrpc.Framer, error) {
					ours, theirs := net.Pipe()
					go serveConditional(jsonrpc.NewFramer(theirs, nil), roots)
					return jsonrpc.NewFramer(ours, nil), nil
				}
				g := newGateway(t, &Options{Upstreams: []Upstream{up}})
				defer g.Close()
				c := dialStream(t, g, client.Options{Revisions: []mcp.Revision{revision}})
				defer c.Close()
				if got, want := toolNames(t, c), "up__ask"; got != want {
					t.Errorf("got the tools %q, want %q", got, want)
				}
				if revision.Modern() {
					return // the bridge answers
				}
				select {
				case got := <-roots:
					if want := `{"roots":[]}`; got != want {
						t.Errorf("the roots are %s, want %s", got, want)
					}
				case <-time.After(time.Minute):
					t.Error("the server has got no roots")
				}
			})
		})
	}
}
