package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"mcpwire/client"
	"mcpwire/cmd/internal/proxy/endpoint"
	"mcpwire/internal/net/httpserve"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

// Variables of the environment of the processes that the tests of the bridge start. The mark is in
// the environment of all processes of one test, including indirectly started ones.
const (
	victimRole  = "MCPWIRE_VICTIM" // client, bridge, server or web, which is a server on HTTP
	victimMark  = "MCPWIRE_VICTIM_MARK"
	victimEra   = "MCPWIRE_VICTIM_ERA"   // legacy or modern
	victimPoint = "MCPWIRE_VICTIM_POINT" // of a client: the message at which it waits for its end
	victimWhere = "MCPWIRE_VICTIM_WHERE" // of a client on HTTP, the bridge's URL; of a server, its address
)

func init() {
	victims["server"], victims["web"], victims["client"] = victimServer, victimServer, victimClient
}

func revisionsOf(era string) (list []mcp.Revision) {
	for _, r := range mcp.Revisions() {
		if r.Modern() == (era == "modern") {
			list = append(list, r)
		}
	}
	return list
}

// victimServer is a server of one era, on standard input and output or, with an address, on HTTP.
func victimServer() int {
	srv := server.MustNew("victim", "1", &server.Options{Revisions: revisionsOf(os.Getenv(victimEra))})
	err := errors.Join(
		server.AddTool(srv, "echo", "", func(_ context.Context, in struct{ Text string }) (string, error) { return in.Text, nil }),
		server.AddTool(srv, "steps", "", func(ctx context.Context, _ struct{}) (string, error) {
			c := server.CallOf(ctx)
			return "done", errors.Join(c.Log(mcp.LevelInfo, "", "begun"), c.Progress(1, 2, "half"), c.Progress(2, 2, "whole"))
		}),
		server.AddTool(srv, "hold", "", func(ctx context.Context, _ struct{}) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second) // delays a drain
			defer cancel()
			<-ctx.Done()
			return "", ctx.Err()
		}),
		server.AddTool(srv, "ask", "", func(ctx context.Context, _ struct{}) (string, error) {
			a, err := server.Elicit[struct{ Name string }](ctx, "who", "Who are you?")
			return "you are " + a.Value.Name, err
		}),
		server.AddTool(srv, "touch", "", func(context.Context, struct{}) (string, error) {
			srv.ResourceUpdated("note:///a")
			return "touched", nil
		}),
		server.AddResource(srv, mcp.Resource{URI: "note:///a", Name: "a"}, server.Static("text")),
	)
	if err == nil && os.Getenv(victimRole) == "web" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		err = httpserve.ListenAndServe(ctx, os.Getenv(victimWhere), streamable.MustHandler(srv, nil), &httpserve.Options{
			OnListen: func(a net.Addr) { fmt.Println("url=http://" + a.String()) },
		})
	} else if err == nil {
		err = stdio.Serve(context.Background(), srv)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// victimClient is a client of a bridge that is given by its command in the arguments, or by its
// URL. At its point it reports that, and waits to be killed.
func victimClient() int {
	point, _ := strconv.ParseInt(os.Getenv(victimPoint), 10, 64)
	v := &visit{era: os.Getenv(victimEra), point: point, at: func() {
		fmt.Println("here")
		select {}
	}}
	if url := os.Getenv(victimWhere); url != "" {
		v.transport = dialVictim(url)
	} else {
		v.transport = &stdio.Cmd{Path: "mcpwire", Args: os.Args[1:], Env: []string{victimRole + "=bridge"}}
	}
	v.run()
	v.at() // there were fewer messages
	return 0
}

func dialVictim(url string) client.Transport {
	return streamable.NewTransport(url, &streamable.TransportOptions{UnavailableTimeout: endpoint.UnavailableTimeout})
}

// A visit is a session of a client that uses every kind of message.
type visit struct {
	era       string
	transport client.Transport
	point     int64  // at is called at that message, counted over both directions; 0 means never
	at        func() // the sender or receiver of the message waits for it

	messages atomic.Int64
	hit      atomic.Int64 // when at returned, in nanoseconds since the epoch

	mu      sync.Mutex
	slowest time.Duration // longest time of any step, or of its part after at had returned
	what    string        // name of that step
	failed  []string
}

// run performs the visit to its end, even after errors.
func (v *visit) run() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // limits a hang
	defer cancel()
	var c *client.Client
	var reconnect client.ReconnectPolicy
	if v.point > 0 {
		reconnect.MaxWait = waitForRestart
	}
	v.do("connect", func() (err error) {
		c, err = client.Dial(ctx, client.TransportFunc(v.connect), &client.Options{
			Revisions: revisionsOf(v.era),
			Reconnect: reconnect,
			Input: client.InputOptions{Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: []byte(`{"Name":"me"}`)}, nil
			}},
		})
		return err
	})
	if c == nil {
		return
	}
	v.together(
		v.doing("list", func() error { _, err := c.ListTools(ctx, nil); return err }),
		v.doing("echo", func() error { return wants(ctx, c, "echo", "hi") }),
	)
	v.together(
		v.doing("steps", func() error {
			return wants(ctx, c, "steps", "done", client.WithProgress(func(*mcp.ProgressNotificationParams) {}))
		}),
		v.doing("ask", func() error { return wants(ctx, c, "ask", "you are me") }),
		v.doing("read", func() error { _, err := c.ReadResource(ctx, "note:///a"); return err }),
		v.doing("listen", func() error { return v.listen(ctx, c) }),
		v.doing("hold", func() error {
			held, drop := context.WithCancel(ctx)
			defer drop()
			go func() {
				_ = wants(ctx, c, "echo", "hi") // takes some time
				drop()
			}()
			_, err := c.CallTool(held, "hold", struct{}{})
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return fmt.Errorf("hold: %w", err)
		}),
	)
	v.do("echo", func() error { return wants(ctx, c, "echo", "hi") })
	v.do("close", func() error {
		_ = c.Close() // the process may have been killed
		return nil
	})
}

// listen subscribes to a resource, changes it, and waits for the notification if it can come.
func (v *visit) listen(ctx context.Context, c *client.Client) error {
	sub, err := c.Listen(ctx, mcp.SubscriptionFilter{ResourceSubscriptions: []string{"note:///a"}})
	if err != nil {
		return err
	}
	defer sub.Close()
	if err := wants(ctx, c, "touch", "touched"); err != nil || v.hit.Load() > 0 {
		return err
	}
	events, stop := context.WithCancel(ctx)
	defer stop()
	for _, err := range sub.Events(events) {
		return err
	}
	return sub.Err()
}

func wants(ctx context.Context, c *client.Client, tool, want string, opts ...client.CallOption) error {
	args := map[string]string{}
	if tool == "echo" {
		args["Text"] = want
	}
	got, err := client.CallTool[string](ctx, c, tool, args, opts...)
	if err == nil && got != want {
		err = fmt.Errorf("got %q, want %q", got, want)
	}
	return err
}

// doing is do for later.
func (v *visit) doing(what string, f func() error) func() { return func() { v.do(what, f) } }

func (v *visit) together(all ...func()) {
	var wg sync.WaitGroup
	for _, f := range all {
		wg.Go(f)
	}
	wg.Wait()
}

// do records the error of f, and how long it took.
func (v *visit) do(what string, f func() error) {
	began := time.Now()
	err := f()
	if hit := v.hit.Load(); hit > began.UnixNano() {
		began = time.Unix(0, hit)
	}
	took := time.Since(began)
	v.mu.Lock()
	defer v.mu.Unlock()
	if took > v.slowest {
		v.slowest, v.what = took, what
	}
	if err != nil {
		v.failed = append(v.failed, what+": "+err.Error())
	}
}

func (v *visit) connect(ctx context.Context) (jsonrpc.Framer, error) {
	f, err := v.transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return counting{f, v}, nil
}

// counting is a framer whose messages a visit counts.
type counting struct {
	jsonrpc.Framer
	v *visit
}

func (c counting) ReadFrame() ([]byte, error) {
	frame, err := c.Framer.ReadFrame()
	if err == nil {
		c.v.count()
	}
	return frame, err
}

func (c counting) WriteFrame(frame []byte) error {
	err := c.Framer.WriteFrame(frame)
	c.v.count()
	return err
}

func (v *visit) count() {
	if v.messages.Add(1) == v.point {
		v.at()
		v.hit.Store(time.Now().UnixNano())
	}
}

// A victim is a process.
type victim struct {
	pid  int
	role string
}

// marked returns the processes of a test that live, but for those of roles that do not matter.
func marked(mark string, but ...string) (list []victim) {
	places, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, place := range places {
		text, err := os.ReadFile(place)
		if err != nil || !bytes.Contains(text, []byte(victimMark+"="+mark+"\x00")) {
			continue // it is another user's, or has just ended
		}
		p := victim{}
		p.pid, _ = strconv.Atoi(strings.Split(place, "/")[2])
		for _, v := range bytes.Split(text, []byte{0}) {
			if role, ok := bytes.CutPrefix(v, []byte(victimRole+"=")); ok {
				p.role = string(role) // the last one counts
			}
		}
		if !contains(but, p.role) {
			list = append(list, p)
		}
	}
	return list
}

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

// killTree kills all processes of a role, and waits until they have ended.
func killTree(mark, role string) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for some := true; some; <-tick.C {
		some = false
		for _, p := range marked(mark) {
			if p.role == role {
				some = true
				_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may have just ended
			}
		}
	}
}
