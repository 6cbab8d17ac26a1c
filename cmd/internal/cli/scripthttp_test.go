package cli

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/rogpeppe/go-internal/testscript"
)

var listening = regexp.MustCompile(`listening.* (?:url|address)=(\S+)`)

// serving holds a function for each script that stops the server it started last.
var serving sync.Map

// cmdServing starts "mcpwire serve" with these flags, waits until it listens, and sets URL: serving
// FLAGS... The process ends with the script, or by stops.
func cmdServing(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: serving FLAGS...")
	}
	stop := listen(ts, "URL", append([]string{"serve"}, args...)...)
	serving.Store(ts, stop)
	ts.Defer(func() { stop() })
}

// listen starts mcpwire, waits until it listens, and puts the URL into a variable of the script.
// The process gets a few variables of the script, and those that LISTEN_ENV lists.
// What it returns stops the process, waits for it and returns what it wrote to standard error.
func listen(ts *testscript.TestScript, variable string, args ...string) (stop func() (log string, err error)) {
	path, err := exec.LookPath("mcpwire")
	ts.Check(err)
	c := exec.Command(path, args...)
	for _, name := range append([]string{"PATH", "TOKEN", "GORACE", "HOME", "MCPWIRE_HOME"}, strings.Fields(ts.Getenv("LISTEN_ENV"))...) {
		c.Env = append(c.Env, name+"="+ts.Getenv(name))
	}
	c.Dir = ts.Getenv("WORK")
	out, err := c.StderrPipe()
	ts.Check(err)
	ts.Check(c.Start())
	lines := bufio.NewReader(out)
	var log strings.Builder
	for {
		line, err := lines.ReadString('\n')
		log.WriteString(line)
		if m := listening.FindStringSubmatch(line); m != nil {
			ts.Setenv(variable, m[1])
			break
		}
		if err != nil {
			ts.Fatalf("it does not listen: %s", log.String())
		}
	}
	drained := make(chan struct{})
	go func() {
		io.Copy(&log, lines)
		close(drained)
	}()
	return sync.OnceValues(func() (string, error) {
		c.Process.Signal(syscall.SIGTERM)
		<-drained
		return log.String(), c.Wait()
	})
}

// cmdStops stops the server and checks that its exit status is 0: stops
func cmdStops(ts *testscript.TestScript, neg bool, args []string) {
	stop, ok := serving.Load(ts)
	if neg || len(args) > 0 || !ok {
		ts.Fatalf("usage: stops, after serving")
	}
	_, err := stop.(func() (string, error))()
	ts.Check(err)
}

// cmdPosts posts a file and prints what comes back: posts STATUS URL FILE [HEADER:VALUE]... A file
// "-" is a GET.
func cmdPosts(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: posts STATUS URL FILE [HEADER:VALUE]...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	method, body := http.MethodGet, ""
	if args[2] != "-" {
		method, body = http.MethodPost, ts.ReadFile(args[2])
	}
	r, err := http.NewRequest(method, args[1], strings.NewReader(body))
	ts.Check(err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for _, h := range args[3:] {
		name, value, _ := strings.Cut(h, ":")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Set(name, value)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(r)
	ts.Check(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	ts.Check(err)
	if resp.StatusCode != want {
		ts.Fatalf("status %d, want %d: %s", resp.StatusCode, want, text)
	}
	io.WriteString(ts.Stdout(), string(text)+"\n")
	for _, name := range []string{"Mcp-Session-Id", "Www-Authenticate", "Access-Control-Allow-Origin"} {
		if v := resp.Header.Get(name); v != "" {
			io.WriteString(ts.Stdout(), name+": "+v+"\n")
		}
	}
	ts.Check(os.WriteFile(ts.MkAbs("answer"), text, 0o666))
}
