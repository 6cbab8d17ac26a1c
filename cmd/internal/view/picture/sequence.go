package picture

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/text/plural"
	"mcpwire/mcp"
)

// Limits of a Sequence.
const (
	// maxSteps limits the lines of a sequence. The newest are kept.
	maxSteps = 400
	// maxRows limits the rows that steps are made of. The newest are kept.
	maxRows = 8000
	// maxLanes limits the peers. Further ones share the last lane.
	maxLanes = 10
	// minRepeats is the number of equal calls from which they are one line.
	minRepeats = 4
)

// A Sequence is what hosts, bridges and servers sent to each other, in order.
type Sequence struct {
	title, subtitle string
	lanes           []lane
	steps           []step
	// loops has the names of loops, such as "elicitation", by number.
	loops []string
	// omitted counts the exchanges that are older than the steps.
	omitted int
	// Evicted is the number of earlier rows that the caller no longer has.
	Evicted int
}

// A laneKind says what a peer is.
type laneKind int

const (
	hostLane laneKind = iota
	bridgeLane
	serverLane
)

// A lane is a peer.
type lane struct {
	kind         laneKind
	name, detail string
	// color is trace.Session.ServerIndex of a server.
	color int
}

// A stepKind says what a step shows.
type stepKind int

const (
	callStep stepKind = iota
	replyStep
	notifyStep
	// markStep is something in one lane, such as the start of a process.
	markStep
	gapStep
)

// A step is a line of a sequence.
type step struct {
	kind     stepKind
	at       time.Time
	seq      uint64
	from, to int
	// name and detail are the texts of the line.
	name, detail string
	// tone is the name of a color in picture.css.
	tone string
	// call connects a call with its reply. Zero means none.
	call uint64
	// loop is the number of the loop that the step belongs to, from 1. Zero means none.
	loop    int
	capture string
	n       uint64
}

// NewSequence returns the sequence of rows of a timeline, oldest first, with the rows inside them.
// The caller must hold the lock of the model.
func NewSequence(rows []*trace.Row) *Sequence {
	b := &sequenceBuilder{lanes: map[string]int{}}
	all := rows
	if cut := len(rows) - maxRows; cut > 0 {
		b.omitted, rows = cut, rows[cut:]
	}
	for i := 0; i < len(rows); {
		n := repeats(rows[i:])
		if n >= minRepeats {
			b.repeated(rows[i : i+n])
		} else {
			n = 1
			b.row(rows[i], 0)
		}
		i += n
	}
	b.finish(all)
	return &b.Sequence
}

// Empty reports whether there is nothing to draw.
func (s *Sequence) Empty() bool { return len(s.steps) == 0 }

type sequenceBuilder struct {
	Sequence
	// lanes has the numbers of peers by a key.
	lanes    map[string]int
	building []lane
}

// repeats returns how many rows at the beginning are the same call, each answered before the next.
func repeats(rows []*trace.Row) int {
	first := rows[0]
	if !simple(first) {
		return 1
	}
	n := 1
	for end := first.At.Add(first.Latency); n < len(rows); n++ {
		r := rows[n]
		if !simple(r) || r.Session != first.Session || r.Method != first.Method || r.Target != first.Target || r.At.Before(end) || r.At.Sub(end) > trace.MaxIdle {
			break
		}
		end = r.At.Add(r.Latency)
	}
	return n
}

// simple reports whether a row is an answered call of which there is nothing else to tell.
func simple(r *trace.Row) bool {
	return r.Kind == trace.Request && r.Status == trace.OK && r.Done && len(r.Children) == 0 && r.Dir == capture.ToServer && r.InputRounds == nil && r.Task == nil
}

func (b *sequenceBuilder) lane(key string, l lane) int {
	if i, ok := b.lanes[key]; ok {
		if l.detail != "" {
			b.building[i].detail = l.detail
		}
		return i
	}
	if len(b.building) >= maxLanes {
		b.building[maxLanes-1].name, b.building[maxLanes-1].detail = "others", ""
		b.lanes[key] = maxLanes - 1
		return maxLanes - 1
	}
	b.lanes[key] = len(b.building)
	b.building = append(b.building, l)
	return len(b.building) - 1
}

// peers returns the lanes of the client and the server of a row.
func (b *sequenceBuilder) peers(r *trace.Row) (client, server int) {
	s := r.Session
	bridge := func() int {
		name := "bridge"
		if s.Capture.HasUpstreams() {
			name = "gateway"
		}
		return b.lane("bridge "+s.Capture.ID, lane{kind: bridgeLane, name: name, detail: "mcpwire"})
	}
	if s.Side == capture.Upstream {
		client = bridge()
	} else {
		detail := "host"
		if s.Side == capture.Downstream {
			detail = trace.Join(", ", "host", s.Negotiated)
		}
		client = b.lane("host "+s.Client.Name, lane{kind: hostLane, name: cmp.Or(trace.Join(" ", s.Client.Name, s.Client.Version), "host"), detail: detail})
	}
	if s.Side == capture.Downstream {
		return client, bridge()
	}
	name := s.Capture.Name
	if s.Side == capture.Upstream && s.Server.Name != "" {
		name = s.Server.Name
	}
	detail := cmp.Or(trace.Join(", ", s.Server.Version, cmp.Or(s.Negotiated, r.EffectiveRevision())), "server")
	key := "server " + s.Capture.Name
	if s.Side == capture.Upstream { // there may be several, behind a gateway
		key += " " + cmp.Or(s.Server.Name, strings.Join(s.Command, " "))
	}
	return client, b.lane(key, lane{kind: serverLane, name: cmp.Or(name, "server"), detail: detail, color: s.ServerIndex()})
}

// ends returns where a message of a direction goes from and to.
func ends(dir capture.Dir, client, server int) (from, to int) {
	if dir == capture.ToClient {
		return server, client
	}
	return client, server
}

func (b *sequenceBuilder) add(s step) { b.steps = append(b.steps, s) }

func newStep(kind stepKind, r *trace.Row, from, to int) step {
	return step{kind: kind, at: r.At, seq: r.Seq, from: from, to: to, capture: r.Capture.ID, n: r.N}
}

// note adds a step without a reply.
func (b *sequenceBuilder) note(kind stepKind, r *trace.Row, from, to int, name, detail, tone string, loop int) {
	s := newStep(kind, r, from, to)
	s.name, s.detail, s.tone, s.loop = name, detail, tone, loop
	b.add(s)
}

// call returns a call, and its reply with the outcome of the last row.
func (b *sequenceBuilder) call(first, last *trace.Row, from, to int, name, detail string, loop int) (call, reply step) {
	call, reply = newStep(callStep, first, from, to), newStep(replyStep, last, to, from)
	call.name, call.detail, call.tone, call.loop, call.call = name, detail, "ask", loop, first.Seq
	reply.at, reply.loop, reply.call = last.At.Add(last.Latency), loop, first.Seq
	reply.name, reply.detail, reply.tone = outcome(last)
	return call, reply
}

// repeated adds equal calls as one.
func (b *sequenceBuilder) repeated(rows []*trace.Row) {
	first, last := rows[0], rows[len(rows)-1]
	client, server := b.peers(first)
	var h trace.Histogram
	for _, r := range rows {
		h.Add(r.Latency)
	}
	call, reply := b.call(first, last, client, server, times(callName(first), len(rows)), "", 0)
	reply.name, reply.detail = "all ok", "p50 "+trace.FormatDuration(h.Quantile(0.5))+", at most "+trace.FormatDuration(h.Max())
	b.add(call)
	b.add(reply)
}

// row adds a row and the rows inside it.
func (b *sequenceBuilder) row(r *trace.Row, loop int) {
	client, server := b.peers(r)
	from, to := ends(r.Dir, client, server)
	switch r.Kind {
	case trace.Request:
		b.request(r, from, to, loop)
		return
	case trace.Notification:
		tone := "note"
		if r.Method == mcp.NotificationCancelled {
			tone = "warn"
		}
		b.note(notifyStep, r, from, to, strings.TrimPrefix(r.Method, "notifications/"), r.Target, tone, loop)
	case trace.Log:
		b.note(notifyStep, r, from, to, "log", r.Excerpt, "quiet", loop)
	case trace.HTTP:
		if r.Status == trace.HTTPFailed {
			b.request(r, client, server, loop)
		}
	case trace.Progress:
		b.progress([]*trace.Row{r}, loop)
	case trace.Start:
		b.note(markStep, r, server, server, "started", r.Target, "quiet", loop)
	case trace.Exit:
		tone := "quiet"
		if r.Code != 0 || r.Session.Signal != "" {
			tone = "bad"
		}
		b.note(markStep, r, server, server, "exited", r.Excerpt, tone, loop)
	case trace.Gap:
		b.note(markStep, r, server, server, "missing", r.Excerpt, "warn", loop)
	case trace.Stdout, trace.Invalid:
		b.note(markStep, r, server, server, "not a message", r.Excerpt, "warn", loop)
	}
	b.inside(r.Children, loop)
}

func (b *sequenceBuilder) request(r *trace.Row, from, to, loop int) {
	call, reply := b.call(r, r, from, to, callName(r), r.Excerpt, loop)
	if call.name == r.Method && r.Target != "" {
		call.detail = r.Target // such as the message of an elicitation
	}
	if r.Dir == capture.ToClient {
		call.tone = "asked"
	}
	if r.Role == trace.Retry {
		call.detail = "again, with the input"
	}
	if r.Kind == trace.HTTP && r.HTTP != nil {
		call.name, call.detail = trace.Join(" ", r.HTTP.Method, "request"), r.HTTP.URL
	}
	b.add(call)
	hasRetry := slices.ContainsFunc(r.Children, isRetry)
	switch {
	case hasRetry:
		reply.name, reply.detail, reply.tone = trace.FormatDuration(r.Latency), trace.InputRequired.Word(), "wait"
		reply.loop = b.newLoop("input round")
	case r.Status == trace.Pending:
		reply.kind, reply.from, reply.to = markStep, to, to
		if reply.at = r.At; r.Session.Last.After(r.At) {
			reply.at = r.Session.Last
		}
	}
	if b.add(reply); hasRetry {
		b.rounds(r, reply.loop)
		return
	}
	b.inside(r.Children, loop)
}

func isRetry(r *trace.Row) bool { return r.Role == trace.Retry }

// rounds adds the rows inside a request that took several rounds. Each pair of a response that
// requests input and the next request is a loop.
func (b *sequenceBuilder) rounds(r *trace.Row, loop int) {
	retries := slices.DeleteFunc(slices.Clone(r.Children), func(c *trace.Row) bool { return !isRetry(c) })
	for i, c := range retries {
		from, to := b.ends(c)
		call, reply := b.call(c, c, from, to, callName(c), "again, with the input", loop)
		reply.loop = 0
		if i == len(retries)-1 && c.Status == trace.InputRequired && r.Status != trace.InputRequired {
			reply.name, reply.detail, reply.tone = outcome(r)
		}
		if i < len(retries)-1 {
			loop = b.newLoop("input round")
			reply.loop, reply.tone, reply.detail = loop, "wait", trace.InputRequired.Word()
		}
		b.add(call)
		b.add(reply)
		b.inside(c.Children, 0)
	}
	b.inside(slices.DeleteFunc(slices.Clone(r.Children), isRetry), 0)
}

func (b *sequenceBuilder) ends(r *trace.Row) (from, to int) {
	client, server := b.peers(r)
	return ends(r.Dir, client, server)
}

func (b *sequenceBuilder) newLoop(name string) int {
	b.loops = append(b.loops, name)
	return len(b.loops)
}

// inside adds rows: runs of progress and polls of a task as one each, and what a server asks its
// client as loops.
func (b *sequenceBuilder) inside(rows []*trace.Row, loop int) {
	var progress, polls []*trace.Row
	for _, c := range rows {
		switch {
		case c.Kind == trace.Progress:
			progress = append(progress, c)
		case c.Role == trace.Poll:
			polls = append(polls, c)
		case c.Role == trace.ServerRequest:
			b.row(c, b.newLoop(loopName(c.Method)))
		default:
			b.row(c, loop)
		}
	}
	b.progress(progress, loop)
	if len(polls) > 0 {
		from, to := b.ends(polls[0])
		call, reply := b.call(polls[0], polls[len(polls)-1], from, to, times(polls[0].Method, len(polls)), "", loop)
		b.add(call)
		b.add(reply)
	}
}

// loopName returns the name of a loop in which a server asks its client.
func loopName(method string) string {
	switch method {
	case mcp.MethodElicit:
		return "elicitation"
	case mcp.MethodCreateMessage:
		return "sampling"
	case mcp.MethodRootsList:
		return "roots"
	}
	return method
}

// progress adds a run of progress as one step.
func (b *sequenceBuilder) progress(rows []*trace.Row, loop int) {
	if len(rows) == 0 {
		return
	}
	last := rows[len(rows)-1]
	from, to := b.ends(last)
	b.note(notifyStep, last, from, to, times("progress", len(rows)), trace.Join("  ", last.Target, last.Excerpt), "note", loop)
}

func times(name string, n int) string {
	if n < 2 {
		return name
	}
	return name + " ×" + strconv.Itoa(n)
}

// callName returns the tool, prompt or resource of a request, or its method.
func callName(r *trace.Row) string {
	switch r.Method {
	case mcp.MethodToolsCall, mcp.MethodPromptsGet, mcp.MethodResourcesRead:
		if r.Target != "" {
			return r.Target
		}
	}
	return r.Method
}

// outcome returns how a request ended: a name, a detail and a tone.
func outcome(r *trace.Row) (name, detail, tone string) {
	took := trace.FormatDuration(r.Latency)
	switch r.Status {
	case trace.Failed:
		return took, trace.Join(" ", "error", r.CodeText(), r.Message), "bad"
	case trace.HTTPFailed:
		return took, "HTTP " + r.CodeText(), "bad"
	case trace.ToolFailed:
		return took, trace.Join(": ", trace.ToolFailed.Word(), r.ResultInfo.Text), "tool"
	case trace.Canceled:
		return took, "cancelled", "quiet"
	case trace.Unanswered:
		return "no response", "after " + trace.FormatDuration(r.Wall()), "bad"
	case trace.Pending:
		return "pending", "", "wait"
	case trace.InputRequired:
		return took, trace.InputRequired.Word(), "wait"
	case trace.TaskCreated:
		state := ""
		if r.Task != nil {
			state = r.Task.State
		}
		return took, trace.Join(" ", "task", state), "wait"
	}
	size := ""
	if r.ResponseBytes > 0 {
		size = trace.FormatSize(r.ResponseBytes)
	}
	if r.Task != nil {
		return took, trace.Join(" ", "task", r.Task.State), "ok"
	}
	return took, size, "ok"
}

// finish orders steps and lanes, and adds gaps and texts.
func (b *sequenceBuilder) finish(rows []*trace.Row) {
	slices.SortStableFunc(b.steps, func(x, y step) int {
		if c := x.at.Compare(y.at); c != 0 {
			return c
		}
		return cmp.Compare(x.seq, y.seq)
	})
	if cut := len(b.steps) - maxSteps; cut > 0 {
		for _, s := range b.steps[:cut] {
			if s.kind == callStep {
				b.omitted++
			}
		}
		b.steps = slices.Clone(b.steps[cut:])
	}
	b.orderLanes()
	b.addGaps()
	b.describe(rows)
}

// orderLanes puts hosts first and servers last, and leaves out lanes without a step.
func (b *sequenceBuilder) orderLanes() {
	used := map[int]bool{}
	for _, s := range b.steps {
		used[s.from], used[s.to] = true, true
	}
	var order []int
	for i := range b.building {
		if used[i] {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(b.building[x].kind, b.building[y].kind) })
	to := map[int]int{}
	for i, old := range order {
		to[old] = i
		b.Sequence.lanes = append(b.Sequence.lanes, b.building[old])
	}
	for i := range b.steps {
		b.steps[i].from, b.steps[i].to = to[b.steps[i].from], to[b.steps[i].to]
	}
}

// addGaps adds a step where nothing happened for a while.
func (b *sequenceBuilder) addGaps() {
	var out []step
	for i, s := range b.steps {
		if i > 0 {
			if d := s.at.Sub(b.steps[i-1].at); d > trace.MaxIdle {
				out = append(out, step{kind: gapStep, at: b.steps[i-1].at, name: trace.FormatDuration(d.Round(time.Second)) + " later"})
			}
		}
		out = append(out, s)
	}
	b.steps = out
}

func (b *sequenceBuilder) describe(rows []*trace.Row) {
	var names [3][]string
	for _, l := range b.Sequence.lanes {
		names[l.kind] = append(names[l.kind], l.name)
	}
	servers := strings.Join(names[serverLane], ", ")
	if n := len(names[serverLane]); n > 4 {
		servers = plural.Of(n, "server")
	}
	b.title = trace.Join(" ⇄ ", strings.Join(names[hostLane], ", "), strings.Join(names[bridgeLane], ", "), servers)
	calls, failed := 0, 0
	var from, to time.Time
	for _, r := range rows {
		if from.IsZero() {
			from = r.At
		}
		if end := r.At.Add(r.Wall()); end.After(to) {
			to = end
		}
		if r.Kind != trace.Request || r.Dir == capture.ToClient {
			continue
		}
		calls++
		if r.Status.IsFailure() {
			failed++
		}
	}
	parts := []string{from.UTC().Format("2006-01-02 15:04:05 UTC"), count(calls, "request")}
	if failed > 0 {
		parts = append(parts, trace.FormatCount(failed)+" failed")
	}
	parts = append(parts, trace.FormatDuration(to.Sub(from)))
	b.subtitle = strings.Join(parts, "  ·  ")
}
