package web

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "embed"

	"mcpwire/internal/test/buffer"
	"mcpwire/internal/test/wait"
)

// page is a document whose script runs steps and reports their outcomes.
//
//go:embed page.html
var page []byte

// A step is an action of a page. page.html decodes it from JSON.
type step struct {
	Name string `json:"name"`
	// Kind is "fetch" or another kind that page.html implements.
	Kind   string            `json:"kind"`
	URL    string            `json:"url"`
	Method string            `json:"method,omitempty"`
	Header map[string]string `json:"headers,omitempty"` // $session is the last readable Mcp-Session-Id
	Body   string            `json:"body,omitempty"`
	Mode   string            `json:"mode,omitempty"` // of fetch
	// Ack is the URL of a POST after the first event. Empty sends none.
	Ack string `json:"ack,omitempty"`
	// Events is the number of events after which the page stops reading a stream. Zero reads to the
	// end.
	Events int `json:"events,omitempty"`
}

// An outcome is the result of a step as the page sees it.
type outcome struct {
	Name   string            `json:"name"`
	Error  string            `json:"error"`
	Type   string            `json:"type"` // of the response, as "cors" or "opaque"
	Status int               `json:"status"`
	Header map[string]string `json:"headers"` // the readable ones
	Body   string            `json:"body"`
	Events []string          `json:"events"` // the data of each
}

// A browser is a running Chromium.
type browser struct {
	cmd *exec.Cmd
	dir string
	log buffer.Buffer
	api string // the URL of the debugger, which opens pages
}

var browsers browserSet

// A browserSet has the browser that all tests share. The first test that needs it starts it.
type browserSet struct {
	mu  sync.Mutex
	one *browser
}

func (s *browserSet) get(t *testing.T) *browser {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.one == nil {
		s.one = startBrowser(t)
	}
	return s.one
}

func (s *browserSet) stop() {
	b := s.one
	if b == nil {
		return
	}
	b.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(5*time.Second, func() { b.cmd.Process.Kill() })
	b.cmd.Wait()
	timer.Stop()
	os.RemoveAll(b.dir)
}

// startBrowser starts Chromium. It resolves names below .test to this machine, as with a malicious
// name server.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		missing(t, "Chromium is not installed: %v", err)
	}
	b := new(browser)
	if b.dir, err = os.MkdirTemp("", "mcpwire-chromium-"); err != nil {
		t.Fatal(err)
	}
	b.cmd = exec.Command(path,
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--disable-features=HttpsUpgrades",
		"--host-resolver-rules=MAP *.test 127.0.0.1", "--no-proxy-server",
		"--user-data-dir="+b.dir, "--remote-debugging-port=0", "about:blank")
	b.cmd.Env = append(os.Environ(), "HOME="+b.dir)
	b.cmd.Stderr = &b.log
	b.cmd.WaitDelay = time.Second // its children inherit the pipe
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	browsers.one = b // so that stop ends it, even if the test fails
	wait.Until(t, "start of the browser", func() bool {
		f, err := os.Open(filepath.Join(b.dir, "DevToolsActivePort"))
		if err != nil {
			return false
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		if !lines.Scan() || lines.Text() == "" {
			return false
		}
		b.api = "http://127.0.0.1:" + lines.Text()
		return true
	})
	return b
}

// open opens a page in its own tab for the duration of the test.
func (b *browser) open(t *testing.T, address string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, b.api+"/json/new?"+url.QueryEscape(address), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := send(t, req)
	var tab struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(r.body), &tab); err != nil || tab.ID == "" {
		t.Fatalf("open page: status = %d, %s", r.status, r.body)
	}
	t.Cleanup(func() {
		if resp, err := http.Get(b.api + "/json/close/" + tab.ID); err == nil {
			resp.Body.Close()
		}
	})
}

// A host serves pages of an origin.
type host struct {
	origin   string
	steps    chan []step
	outcomes chan []outcome

	mu   sync.Mutex
	acks map[string]chan struct{} // by path; closed by a POST
}

func newHost() *host {
	return &host{steps: make(chan []step, 1), outcomes: make(chan []outcome, 1), acks: map[string]chan struct{}{}}
}

// acked returns a channel that the first POST to a path below /ack/ closes.
func (h *host) acked(path string) chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.acks[path]
	if c == nil {
		c = make(chan struct{})
		h.acks[path] = c
	}
	return c
}

// ack closes the channel that acked returns.
func (h *host) ack(path string) {
	c := h.acked(path)
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-c:
	default:
		close(c)
	}
}

// startHost serves pages at a host name of this machine.
func startHost(t *testing.T, name string) *host {
	t.Helper()
	h := newHost()
	ts := httptest.NewServer(h)
	t.Cleanup(ts.Close)
	_, port, err := net.SplitHostPort(ts.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	h.origin = "http://" + name + ":" + port
	return h
}

// ServeHTTP implements http.Handler.
func (h *host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/ack/") {
		h.ack(r.URL.Path)
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /page":
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(page)
	case "GET /steps":
		select {
		case steps := <-h.steps:
			json.NewEncoder(w).Encode(steps)
		case <-r.Context().Done():
		}
	case "POST /outcomes":
		var got []outcome
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			got = []outcome{{Error: fmt.Sprintf("decode outcomes: %v", err)}}
		}
		select {
		case h.outcomes <- got:
		default: // from a page that was reloaded
		}
	default:
		http.NotFound(w, r)
	}
}

// run runs the steps in a page of the host and returns their outcomes by name.
func (h *host) run(t *testing.T, steps []step) map[string]outcome {
	t.Helper()
	return h.runAt(t, h.origin, steps)
}

// runAt is run with another origin of the host.
func (h *host) runAt(t *testing.T, origin string, steps []step) map[string]outcome {
	t.Helper()
	b := browsers.get(t)
	h.steps <- steps
	b.open(t, origin+"/page")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	select {
	case got := <-h.outcomes:
		byName := map[string]outcome{}
		for _, o := range got {
			byName[o.Name] = o
		}
		for _, s := range steps {
			if _, ok := byName[s.Name]; !ok {
				t.Errorf("outcome of %q is missing: %+v", s.Name, got)
			}
		}
		return byName
	case <-ctx.Done():
		t.Fatalf("the page reported no outcomes; log of the browser:\n%s", lastLines(b.log.String(), 20))
		return nil
	}
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
