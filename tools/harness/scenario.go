//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"mcpwire/client"
	"mcpwire/mcp"
)

// A scenario is a row of the table.
type scenario struct {
	name, bar string
	run       func(ctx context.Context, r *result) error
	// short is set if it belongs to the short run, too.
	short bool
}

// scenarios are all of them, in the order in which they run.
var scenarios = []scenario{
	{"no-fault", "0 errors, 0 foreign messages, every event once and in order; no call is repeated, each stream can be resumed", noFault, true},
	{"kill", "nothing acknowledged lost; a resumable call ends within 4 s, another at once; not run again; p99 of other calls 50 ms; degraded 9 s", killOne, true},
	{"kill-all", "0 tasks lost; sealed sessions usable 10 s after the quorum", killAll, true},
	{"takeover", "first request at a new node: p99 5 ms", takeover, false},
	{"input-elsewhere", "answered; p99 5 ms more", inputElsewhere, false},
	{"overhead", "a call answered in JSON: 3 µs of processor time; an event: p50 0.6 ms, p99 5 ms", overhead, false},
	{"notify-elsewhere", "a legacy client is notified of each change, whatever nodes it reaches", notifyElsewhere, true},
	{"gateway", "the node of an upstream is killed: its calls end with node lost, the upstream is back elsewhere with the next epoch, no epoch has two owners", gatewayOwner, true},
	{"pause", "SIGSTOP 15 s: invariants hold", pause, false},
	{"partition-1-2", "invariants hold", partition12, true},
	{"one-way", "what a node sends to the others is lost: invariants hold", oneWay, false},
	{"full-disk", "invariants hold; the node says so, and stores again 10 s after there is room", fullDisk, false},
	{"replay", "nodes are cut off and replaced: a stream that is read again is whole, or ends with an error", replay, false},
	{"partition-1-1-1", "invariants hold", partition111, false},
	{"slow", "a node 3 s away from the others: invariants hold", slow, false},
	{"clock", "a clock 30 s ahead: invariants hold", clock, false},
	{"rolling", "modern: 0 failed calls; legacy: 1 reconnect a stream at most, 0 sessions lost", rolling, false},
	{"sessions", "50,000 idle sessions and 10,000 streams on one node: 1 GiB, consumers O(nodes)", sessions, false},
}

// A result collects what a scenario finds.
type result struct {
	opts *options
	dir  string
	led  *ledger
	// figures are those of the line, missed the bars of time and size that were not kept.
	figures, missed []string
	load            string
}

func (r *result) figure(format string, args ...any) {
	r.figures = append(r.figures, fmt.Sprintf(format, args...))
}

// bar records a figure with a limit.
func (r *result) bar(what string, got, limit time.Duration) {
	r.figure("%s %v", what, got)
	if got > limit {
		r.missed = append(r.missed, fmt.Sprintf("%s is %v, limit %v", what, got, limit))
	}
}

// testbed starts three nodes.
func (r *result) testbed(ctx context.Context, flags ...string) (*testbed, error) {
	if !r.opts.plain {
		flags = append(flags, "--test-tools")
	}
	return r.testbedWith(ctx, flags...)
}

// testbedWith starts three nodes with these flags.
func (r *result) testbedWith(ctx context.Context, flags ...string) (*testbed, error) {
	return newTestbed(ctx, r.dir, append([]string{r.opts.program, "--token", r.opts.token, "--log-format", "json"}, flags...))
}

// pick returns the duration of the long run or that of the short one.
func (r *result) pick(long, short time.Duration) time.Duration {
	if r.opts.long {
		return long
	}
	return short
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// under runs fn while clients of all kinds make calls, and verifies what they were promised.
func (r *result) under(ctx context.Context, b *testbed, faults, forgets bool, fn func(l *load) error) error {
	c, err := startContenders(ctx, b, r.led, r.opts.seed)
	if err != nil {
		return err
	}
	l := startLoad(ctx, b, r.opts.seed, faults)
	l.led, l.forgets = r.led, forgets
	w := &witnesses{l: l}
	if faults && !forgets {
		w.start()
	}
	err = fn(l)
	if err == nil && faults {
		l.recovered(ctx)
	}
	r.load = loadAverage()
	l.stop()
	contended := c.stop()
	if err != nil {
		return err
	}
	succeeded, failed := r.led.counts()
	r.figure("%d calls, %d failed", succeeded+failed, failed)
	r.figure("%s", l.verify(ctx))
	r.figure("%s", contended)
	if faults && !forgets {
		r.figure("%s", w)
	}
	return ctx.Err()
}

// minPrompt is the number of calls without a fault of which one may be repeated, or have a stream
// that cannot be resumed.
const minPrompt = 20

func noFault(ctx context.Context, r *result) error {
	b, err := r.testbed(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	d := r.pick(r.opts.duration, 10*time.Second)
	return r.under(ctx, b, false, false, func(l *load) error {
		var peers []*peer
		if r.opts.peers != "" {
			if peers, err = l.startPeers(ctx, r.opts.peers, r.dir); err != nil {
				return err
			}
			r.figure("with clients on the SDKs of TypeScript, 1 and 2, and of Go")
		}
		err := sleep(ctx, d)
		if err := errors.Join(err, stopPeers(peers)); err != nil {
			return err
		}
		succeeded, failed := l.led.counts()
		if failed > 0 {
			l.led.violation("%d calls failed without a fault", failed)
		}
		if repeated, degraded := l.delayed(); repeated+degraded > 0 {
			// On a machine with other work the backend may not respond in time. It must most times.
			r.missed = append(r.missed, fmt.Sprintf("%d attempts of calls were rejected and repeated, %d streams could not be resumed", repeated, degraded))
			if succeeded < minPrompt*(repeated+degraded) {
				l.led.violation("%d of %d calls were repeated, or had streams that could not be resumed", repeated+degraded, succeeded)
			}
		}
		r.figure("%v, p99 of a call %v", d, l.led.times("probe").percentile(99))
		n, err := consumers(ctx, b)
		r.figure("%d consumers", n)
		return err
	})
}

func killOne(ctx context.Context, r *result) error {
	b, err := r.testbed(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	seeds := 1
	if r.opts.long {
		seeds = r.opts.seeds
	}
	k := &kills{r: r, b: b}
	err = r.under(ctx, b, true, false, func(l *load) error {
		k.l = l
		rnd := rand.New(rand.NewPCG(r.opts.seed, 7))
		for i := range seeds {
			if err := sleep(ctx, 2*time.Second); err != nil {
				return err
			}
			// In turns, so that the leader is killed, too.
			victim := (int(r.opts.seed) + i) % nodeCount
			if err := k.kill(ctx, b.nodes[victim], rnd); err != nil {
				return fmt.Errorf("seed %d: %w", i, err)
			}
		}
		return nil
	})
	k.report(seeds)
	return err
}

// kills measures calls while nodes are killed.
type kills struct {
	r *result
	b *testbed
	l *load

	mu sync.Mutex
	// dead are the times from SIGKILL until the process had ended, resumed from then until a call
	// was resumed, and broken from then until another call of the node failed.
	dead, resumed, broken times
	// others are the times of short calls, events those of calls with events, in the ten seconds
	// after a kill, before those of the ten seconds before it.
	others, before, events times
	refused                int
	degraded               times
}

func (k *kills) report(count int) {
	r := k.r
	r.figure("%d kills, after which a process had ended in %v, %v at most", count, k.dead.percentile(50), k.dead.percentile(100))
	r.bar("a resumable call ends after at most", k.resumed.percentile(100), 4*time.Second)
	r.figure("half of them after %v, nine of ten after %v", k.resumed.percentile(50), k.resumed.percentile(90))
	r.bar("another one after at most", k.broken.percentile(100), 100*time.Millisecond)
	r.figure("half of %d after %v", len(k.broken), k.broken.percentile(50))
	r.bar("p99 of other calls", k.others.percentile(99), 50*time.Millisecond)
	r.figure("p50 %v; before the kills p50 %v, p99 %v; %d failed", k.others.percentile(50), k.before.percentile(50), k.before.percentile(99), k.refused)
	r.figure("calls with events meanwhile: p50 %v, p99 %v", k.events.percentile(50), k.events.percentile(99))
	r.bar("streams that began up to this time later could not be resumed", k.degraded.percentile(100), 9*time.Second)
}

// onFirst returns a function that closes began when it is first called.
func onFirst(began chan struct{}) func(*message) {
	once := sync.OnceFunc(func() { close(began) })
	return func(*message) { once() }
}

// An interrupted is a call of the node that is killed.
type interrupted struct {
	what string
	// began is closed when the node handles the call, if that can be seen.
	began chan struct{}
	// resumes means that the client resumes it.
	resumes bool
	run     func(ctx context.Context, work string, began chan struct{}) error
	// client is what run has connected, or nil. It is closed later: DELETE may wait for a leader.
	client *client.Client
}

// interruptedCalls returns the calls of a node that is killed: of clients at the node and behind
// the balancer, with and without events, ours and plain HTTP.
func (k *kills) interruptedCalls(ctx context.Context, victim *node) ([]*interrupted, error) {
	const arguments = `"arguments":{"id":%q,"ms":40000%s}`
	direct, behind := newHTTPClient(), &http.Client{Transport: toNode{newHTTPClient().Transport, victim.address}}
	s, err := openSession(ctx, direct, victim.url(), victim.url())
	if err != nil {
		return nil, err
	}
	calls := []*interrupted{
		{what: "legacy, resumed", resumes: true, run: func(ctx context.Context, work string, began chan struct{}) error {
			st := &stream{id: "1", seen: onFirst(began)}
			response, err := s.do(ctx, http.MethodPost, victim.url(), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work",`+arguments+`,"_meta":{"progressToken":"p"}}}`, work, `,"steps":400`), "")
			if err == nil {
				err = st.read(response, 0)
			}
			if err == nil {
				return nil
			}
			if err := s.resume(ctx, k.l.url(), st); err != nil {
				k.l.led.violation("the call of a killed node cannot be resumed: %v", err)
			} else if e := st.response.Error; e == nil || !strings.Contains(string(e.Data), "mayHaveRun") {
				k.l.led.violation("the call of a killed node ends with %+v", st.response)
			}
			return err
		}},
		{what: "legacy, without events", run: func(ctx context.Context, work string, _ chan struct{}) error {
			st := &stream{id: "2"}
			response, err := s.do(ctx, http.MethodPost, victim.url(), fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"work",`+arguments+`}}`, work, ""), "")
			if err == nil {
				err = st.read(response, 0)
			}
			return err
		}},
	}
	for what, c := range map[string]*http.Client{"modern": direct, "modern, behind the balancer": behind} {
		url := victim.url()
		if c == behind {
			url = k.l.url()
		}
		calls = append(calls, &interrupted{what: what, run: func(ctx context.Context, work string, _ chan struct{}) error {
			_, err := callModern(ctx, c, url, "tools/call", "work", fmt.Sprintf(`{"name":"work",`+arguments+`}`, work, ""))
			return err
		}})
	}
	for _, revision := range []mcp.Revision{mcp.Revision20250326, mcp.Revision20260728} {
		for _, steps := range []int{0, 400} {
			if steps > 0 && revision == mcp.Revision20250326 {
				continue // that client resumes it
			}
			call := &interrupted{what: fmt.Sprintf("our client, %s, %d events", revision, steps)}
			call.run = func(ctx context.Context, work string, began chan struct{}) (err error) {
				if call.client, err = k.l.dialWith(behind, "interrupted", []mcp.Revision{revision}); err != nil {
					return err
				}
				once := onFirst(began)
				_, err = client.CallTool[workOutput](ctx, call.client, "work", map[string]any{"id": work, "ms": 40_000, "steps": steps},
					client.WithProgress(func(*mcp.ProgressNotificationParams) { once(nil) }))
				return err
			}
			calls = append(calls, call)
		}
	}
	for _, c := range calls {
		if c.resumes || strings.HasSuffix(c.what, "400 events") {
			c.began = make(chan struct{})
		}
	}
	return calls, nil
}

// toNode sends requests to one node behind the balancer.
type toNode struct {
	http.RoundTripper
	address string
}

// RoundTrip implements [http.RoundTripper].
func (t toNode) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(nodeHeader, t.address)
	return t.RoundTripper.RoundTrip(r)
}

// kill kills a node in the middle of calls, and starts it again.
func (k *kills) kill(ctx context.Context, victim *node, rnd *rand.Rand) error {
	ctx2, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	calls, err := k.interruptedCalls(ctx2, victim)
	if err != nil {
		return err
	}
	var endedAt time.Time // set before the channel is closed
	ended := make(chan struct{})
	works := make([]string, len(calls))
	var wg sync.WaitGroup
	for i, c := range calls {
		works[i] = k.l.work()
		began := c.began
		if began == nil {
			began = make(chan struct{})
		}
		wg.Go(func() {
			err := c.run(ctx2, works[i], began)
			at := time.Now()
			if err == nil {
				k.l.led.violation("a call of a killed node (%s) has a result", c.what)
				return
			}
			<-ended
			d := max(0, at.Sub(endedAt))
			k.mu.Lock()
			defer k.mu.Unlock()
			if c.resumes {
				k.resumed = append(k.resumed, d)
				return
			}
			k.broken = append(k.broken, d)
			if d > 100*time.Millisecond {
				k.r.figure("a call (%s) ended %v after its node, with: %v", c.what, d.Round(time.Millisecond), err)
			}
		})
	}
	for _, c := range calls {
		if c.began == nil {
			continue
		}
		select {
		case <-c.began:
		case <-ctx2.Done():
			return fmt.Errorf("a call (%s) does not begin", c.what)
		}
	}
	if err := sleep(ctx, time.Duration(500+rnd.IntN(400))*time.Millisecond); err != nil {
		return err
	}
	count := func(kind string) int { return len(k.l.led.times(kind)) }
	probes, progress, resumes, failures := count("probe"), count("progress"), count("resume"), k.l.led.failed("probe")
	killedAt := time.Now()
	victim.kill()
	endedAt = time.Now()
	close(ended)
	k.mu.Lock()
	k.dead = append(k.dead, endedAt.Sub(killedAt))
	k.mu.Unlock()
	if err := sleep(ctx, 10*time.Second); err != nil {
		return err
	}
	k.before = append(k.before, k.l.led.times("probe")[max(0, probes-200):probes]...)
	k.others = append(k.others, k.l.led.times("probe")[probes:]...)
	k.events = append(append(k.events, k.l.led.times("progress")[progress:]...), k.l.led.times("resume")[resumes:]...)
	k.degraded = append(k.degraded, k.l.degradedSince(killedAt))
	k.refused += k.l.led.failed("probe") - failures
	wg.Wait()
	for _, c := range calls {
		if c.client != nil {
			_ = c.client.Close() // the session may be gone
		}
	}
	for _, work := range works {
		if n, err := k.l.runs(ctx, work); err != nil || n != 0 {
			k.l.led.violation("the call of a killed node ran %d times at others, %v", n, err)
		}
	}
	if err := victim.start(); err != nil {
		return err
	}
	return victim.wait(ctx)
}

func killAll(ctx context.Context, r *result) error {
	b, err := r.testbed(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	rounds := 1
	if r.opts.long {
		rounds = 5
	}
	var usable times
	err = r.under(ctx, b, true, true, func(l *load) error {
		for range rounds {
			s, err := openSession(ctx, newHTTPClient(), l.url(), l.url())
			if err == nil {
				err = sleep(ctx, 3*time.Second)
			}
			if err != nil {
				return err
			}
			var wg sync.WaitGroup
			for _, n := range b.nodes {
				wg.Go(n.kill)
			}
			wg.Wait()
			if err := b.startAll(ctx); err != nil {
				return err
			}
			quorum := time.Now()
			ctx, cancel := context.WithTimeout(ctx, callTimeout)
			for {
				if _, err = s.call(ctx, l.url(), "tools/list", "{}", 0); err == nil || ctx.Err() != nil {
					break
				}
				<-time.After(pollInterval)
			}
			cancel()
			if err != nil {
				l.led.violation("a sealed session cannot be used after a restart: %v", err)
			}
			usable = append(usable, time.Since(quorum))
		}
		return nil
	})
	r.figure("%d restarts of all", rounds)
	r.bar("a sealed session is usable after at most", usable.percentile(100), 10*time.Second)
	return err
}

// takeover measures the first request of a session at a node that does not know it.
func takeover(ctx context.Context, r *result) error {
	b, err := r.testbed(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	r.load = loadAverage()
	var first, second times
	for i := range 300 {
		s, err := openSession(ctx, newHTTPClient(), b.nodes[i%3].url(), b.nodes[i%3].url())
		if err != nil {
			return err
		}
		for _, t := range []*times{&first, &second} {
			began := time.Now()
			if _, err := s.call(ctx, b.nodes[(i+1)%3].url(), "ping", "{}", 0); err != nil {
				return err
			}
			*t = append(*t, time.Since(began))
		}
		if err := s.delete(ctx, b.nodes[0].url()); err != nil {
			return err
		}
	}
	r.bar("p99 of the first request", first.percentile(99), 5*time.Millisecond)
	r.figure("p50 %v; of the second request p50 %v, p99 %v", first.percentile(50), second.percentile(50), second.percentile(99))
	return nil
}

// inputElsewhere measures calls that ask for input, which is sent to the node that asks and to
// another.
func inputElsewhere(ctx context.Context, r *result) error {
	b, err := r.testbed(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	r.load = loadAverage()
	var here, elsewhere times
	for i := range 300 {
		asking := b.nodes[i%3]
		s, err := openSession(ctx, newHTTPClient(), asking.url(), asking.url())
		if err != nil {
			return err
		}
		for j, t := range []*times{&here, &elsewhere} {
			d, err := ask(ctx, s, asking.url(), b.nodes[(i+j)%3].url())
			if err != nil {
				return fmt.Errorf("the input of a call: %w", err)
			}
			*t = append(*t, d)
		}
		if err := s.delete(ctx, asking.url()); err != nil {
			return err
		}
	}
	r.figure("sent to the asking node p50 %v, p99 %v; to another p50 %v, p99 %v", here.percentile(50), here.percentile(99), elsewhere.percentile(50), elsewhere.percentile(99))
	r.bar("added to the p99", max(0, elsewhere.percentile(99)-here.percentile(99)), 5*time.Millisecond)
	return nil
}

// ask makes a call that asks for input, and returns the time from the input to the response.
func ask(ctx context.Context, s *session, asking, answering string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var sent time.Time
	posted := errors.New("the call asked for nothing")
	st := &stream{id: fmt.Sprint(s.next.Add(1))}
	st.seen = func(m *message) {
		if m.Method == "elicitation/create" {
			sent = time.Now()
			posted = s.post(ctx, answering, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"name":"x"}}}`, m.ID))
		}
	}
	response, err := s.do(ctx, http.MethodPost, asking, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"greet","arguments":{"text":"t"}}}`, st.id), "")
	if err == nil {
		err = st.read(response, 0)
	}
	d := time.Since(sent)
	if err == nil && !strings.HasPrefix(toolText(st.response.Result), "t, x,") {
		err = fmt.Errorf("the result is %s", st.response.Result)
	}
	return d, errors.Join(err, posted)
}

// notifyElsewhere changes a resource at each node, for legacy clients whose initialized notification,
// subscription and GET reach each node. Half of them subscribe before they listen.
func notifyElsewhere(ctx context.Context, r *result) error {
	b, err := r.testbed(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	r.load = loadAverage()
	var notifications times
	for i := range 2 * nodeCount * nodeCount * nodeCount {
		p := path{b.nodes[i/2%3], b.nodes[i/6%3], b.nodes[i/18], i%2 == 0}
		if err := r.notified(ctx, b, p, &notifications); err != nil {
			r.led.violation("initialized at %s, subscribed at %s, listening at %s, first %t: %v", p.initialized.name, p.subscribed.name, p.listening.name, p.listensFirst, err)
		}
	}
	r.figure("notified %d times, p50 %v, most %v", len(notifications), notifications.percentile(50), notifications.percentile(100))
	return nil
}

// A path has the nodes that get the requests of a client, after initialize at the first one.
type path struct {
	initialized, subscribed, listening *node
	listensFirst                       bool
}

func (r *result) notified(ctx context.Context, b *testbed, p path, notifications *times) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s, err := openSession(ctx, newHTTPClient(), b.nodes[0].url(), p.initialized.url())
	if err != nil {
		return err
	}
	subscribe := func() error {
		_, err := s.call(ctx, p.subscribed.url(), "resources/subscribe", `{"uri":"`+noteURI+`"}`, 0)
		return err
	}
	if !p.listensFirst {
		if err := subscribe(); err != nil {
			return err
		}
	}
	response, err := s.do(ctx, http.MethodGet, p.listening.url(), "", "")
	if err != nil {
		return err
	}
	changed := make(chan struct{}, 100)
	st := &stream{seen: func(m *message) {
		if m.Method == "notifications/resources/updated" {
			changed <- struct{}{}
		}
	}}
	ended := make(chan error, 1)
	go func() { ended <- st.read(response, 0) }()
	if p.listensFirst {
		if err := subscribe(); err != nil {
			return err
		}
	}
	for _, n := range b.nodes {
		began := time.Now()
		if _, err := callModern(ctx, newHTTPClient(), n.url(), "tools/call", "set_note", `{"name":"set_note","arguments":{"text":"x"}}`); err != nil {
			return err
		}
		select {
		case <-changed:
			*notifications = append(*notifications, time.Since(began))
		case err := <-ended:
			return err
		case <-time.After(5 * time.Second):
			return fmt.Errorf("no notification of a change at %s", n.name)
		}
	}
	return s.delete(ctx, b.nodes[0].url())
}

// fault runs a fault for some time under load, then heals it.
func (r *result) fault(ctx context.Context, faulty time.Duration, rounds int, begin func(b *testbed, round int) error, heal func(b *testbed, round int) error) error {
	b, err := r.testbed(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	var healthy times
	err = r.under(ctx, b, true, false, func(l *load) error {
		for round := range rounds {
			if err := sleep(ctx, 3*time.Second); err != nil {
				return err
			}
			calls := len(l.led.times("probe"))
			if err := begin(b, round); err != nil {
				return err
			}
			if err := sleep(ctx, faulty); err != nil {
				return err
			}
			if err := heal(b, round); err != nil {
				return err
			}
			healthy = append(healthy, l.led.times("probe")[calls:]...)
			l.recovered(ctx)
		}
		return nil
	})
	r.figure("%d times %v; modern calls meanwhile: p50 %v, p99 %v", rounds, faulty, healthy.percentile(50), healthy.percentile(99))
	return err
}

func (r *result) rounds(long int) int {
	if r.opts.long {
		return long
	}
	return 1
}

func pause(ctx context.Context, r *result) error {
	return r.fault(ctx, 15*time.Second, r.rounds(nodeCount),
		func(b *testbed, round int) error { return b.nodes[round%nodeCount].signal(syscall.SIGSTOP) },
		func(b *testbed, round int) error { return b.nodes[round%nodeCount].signal(syscall.SIGCONT) })
}

func partition12(ctx context.Context, r *result) error {
	return r.fault(ctx, r.pick(20*time.Second, 8*time.Second), r.rounds(nodeCount),
		func(b *testbed, round int) error {
			one := r.victim(round)
			b.network.split([]int{one}, []int{(one + 1) % nodeCount, (one + 2) % nodeCount})
			return nil
		},
		func(b *testbed, _ int) error { b.network.split(); return nil })
}

func partition111(ctx context.Context, r *result) error {
	return r.fault(ctx, r.pick(20*time.Second, 8*time.Second), r.rounds(nodeCount),
		func(b *testbed, _ int) error { b.network.split([]int{0}, []int{1}, []int{2}); return nil },
		func(b *testbed, _ int) error { b.network.split(); return nil })
}

func slow(ctx context.Context, r *result) error {
	return r.fault(ctx, 15*time.Second, r.rounds(nodeCount),
		func(b *testbed, round int) error { b.network.delay(round%nodeCount, 1500*time.Millisecond); return nil },
		func(b *testbed, round int) error { b.network.delay(round%nodeCount, 0); return nil })
}

// clock restarts a node as a program whose clock is half a minute ahead, and then as before.
func clock(ctx context.Context, r *result) error {
	skewed, err := buildSkewed(ctx, r.opts.module, filepath.Join(r.dir, "skewed"))
	if err != nil {
		return err
	}
	restart := func(b *testbed, n *node, program string) error {
		if err := n.stop(); err != nil {
			return err
		}
		n.args[0] = program
		if err := n.start(); err != nil {
			return err
		}
		return n.wait(ctx)
	}
	return r.fault(ctx, 20*time.Second, r.rounds(nodeCount),
		func(b *testbed, round int) error { return restart(b, b.nodes[round%nodeCount], skewed) },
		func(b *testbed, round int) error { return restart(b, b.nodes[round%nodeCount], r.opts.program) })
}

// rolling replaces the nodes one by one while short calls are made.
func rolling(ctx context.Context, r *result) error {
	b, err := r.testbed(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	var stops times
	err = r.under(ctx, b, true, false, func(l *load) error {
		for _, n := range b.nodes {
			if err := sleep(ctx, 5*time.Second); err != nil {
				return err
			}
			began := time.Now()
			if err := n.stop(); err != nil {
				return err
			}
			stops = append(stops, time.Since(began))
			if err := n.start(); err != nil {
				return err
			}
			if err := n.wait(ctx); err != nil {
				return err
			}
		}
		if n := l.led.failed("probe"); n > 0 {
			l.led.violation("%d modern calls failed", n)
		}
		return sleep(ctx, 3*time.Second)
	})
	r.bar("a node stops in at most", stops.percentile(100), 40*time.Second)
	r.figure("%d modern calls, 0 failed, p99 %v", len(r.led.times("probe")), r.led.times("probe").percentile(99))
	return err
}

const (
	idleSessions = 50_000
	openStreams  = 10_000
	// perCaller is the number of sessions of one address, below the node's limit.
	perCaller = 500
	maxMemory = 1 << 30
)

// sessions opens many sessions and streams at one node.
func sessions(ctx context.Context, r *result) error {
	count, streams := idleSessions, openStreams
	if !r.opts.long {
		count, streams = count/25, streams/25
	}
	b, err := r.testbed(ctx, "--max-sessions", fmt.Sprint(2*idleSessions))
	if err != nil {
		return err
	}
	defer b.close()
	one := b.nodes[0]
	before := one.rss()
	callers := (count + perCaller - 1) / perCaller
	var wg sync.WaitGroup
	failed := make(chan error, callers)
	conns := make(chan net.Conn, streams)
	limit := make(chan struct{}, 4)
	for i := range callers {
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			failed <- openSessions(ctx, one, i, min(perCaller, count-i*perCaller), (streams+callers-1)/callers, conns)
		})
	}
	wg.Wait()
	defer func() {
		for range len(conns) {
			(<-conns).Close()
		}
	}()
	for range callers {
		if err := <-failed; err != nil {
			return err
		}
	}
	if err := sleep(ctx, 5*time.Second); err != nil {
		return err
	}
	r.load = loadAverage()
	n, err := consumers(ctx, b)
	if err != nil {
		return err
	}
	rss := one.rss()
	r.figure("%d sessions, %d streams: %d MiB, %d MiB before; %d consumers", count, len(conns), rss>>20, before>>20, n)
	if rss > maxMemory {
		r.missed = append(r.missed, fmt.Sprintf("the node has %d MiB, limit %d", rss>>20, maxMemory>>20))
	}
	if n > 10*nodeCount {
		r.led.violation("%d consumers for %d nodes", n, nodeCount)
	}
	return nil
}

// openSessions opens sessions of one caller, and streams of the first of them.
func openSessions(ctx context.Context, n *node, caller, count, streams int, conns chan<- net.Conn) error {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, byte(caller>>8), byte(caller))}}
	transport := &http.Transport{DialContext: dialer.DialContext, DisableCompression: true}
	defer transport.CloseIdleConnections()
	c := &http.Client{Transport: transport}
	for i := range count {
		s, err := openSession(ctx, c, n.url(), n.url())
		if err != nil {
			return err
		}
		if i >= streams {
			continue
		}
		conn, err := dialer.DialContext(ctx, "tcp", n.address)
		if err != nil {
			return err
		}
		fmt.Fprintf(conn, "GET /mcp HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\nMcp-Session-Id: %s\r\nMCP-Protocol-Version: %s\r\n\r\n", n.address, s.id, legacy)
		head := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(conn, head); err != nil || string(head) != "HTTP/1.1 200" {
			conn.Close()
			return fmt.Errorf("GET: %q, %v", head, err)
		}
		select {
		case conns <- conn:
		default:
			conn.Close() // there are enough
		}
	}
	return nil
}

// buildSkewed builds the node with a clock that is half a minute ahead: a copy of the standard
// library's time.Now that adds it.
func buildSkewed(ctx context.Context, module, name string) (string, error) {
	root, err := command(ctx, module, "go", "env", "GOROOT")
	if err != nil {
		return "", err
	}
	file := filepath.Join(root, "src", "time", "time.go")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	before, after, ok := strings.Cut(string(text), "func Now() Time {\n")
	_, rest, ok2 := strings.Cut(after, "\n")
	if !ok || !ok2 || !strings.Contains(after[:len(after)-len(rest)], "sec, nsec, mono :=") {
		return "", fmt.Errorf("%s has another time.Now", file)
	}
	first := after[:len(after)-len(rest)]
	skewed, overlay := name+".time.go", name+".json"
	if err := os.WriteFile(skewed, []byte(before+"func Now() Time {\n"+first+"\tsec += 30\n"+rest), 0o600); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {file: skewed}})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		return "", err
	}
	_, err = command(ctx, module, "go", "build", "-overlay", overlay, "-o", name, ".")
	return name, err
}
