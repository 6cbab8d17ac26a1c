//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

const (
	// callTimeout limits each call of a client. It is longer than any fault.
	callTimeout = 45 * time.Second
	// healTime is the time after a fault in which what a node says must be right again.
	healTime = 30 * time.Second
	// recoverTime is the time after a fault in which each client must have made a call. One that
	// waits for a response that got lost does so until callTimeout.
	recoverTime = callTimeout + 15*time.Second
	// pollInterval is that of conditions that are waited for.
	pollInterval = 100 * time.Millisecond
	// maxAttempts limits the attempts of a call that a node rejects because the backend did not
	// respond in time. With retryAfter between them, they take longer than an election.
	maxAttempts = 5
	retryAfter  = time.Second
)

// A load has clients of all kinds, which check all that they get.
type load struct {
	b   *testbed
	led *ledger
	// faults is set if calls may fail, and events and used states may be lost if forgets is, too.
	faults, forgets bool
	seed            uint64

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	calls  atomic.Int64

	mu      sync.Mutex
	tasks   []taskSeen
	deleted []*session
	states  []stateUsed
	streams []streamSeen
	// progress has the number of calls of each client that have succeeded.
	progress map[string]int
	// degraded has the times at which streams began that could not be resumed.
	degraded []time.Time
	// repeated is the number of attempts after which a call was repeated.
	repeated int
}

// A taskSeen is a task whose creation was acknowledged.
type taskSeen struct {
	id, work string
	session  *session // nil for modern tasks
}

// A stateUsed is a request state that was used.
type stateUsed struct{ params string }

// A streamSeen is a stream that a client has read to its end.
type streamSeen struct {
	session *session
	events  []event
}

// startLoad starts the clients.
func startLoad(ctx context.Context, b *testbed, seed uint64, faults bool) *load {
	l := &load{b: b, led: newLedger(), faults: faults, seed: seed, progress: make(map[string]int)}
	l.ctx, l.cancel = context.WithCancel(ctx)
	for i, revisions := range [][]mcp.Revision{
		{mcp.Revision20250326}, {mcp.Revision20250618}, {mcp.Revision20251125}, {mcp.Revision20251125},
		{mcp.Revision20260728}, {mcp.Revision20260728}, nil,
	} {
		name := fmt.Sprintf("client %d", i+1)
		if len(revisions) > 0 {
			name += " " + revisions[0].String()
		}
		l.wg.Go(func() { l.client(name, uint64(i), revisions) })
	}
	l.wg.Go(func() { l.repeat("probe", 50*time.Millisecond, l.probe) })
	for i := range 2 {
		l.wg.Go(func() { l.resumer(fmt.Sprintf("resumer %d", i+1), uint64(100+i)) })
	}
	l.wg.Go(func() { l.repeat("delete", 500*time.Millisecond, l.endSession) })
	l.wg.Go(func() { l.repeat("single use", 500*time.Millisecond, l.useState) })
	l.wg.Go(func() { l.repeat("cancel", 500*time.Millisecond, l.cancelElsewhere) })
	l.wg.Go(func() { l.repeat("task", time.Second, l.createTask) })
	l.wg.Go(l.listen)
	return l
}

// stop ends the clients.
func (l *load) stop() {
	l.cancel()
	l.wg.Wait()
}

func (l *load) url() string { return l.b.balancer.url }

// work returns a new id for the tool work.
func (l *load) work() string { return fmt.Sprintf("%d-%d", l.seed, l.calls.Add(1)) }

// did records a call of a client.
func (l *load) did(who, what string, began time.Time, err error) {
	if l.ctx.Err() != nil {
		return // cut off
	}
	switch d := time.Since(began); {
	case errors.Is(err, errForeign):
		l.led.violation("%s: %v", who, err)
	case d > callTimeout+10*time.Second:
		l.led.violation("%s: %s took %v", who, what, d)
	}
	l.led.done(what, began, err)
	if err == nil {
		l.mu.Lock()
		l.progress[who]++
		l.mu.Unlock()
	}
}

// repeat calls fn at an interval until the load is stopped.
func (l *load) repeat(who string, interval time.Duration, fn func(ctx context.Context) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		began := time.Now()
		ctx, cancel := context.WithTimeout(l.ctx, callTimeout)
		err := fn(ctx)
		cancel()
		l.did(who, who, began, err)
		select {
		case <-ticker.C:
		case <-l.ctx.Done():
			return
		}
	}
}

// attempt makes a call that needs the backend. A call that a node rejects with status 503 was not
// carried out, and is repeated, as clients do.
func (l *load) attempt(ctx context.Context, call func() error) error {
	for i := 1; ; i++ {
		err := call()
		if !hasStatus(err, http.StatusServiceUnavailable) || i == maxAttempts || sleep(ctx, retryAfter) != nil {
			return err
		}
		l.mu.Lock()
		l.repeated++
		l.mu.Unlock()
	}
}

// end ends a session. If the first attempt was carried out all the same, the session is gone.
func (l *load) end(ctx context.Context, s *session) error {
	first := true
	return l.attempt(ctx, func() error {
		err := s.delete(ctx, l.url())
		if !first && hasStatus(err, http.StatusNotFound) {
			return nil
		}
		first = false
		return err
	})
}

// client is one of our clients.
func (l *load) client(who string, n uint64, revisions []mcp.Revision) {
	rnd := rand.New(rand.NewPCG(l.seed, n))
	for l.ctx.Err() == nil {
		began := time.Now()
		c, err := l.dial(who, revisions)
		if err != nil {
			l.did(who, "connect", began, err)
			l.pause(500 * time.Millisecond)
			continue
		}
		for range 50 {
			if l.ctx.Err() != nil || c.Err() != nil {
				break
			}
			l.step(who, rnd, c)
			l.pause(time.Duration(20+rnd.IntN(100)) * time.Millisecond)
		}
		_ = c.Close() // DELETE; the session is not used after this
	}
}

// pause waits for d or until the load is stopped.
func (l *load) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.ctx.Done():
	}
}

// dial returns a client that gives its name when it is asked for one.
func (l *load) dial(name string, revisions []mcp.Revision) (*client.Client, error) {
	return l.dialWith(newHTTPClient(), name, revisions)
}

func (l *load) dialWith(h *http.Client, name string, revisions []mcp.Revision) (*client.Client, error) {
	ctx, cancel := context.WithTimeout(l.ctx, callTimeout)
	defer cancel()
	// Transports are not shared, so that no connection is.
	t := streamable.NewTransport(l.url(), &streamable.TransportOptions{HTTPClient: h})
	return client.Dial(ctx, t, &client.Options{
		Revisions: revisions,
		Timeouts:  client.Timeouts{Call: callTimeout},
		// All nodes may be down for longer than a client usually tries.
		Reconnect: client.ReconnectPolicy{MaxBackoff: 2 * time.Second, MaxFailures: -1},
		Retry:     client.RetryPolicy{IgnoreHints: true}, // a call that runs twice is a fault of the nodes
		Tasks:     true,
		Input: client.InputOptions{Elicit: func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			content, err := json.Marshal(map[string]string{"name": name})
			return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: content}, err
		}},
	})
}

// step makes one call and checks what comes back.
func (l *load) step(who string, rnd *rand.Rand, c *client.Client) {
	ctx, cancel := context.WithTimeout(l.ctx, callTimeout)
	defer cancel()
	began, id := time.Now(), l.work()
	switch n := rnd.IntN(20); {
	case n < 8:
		text, err := client.CallTool[string](ctx, c, "echo", map[string]any{"text": id})
		if err == nil && text != id {
			err = fmt.Errorf("%w: echo of %s is %s", errForeign, id, text)
		}
		l.did(who, "echo", began, err)
	case n < 12:
		steps := 1 + rnd.IntN(5)
		var got []string
		out, err := client.CallTool[workOutput](ctx, c, "work", map[string]any{"id": id, "ms": 20 * steps, "steps": steps},
			client.WithProgress(func(p *mcp.ProgressNotificationParams) { got = append(got, p.Message) }))
		if err == nil && out.ID != id {
			err = fmt.Errorf("%w: the result of %s is that of %s", errForeign, id, out.ID)
		}
		if err == nil && out.Runs != 1 {
			l.led.violation("%s: %s ran %d times", who, id, out.Runs)
		}
		l.checkProgress(who, id, steps, got, err == nil)
		l.did(who, "progress", began, err)
	case n < 15 && c.Revision() != mcp.Revision20250326:
		text, err := client.CallTool[string](ctx, c, "greet", map[string]any{"text": id})
		if err == nil && !strings.HasPrefix(text, id+", "+who+",") {
			err = fmt.Errorf("%w: the greeting of %s for %s is %s", errForeign, id, who, text)
		}
		l.did(who, "input", began, err)
	case n < 18:
		count := 0
		var err error
		for _, e := range c.Tools(ctx, client.WithoutCache()) {
			if err = e; err != nil {
				break
			}
			count++
		}
		if err == nil && count < 10 {
			err = fmt.Errorf("%w: a list of %d tools", errForeign, count)
		}
		l.did(who, "list", began, err)
	default:
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		_, err := client.CallTool[workOutput](short, c, "work", map[string]any{"id": id, "ms": 20_000})
		if short.Err() != nil {
			err = nil
		} else if err == nil {
			err = errors.New("a call that takes 20 s has ended")
		}
		l.did(who, "give up", began, err)
	}
}

// checkProgress checks that progress belongs to the call and came once and in order, and is
// complete if the call is.
func (l *load) checkProgress(who, id string, steps int, got []string, complete bool) {
	for i, text := range got {
		if want := fmt.Sprintf("%s %d", id, i+1); text != want {
			l.led.violation("%s: progress %q where %q was due", who, text, want)
			return
		}
	}
	if complete && len(got) != steps {
		l.led.violation("%s: %d of %d progress notifications of %s", who, len(got), steps, id)
	}
}

// workOutput is the result of the tools work and runs.
type workOutput struct {
	Node string `json:"node"`
	ID   string `json:"id"`
	Runs int    `json:"runs"`
}

// probe is a short call whose time counts. A node that stops rejects it, and the client repeats it
// at the next one.
func (l *load) probe(ctx context.Context) error {
	id := l.work()
	var result json.RawMessage
	var err error
	for range nodeCount {
		result, err = l.echo(ctx, id)
		if !hasStatus(err, http.StatusServiceUnavailable) {
			break
		}
	}
	if err == nil && toolText(result) != id {
		err = fmt.Errorf("%w: %s", errForeign, result)
	}
	return err
}

func (l *load) echo(ctx context.Context, id string) (json.RawMessage, error) {
	return callModern(ctx, newHTTPClient(), l.url(), "tools/call", "echo", fmt.Sprintf(`{"name":"echo","arguments":{"text":%q}}`, id))
}

// resumer is a legacy client whose connections break.
func (l *load) resumer(who string, n uint64) {
	rnd := rand.New(rand.NewPCG(l.seed, n))
	var s *session
	for l.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(l.ctx, callTimeout)
		began := time.Now()
		var err error
		if s == nil {
			s, err = openSession(ctx, newHTTPClient(), l.url(), l.url())
		}
		if err == nil {
			err = l.interrupted(ctx, who, s, 3+rnd.IntN(6), 1+rnd.IntN(4))
		}
		cancel()
		if !errors.Is(err, errNotResumable) {
			l.did(who, "resume", began, err)
		}
		if err != nil {
			s = nil
		}
		l.pause(100 * time.Millisecond)
	}
}

// errNotResumable is the error of a call whose stream could not be resumed, because the event store
// did not respond in time.
var errNotResumable = errors.New("the stream cannot be resumed")

// interrupted disconnects during a call and resumes its stream.
func (l *load) interrupted(ctx context.Context, who string, s *session, steps, hangUp int) error {
	id, began := l.work(), time.Now()
	st, err := s.tool(ctx, l.url(), "work", fmt.Sprintf(`{"id":%q,"ms":%d,"steps":%d}`, id, 50*steps, steps), hangUp)
	if slices.ContainsFunc(st.events, func(e event) bool { return e.id == "" }) {
		l.addDegraded(began)
	}
	switch {
	case err == errDisconnected && st.last == "":
		return errNotResumable
	case err != nil && (errors.Is(err, errForeign) || st.last == ""):
		return err
	}
	if err != nil {
		err = s.resume(ctx, l.url(), st)
		if hasStatus(err, http.StatusBadRequest) { // an event was not stored
			l.addDegraded(began)
			return errNotResumable
		}
		if err != nil {
			return err
		}
	}
	var got []string
	for _, m := range st.messages {
		var p struct{ Message string }
		_ = json.Unmarshal(m.Params, &p) // another message has another text
		got = append(got, p.Message)
	}
	if st.response.Error != nil {
		l.checkProgress(who, id, steps, got, false)
		return st.response.Error
	}
	l.checkProgress(who, id, steps, got, true)
	var r struct{ StructuredContent workOutput }
	if err := json.Unmarshal(st.response.Result, &r); err != nil || r.StructuredContent.ID != id {
		return fmt.Errorf("%w: the result of %s is %s", errForeign, id, st.response.Result)
	}
	if r.StructuredContent.Runs != 1 {
		l.led.violation("%s: %s ran %d times", who, id, r.StructuredContent.Runs)
	}
	l.mu.Lock()
	l.streams = append(l.streams, streamSeen{s, st.events})
	l.mu.Unlock()
	return nil
}

// addDegraded records a stream that could not be resumed.
func (l *load) addDegraded(began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.degraded = append(l.degraded, began)
}

// degradedSince returns how long after a fault streams began that could not be resumed.
func (l *load) degradedSince(fault time.Time) (d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, began := range l.degraded {
		d = max(d, began.Sub(fault))
	}
	return d.Round(10 * time.Millisecond)
}

// delayed returns how many attempts of calls were repeated, and how many streams could not be
// resumed, because the backend did not respond in time.
func (l *load) delayed() (repeated, degraded int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.repeated, len(l.degraded)
}

// endSession opens a session and ends it at another node.
func (l *load) endSession(ctx context.Context) error {
	s, err := openSession(ctx, newHTTPClient(), l.url(), l.url())
	if err != nil {
		return err
	}
	if err := l.end(ctx, s); err != nil {
		return err
	}
	l.mu.Lock()
	l.deleted = append(l.deleted, s)
	l.mu.Unlock()
	return nil
}

// useState answers an input request twice at once. One of the calls must fail.
func (l *load) useState(ctx context.Context) error {
	id := l.work()
	result, err := callModern(ctx, newHTTPClient(), l.url(), "tools/call", "greet", fmt.Sprintf(`{"name":"greet","arguments":{"text":%q}}`, id))
	if err != nil {
		return err
	}
	var r struct {
		ResultType    string                     `json:"resultType"`
		RequestState  string                     `json:"requestState"`
		InputRequests map[string]json.RawMessage `json:"inputRequests"`
	}
	if err := json.Unmarshal(result, &r); err != nil || r.ResultType != "input_required" || len(r.InputRequests) != 1 {
		return fmt.Errorf("no input request: %s", result)
	}
	var key string
	for key = range r.InputRequests {
	}
	params := fmt.Sprintf(`{"name":"greet","arguments":{"text":%q},"requestState":%q,"inputResponses":{%q:{"action":"accept","content":{"name":"x"}}}}`, id, r.RequestState, key)
	results := make(chan error, 2)
	for range 2 {
		go func() {
			results <- l.attempt(ctx, func() error {
				result, err := callModern(ctx, newHTTPClient(), l.url(), "tools/call", "greet", params)
				if err == nil && !strings.HasPrefix(toolText(result), id+", x,") {
					err = fmt.Errorf("%w: the greeting of %s is %s", errForeign, id, result)
				}
				return err
			})
		}()
	}
	first, second := <-results, <-results
	if first == nil && second == nil {
		l.led.violation("a request state was used twice")
	}
	if first != nil && second != nil {
		return first
	}
	l.mu.Lock()
	l.states = append(l.states, stateUsed{params})
	l.mu.Unlock()
	return nil
}

// cancelElsewhere cancels a legacy call at any node, and checks that its stream ends.
func (l *load) cancelElsewhere(ctx context.Context) error {
	s, err := openSession(ctx, newHTTPClient(), l.url(), l.url())
	if err != nil {
		return err
	}
	id := l.work()
	ended := make(chan error, 1)
	began := make(chan struct{})
	st := &stream{id: "1", seen: onFirst(began)}
	go func() {
		response, err := s.do(ctx, http.MethodPost, l.url(), fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","arguments":{"id":%q,"ms":40000,"steps":100},"_meta":{"progressToken":"p"}}}`, id), "")
		if err == nil {
			err = st.read(response, 0)
		}
		ended <- err
	}()
	select {
	case <-began:
	case err := <-ended:
		return fmt.Errorf("a call that takes 40 s has ended: %w", err)
	}
	if err := s.post(ctx, l.url(), `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`); err != nil {
		return err
	}
	select {
	case err := <-ended:
		if err == nil && st.response.Result != nil {
			return fmt.Errorf("a canceled call has the result %s", st.response.Result)
		}
	case <-time.After(5 * time.Second):
		return errors.New("a canceled call goes on")
	}
	return l.end(ctx, s)
}

// createTask creates a task, of a modern or a legacy client.
func (l *load) createTask(ctx context.Context) error {
	id := l.work()
	arguments := fmt.Sprintf(`"arguments":{"id":%q,"ms":500}`, id)
	seen := taskSeen{work: id}
	var result json.RawMessage
	create := func() (err error) {
		result, err = callModern(ctx, newHTTPClient(), l.url(), "tools/call", "job", fmt.Sprintf(`{"name":"job",%s}`, arguments))
		return err
	}
	if l.calls.Load()%2 == 1 {
		var err error
		if seen.session, err = openSession(ctx, newHTTPClient(), l.url(), l.url()); err != nil {
			return err
		}
		create = func() error {
			st, err := seen.session.call(ctx, l.url(), "tools/call", fmt.Sprintf(`{"name":"job",%s,"task":{"ttl":1200000}}`, arguments), 0)
			switch {
			case err != nil:
				return err
			case st.response.Error != nil:
				return st.response.Error
			}
			result = st.response.Result
			return nil
		}
	}
	if err := l.attempt(ctx, create); err != nil {
		return err
	}
	var r struct {
		TaskID string `json:"taskId"`
		Task   struct {
			TaskID string `json:"taskId"`
		} `json:"task"`
	}
	if err := json.Unmarshal(result, &r); err != nil || r.TaskID+r.Task.TaskID == "" {
		return fmt.Errorf("no task: %s", result)
	}
	seen.id = r.TaskID + r.Task.TaskID
	l.mu.Lock()
	l.tasks = append(l.tasks, seen)
	l.mu.Unlock()
	return nil
}

// listen changes a resource and checks that subscribers of both eras are notified.
func (l *load) listen() {
	type listener struct {
		who    string
		client *client.Client
		// subscription ends with the node.
		subscription *client.Subscription
		events       chan client.Event
	}
	begin := func(li *listener) (err error) {
		li.subscription, err = li.client.ListenFunc(l.ctx, mcp.SubscriptionFilter{ResourceSubscriptions: []string{noteURI}}, func(e client.Event) {
			select {
			case li.events <- e:
			default:
			}
		})
		return err
	}
	var listeners []*listener
	defer func() {
		for _, li := range listeners {
			_ = li.client.Close()
		}
	}()
	for _, r := range []mcp.Revision{mcp.Revision20251125, mcp.Revision20260728} {
		li := &listener{who: "subscriber " + r.String(), events: make(chan client.Event, 1000)}
		began := time.Now()
		var err error
		if li.client, err = l.dial(li.who, []mcp.Revision{r}); err == nil {
			listeners = append(listeners, li)
			err = begin(li)
		}
		l.did(li.who, "subscribe", began, err)
	}
	l.pause(time.Second) // until the subscriptions are known at all nodes
	l.repeat("notify", time.Second, func(ctx context.Context) error {
		for _, li := range listeners {
			if li.subscription == nil || li.subscription.Err() != nil || isClosed(li.subscription.Done()) {
				if err := begin(li); err != nil {
					return err
				}
			}
			for len(li.events) > 0 {
				<-li.events
			}
		}
		_, err := callModern(ctx, newHTTPClient(), l.url(), "tools/call", "set_note", fmt.Sprintf(`{"name":"set_note","arguments":{"text":%q}}`, l.work()))
		if err != nil {
			return err
		}
		for _, li := range listeners {
			select {
			case <-li.events:
			case <-time.After(12 * time.Second):
				return fmt.Errorf("%s was not notified of a change", li.who)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// noteURI is the resource that the tool set_note changes.
const noteURI = "demo://note"
