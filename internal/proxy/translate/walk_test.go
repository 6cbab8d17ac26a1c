package translate_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"mcpwire/internal/proxy/translate"
	"mcpwire/jsonrpc"
)

// A walk drives a translator with random events: requests, input requests, responses, cancellations
// and lost connections. It checks that nothing is sent without a server, that each request of the
// client gets one response unless it was canceled, and that all state is released at the end.
type walk struct {
	t    *testing.T
	rand *rand.Rand
	tr   translate.Translator
	// modern is the era of the client.
	modern   bool
	now      time.Time
	log      []string
	noServer bool
	stream   uint64
	// open has the ids of pending requests of the client by stream.
	open map[uint64]int
	// handshakes has the streams of initialize, which cannot be canceled.
	handshakes map[uint64]bool
	// calls has the methods of pending calls to the server.
	calls map[int64]string
	// inputs has the ids of the input requests that the client got.
	inputs []string
	// inputID is the last id of a request of the server.
	inputID int
	// states has the request states that the client got.
	states []string
}

func (w *walk) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf(format+"\n%s", append(args, strings.Join(w.log[max(0, len(w.log)-60):], "\n"))...)
}

func (w *walk) take(outs []translate.Out) {
	w.t.Helper()
	for _, o := range outs {
		w.log = append(w.log, fmt.Sprintf("  %d stream %d final %t call %d cancel %t %s %s", o.To, o.Stream, o.Final, o.Call, o.Cancel, o.Message, o.Rule))
		if o.Message != nil {
			checkOut(w.t, o)
		}
		switch o.To {
		case translate.Upstream:
			if w.noServer {
				w.fatalf("message without a server: %s", o.Message)
			}
			if o.Cancel {
				if w.calls[o.Call] == "" {
					w.fatalf("cancellation of call %d, which is not pending", o.Call)
				}
				delete(w.calls, o.Call)
			} else if o.Call != 0 && !o.Withdraw {
				w.calls[o.Call] = o.Method
			}
		case translate.Downstream:
			w.takeDownstream(o)
		}
	}
}

func (w *walk) takeDownstream(o translate.Out) {
	w.t.Helper()
	if _, ok := w.open[o.Stream]; o.Stream != 0 && !ok {
		w.fatalf("message on the closed stream %d: %s", o.Stream, o.Message)
	}
	var m jsonrpc.Message
	if o.Message != nil && jsonrpc.Parse(o.Message, &m, 0) == nil && m.Kind == jsonrpc.KindRequest {
		w.inputs = append(w.inputs, string(m.ID))
	}
	if o.Stream != 0 && o.Final {
		if _, ok := w.open[o.Stream]; !ok {
			w.fatalf("two ends of stream %d", o.Stream)
		}
		delete(w.open, o.Stream)
		delete(w.handshakes, o.Stream)
	}
	if _, rest, ok := strings.Cut(string(o.Message), `"requestState":"`); ok {
		state, _, _ := strings.Cut(rest, `"`)
		w.states = append(w.states, state)
	}
}

const walkCapabilities = `{"roots":{},"elicitation":{"form":{},"url":{}},"sampling":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}`

func (w *walk) pick(list ...string) string { return list[w.rand.IntN(len(list))] }

// request makes a request of the client.
func (w *walk) request(method, params string) {
	w.stream++
	w.open[w.stream] = int(w.stream)
	if w.modern {
		capabilities := w.pick(walkCapabilities, walkCapabilities, `{"roots":{},"elicitation":{}}`)
		meta := w.pick(`"progressToken":"p",`, `"io.modelcontextprotocol/logLevel":"info",`, "")
		params = strings.TrimSuffix(params, "}") + `,"_meta":{` + meta + lengthen.Replace(`$V:`+capabilities) + `}}`
		params = strings.Replace(params, "{,", "{", 1)
	}
	if method == "initialize" {
		w.handshakes[w.stream] = true
	}
	msg := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, w.stream, method, params)
	w.log = append(w.log, "downstream "+msg)
	w.take(w.tr.FromDownstream(w.now, []byte(msg), w.stream))
}

func (w *walk) stepDownstream() {
	if !w.modern {
		switch w.rand.IntN(8) {
		case 0:
			w.request(w.pick("resources/subscribe", "resources/unsubscribe"), fmt.Sprintf(`{"uri":"x:%d"}`, w.rand.IntN(3)))
			return
		case 1:
			w.request(w.pick("tasks/get", "tasks/cancel", "tasks/result"), fmt.Sprintf(`{"taskId":"T%d"}`, w.rand.IntN(3)))
			return
		case 2:
			w.request("tools/call", `{"name":"t","task":{}}`)
			return
		}
		w.request(w.pick("tools/call", "prompts/get", "tools/list"), `{"name":"t"}`)
		return
	}
	switch w.rand.IntN(8) {
	case 0:
		w.request("subscriptions/listen", fmt.Sprintf(`{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["x:%d","x:%d"]}}`, w.rand.IntN(3), w.rand.IntN(3)))
	case 1:
		w.request(w.pick("tasks/get", "tasks/cancel"), fmt.Sprintf(`{"taskId":"T%d"}`, w.rand.IntN(3)))
	case 2:
		w.request("tasks/update", fmt.Sprintf(`{"taskId":"T%d","inputResponses":{"input-1":{"roots":[]}}}`, w.rand.IntN(3)))
	case 3, 4:
		if n := len(w.states); n > 0 {
			w.request("tools/call", fmt.Sprintf(`{"name":"t","inputResponses":{"input-1":{"roots":[]}},"requestState":%q}`, w.states[w.rand.IntN(n)]))
			return
		}
		fallthrough
	default:
		w.request(w.pick("tools/call", "prompts/get", "tools/list", "server/discover"), `{"name":"t"}`)
	}
}

// abandon cancels one of the client's requests.
func (w *walk) abandon() {
	for stream, id := range w.open {
		if w.handshakes[stream] {
			continue
		}
		if w.modern {
			delete(w.open, stream)
			w.log = append(w.log, fmt.Sprintf("closed %d", stream))
			w.take(w.tr.StreamClosed(w.now, stream))
			return
		}
		msg := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id)
		w.log = append(w.log, "downstream "+msg)
		w.take(w.tr.FromDownstream(w.now, []byte(msg), 0))
		return
	}
}

// respondToInput responds to an input request that the client got.
func (w *walk) respondToInput() {
	if len(w.inputs) == 0 {
		return
	}
	i := w.rand.IntN(len(w.inputs))
	id := w.inputs[i]
	w.inputs = slices.Delete(w.inputs, i, i+1)
	msg := `{"jsonrpc":"2.0","id":` + id + w.pick(`,"result":{"roots":[],"action":"accept"}}`, `,"error":{"code":-1,"message":"no"}}`)
	w.log = append(w.log, "downstream "+msg)
	w.take(w.tr.FromDownstream(w.now, []byte(msg), 0))
}

func task(w *walk, status, more string) string {
	return fmt.Sprintf(`"taskId":"T%d","status":%q,"createdAt":"2026-01-01T00:00:00Z","lastUpdatedAt":"2026-01-01T00:00:00Z"%s`, w.rand.IntN(3), status, more)
}

// result returns a random result or error of a method. With final, it is a final result.
func (w *walk) result(method string, final bool) string {
	e := `"error":{"code":-32603,"message":"no"}`
	switch method {
	case "initialize":
		return `"result":{"protocolVersion":"2025-11-25","capabilities":{"logging":{},"tools":{"listChanged":true},"resources":{"subscribe":true},"tasks":{"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"s","version":"2"}}`
	case "server/discover":
		return lengthen.Replace(`"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"extensions":{"$/tasks":{}}},"ttlMs":0,"cacheScope":"public"}`)
	case "tools/call":
		switch {
		case final:
		case w.modern:
			return w.pick(`"result":{"content":[]}`, e, `"error":{"code":-32601,"message":"as a task"}`, `"result":{"task":{`+task(w, "working", "")+`}}`,
				`"error":{"code":-32042,"message":"go","data":{"elicitations":[{"mode":"url","url":"https://example.com/","message":"m","elicitationId":"e"}]}}`)
		default:
			return w.pick(`"result":{"resultType":"complete","content":[]}`, e, `"result":{"resultType":"input_required","requestState":"s","inputRequests":{"k":{"method":"roots/list"},"l":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}}}`,
				`"result":{"resultType":"input_required","requestState":"busy"}`, `"result":{"resultType":"task",`+task(w, "working", `,"ttlMs":null`)+`}`,
				lengthen.Replace(`"error":{"code":-32021,"message":"tasks","data":{"requiredCapabilities":{"extensions":{"$/tasks":{}}}}}`))
		}
		return `"result":{"content":[]}`
	case "tasks/get":
		status := w.pick("working", "input_required", "completed", "failed", "cancelled")
		if final {
			status = "completed"
		}
		return `"result":{` + task(w, status, `,"inputRequests":{"k":{"method":"roots/list"}},"result":{"content":[]}`) + `}`
	case "tools/list":
		return `"result":{"tools":[{"name":"t","inputSchema":{"type":"object"},"execution":{"taskSupport":"` + w.pick("required", "optional") + `"}}]}`
	}
	if final {
		return `"result":{}`
	}
	return w.pick(`"result":{}`, `"result":{}`, e)
}

// respond responds to a call to the server. It returns false if there is none.
func (w *walk) respond(final bool) bool {
	for id, method := range w.calls {
		if method == "subscriptions/listen" && w.rand.IntN(8) > 0 {
			if final {
				continue
			}
			w.stepUpstream(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["x:0","x:1"]},"_meta":{"io.modelcontextprotocol/subscriptionId":%d}}}`, id))
			return true
		}
		delete(w.calls, id)
		w.stepUpstream(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,%s}`, id, w.result(method, final)))
		return true
	}
	return false
}

func (w *walk) stepUpstream(msg string) {
	w.log = append(w.log, "upstream "+msg)
	w.take(w.tr.FromUpstream(w.now, []byte(msg), 0))
}

// serverRequest makes an input request of a legacy server, or cancels one.
func (w *walk) serverRequest() {
	w.inputID++
	switch w.rand.IntN(5) {
	case 0:
		w.stepUpstream(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, w.rand.IntN(w.inputID+1)))
	case 1:
		w.stepUpstream(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"roots/list","params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"T%d"}}}}`, w.inputID, w.rand.IntN(3)))
	case 2:
		w.stepUpstream(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}`, w.inputID))
	default:
		w.stepUpstream(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"roots/list"}`, w.inputID))
	}
}

func (w *walk) wait(d time.Duration) {
	for end := w.now.Add(d); ; {
		next := w.tr.Next()
		if next.IsZero() || next.After(end) {
			w.now = end
			return
		}
		w.now = next
		w.log = append(w.log, "tick")
		w.take(w.tr.Tick(w.now))
	}
}

func (w *walk) loseServer() {
	w.log = append(w.log, "lost")
	var unsent []int64
	for id := range w.calls {
		if w.rand.IntN(3) == 0 {
			unsent = append(unsent, id)
		}
	}
	clear(w.calls)
	w.noServer = true
	w.take(w.tr.UpstreamLost(w.now, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "lost"}, unsent...))
}

func (w *walk) restart() {
	w.log = append(w.log, "ready")
	w.noServer = false
	w.take(w.tr.UpstreamReady(w.now))
}

func (w *walk) step() {
	switch n := w.rand.IntN(40); {
	case n < 10:
		w.stepDownstream()
	case n < 13:
		w.abandon()
	case n < 16:
		w.respondToInput()
	case n < 18 && w.modern && !w.noServer:
		w.serverRequest()
	case n < 30 && !w.noServer:
		w.respond(false)
	case n < 34:
		w.wait(time.Duration(w.rand.IntN(100)) * time.Millisecond)
	case n == 34:
		w.wait(time.Duration(w.rand.IntN(300)) * time.Second)
	case n == 35 && !w.noServer && w.rand.IntN(3) == 0:
		w.loseServer()
	case n == 36 && !w.noServer:
		for id := range w.calls {
			delete(w.calls, id)
			w.log = append(w.log, fmt.Sprintf("failed %d", id))
			w.take(w.tr.CallFailed(w.now, id, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "ended"}))
			break
		}
	case n > 36 && w.noServer:
		w.restart()
	}
}

// settle completes all calls and cancels the subscriptions.
func (w *walk) settle() {
	if w.noServer {
		w.restart()
	}
	for range 200 {
		for w.respond(true) {
		}
		for len(w.inputs) > 0 {
			w.respondToInput()
		}
		w.wait(10 * time.Second)
	}
	for range 100 {
		for len(w.open) > 0 && w.modern { // only subscriptions are open
			w.abandon()
		}
		w.wait(11 * time.Minute)
		for w.respond(true) {
		}
	}
}

func TestWalk(t *testing.T) {
	n := 200
	if testing.Short() {
		n = 50
	}
	for seed := range n {
		for _, modern := range []bool{false, true} {
			w := &walk{t: t, rand: rand.New(rand.NewPCG(uint64(seed), 7)), modern: modern, now: time.Unix(1e9, 0),
				open: map[uint64]int{}, handshakes: map[uint64]bool{}, calls: map[int64]string{}}
			if modern {
				w.tr = translate.NewModernToLegacy(nil)
			} else {
				w.tr = translate.NewLegacyToModern(nil)
				params, _ := json.Marshal(map[string]any{"protocolVersion": "2025-11-25", "capabilities": json.RawMessage(walkCapabilities), "clientInfo": map[string]string{"name": "c", "version": "1"}})
				w.request("initialize", string(params))
				w.respond(true)
				w.take(w.tr.FromDownstream(w.now, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`), 0))
			}
			for range 150 {
				w.step()
			}
			if seed%4 == 0 { // close while requests are pending
				w.log = append(w.log, "close")
				w.take(w.tr.Close(w.now, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "closed"}))
				if leaks := translate.Leaks(w.tr); leaks != "" || len(w.open) > 0 {
					w.fatalf("seed %d modern %t: after Close: %s; open requests: %v", seed, modern, leaks, w.open)
				}
				continue
			}
			w.settle()
			if len(w.open) > 0 {
				w.fatalf("seed %d: requests without a response: %v", seed, w.open)
			}
			if unreleased := translate.Unreleased(w.tr); unreleased != "" {
				w.fatalf("seed %d modern %t: %s", seed, modern, unreleased)
			}
		}
	}
}
