package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/stdio"
)

func init() {
	children["server"] = func() {
		err := stdio.Serve(context.Background(), newServer(os.Exit))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
	}
}

// newServer returns a server of package server with tools for tests. Its tool crash calls die.
func newServer(die func(int)) *server.Server {
	srv := server.MustNew("real", "2", &server.Options{Instructions: "be nice"})
	type text struct {
		Text string `json:"text"`
	}
	must(server.AddTool(srv, "echo", "", func(_ context.Context, in text) (string, error) { return in.Text, nil }))
	must(server.AddTool(srv, "count", "", func(ctx context.Context, in struct{ To int }) (int, error) {
		for i := range in.To {
			if err := server.CallOf(ctx).Progress(float64(i+1), float64(in.To), ""); err != nil {
				return 0, err
			}
		}
		return in.To, nil
	}))
	must(server.AddTool(srv, "wait", "", func(ctx context.Context, _ struct{}) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}))
	must(server.AddTool(srv, "ask", "", func(ctx context.Context, _ struct{}) (string, error) {
		call := server.CallOf(ctx)
		roots, err := call.Roots(ctx, "roots")
		if err != nil {
			return "", err
		}
		answer, err := call.Sample(ctx, "sample", &mcp.CreateMessageRequestParams{
			MaxTokens: 5, Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.SamplingContent{mcp.TextContent{Text: "q"}}}},
		})
		if err != nil {
			return "", err
		}
		return roots[0].Name + " " + answer.Model, nil
	}))
	must(server.AddTool(srv, "crash", "", func(context.Context, struct{}) (string, error) {
		die(7)
		return "", nil
	}))
	return srv
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// transports are transports to real servers.
var transports = []struct {
	name string
	open func(t *testing.T, f jsonrpc.Framing) Transport
}{
	{"memory", func(t *testing.T, f jsonrpc.Framing) Transport {
		return serving(t, f, func() (client, server io.ReadWriteCloser) { return net.Pipe() })
	}},
	{"pipe", func(t *testing.T, f jsonrpc.Framing) Transport {
		return serving(t, f, func() (client, server io.ReadWriteCloser) {
			in, inWriter, err := os.Pipe()
			must(err)
			outReader, out, err := os.Pipe()
			must(err)
			return &twoWay{outReader, inWriter}, &twoWay{in, out}
		})
	}},
	{"child", child},
}

// child runs this binary as a server.
func child(t *testing.T, f jsonrpc.Framing) Transport {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := stdio.Command(self)
	cmd.Env = []string{childVar + "=server", "GORACE=atexit_sleep_ms=0"}
	cmd.Framing = f
	return cmd
}

// A twoWay joins two one-way streams.
type twoWay struct {
	io.ReadCloser
	w io.WriteCloser
}

func (d *twoWay) Write(p []byte) (int, error) { return d.w.Write(p) }

func (d *twoWay) Close() error {
	d.w.Close()
	return d.ReadCloser.Close()
}

// serving returns a transport whose connections are served in this process.
func serving(t *testing.T, f jsonrpc.Framing, pipe func() (client, server io.ReadWriteCloser)) Transport {
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	return TransportFunc(func(context.Context) (jsonrpc.Framer, error) {
		clientEnd, serverEnd := pipe()
		srv := newServer(func(int) { serverEnd.Close() })
		wg.Go(func() {
			srv.Serve(context.Background(), jsonrpc.NewFramer(serverEnd, nil))
			serverEnd.Close()
		})
		return jsonrpc.NewFramer(clientEnd, &jsonrpc.FramerOptions{Framing: f}), nil
	})
}

// everyTransport runs a test against a real server of each revision, over each transport in both
// framings.
func everyTransport(t *testing.T, test func(t *testing.T, c *Client, r mcp.Revision)) {
	for _, transport := range transports {
		for _, framing := range []jsonrpc.Framing{jsonrpc.FramingLine, jsonrpc.FramingHeader} {
			for _, r := range mcp.Revisions() {
				t.Run(fmt.Sprintf("%s, %v, %v", transport.name, framing, r), func(t *testing.T) {
					t.Parallel()
					opts := answering()
					opts.Revisions = []mcp.Revision{r}
					opts.Reconnect.MinBackoff = time.Millisecond
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					c, err := Dial(ctx, transport.open(t, framing), &opts)
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					test(t, c, r)
				})
			}
		}
	}
}

// callTool calls a tool and returns its text.
func callTool(ctx context.Context, c *Client, name, args string, opts ...CallOption) (string, error) {
	var got struct {
		Content []struct{ Text string }
		IsError bool
	}
	err := c.Call(ctx, "tools/call", json.RawMessage(fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, args)), &got, opts...)
	if err != nil {
		return "", err
	}
	var texts []string
	for _, block := range got.Content {
		texts = append(texts, block.Text)
	}
	text := strings.Join(texts, "|")
	if got.IsError {
		return "", errors.New("tool: " + text)
	}
	return text, nil
}

// TestServer runs the client with a real server.
//
// Spec: C1 C18 C26 C29 C40 C68 C69
func TestServer(t *testing.T) {
	everyTransport(t, func(t *testing.T, c *Client, r mcp.Revision) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if c.Revision() != r || c.Profile().Server.Name != "real" || c.Profile().Instructions != "be nice" || c.Profile().Capabilities.Tools == nil {
			t.Errorf("%v, %+v, %q", c.Revision(), c.Profile().Server, c.Profile().Instructions)
		}
		const odd = "line\nbreak \u2028 \"quote\" 漢字 \U0001f600"
		if got, err := callTool(ctx, c, "echo", string(jsonText(odd))); got != odd || err != nil {
			t.Errorf("echo: got %q, %v", got, err)
		}
		if got, err := callTool(ctx, c, "echo", string(jsonText(strings.Repeat("long ", 100_000)))); len(got) != 500_000 || err != nil {
			t.Errorf("long echo: got %d bytes, %v", len(got), err)
		}
		if _, err := callTool(ctx, c, "nope", "{}"); !errors.Is(err, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams}) {
			t.Errorf("unknown tool: %v", err)
		}
		var progress []float64
		if got, err := callTool(ctx, c, "count", `{"To":5}`, WithProgress(func(p *mcp.ProgressNotificationParams) { progress = append(progress, p.Progress) })); got != "5" || err != nil {
			t.Errorf("count: got %s, %v", got, err)
		}
		if diff := cmp.Diff([]float64{1, 2, 3, 4, 5}, progress); diff != "" {
			t.Errorf("progress (-want +got):\n%s", diff)
		}
		if _, err := callTool(ctx, c, "wait", "{}", WithTimeout(time.Millisecond)); !is[*TimeoutError](err) {
			t.Errorf("timeout: %v", err)
		}
		if got, err := callTool(ctx, c, "ask", "{}"); got != "A m" || err != nil {
			t.Errorf("ask: got %q, %v", got, err)
		}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for k := range 20 {
					text := fmt.Sprintf("%d.%d", i, k)
					if got, err := callTool(ctx, c, "echo", string(jsonText(text))); got != text || err != nil {
						t.Errorf("echo %s: got %q, %v", text, got, err)
					}
				}
			})
		}
		wg.Wait()
	})
}

func jsonText(s string) []byte {
	text, _ := json.Marshal(map[string]string{"text": s})
	return text
}

// TestServerCrash shows that a server that crashes is started again. The call in flight fails, and
// its error says how the server ended.
func TestServerCrash(t *testing.T) {
	everyTransport(t, func(t *testing.T, c *Client, r mcp.Revision) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range 2 {
			_, err := callTool(ctx, c, "crash", "{}")
			if !isConnectionLost(err) {
				t.Errorf("crash: %v", err)
			}
			if e, ok := errors.AsType[*stdio.ExitError](err); strings.Contains(t.Name(), "child") && (!ok || e.Code != 7) {
				t.Errorf("the error does not say how the server ended: %v", err)
			}
			if got, err := callTool(ctx, c, "echo", `{"text":"again"}`); got != "again" || err != nil {
				t.Errorf("echo: got %q, %v", got, err)
			}
		}
		if c.Revision() != r || c.Err() != nil {
			t.Errorf("%v, %v", c.Revision(), c.Err())
		}
	})
}

// TestServerAnyRevision checks that both sides use their newest common revision by default.
func TestServerAnyRevision(t *testing.T) {
	c, err := Dial(t.Context(), child(t, jsonrpc.FramingAuto), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Revision() != mcp.LatestRevision || !c.Revision().Modern() {
		t.Errorf("speaks %v", c.Revision())
	}
}
