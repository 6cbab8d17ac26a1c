package mcptest

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A RerunCheck is a server under test with options for the check of handlers that ask the client.
// Pass it to [Connect] or [Serve] in place of the server. Without one, both check with the zero
// options.
//
// Since 2026-07-28 a handler that asks the client runs again from its beginning when the client has
// answered. A side effect before an input request happens twice, unless it is in server.Once. To
// find that, the check repeats each request that is answered with input requests: with the
// requestState that came with them, so that Once remembers its results, but without responses. The
// handler runs again up to the same input requests. The test fails if the two runs differ:
//
//   - in the input requests. A random value, the current time or a count of calls in one of them
//     differs from run to run, and the user would be asked again.
//   - in the kind of the result: if the second run fails or ends without asking, for example since
//     the first one has created what may exist only once.
//   - in the notifications for the request: progress, and log messages if no other request is in
//     flight. The second run may leave some out, since Once skips its function.
//   - in the result of Snapshot.
//
// An effect that none of these shows, such as a row in a database, is found with Snapshot only.
// Notifications of changed lists and resources do not count: they are merged, and it is harmless to
// send them twice.
//
// The client sees only one of the two runs. Handlers and middleware see both, and so do limits of
// requests: set Disabled in tests that count them. Requests of legacy revisions are not repeated,
// since their handlers wait for the client.
type RerunCheck struct {
	jsonrpc.Server
	// Disabled turns the check off.
	Disabled bool
	// Snapshot returns the state that handlers change, such as the number of orders. It is called
	// before and after each second run, and the results are compared with reflect.DeepEqual. They
	// must not share memory that handlers modify. Snapshot is called on another goroutine than the
	// test's and must not use the connection. The results are not compared if another request was
	// in flight. Nil means no comparison.
	Snapshot func() any
	// Pause is the time between the two runs. The server reads no messages meanwhile. With a
	// second, the check also finds times without fractions in input requests. In a bubble of
	// testing/synctest, where the clock stands still, it finds no times without a Pause. Zero means
	// no pause.
	Pause time.Duration
}

func (rc RerunCheck) rerunCheck() RerunCheck { return rc }

// newRerunFramer returns the framer of a server that is checked, or nil if the check is disabled.
func newRerunFramer(t testing.TB, srv jsonrpc.Server, end *pipeEnd) *rerunFramer {
	rf := &rerunFramer{pipeEnd: end, t: t, runs: make(map[string]*handlerRun), reported: make(map[string]bool)}
	if options, ok := srv.(interface{ rerunCheck() RerunCheck }); ok {
		rf.check = options.rerunCheck()
	}
	if rf.check.Disabled {
		return nil
	}
	return rf
}

const (
	// rerunTimeout is how much longer than the first run the second one may take.
	rerunTimeout = 10 * time.Second
	// maxRunNotes limits the recorded notifications of a run, of each kind. If there are more, they
	// are not compared.
	maxRunNotes = 1000
	// codeTooManyRequests is the code of a server that limits the rate of requests. It says nothing
	// about the handler.
	codeTooManyRequests jsonrpc.Code = 429
)

// A rerunFramer is the server's end of a connection. It holds back each response with input
// requests, repeats the request, compares the two runs, and forwards one of the responses.
type rerunFramer struct {
	*pipeEnd
	t     testing.TB
	check RerunCheck

	mu sync.Mutex
	// runs holds the requests in flight, by the keys of their ids.
	runs map[string]*handlerRun
	// reruns counts the repeated requests.
	reruns int
	// reported holds the targets that have failed the test.
	reported map[string]bool
	stopped  bool
}

// A handlerRun is a request that the server processes: one of the client, or a repeated one.
type handlerRun struct {
	request *jsonrpc.Message
	// progressToken is the JSON text of the request's progress token, or "".
	progressToken string
	started       time.Time
	// shared is set if another request was in flight at any time during the run.
	shared bool
	// progress and logs are the notifications, as text, without the progress token.
	progress, logs []string

	// first is the run that this one repeats. It is nil for a request of the client. The fields
	// below are set only with it.
	first *handlerRun
	// held is the response of the first run.
	held *jsonrpc.Message
	// heldFrame is the frame of held.
	heldFrame []byte
	// snapshot is the result of RerunCheck.Snapshot before this run.
	snapshot any
	timer    *time.Timer
}

// rerunPrefix begins the ids and the progress tokens of repeated requests.
const rerunPrefix = "mcptest-rerun-"

// isRerun reports whether an id or a progress token is that of a repeated request.
func isRerun(id []byte) bool { return strings.HasPrefix(jsonwire.Text(id), rerunPrefix) }

// ReadFrame returns the client's next frame, or a repeated request.
func (rf *rerunFramer) ReadFrame() ([]byte, error) {
	frame, err := rf.pipeEnd.ReadFrame()
	if err != nil {
		return nil, err
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(frame, &m, maxDepth) != nil {
		return frame, nil
	}
	switch {
	case m.Kind == jsonrpc.KindRequest:
		if rf.begin(&m) {
			time.Sleep(rf.check.Pause)
		}
	case m.Kind == jsonrpc.KindNotification && string(m.Method) == mcp.NotificationCancelled:
		return rf.cancel(&m, frame), nil
	}
	return frame, nil
}

// begin records a request of the client. It reports whether the request is a repeated one instead.
func (rf *rerunFramer) begin(m *jsonrpc.Message) (rerun bool) {
	if string(m.Method) == mcp.MethodSubscriptionsListen {
		return false // it stays in flight and runs no handler
	}
	if isRerun(m.ID) {
		return true
	}
	rf.mu.Lock()
	defer rf.mu.Unlock()
	r := &handlerRun{
		request:       m.Clone(),
		progressToken: string(jsonwire.Lookup(m.Params, "_meta", "progressToken")),
		started:       time.Now(),
	}
	rf.addLocked(r)
	return false
}

// addLocked adds a run to those in flight. The caller must hold rf.mu.
func (rf *rerunFramer) addLocked(r *handlerRun) {
	if len(rf.runs) > 0 {
		r.shared = true
		for _, other := range rf.runs {
			other.shared = true
		}
	}
	rf.runs[r.request.ID.Key()] = r
}

// cancel returns the frame to forward for a cancellation. If the client cancels a request whose
// response is held back, the repeated request is canceled.
func (rf *rerunFramer) cancel(m *jsonrpc.Message, frame []byte) []byte {
	id := jsonrpc.ID(jsonwire.Lookup(m.Params, "requestId"))
	if !id.Valid() {
		return frame
	}
	rf.mu.Lock()
	defer rf.mu.Unlock()
	delete(rf.runs, id.Key()) // it may get no response
	for _, r := range rf.runs {
		if r.first != nil && r.first.request.ID.Equal(id) {
			rf.abandonLocked(r)
			return cancellation(r.request.ID)
		}
	}
	return frame
}

// abandonLocked forgets a repeated request, so that its response is dropped. The caller must hold
// rf.mu.
func (rf *rerunFramer) abandonLocked(r *handlerRun) {
	delete(rf.runs, r.request.ID.Key())
	r.timer.Stop()
}

func cancellation(id jsonrpc.ID) []byte {
	params := append(append([]byte(`{"requestId":`), id...), '}')
	return jsonrpc.AppendNotification(nil, mcp.NotificationCancelled, params)
}

// WriteFrame forwards a frame of the server, or holds it back.
func (rf *rerunFramer) WriteFrame(frame []byte) error {
	var m jsonrpc.Message
	if jsonrpc.Parse(frame, &m, maxDepth) == nil {
		switch m.Kind {
		case jsonrpc.KindNotification:
			if rf.record(&m) {
				return nil
			}
		case jsonrpc.KindResponse, jsonrpc.KindError:
			frame = rf.end(&m, frame)
		}
	}
	if frame == nil {
		return nil
	}
	return rf.pipeEnd.WriteFrame(frame)
}

// record records a notification. It reports whether the notification belongs to a repeated request:
// the client must not see it.
func (rf *rerunFramer) record(m *jsonrpc.Message) (hide bool) {
	rf.mu.Lock()
	defer rf.mu.Unlock()
	switch string(m.Method) {
	case mcp.NotificationProgress:
		token := string(jsonwire.Lookup(m.Params, "progressToken"))
		for _, r := range rf.runs {
			if token != "" && r.progressToken == token {
				addNote(&r.progress, m)
			}
		}
		return isRerun([]byte(token))
	case mcp.NotificationMessage: // these do not name their request
		for _, r := range rf.runs {
			if len(rf.runs) == 1 {
				addNote(&r.logs, m)
				return r.first != nil
			}
		}
	}
	return false
}

func addNote(notes *[]string, m *jsonrpc.Message) {
	if len(*notes) < maxRunNotes {
		params := setMembers(m.Params, change{"progressToken", nil})
		*notes = append(*notes, string(m.Method)+" "+string(params))
	}
}

// end handles a response. It returns the frame to forward now, or nil.
func (rf *rerunFramer) end(m *jsonrpc.Message, frame []byte) []byte {
	rf.mu.Lock()
	r := rf.runs[m.ID.Key()]
	delete(rf.runs, m.ID.Key())
	if r != nil && r.first != nil {
		r.timer.Stop()
	}
	rf.mu.Unlock()
	switch {
	case r == nil && isRerun(m.ID): // it was abandoned
		return nil
	case r == nil:
		return frame
	case r.first != nil:
		return rf.endSecond(r, m)
	case m.Kind == jsonrpc.KindResponse && inputRequests(m) != nil && rf.repeat(r, m, frame):
		return nil
	}
	return frame
}

// inputRequests returns the JSON text of a result's input requests, or nil if it has none.
func inputRequests(m *jsonrpc.Message) []byte {
	if m.Result == nil || m.Result[0] != '{' || jsonwire.Text(jsonwire.Lookup(m.Result, "resultType")) != string(mcp.ResultTypeInputRequired) {
		return nil
	}
	requests := jsonwire.Lookup(m.Result, "inputRequests")
	if len(requests) == 0 || requests[0] != '{' {
		return nil
	}
	if members := jsonwire.ObjectMembers(requests); !members.Next() {
		return nil
	}
	return requests
}

// repeat sends the request of a run again. It reports whether it could.
func (rf *rerunFramer) repeat(first *handlerRun, m *jsonrpc.Message, frame []byte) bool {
	r := &handlerRun{first: first, started: time.Now(), heldFrame: append([]byte(nil), frame...), held: m.Clone()}
	if rf.check.Snapshot != nil {
		r.snapshot = rf.check.Snapshot()
	}
	rf.mu.Lock()
	defer rf.mu.Unlock()
	if rf.stopped {
		return false
	}
	rf.reruns++
	name := rerunPrefix + strconv.Itoa(rf.reruns)
	meta := jsonwire.Lookup(first.request.Params, "_meta")
	if first.progressToken != "" {
		r.progressToken = string(jsonwire.AppendQuote(nil, name))
		meta = setMembers(meta, change{"progressToken", []byte(r.progressToken)})
	}
	if meta != nil && len(rf.runs) > 0 { // whose log messages they are would be unknown
		meta = setMembers(meta, change{mcp.MetaLogLevel, nil})
	}
	state := jsonwire.Lookup(m.Result, "requestState")
	changes := []change{{"_meta", meta}, {"requestState", state}}
	if state != nil {
		changes = append(changes, change{"inputResponses", nil})
	}
	id, method := jsonrpc.StringID(name), string(first.request.Method)
	again := jsonrpc.AppendRequest(nil, id, method, setMembers(first.request.Params, changes...))
	r.request = new(jsonrpc.Message)
	if jsonrpc.Parse(again, r.request, maxDepth) != nil || !rf.in.inject(again) {
		return false
	}
	r.request = r.request.Clone() // the server owns the frame
	rf.addLocked(r)
	r.timer = time.AfterFunc(rerunTimeout+rf.check.Pause+r.started.Sub(first.started), func() { rf.expire(r) })
	return true
}

// A change is the new value of a member. Nil removes it.
type change struct {
	key   string
	value []byte
}

// setMembers returns an object with some members replaced, inserted in front, or removed.
func setMembers(object []byte, changes ...change) []byte {
	dst := []byte{'{'}
	n := 0
	add := func(key string, value []byte) {
		if value != nil {
			dst = append(jsonwire.AppendQuote(appendComma(dst, n), key), ':')
			dst = jsonwire.AppendCompact(dst, value)
			n++
		}
	}
	for _, c := range changes {
		if jsonwire.Lookup(object, c.key) == nil {
			add(c.key, c.value)
		}
	}
	for m := jsonwire.ObjectMembers(object); m.Next(); {
		value := m.Value()
		if i := slices.IndexFunc(changes, func(c change) bool { return m.KeyIs(c.key) }); i >= 0 {
			value = changes[i].value
		}
		add(m.KeyString(), value)
	}
	return append(dst, '}')
}

// endSecond compares a repeated request with the first one. It returns the frame to forward. That
// is the response of the second run if it asks, since a requestState may be valid only once.
func (rf *rerunFramer) endSecond(r *handlerRun, m *jsonrpc.Message) []byte {
	differences := rf.compareRuns(r, m)
	rf.mu.Lock()
	rf.reportLocked(r, differences)
	rf.mu.Unlock()
	if inputRequests(m) == nil {
		return r.heldFrame
	}
	return jsonrpc.AppendResult(nil, r.first.request.ID, m.Result)
}

// compareRuns returns the differences between the two runs.
func (rf *rerunFramer) compareRuns(r *handlerRun, m *jsonrpc.Message) []string {
	again := inputRequests(m)
	switch {
	case m.Kind == jsonrpc.KindError && m.Err().Code == codeTooManyRequests:
		return nil
	case m.Kind == jsonrpc.KindError:
		return []string{"the first run asked the client, the second failed: " + shorten(string(m.Error), maxLineBytes)}
	case again == nil && jsonwire.Text(jsonwire.Lookup(m.Result, "resultType")) == string(mcp.ResultTypeTask):
		return nil // whether a call becomes a task may depend on the time it takes
	case again == nil:
		return []string{"the first run asked the client, the second returned a result: " + shorten(string(m.Result), maxLineBytes)}
	}
	requests := match{verbatim: true}
	requests.compareValue("inputRequests", parseValid(inputRequests(r.held)), parseValid(again))
	differences := requests.diffs
	differences = append(differences, additional(r.first.progress, r.progress)...)
	if !r.first.shared && !r.shared {
		differences = append(differences, additional(r.first.logs, r.logs)...)
	}
	if rf.check.Snapshot != nil && !r.shared {
		if now := rf.check.Snapshot(); !reflect.DeepEqual(r.snapshot, now) {
			differences = append(differences, fmt.Sprintf("RerunCheck.Snapshot: got %s after the second run, want %s as after the first",
				shorten(fmt.Sprintf("%+v", now), maxLineBytes), shorten(fmt.Sprintf("%+v", r.snapshot), maxLineBytes)))
		}
	}
	return differences
}

// additional lists the notifications of the second run that the first one did not send in that
// order.
func additional(first, second []string) (list []string) {
	if len(first) == maxRunNotes {
		return nil
	}
	for _, note := range second {
		at := 0
		for at < len(first) && first[at] != note {
			at++
		}
		if at == len(first) {
			list = append(list, "the second run sent what the first did not: "+shorten(note, maxLineBytes))
			continue
		}
		first = first[at+1:]
	}
	return list
}

// reportLocked fails the test, once for each target. The caller must hold rf.mu.
func (rf *rerunFramer) reportLocked(r *handlerRun, differences []string) {
	method := string(r.first.request.Method)
	target := jsonwire.Lookup(r.first.request.Params, "name")
	if method == mcp.MethodResourcesRead {
		target = jsonwire.Lookup(r.first.request.Params, "uri")
	}
	text := method + " " + shorten(string(target), maxLineBytes)
	if len(differences) == 0 || rf.stopped || rf.reported[text] {
		return
	}
	rf.reported[text] = true
	m := match{diffs: differences}
	rf.t.Errorf("%s: the handler does something else when it runs again, before the client has answered:\n%s%s", text, m.diffText(), rerunAdvice)
}

var rerunAdvice = strings.Join([]string{
	"In modern revisions a handler that asks the client runs again from its beginning with each answer.",
	"Put side effects after the last input request or into server.Once, and take random values and times from server.Once.",
	"mcptest ran it twice to find this; see mcptest.RerunCheck.",
}, "\n")

// expire gives up a repeated request that the server does not answer.
func (rf *rerunFramer) expire(r *handlerRun) {
	rf.mu.Lock()
	if rf.stopped || rf.runs[r.request.ID.Key()] != r {
		rf.mu.Unlock()
		return
	}
	rf.abandonLocked(r)
	rf.reportLocked(r, []string{fmt.Sprintf("the first run asked the client after %v, the second has not returned after %v",
		r.started.Sub(r.first.started), time.Since(r.started))})
	rf.in.inject(cancellation(r.request.ID))
	rf.mu.Unlock()
	rf.pipeEnd.WriteFrame(r.heldFrame) // an error means that the client is gone
}

// stop ends the check. The test does not fail after that.
func (rf *rerunFramer) stop() {
	rf.mu.Lock()
	defer rf.mu.Unlock()
	rf.stopped = true
	for _, r := range rf.runs {
		if r.timer != nil {
			r.timer.Stop()
		}
	}
}
