package cli

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"mcpwire/client"
	"mcpwire/internal/test/soak"
	"mcpwire/stdio"
)

var killSeed = flag.Uint64("killseed", 0, "seed of the points at which TestBridgeKill kills; 0 is another one each time")

const (
	killMessages = 45              // about as many as a session has
	killTimeout  = 2 * time.Second // limit of waits, and of the lifetime of remaining processes
	// limit of the waits of a client for a killed bridge on HTTP, which gets another port
	waitForRestart = killTimeout / 10
	// attempts at a point that exceeds the limit, perhaps because the machine is busy
	killTries = 3
)

// A kill is one point of a session at which one of the three processes is killed.
type kill struct {
	who                        string // client, bridge or server
	downstream, upstream       string // stdio or http
	downstreamEra, upstreamEra string
	point                      int64
	mark                       string
	web, bridge                *program // on HTTP, else nil
	longest, lasting           time.Duration
	what                       string
}

func (k *kill) String() string {
	return fmt.Sprintf("%s at message %d, %s %s to %s %s", k.who, k.point, k.downstreamEra, k.downstream, k.upstreamEra, k.upstream)
}

// TestBridgeKill kills the client, the bridge and the server, each at several messages of a
// session. Pending requests fail at once, no unneeded process remains, and the next session works.
func TestBridgeKill(t *testing.T) {
	seed := *killSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-killseed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	points := soak.Choose(20, 6) // for each killed process
	var all []*kill
	for _, who := range []string{"client", "bridge", "server"} {
		scenes := rnd.Perm(16)
		for i := range points {
			k := &kill{who: who, point: 1 + int64(i*killMessages/points) + rnd.Int64N(int64(killMessages/points)+1)}
			pick := func(bit int, a, b string) string { return []string{a, b}[scenes[i%16]>>bit&1] }
			k.downstream, k.upstream = pick(0, "stdio", "http"), pick(1, "stdio", "http")
			k.downstreamEra, k.upstreamEra = pick(2, "legacy", "modern"), pick(3, "legacy", "modern")
			all = append(all, k)
		}
	}
	slots := make(chan struct{}, 3*runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i, k := range all {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			for try := range killTries {
				k.mark = fmt.Sprintf("%d-%d-%d", os.Getpid(), i, try)
				err := k.run()
				if err == nil && k.longest <= killTimeout && k.lasting <= killTimeout {
					return
				}
				if err != nil || try == killTries-1 {
					t.Errorf("%v: %v; the longest wait was %v (%s), the last process ended after %v", k, err, k.longest, k.what, k.lasting)
					return
				}
				t.Logf("%v: once more, since the longest wait was %v (%s), and the last process ended after %v", k, k.longest, k.what, k.lasting)
			}
		})
	}
	wg.Wait()
	var longest, lasting time.Duration
	for _, k := range all {
		longest, lasting = max(longest, k.longest), max(lasting, k.lasting)
	}
	t.Logf("the longest wait was %v, the last process ended after %v", longest, lasting)
}

// run kills the process at the point. The error reports what was wrong, except limits of time.
func (k *kill) run() (err error) {
	k.longest, k.lasting = 0, 0
	defer func() {
		// the calls of a legacy client continue, and the bridge would wait for them
		if k.who == "client" && k.downstreamEra == "legacy" {
			k.bridge.kill()
		} else {
			err = errors.Join(err, k.bridge.stop())
		}
		k.web.kill() // for the same reason
		for _, p := range k.gone() {
			err = errors.Join(err, fmt.Errorf("process %d, a %s, is left over", p.pid, p.role))
			_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may have just ended
		}
	}()
	if k.upstream == "http" {
		if k.web, err = k.serve("127.0.0.1:0"); err != nil {
			return err
		}
	}
	if k.downstream == "http" {
		if k.bridge, err = k.listen(); err != nil {
			return err
		}
	}
	if err := k.meet(); err != nil {
		return err
	}
	next := &visit{era: k.downstreamEra, transport: k.transport()}
	next.run()
	if len(next.failed) > 0 {
		return fmt.Errorf("the next session: %s", strings.Join(next.failed, "; "))
	}
	return nil
}

// meet runs the session in which a process is killed, and restarts what the next session needs.
func (k *kill) meet() (err error) {
	if k.who == "client" {
		return k.visitor()
	}
	at := k.killAt
	var failed error
	if k.who == "server" && k.upstream == "http" {
		// The bridge waits for a server that refuses connections.
		at = func() {
			k.killAt()
			where := strings.TrimPrefix(k.web.url, "http://")
			k.web.kill()
			k.web, failed = k.serve(where)
		}
	}
	v := &visit{era: k.downstreamEra, transport: k.transport(), point: k.point, at: at}
	v.run()
	if v.hit.Load() == 0 {
		at()
	}
	if failed != nil {
		return failed
	}
	k.longest, k.what = v.slowest, v.what
	switch {
	case k.who == "bridge" && k.downstream == "http":
		k.bridge.kill()
		if left := k.gone("web"); len(left) > 0 {
			return fmt.Errorf("the bridge was killed, and %v continues", left)
		}
		k.bridge, err = k.listen()
	case k.who == "bridge":
		if left := k.gone("web"); len(left) > 0 {
			return fmt.Errorf("the bridge was killed, and %v continues", left)
		}
	}
	return err
}

// killAt kills the processes with the role of the kill.
func (k *kill) killAt() {
	role := k.who
	if role == "server" && k.upstream == "http" {
		role = "web"
	}
	killTree(k.mark, role)
}

// visitor starts the client that is killed.
func (k *kill) visitor() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.Command(self, k.bridgeArgs()...)
	c.Env = append(k.env("client", k.downstreamEra), fmt.Sprintf("%s=%d", victimPoint, k.point))
	if k.bridge != nil {
		c.Env = append(c.Env, victimWhere+"="+k.bridge.url)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = c.Process.Kill() // it does not end by itself
	_ = c.Wait()
	if err != nil {
		return fmt.Errorf("the client said %q, %w", line, err)
	}
	if k.downstream == "http" {
		return nil // the bridge continues, and waits for the session
	}
	if left := k.gone("web"); len(left) > 0 {
		return fmt.Errorf("the client was killed, and %v continues", left)
	}
	return nil
}

// gone waits until only processes of irrelevant roles are left, and returns the others after a
// minute.
func (k *kill) gone(but ...string) (left []victim) {
	began := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for left = marked(k.mark, but...); len(left) > 0 && time.Since(began) < time.Minute; left = marked(k.mark, but...) {
		<-tick.C
	}
	k.lasting = max(k.lasting, time.Since(began))
	return left
}

func (k *kill) env(role, era string) []string {
	return append(os.Environ(), "GORACE=atexit_sleep_ms=1", victimMark+"="+k.mark, victimRole+"="+role, victimEra+"="+era)
}

// bridgeArgs returns the arguments of mcpwire.
func (k *kill) bridgeArgs() []string {
	args := []string{"bridge"}
	if k.downstream == "http" {
		args = append(args, "--listen", "127.0.0.1:0")
	}
	if k.upstream == "http" {
		return append(args, k.web.url)
	}
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return append(args, "-e", victimRole+"=server", "-e", victimEra+"="+k.upstreamEra, "--", self)
}

// transport returns the transport of a client in this process.
func (k *kill) transport() client.Transport {
	if k.bridge != nil {
		return dialVictim(k.bridge.url)
	}
	return &stdio.Cmd{Path: "mcpwire", Args: k.bridgeArgs(), Env: k.env("bridge", k.upstreamEra)}
}

// listen starts a bridge on HTTP.
func (k *kill) listen() (*program, error) {
	c := exec.Command("mcpwire", k.bridgeArgs()...)
	c.Env = k.env("bridge", k.upstreamEra)
	out, err := c.StderrPipe()
	if err != nil {
		return nil, err
	}
	return launch(c, out)
}

// serve starts a server on HTTP.
func (k *kill) serve(where string) (*program, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(self)
	c.Env = append(k.env("web", k.upstreamEra), victimWhere+"="+where)
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return launch(c, out)
}

// A program is a process that listens. A nil program stands for none.
type program struct {
	cmd  *exec.Cmd
	url  string
	over chan struct{}
}

var urlLine = regexp.MustCompile(`url=(\S+)`)

// launch starts a process, and waits until it prints its address.
func launch(c *exec.Cmd, out io.Reader) (*program, error) {
	if err := c.Start(); err != nil {
		return nil, err
	}
	p := &program{cmd: c, over: make(chan struct{})}
	lines := bufio.NewReader(out)
	for p.url == "" {
		line, err := lines.ReadString('\n')
		if m := urlLine.FindStringSubmatch(line); m != nil {
			p.url = m[1]
		} else if err != nil {
			return nil, fmt.Errorf("%s does not listen: %w", c.Path, errors.Join(err, c.Wait()))
		}
	}
	go func() {
		defer close(p.over)
		_, _ = io.Copy(io.Discard, lines) // it may be killed
	}()
	return p, nil
}

// kill kills the process, unless it was killed before.
func (p *program) kill() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.over
	_ = p.cmd.Wait()
}

// stop lets the process end by itself.
func (p *program) stop() error {
	if p == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-p.over
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%v: %w", p.cmd.Args[1:], err)
	}
	return nil
}
