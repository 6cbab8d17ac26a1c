package server

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/base/seal"
	"mcpwire/internal/rpc"
	"mcpwire/internal/rpc/backend"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// callBy returns a call of a principal.
func callBy(id string) *Call {
	return &Call{session: &session{}, sessionIdentity: &identity{principal: id}}
}

// callersOf returns limits, and a function that admits a request of a principal.
func callersOf(t *testing.T, o *Options) (l *limits, admit func(id string) *caller) {
	t.Helper()
	l = newLimits(o)
	return l, func(id string) *caller {
		t.Helper()
		k, err := l.admit(callBy(id))
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		return k
	}
}

func (l *limits) size(t *testing.T) int {
	t.Helper()
	if len(l.byID) != l.lru.Len() {
		t.Errorf("%d callers in the map, %d in the list", len(l.byID), l.lru.Len())
	}
	return len(l.byID)
}

// TestCallersAreEvicted shows that a caller with a full bucket is evicted, and one with requests in
// flight is not.
func TestCallersAreEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, admit := callersOf(t, &Options{Callers: CallerLimits{PerSecond: 1, Burst: 10, MaxConcurrent: 1}})
		busy := admit("busy")
		for i := range 50 {
			l.release(admit(fmt.Sprint(i)))
		}
		if n := l.size(t); n != 51 {
			t.Errorf("%d callers, want 51", n)
		}
		<-time.After(10*time.Second - 1)
		l.release(admit("early"))
		if n := l.size(t); n != 52 {
			t.Errorf("%d callers, want 52", n)
		}
		<-time.After(1)
		for range 60 {
			l.release(admit("late"))
			<-time.After(time.Second)
		}
		if n := l.size(t); n != 2 {
			t.Errorf("%d callers, want 2", n)
		}
		if _, err := l.admit(callBy("busy")); err == nil {
			t.Error("the caller with requests in flight was evicted")
		}
		l.release(busy)
		l.release(admit("busy"))
	})
}

// TestCallersAreBounded shows that the number of callers is limited: those that were idle longest
// are evicted, unless they have requests in flight.
func TestCallersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, admit := callersOf(t, &Options{Callers: CallerLimits{PerSecond: 0.001}})
		busy := admit("busy")
		for i := range 2 * maxCallers {
			l.release(admit(fmt.Sprint(i)))
			if n := l.size(t); n > maxCallers+1 {
				t.Fatalf("%d callers after %d", n, i)
			}
		}
		if _, err := l.admit(callBy("busy")); err == nil {
			t.Error("the caller with requests in flight was evicted")
		}
		if _, err := l.admit(callBy(fmt.Sprint(2*maxCallers - 1))); err == nil {
			t.Error("the most recent caller was evicted")
		}
		l.release(admit("0"))
		l.release(busy)
	})
}

// TestCallerKeepsSlot shows that the caller of the request is not evicted, even if it was idle
// longest.
func TestCallerKeepsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, admit := callersOf(t, &Options{Callers: CallerLimits{PerSecond: 0.001}})
		for i := range maxCallers {
			l.release(admit(fmt.Sprint(i)))
		}
		if _, err := l.admit(callBy("0")); err == nil {
			t.Error("the caller of the request was evicted")
		}
	})
}

// TestCallerIsNotEvictedWhileItRuns shows that callers are evicted at once if the rate is not
// limited, except those with requests in flight.
func TestCallerIsNotEvictedWhileItRuns(t *testing.T) {
	l, admit := callersOf(t, &Options{Callers: CallerLimits{MaxConcurrent: 2}})
	for _, id := range []string{"a", "b", "a", "b"} {
		defer l.release(admit(id))
	}
	for _, id := range []string{"a", "b", "b", "a"} {
		if _, err := l.admit(callBy(id)); err == nil {
			t.Errorf("%s was forgotten", id)
		}
	}
}

// TestCallersOfSeveralServers shows that each of n servers applies its share of the limits, also
// when n changes, and always admits something.
func TestCallersOfSeveralServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 1
		l := newLimits(&Options{Callers: CallerLimits{
			PerSecond: 6, Burst: 12, MaxConcurrent: 4, Processes: func() int { return n },
		}})
		// rush admits as many requests at once as possible.
		rush := func() (admitted []*caller) {
			for {
				cl, err := l.admit(callBy("a"))
				if err != nil {
					return admitted
				}
				admitted = append(admitted, cl)
			}
		}
		for _, tt := range []struct{ n, concurrent, burst, perSecond int }{{1, 4, 12, 6}, {3, 2, 4, 2}, {2, 2, 6, 3}, {100, 1, 1, 0}, {0, 4, 12, 6}} {
			n = tt.n
			if cl, err := l.admit(callBy("a")); err == nil { // this request notices the change of n
				l.release(cl)
			}
			<-time.After(time.Minute) // the bucket is full
			held := rush()
			if len(held) != tt.concurrent {
				t.Errorf("%d servers: %d at once, want %d", tt.n, len(held), tt.concurrent)
			}
			count := len(held)
			for _, cl := range held {
				l.release(cl)
			}
			drain := func() {
				for held := rush(); len(held) > 0; held = rush() {
					count += len(held)
					for _, cl := range held {
						l.release(cl)
					}
				}
			}
			drain()
			if count != tt.burst {
				t.Errorf("%d servers: a burst of %d, want %d", tt.n, count, tt.burst)
			}
			<-time.After(time.Second)
			if count = 0; tt.perSecond > 0 {
				if drain(); count != tt.perSecond {
					t.Errorf("%d servers: %d in a second, want %d", tt.n, count, tt.perSecond)
				}
			}
		}
	})
}

// TestUsedStates fills the memory of single-use states.
func TestUsedStates(t *testing.T) {
	const ttl = 100_000
	var u usedStates
	use := func(i uint64, at int64) error {
		var s seal.Stamp
		binary.BigEndian.PutUint64(s[:], i)
		return u.use(fmt.Sprint(i%16), s, at, at+ttl)
	}
	for i := range uint64(maxUsedStates) {
		if err := use(i, int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		i    uint64
		at   int64
		want error
	}{
		{0, ttl - 1, errState},
		{maxUsedStates, ttl - 1, errTooManyCallerStates},
		{maxUsedStates, ttl, nil}, // the first has expired
		{maxUsedStates + 1, ttl, errTooManyCallerStates},
		{1, ttl, errState},
		{maxUsedStates + 1, ttl + 1, nil},
		{maxUsedStates - 1, ttl + maxUsedStates - 2, errState},
	} {
		if err := use(tt.i, tt.at); err != tt.want {
			t.Errorf("state %d after %d ms: %v, want %v", tt.i, tt.at, err, tt.want)
		}
	}
	if err := use(0, 3*ttl); err != nil || len(u.seen) != 1 || len(u.queue) != 1 || len(u.byCaller) != 1 {
		t.Errorf("%v; %d states are remembered after all have expired", err, len(u.seen))
	}
}

// TestUsedStatesOfCaller shows that a caller that has used too many states is rejected, and that
// others are not while there is capacity.
func TestUsedStatesOfCaller(t *testing.T) {
	const ttl = 100_000
	var u usedStates
	n := uint64(0)
	use := func(caller string, at int64) error {
		var s seal.Stamp
		n++
		binary.BigEndian.PutUint64(s[:], n)
		return u.use(caller, s, at, at+ttl)
	}
	for _, greedy := range []string{"greedy", "too"} {
		for range maxUsedStatesPerCaller {
			if err := use(greedy, 0); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			if err := use(greedy, 1); err != errTooManyCallerStates {
				t.Errorf("%s: %v", greedy, err)
			}
		}
	}
	if err := use("modest", 1); err != nil {
		t.Errorf("modest: %v", err)
	}
	for i := range maxUsedStates - 2*maxUsedStatesPerCaller - 1 {
		if err := use(fmt.Sprint(i), 2); err != nil {
			t.Fatal(err)
		}
	}
	if err := use("late", 3); err != errTooManyStates {
		t.Errorf("late: %v", err)
	}
	if err := use("greedy", ttl); err != nil {
		t.Errorf("greedy, after its states have expired: %v", err)
	}
	if n := len(u.queue); n != len(u.seen) || n > maxUsedStates {
		t.Errorf("%d states, %d in the queue", len(u.seen), n)
	}
}

// TestCallerID checks which callers share a count of states.
func TestCallerID(t *testing.T) {
	srv := MustNew("s", "1", &Options{Input: InputOptions{SingleUseState: true}})
	ids := make(map[string]bool)
	on := func(b *identity, s *session) string {
		id := b.callerID(s)
		ids[id] = true
		return id
	}
	one, two := new(session), new(session)
	address := backend.Of(srv).WithIdentity(t.Context(), "", "192.0.2.1").Value(identityKey{}).(*identity)
	if on(&identity{principal: "p"}, one) != on(&identity{principal: "p"}, two) {
		t.Error("one principal is two callers")
	}
	if on(address, one) != on(address, two) {
		t.Error("one address is two callers")
	}
	on(anonymous, one)
	on(anonymous, two)
	if len(ids) != 4 {
		t.Errorf("%d callers, want a principal, an address and two connections: %v", len(ids), ids)
	}
}

// A shortText decodes into its own memory.
type shortText struct {
	text []byte
	buf  [8]byte
}

func (s *shortText) UnmarshalJSON(b []byte) error {
	s.text = append(s.buf[:0], b[1:len(b)-1]...)
	return nil
}

func TestPlain(t *testing.T) {
	type tree struct {
		Name string
		Kids []*tree
		By   map[string]any
	}
	for _, tt := range []struct {
		of   any
		want bool
	}{
		{"", true}, {tree{}, true}, {struct{ arg tree }{}, true},
		{shortText{}, false}, {[]shortText{}, false}, {map[string]*shortText{}, false}, {struct{ T time.Time }{}, false}, {mcp.CallToolResult{}, false},
	} {
		if got := methodFree(reflect.TypeOf(tt.of)); got != tt.want {
			t.Errorf("%T: %v", tt.of, got)
		}
	}
}

// TestArgumentsKept shows that arguments that a handler keeps are not changed by later calls.
func TestArgumentsKept(t *testing.T) {
	type args struct {
		Text shortText `json:"text"`
	}
	var kept []shortText
	srv := MustNew("test", "1", nil)
	def := mcp.Tool{Name: "keep", InputSchema: json.RawMessage(`{"type":"object"}`)}
	if err := AddToolWith(srv, def, func(_ context.Context, in args) (string, error) {
		kept = append(kept, in.Text)
		return "", nil
	}); err != nil {
		t.Fatal(err)
	}
	c := backend.Of(srv).OpenStateless()
	defer c.Close()
	for _, text := range []string{"first", "other"} {
		d := rpc.Delivery{Untracked: true}
		params := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}},"name":"keep","arguments":{"text":"` + text + `"}}`
		if err := d.Parse(jsonrpc.AppendRequest(nil, jsonrpc.IntID(1), mcp.MethodToolsCall, []byte(params)), 0); err != nil {
			t.Fatal(err)
		}
		if answer, err := c.Deliver(t.Context(), &d, nil); err != nil {
			t.Fatalf("%s %v", answer, err)
		}
	}
	if len(kept) != 2 || string(kept[0].text) != "first" || string(kept[1].text) != "other" {
		t.Errorf("kept %q", kept)
	}
}

// TestStatelessTaskOwners shows that a task that was created over a stateless connection belongs to
// the principal of its request.
func TestStatelessTaskOwners(t *testing.T) {
	srv := MustNew("test", "1", &Options{Tasks: &TaskOptions{}})
	def := mcp.Tool{Name: "slow", Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportRequired}}
	if err := AddToolWith(srv, def, func(context.Context, struct{}) (string, error) { return "", nil }); err != nil {
		t.Fatal(err)
	}
	c := backend.Of(srv).OpenStateless()
	defer c.Close()
	send := func(principal, method, params string) []byte {
		t.Helper()
		d := rpc.Delivery{Untracked: true}
		params = `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},` +
			`"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}},` + params + "}"
		if err := d.Parse(jsonrpc.AppendRequest(nil, jsonrpc.IntID(1), method, []byte(params)), 0); err != nil {
			t.Fatal(err)
		}
		answer, _ := c.Deliver(backend.Of(srv).WithIdentity(t.Context(), principal, ""), &d, nil)
		return answer
	}
	var created struct{ Result struct{ TaskID string } }
	if err := json.Unmarshal(send("alice", mcp.MethodToolsCall, `"name":"slow"`), &created); err != nil {
		t.Fatal(err)
	}
	for principal, want := range map[string]bool{"alice": true, "bob": false, "": false} {
		var got struct{ Result struct{ TaskID string } }
		if err := json.Unmarshal(send(principal, mcp.MethodTasksGet, `"taskId":"`+created.Result.TaskID+`"`), &got); err != nil {
			t.Fatal(err)
		}
		if (got.Result.TaskID != "") != want {
			t.Errorf("%q gets the task: %v, want %v", principal, !want, want)
		}
	}
	if err := srv.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestCheckMeta checks that metadata passes whatever its keys are: a bridge must forward servers
// that violate the rules for keys.
func TestCheckMeta(t *testing.T) {
	for _, tt := range []struct {
		meta string
		ok   bool
	}{
		{`{}`, true},
		{`{"a":1,"com.example/b":{"_any":2}}`, true},
		{`{"_fastmcp":{"tags":[]},"9.com/b":2,"":3}`, true},
		{` { } `, true},
		{``, false},
		{`null`, false},
		{`[]`, false},
		{`{"a":}`, false},
	} {
		if err := checkMeta([]byte(tt.meta)); (err == nil) != tt.ok {
			t.Errorf("checkMeta(%s): %v, want ok %v", tt.meta, err, tt.ok)
		}
	}
	if err := checkMeta(nil); err != nil {
		t.Errorf("checkMeta(nil): %v", err)
	}
}

// TestResourceNotFound checks each era's code for an unknown resource.
func TestResourceNotFound(t *testing.T) {
	for _, tt := range []struct {
		revision mcp.Revision
		want     jsonrpc.Code
	}{
		{mcp.LatestLegacyRevision, mcp.CodeResourceNotFound},
		{mcp.LatestRevision, jsonrpc.CodeInvalidParams},
	} {
		err := errResourceNotFound(`a:"b`, tt.revision)
		if err.Code != tt.want || string(err.Data) != `{"uri":"a:\"b"}` {
			t.Errorf("%s: code %d, data %s; want %d", tt.revision, err.Code, err.Data, tt.want)
		}
	}
}
