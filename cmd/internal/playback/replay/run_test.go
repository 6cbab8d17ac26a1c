package replay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/client"
	"mcpwire/cmd/internal/playback/replay"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/cmd/internal/proxy/taphttp"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

// serverVar makes the test binary a server with the variable's value as its greeting.
const serverVar = "REPLAY_TEST_SERVER"

type greeting struct {
	Name string `json:"name"`
}

// newServer returns a server of package server that supports all revisions.
func newServer(hello string) *server.Server {
	srv := server.MustNew("greeter", "1.0.0", &server.Options{Limits: server.Limits{PageSize: 2}})
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	check(server.AddTool(srv, "greet", "Say hello.", func(_ context.Context, in greeting) (string, error) {
		if in.Name == "crash" {
			os.Exit(7)
		}
		return hello + ", " + in.Name + "!", nil
	}))
	check(server.AddTool(srv, "ask", "Ask who it is.", func(ctx context.Context, _ struct{}) (string, error) {
		to, err := server.Elicit[greeting](ctx, "who", "Who are you?")
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("accepted: %v, %s", to.Accepted(), to.Value.Name), nil
	}))
	if hello == slowTool {
		addWaiting(srv, check)
	}
	check(server.AddTool(srv, "other", "Makes a second page.", func(context.Context, struct{}) (string, error) { return "", nil }))
	return srv
}

// serveHTTP serves srv over HTTP: Streamable HTTP at /mcp, HTTP+SSE at other paths.
func serveHTTP(t *testing.T, hello string) string {
	t.Helper()
	h := streamable.MustHandler(newServer(hello), nil)
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	mux.Handle("/", h.SSE("/messages"))
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	t.Cleanup(func() { h.Shutdown(context.Background()) })
	return web.URL
}

// recordHTTP records a client of package client with that server.
func recordHTTP(t *testing.T, rev mcp.Revision) *bytes.Buffer {
	t.Helper()
	return recordClient(t, rev, "Hello", func(c *client.Client) {
		for _, err := range c.Tools(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
		}
		for tool, args := range map[string]string{"greet": `{"name":"Bob"}`, "ask": `{}`} {
			if _, err := c.CallTool(t.Context(), tool, json.RawMessage(args)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// recordClient records the messages of a client over HTTP.
func recordClient(t *testing.T, rev mcp.Revision, hello string, do func(*client.Client)) *bytes.Buffer {
	t.Helper()
	upstream, err := url.Parse(serveHTTP(t, hello) + "/mcp")
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	rec := capture.NewWriter(&file, &capture.Options{Transport: "http", Name: "greeter", URL: upstream.String()})
	h, err := taphttp.New(upstream, rec, nil)
	if err != nil {
		t.Fatal(err)
	}
	tap := httptest.NewServer(h)
	defer tap.Close()
	opts := &client.Options{Info: mcp.Implementation{Name: "c", Version: "1"}, Revisions: []mcp.Revision{rev}, Cache: client.CacheOptions{MaxBytes: -1}}
	opts.Input.Elicit = func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: "accept", Content: []byte(`{"name":"Ada"}`)}, nil
	}
	c, err := client.Dial(t.Context(), streamable.NewTransport(tap.URL+"/mcp", nil), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	do(c)
	c.Close()
	h.Shutdown(t.Context())
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	return &file
}

// targets returns targets for the recorded server, over each transport.
func targets(t *testing.T, hello string, legacy bool) map[string]*resend.Origin {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	web := serveHTTP(t, hello)
	all := map[string]*resend.Origin{
		"stdio": {Transport: capture.TransportStdio, Command: []string{program}},
		"http":  {Transport: capture.TransportHTTP, URL: web + "/mcp"},
	}
	if legacy {
		all["sse"] = &resend.Origin{Transport: capture.TransportSSE, URL: web + "/sse"}
	}
	return all
}

// TestRun shows that a recorded client can be replayed against servers over every transport, and
// that the capture of the replay can be replayed too.
func TestRun(t *testing.T) {
	for _, rev := range []mcp.Revision{mcp.Revision20250618, mcp.Revision20260728} {
		file := recordHTTP(t, rev).Bytes()
		for name, o := range targets(t, "Hello", !rev.Modern()) {
			t.Run(rev.String()+" "+name, func(t *testing.T) {
				from := file
				for range 2 {
					var got logLines
					sum, again := play(t, read(t, bytes.NewBuffer(from)), o, "Hello", &got)
					if !sum.OK() || sum.Same < 4 || sum.Skipped+sum.Open+sum.Stray+sum.Notes > 0 {
						t.Errorf("summary %+v:\n%s", *sum, strings.Join(got, "\n"))
					}
					from = again
				}
			})
		}
		for name, o := range targets(t, "Goodbye", false) {
			t.Run(rev.String()+" changed "+name, func(t *testing.T) {
				var got logLines
				sum, _ := play(t, read(t, bytes.NewBuffer(file)), o, "Goodbye", &got)
				if sum.OK() || sum.Different != 1 || !strings.Contains(strings.Join(got, "\n"), "tools/call greet: different replace /result/content/0/text") {
					t.Errorf("summary %+v:\n%s", *sum, strings.Join(got, "\n"))
				}
			})
		}
	}
}

// play replays a recording against a server, and returns the capture of the replay.
func play(t *testing.T, rec *replay.Recording, o *resend.Origin, hello string, got *logLines) (*replay.Summary, []byte) {
	t.Helper()
	var file bytes.Buffer
	w := capture.NewWriter(&file, &capture.Options{Transport: o.Transport, Name: "greeter"})
	opts := &replay.Options{Report: got.add, Resend: &resend.Options{Env: []string{serverVar + "=" + hello}}}
	sum, err := replay.Run(t.Context(), rec, o, w, opts)
	if err != nil {
		t.Errorf("error %v", err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return sum, file.Bytes()
}

// TestRunCrash shows that the replay ends with the error of the process if the server ends or
// cannot be started.
func TestRunCrash(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	crash := strings.Replace(strings.Replace(callA, `"a"`, `"greet","arguments":{"name":"crash"}`, 1), "\n", "", 1)
	rec := read(t, session(c2s(10, crash), s2c(11, answerA), c2s(12, callB), s2c(13, answerB)))
	w := capture.NewWriter(io.Discard, nil)
	defer w.Close()
	opts := &replay.Options{Resend: &resend.Options{Env: []string{serverVar + "=Hello"}}}
	sum, err := replay.Run(t.Context(), rec, &resend.Origin{Transport: capture.TransportStdio, Command: []string{program}}, w, opts)
	if err == nil || !strings.Contains(err.Error(), "status 7") {
		t.Errorf("error %v, want that of the process", err)
	}
	if want := (replay.Summary{Requests: 3, Different: 1, Lost: 1, Unsent: 1, Notes: 1}); *sum != want {
		t.Errorf("summary %+v, want %+v", *sum, want)
	}
	sum, err = replay.Run(t.Context(), rec, &resend.Origin{Transport: capture.TransportStdio, Command: []string{program + "-none"}}, w, opts)
	if err == nil || sum.Unsent != 3 {
		t.Errorf("error %v, summary %+v for a program that does not exist", err, sum)
	}
}

// TestRunIsNotTheRecorded shows that the replay connects to the server that the caller names, not
// to the one in the recording.
func TestRunIsNotTheRecorded(t *testing.T) {
	var asked []string
	evil := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = append(asked, r.URL.Path) }))
	defer evil.Close()
	file := strings.ReplaceAll(recordHTTP(t, mcp.Revision20260728).String(), "http://127.0.0.1", "http://"+evil.Listener.Addr().String()+"/")
	var got logLines
	if sum, _ := play(t, read(t, bytes.NewBufferString(file)), targets(t, "Hello", false)["http"], "", &got); !sum.OK() {
		t.Errorf("summary %+v", *sum)
	}
	if diff := cmp.Diff([]string(nil), asked); diff != "" {
		t.Error(diff)
	}
}

func serveStdio() int {
	if err := stdio.Serve(context.Background(), newServer(os.Getenv(serverVar))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
