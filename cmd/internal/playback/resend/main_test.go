package resend_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mcpwire/jsonrpc"
	"mcpwire/server"
	"mcpwire/stdio"
)

// helperVar makes the test binary behave as the server of a test: it names an entry of helpers.
const helperVar = "RESEND_TEST_HELPER"

func TestMain(m *testing.M) {
	if name := os.Getenv(helperVar); name != "" {
		os.Exit(helpers[name]())
	}
	// otherwise each process sleeps for a second at its exit
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	goleak.VerifyTestMain(m)
}

// waitLimit is how long tests wait for events that should happen at once.
const waitLimit = 30 * time.Second

// helpers are the servers.
var helpers = map[string]func() int{
	"ours": func() int { return served(stdio.Serve(context.Background(), newServer())) },
	"echo": func() int {
		return script(func(c *peer, m *jsonrpc.Message) { c.result(m.ID, `{"got":`+quote(c.line)+`}`) })
	},
	"hang":       func() int { return script(func(*peer, *jsonrpc.Message) {}) },
	"refuse":     refuse,
	"die":        die,
	"rubbish":    rubbish,
	"flood":      flood,
	"ask":        ask,
	"grandchild": grandchild,
}

func served(err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

type greeting struct {
	Name string `json:"name"`
}

// newServer returns a server of package server that supports all revisions.
func newServer() *server.Server {
	srv := server.MustNew("greeter", "1.0.0", nil)
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	check(server.AddTool(srv, "greet", "Say hello.", func(_ context.Context, in greeting) (string, error) {
		return "Hello, " + in.Name + os.Getenv("RESEND_TEST_MARK") + "!", nil
	}))
	check(server.AddTool(srv, "ask", "Ask who it is.", func(ctx context.Context, _ struct{}) (string, error) {
		to, err := server.Elicit[greeting](ctx, "who", "Who are you?")
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("accepted: %v", to.Accepted()), nil
	}))
	return srv
}

// A peer is a server that follows a script.
type peer struct {
	in   *bufio.Scanner
	line string // the last line read
}

func (c *peer) read() (*jsonrpc.Message, bool) {
	for c.in.Scan() {
		c.line = c.in.Text()
		var m jsonrpc.Message
		if jsonrpc.Parse([]byte(c.line), &m, 0) == nil {
			return &m, true
		}
		fmt.Fprintln(os.Stderr, "no message: "+c.line)
	}
	return nil, false
}

func (c *peer) say(line string) { fmt.Println(line) }
func (c *peer) result(id jsonrpc.ID, result string) {
	c.say(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":` + result + `}`)
}

// quote returns a text as JSON.
func quote(s string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"` }

const handshake = `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}`

// script responds to initialize, and passes all other messages to f.
func script(f func(*peer, *jsonrpc.Message)) int {
	c := &peer{in: bufio.NewScanner(os.Stdin)}
	for {
		m, ok := c.read()
		switch {
		case !ok:
			return 0
		case string(m.Method) == "initialize":
			fmt.Fprintln(os.Stderr, "initialize: "+c.line)
			c.result(m.ID, handshake)
		case string(m.Method) == "notifications/initialized":
			fmt.Fprintln(os.Stderr, "initialized")
		default:
			f(c, m)
		}
	}
}

func refuse() int {
	c := &peer{in: bufio.NewScanner(os.Stdin)}
	for m, ok := c.read(); ok; m, ok = c.read() {
		c.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32602,"message":"not this revision"}}`)
	}
	return 0
}

func die() int {
	return script(func(*peer, *jsonrpc.Message) {
		fmt.Fprintln(os.Stderr, "fatal: no database")
		os.Exit(7)
	})
}

func rubbish() int {
	return script(func(c *peer, m *jsonrpc.Message) {
		c.say("console.log: hello\x1b[31m")
		c.say("")
		c.say(`{"jsonrpc":"2.0","id":999,"result":{}}`) // a stray response
		fmt.Print("Content-Length: 42\r\n\r\n" + `{"jsonrpc":"2.0","method":"notifications"}`)
		c.result(m.ID, `{"ok":true}`)
	})
}

func flood() int {
	return script(func(c *peer, _ *jsonrpc.Message) {
		for {
			c.say(strings.Repeat("x", 1000))
		}
	})
}

// ask sends the client each kind of request, and responds with its responses.
func ask() int {
	return script(func(c *peer, m *jsonrpc.Message) {
		var got []string
		for _, method := range []string{"ping", "elicitation/create", "sampling/createMessage", "roots/list", "novel/thing"} {
			c.say(`{"jsonrpc":"2.0","id":"q","method":"` + method + `","params":{}}`)
			if _, ok := c.read(); !ok {
				os.Exit(1)
			}
			got = append(got, quote(c.line))
		}
		c.result(m.ID, `{"got":[`+strings.Join(got, ",")+`]}`)
	})
}

// grandchild starts a process that ignores the end of its input and SIGTERM, and exits itself only
// when it is killed.
func grandchild() int {
	signal.Ignore(syscall.SIGTERM)
	if os.Getenv("RESEND_TEST_LEAF") != "" {
		<-time.After(time.Hour)
	}
	leaf := exec.Command(os.Args[0])
	leaf.Env = append(os.Environ(), "RESEND_TEST_LEAF=1")
	if err := leaf.Start(); err != nil {
		return 1
	}
	script(func(c *peer, m *jsonrpc.Message) { c.result(m.ID, fmt.Sprintf(`{"pid":%d}`, leaf.Process.Pid)) })
	<-time.After(time.Hour)
	return 0
}
