package interop

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"mcpwire/capture"
)

// referenceServer is the script of the reference server from npm.
var referenceServer = filepath.Join(nodeDir, "node_modules", "@modelcontextprotocol", "server-everything", "dist", "index.js")

// tapVisits are commands of Inspector for the reference server.
var tapVisits = []struct {
	name   string
	args   []string
	status int
}{
	{"tools", []string{"--method", "tools/list"}, 0},
	{"echo", []string{"--method", "tools/call", "--tool-name", "echo", "--tool-args-json", `{"message":"caf\u00e9 \u2028 \"x\""}`}, 0},
	{"image", []string{"--method", "tools/call", "--tool-name", "get-tiny-image", "--tool-args-json", `{}`}, 0},
	{"progress", []string{"--method", "tools/call", "--tool-name", "trigger-long-running-operation", "--tool-args-json", `{"duration":0.2,"steps":4}`}, 0},
	{"bad arguments", []string{"--method", "tools/call", "--tool-name", "get-sum", "--tool-args-json", `{"a":"x"}`}, inspectorToolError},
	{"resources", []string{"--method", "resources/list"}, 0},
	{"prompts", []string{"--method", "prompts/list"}, 0},
}

// TestTapReference runs a tap between Inspector and the reference server. Both sides of the tap and
// the capture must have the same bytes, and Inspector must print the same output as without a tap.
func TestTapReference(t *testing.T) {
	script, err := filepath.Abs(referenceServer)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tapVisits {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			upstream := newCommand(t, node(t, 22), script, "stdio")
			self, inner := upstream.command()
			file := filepath.Join(t.TempDir(), "tap"+capture.Suffix)
			downstream := newCommand(t, slices.Concat([]string{serverCommand[0], "tap", "--redact", "off", "-o", file, "--", self}, inner)...)
			status, out := inspect(t, downstream, "legacy", tt.args...)
			if status != tt.status {
				t.Errorf("status = %d, want %d", status, tt.status)
			}
			before, behind := oneTranscript(t, downstream), oneTranscript(t, upstream)
			recorded := streamsOf(t, file)
			for _, kind := range []string{toServer, toHost} {
				want := bytesOf(behind, kind)
				if diff := gocmp.Diff(want, bytesOf(before, kind)); diff != "" || want == "" {
					t.Errorf("%s (-upstream +downstream):\n%s", kind, diff)
				}
				if diff := gocmp.Diff(want, recorded[kind]); diff != "" {
					t.Errorf("%s (-upstream +capture):\n%s", kind, diff)
				}
			}
			direct := newCommand(t, node(t, 22), script, "stdio")
			wantStatus, want := inspect(t, direct, "legacy", tt.args...)
			if diff := gocmp.Diff(string(want), string(out)); diff != "" || status != wantStatus {
				t.Errorf("Inspector with a tap: status = %d, want %d; output (-without +with):\n%s", status, wantStatus, diff)
			}
		})
	}
}

// oneTranscript returns the transcript of the only process of s.
func oneTranscript(t *testing.T, s *recordedServer) []event {
	t.Helper()
	all := s.transcripts()
	if len(all) != 1 {
		t.Fatalf("started processes = %d, want 1", len(all))
	}
	return all[0]
}

// bytesOf returns the bytes of one direction.
func bytesOf(events []event, kind string) string {
	var b strings.Builder
	for _, e := range events {
		if e.Kind == kind {
			b.Write(e.Line)
		}
	}
	return b.String()
}

// streamsOf returns the bytes of each direction from a capture of stdio.
func streamsOf(t *testing.T, file string) map[string]string {
	t.Helper()
	r, err := capture.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	streams := map[string]string{}
	for e, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == capture.KindGap {
			t.Errorf("capture has a gap: %+v", e.Gap)
		}
		if e.Kind != capture.KindMessage && e.Kind != capture.KindInvalid {
			continue
		}
		kind := toServer
		if e.Dir == capture.ToClient {
			kind = toHost
		}
		streams[kind] += string(e.Data) + map[capture.Framing]string{capture.FramingLF: "\n", capture.FramingCRLF: "\r\n"}[e.Framing]
	}
	return streams
}

// referenceVerb as the first argument makes the test binary run the reference server over HTTP. It
// writes the URL to standard error, and ends the server when standard input ends.
const referenceVerb = "reference"

func referenceMain(args []string) int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	addr := l.Addr().(*net.TCPAddr)
	l.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("PORT=%d", addr.Port))
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for deadline := time.Now().Add(startTimeout); ; <-time.After(20 * time.Millisecond) {
		if conn, err := net.Dial("tcp", addr.String()); err == nil {
			conn.Close()
			break
		} else if time.Now().After(deadline) {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	fmt.Fprintf(os.Stderr, "listening url=http://%s\n", addr)
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// TestTapReferenceHTTP is TestTapReference over HTTP, with the streams of HTTP+SSE and of
// Streamable HTTP.
func TestTapReferenceHTTP(t *testing.T) {
	script, err := filepath.Abs(referenceServer)
	if err != nil {
		t.Fatal(err)
	}
	for _, transport := range []struct{ path, arg string }{{webPath, "streamableHttp"}, {ssePath, "sse"}} {
		for _, tt := range tapVisits {
			t.Run(transport.arg+" "+tt.name, func(t *testing.T) {
				t.Parallel()
				upstream := newWebProgram(t, transport.path, referenceVerb, node(t, 22), script, transport.arg)
				downstream := newWebProgram(t, transport.path, termVerb, serverCommand[0], "tap", "--no-record", "--listen", "127.0.0.1:0", upstream.web.url())
				status, _ := inspect(t, downstream, "legacy", tt.args...)
				if status != tt.status {
					t.Errorf("status = %d, want %d", status, tt.status)
				}
				downstream.web.stop()
				upstream.web.stop()
				want, got := exchangesOf(upstream.web.httpEvents), exchangesOf(downstream.web.httpEvents)
				if len(want) == 0 {
					t.Fatal("exchanges = 0, want at least 1")
				}
				removeStale(want, got)
				if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(tapExchange{})); diff != "" {
					t.Errorf("exchanges (-upstream +downstream):\n%s", diff)
				}
			})
		}
	}
}

// A tapExchange is an exchange on one side of a tap.
type tapExchange struct {
	Method, URI string
	Request     http.Header
	Body        string
	Status      int
	Response    http.Header
	Output      []string
	aborted     bool // the host closed the connection before the end
}

// removeStale removes from the upstream exchanges the messages that the server sent after the host
// had closed the connection, which the server detects later than the tap.
func removeStale(upstream, downstream []*tapExchange) {
	for i, d := range downstream {
		if !d.aborted || i >= len(upstream) {
			continue
		}
		if u := upstream[i]; d.Status == 0 {
			u.Status, u.Response, u.Output = 0, nil, nil
		} else {
			u.Output = u.Output[:min(len(u.Output), len(d.Output))]
		}
	}
}

// exchangesOf returns the host's requests and their responses. Concurrent requests may arrive in
// another order, so they are sorted.
func exchangesOf(httpEvents []httpEvent) []*tapExchange {
	var all []*tapExchange
	of := map[*exchange]*tapExchange{}
	for _, m := range httpEvents {
		switch m.kind {
		case requested:
			o := &tapExchange{Method: m.x.method, URI: m.x.uri, Request: endToEnd(m.x.header), Body: string(m.x.body)}
			of[m.x] = o
			all = append(all, o)
		case responded:
			o := of[m.x]
			o.Status, o.Response = m.x.status, endToEnd(m.x.response)
		case hostClosed:
			of[m.x].aborted = true
		case payloadSent:
			s := m.payload
			of[m.x].Output = append(of[m.x].Output, fmt.Sprintf("%s|%s|%v|%v|%s", s.name, s.id, s.hasID, s.retry, s.data))
		}
	}
	slices.SortStableFunc(all, func(a, b *tapExchange) int {
		return cmp.Or(strings.Compare(a.Method, b.Method), strings.Compare(a.URI, b.URI), strings.Compare(a.Body, b.Body))
	})
	return all
}

// endToEnd returns the fields that are not specific to one connection or to the framing of a body.
func endToEnd(h http.Header) http.Header {
	h = h.Clone()
	for _, name := range []string{"Connection", "Keep-Alive", "Transfer-Encoding", "Content-Length"} {
		h.Del(name)
	}
	return h
}
