//go:build unix

package tap

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/internal/test/wait"
)

func init() { helpers["mortal"] = mortal }

// mortal is a server with a legacy handshake whose methods end it in several ways. It writes what
// it reads to its own file in a folder, and answers with its number, counted from 1.
func mortal(args []string) int {
	dir := args[0]
	n := 1
	for exists(filepath.Join(dir, fmt.Sprint(n))) {
		n++
	}
	log, err := os.Create(filepath.Join(dir, fmt.Sprint(n)))
	if err != nil {
		return 85
	}
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		fmt.Fprintln(log, in.Text())
		var m struct {
			ID     json.RawMessage
			Method string
		}
		if json.Unmarshal(in.Bytes(), &m) != nil {
			return 84
		}
		switch m.Method {
		case "initialize":
			if n == 1 && len(args) > 1 && args[1] == "shy" {
				return 3
			}
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{},"resources":{"subscribe":true}},"serverInfo":{"name":"m","version":"%d"}}}`+"\n", m.ID, n)
		case "exit":
			return 3
		case "half":
			fmt.Print(`{"jsonrpc":"2.0","id":`)
			return 4
		case "hang":
		case "ask":
			fmt.Println(`{"jsonrpc":"2.0","id":"q1","method":"roots/list"}`)
		case "":
		default:
			if m.ID != nil {
				fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":{"server":%d}}`+"\n", m.ID, n)
			}
		}
	}
	return 0
}

// A mortalHost is a host whose server is mortal.
type mortalHost struct {
	*host
	dir     string
	rec     *record
	lines   *bufio.Reader
	trigger chan string
}

func startMortal(t *testing.T, r Restart, args ...string) *mortalHost {
	t.Helper()
	return startMortalWith(t, r, nil, args...)
}

func startMortalWith(t *testing.T, r Restart, signals <-chan os.Signal, args ...string) *mortalHost {
	t.Helper()
	m := &mortalHost{dir: t.TempDir(), rec: newRecord(), trigger: make(chan string)}
	o := helperOptions(t, "mortal", append([]string{m.dir}, args...)...)
	o.Record, o.Hooks = m.rec.w, &m.rec.hooks
	r.MinBackoff = time.Millisecond
	r.Trigger = m.trigger
	o.Restart = &r
	o.Signals = signals
	m.host = startHost(t, o)
	m.lines = bufio.NewReader(m.stdout)
	return m
}

func (m *mortalHost) send(lines ...string) {
	m.t.Helper()
	if _, err := fmt.Fprint(m.stdin, strings.Join(lines, "\n")+"\n"); err != nil {
		m.t.Error(err)
	}
}

func (m *mortalHost) want(lines ...string) {
	m.t.Helper()
	for _, want := range lines {
		var got string
		wait.Within(m.t, want, func() { got, _ = m.lines.ReadString('\n') })
		if got = strings.TrimSuffix(got, "\n"); got != want {
			m.t.Fatalf("the host got\n%s\nwant\n%s", got, want)
		}
	}
}

func (m *mortalHost) handshake() {
	m.t.Helper()
	m.send(initialize)
	m.want(greeting(1))
	m.send(initialized)
}

// end ends the session, and returns the capture and what each server has read.
func (m *mortalHost) end(status int) (events []*capture.Event, read []string) {
	m.t.Helper()
	m.stdin.Close()
	if got := m.ends(); got != status {
		m.t.Errorf("exit status %d, want %d", got, status)
	}
	events = m.rec.events(m.t)
	for i := 1; ; i++ {
		text, err := os.ReadFile(filepath.Join(m.dir, fmt.Sprint(i)))
		if err != nil {
			return events, read
		}
		read = append(read, strings.TrimSuffix(string(text), "\n"))
	}
}

func greeting(n int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":"init","result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{},"resources":{"subscribe":true}},"serverInfo":{"name":"m","version":"%d"}}}`, n)
}

func request(id, method string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{}}`, id, method)
}

func served(id string, n int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"server":%d}}`, id, n)
}

func failed(id, reason string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"the server was restarted before its response: %s"}}`, id, reason)
}

const (
	toolsChanged     = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	resourcesChanged = `{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`
	setLevel         = `{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"info"}}`
	subscribe        = `{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"a:b"}}`
	subscribeOther   = `{"jsonrpc":"2.0","id":4,"method":"resources/subscribe","params":{"uri":"a:c"}}`
	unsubscribe      = `{"jsonrpc":"2.0","id":5,"method":"resources/unsubscribe","params":{"uri":"a:c"}}`
)

func lines(list ...string) string { return strings.Join(list, "\n") }

// TestRestartAfterCrash checks that the session continues with another server, which gets the first
// one's state.
func TestRestartAfterCrash(t *testing.T) {
	m := startMortal(t, Restart{OnCrash: true})
	m.handshake()
	m.send(setLevel, subscribe, subscribeOther, unsubscribe)
	m.want(served("2", 1), served("3", 1), served("4", 1), served("5", 1))
	m.send(request(`"a\u0062"`, "hang"), request("7", "exit"), request("8", "tools/list"))
	const reason = "the server exited with status 3"
	// What was read with the request that ended the server may have been lost with it, or wait for
	// the next: the host sees which.
	m.want(failed(`"a\u0062"`, reason), failed("7", reason))
	var got string
	wait.Within(t, "what follows", func() { got, _ = m.lines.ReadString('\n') })
	if got = strings.TrimSuffix(got, "\n"); got == failed("8", reason) {
		m.want(toolsChanged, resourcesChanged)
	} else if got == toolsChanged {
		m.want(resourcesChanged, served("8", 2))
	} else {
		t.Fatalf("the host got %s", got)
	}
	m.send(request("9", "tools/list"))
	m.want(served("9", 2))
	events, read := m.end(0)
	if len(read) != 2 {
		t.Fatalf("%d servers, want 2", len(read))
	}
	if want := lines(initialize, initialized, setLevel, subscribe); !strings.HasPrefix(read[1], want) {
		t.Errorf("the second server has read\n%s\nwant it to begin with\n%s", read[1], want)
	}
	want := []string{"start", "eof s2c", "exit 3", "start", "eof c2s", "eof s2c", "exit 0"}
	if diff := cmp.Diff(want, kinds(events)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	// Each server's part of the capture is a separate session: the tap breaks no rule, but the
	// server does.
	k := check.New(nil)
	for _, e := range events {
		for _, f := range k.Add(nil, e) {
			if strings.HasPrefix(f.Rule.ID, "lifecycle/") || strings.HasPrefix(f.Rule.ID, "jsonrpc/id") {
				t.Errorf("%s: event %d: %s", f.Rule.ID, f.Event, f.Message)
			}
		}
	}
}

// TestRestartOnDemand shows that no message is lost while the server is replaced.
func TestRestartOnDemand(t *testing.T) {
	m := startMortal(t, Restart{})
	m.handshake()
	m.send(request("1", "hang"), request("2", "ask"))
	m.want(`{"jsonrpc":"2.0","id":"q1","method":"roots/list"}`)
	m.trigger <- "by hand"
	m.want(failed("1", "by hand"), failed("2", "by hand"),
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q1","reason":"the server was restarted"}}`,
		toolsChanged, resourcesChanged)
	m.send(`{"jsonrpc":"2.0","id":"q1","result":{"roots":[]}}`, request("3", "tools/list"))
	m.want(served("3", 2))
	events, read := m.end(0)
	if want := lines(initialize, initialized, request("3", "tools/list")); len(read) != 2 || read[1] != want {
		t.Errorf("the servers have read\n%q\nwant the second to have read\n%s", read, want)
	}
	var notes []string
	for _, e := range events {
		if e.Kind == capture.KindNote {
			notes = append(notes, string(e.Data))
		}
	}
	if all := strings.Join(notes, "\n"); !strings.Contains(all, "dropped the host's response") || !strings.Contains(all, "restarting the server: by hand") {
		t.Errorf("notes:\n%s", all)
	}
	for _, e := range events {
		if e.Kind == capture.KindMessage && (e.Session < 1 || e.Session > 2) {
			t.Errorf("event %d is of session %d", e.N, e.Session)
		}
	}
}

// TestRestartModern checks that a restart replays no handshake, and sends no notification without a
// subscription.
func TestRestartModern(t *testing.T) {
	m := startMortal(t, Restart{})
	listen := request(`"s"`, "hang") // as subscriptions/listen is, which stays open
	m.send(listen, request("1", "tools/list"))
	m.want(served("1", 1))
	m.trigger <- "by hand"
	m.want(failed(`"s"`, "by hand"))
	m.send(request("2", "tools/list"))
	m.want(served("2", 2))
	if _, read := m.end(0); len(read) != 2 || read[1] != request("2", "tools/list") {
		t.Errorf("the servers have read %q", read)
	}
}

// TestRestartHalfLine shows that the unfinished line of a server that ends does not become part of
// the next message.
func TestRestartHalfLine(t *testing.T) {
	m := startMortal(t, Restart{OnCrash: true})
	m.send(request("1", "half"))
	m.want(`{"jsonrpc":"2.0","id":`, failed("1", "the server exited with status 4"))
	m.send(request("2", "tools/list"))
	m.want(served("2", 2))
	m.end(0)
}

// TestRestartHandshake shows that the second server answers a handshake that the first one has not
// answered.
func TestRestartHandshake(t *testing.T) {
	m := startMortal(t, Restart{OnCrash: true}, "shy")
	m.send(initialize)
	m.want(greeting(2))
	m.send(initialized, request("2", "tools/list"))
	m.want(served("2", 2))
	if _, read := m.end(0); len(read) != 2 || !strings.HasPrefix(read[1], lines(initialize, initialized)) || strings.Count(read[1], initialize) != 1 {
		t.Errorf("the servers have read %q", read)
	}
}

// TestRestartGivesUp shows that a server that ends again and again is not started without end, and
// that waiting requests get an error.
func TestRestartGivesUp(t *testing.T) {
	m := startMortal(t, Restart{OnCrash: true, MaxCrashes: 2})
	for i := range 3 {
		id := fmt.Sprint(i)
		m.send(request(id, "exit"))
		if i < 2 {
			m.want(failed(id, "the server exited with status 3"))
			continue
		}
		m.want(`{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"the server has exited and is not restarted: the server exited with status 3; failure 3 in a row"}}`)
	}
	if _, read := m.end(3); len(read) != 3 {
		t.Errorf("%d servers, want 3", len(read))
	}
}

// TestRestartOnChange shows that files that match are watched in all folders.
func TestRestartOnChange(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o777); err != nil {
		t.Fatal(err)
	}
	m := startMortal(t, Restart{Globs: []string{filepath.Join(dir, "**", "*.x")}})
	m.send(request("1", "tools/list"))
	m.want(served("1", 1))
	m.send(request("2", "hang"))
	for _, name := range []string{"c.y", "c.x"} { // of which one matches
		if err := os.WriteFile(filepath.Join(dir, "a", "b", name), []byte("1"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	var got string
	wait.Within(t, "the restart", func() { got, _ = m.lines.ReadString('\n') })
	if !strings.Contains(got, "files have changed") {
		t.Errorf("the host got %s", got)
	}
	m.send(request("3", "tools/list"))
	m.want(served("3", 2))
	m.end(0)
}

// TestInjectFraming shows that messages of the tap itself have the framing of the session, and are
// recorded.
func TestInjectFraming(t *testing.T) {
	for _, tt := range []struct {
		framing capture.Framing
		want    string
	}{
		{capture.FramingLF, failed("1", "why") + "\n"},
		{capture.FramingHeader, fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(failed("1", "why")), failed("1", "why"))},
	} {
		rec := newRecord()
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		k := &supervisor{tap: newTap(&Options{Stdout: w, Record: rec.w, Hooks: &rec.hooks}), state: newResumeState(), queue: newQueue()}
		k.state.handleHostFrame(&capture.Event{Kind: capture.KindMessage, Framing: tt.framing, Data: []byte(request("1", "x"))})
		k.prepareRestart("why")
		w.Close()
		if got, _ := io.ReadAll(r); string(got) != tt.want {
			t.Errorf("%s: the host got %q, want %q", tt.framing, got, tt.want)
		}
		r.Close()
		if got := stream(rec.events(t), capture.ToClient); string(got) != tt.want {
			t.Errorf("%s: the capture has %q, want %q", tt.framing, got, tt.want)
		}
	}
}

// TestBatchFails shows that requests of a batch are answered in a batch.
func TestBatchFails(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	k := &supervisor{tap: newTap(&Options{Stdout: w}), state: newResumeState(), queue: newQueue()}
	k.state.handleHostFrame(&capture.Event{Kind: capture.KindMessage, Data: []byte("[" + request("1", "x") + "," + initialized + "," + request("2", "x") + "]")})
	k.prepareRestart("why")
	w.Close()
	got, _ := io.ReadAll(r)
	r.Close()
	if want := "[" + failed("1", "why") + "," + failed("2", "why") + "]\n"; string(got) != want {
		t.Errorf("the host got %s, want %s", got, want)
	}
}

func TestParseRestart(t *testing.T) {
	got, err := ParseRestart([]string{"crash", "sighup", "src/**/*.go", "x"})
	want := &Restart{OnCrash: true, OnHangup: true, Globs: []string{"src/**/*.go", "x"}}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b <-chan string) bool { return a == b })); diff != "" || err != nil {
		t.Errorf("ParseRestart: %v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"", "[", "a/**/["} {
		if r, err := ParseRestart([]string{bad}); err == nil {
			t.Errorf("%q: %+v, want an error", bad, r)
		}
	}
	if r, err := ParseRestart(nil); r != nil || err != nil {
		t.Errorf("nothing: %+v, %v", r, err)
	}
}

// TestRestartUnread shows that a tap that answers in place of a server can be ended while the host
// does not read.
func TestRestartUnread(t *testing.T) {
	signals := make(chan os.Signal)
	m := startMortalWith(t, Restart{OnCrash: true, MaxBackoff: time.Hour}, signals)
	id := fmt.Sprintf("%q", strings.Repeat("i", 1000))
	for i := range 200 { // whose answers are more than the host's pipe holds
		m.send(request(fmt.Sprintf(`%s%d"`, id[:len(id)-1], i), "hang"))
	}
	m.send(request("1", "exit"))
	wait.Until(t, "a full pipe", func() bool { return pollFile(m.files[3], unix.POLLOUT, 0)&unix.POLLOUT == 0 })
	wait.Within(t, "taking the signal", func() { signals <- syscall.SIGTERM })
	if got := m.ends(); got != 3 {
		t.Errorf("exit status %d, want the server's 3", got)
	}
	m.rec.events(t)
}

// TestRestartOnHangup shows that SIGHUP restarts the server instead of being forwarded, and that
// SIGTERM ends the tap with the server's status.
func TestRestartOnHangup(t *testing.T) {
	signals := make(chan os.Signal)
	m := startMortalWith(t, Restart{OnCrash: true, OnHangup: true}, signals)
	m.send(request("1", "tools/list"))
	m.want(served("1", 1))
	signals <- syscall.SIGHUP
	wait.Until(t, "the second server", func() bool { return exists(filepath.Join(m.dir, "2")) })
	m.send(request("2", "tools/list"))
	m.want(served("2", 2))
	signals <- syscall.SIGTERM
	if got := m.ends(); got != 128+int(syscall.SIGTERM) {
		t.Errorf("exit status %d, want that of SIGTERM", got)
	}
	m.rec.events(t)
}
