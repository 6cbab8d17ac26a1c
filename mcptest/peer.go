package mcptest

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Peer plays one end of a connection as a test says, a message at a time. Make one with [NewPeer] to play the client of a server under test; one
// that plays the server of a client under test comes from [Script].
//
// Messages are JSON text; white space in it does not matter. A string "$name" in the place of a value, the name being made of letters, digits and
// underscores, is a variable:
//
//   - In what is expected, a variable without a value matches any value and takes it. One with a value matches that value.
//   - In what is sent, a variable is replaced by its value.
//   - "$any" matches any value each time, and takes none. A member "$any":"$any" matches all members of the object that are not named.
//   - "$modern" has the _meta of a modern request as its value: the latest revision, and no capabilities.
//   - "$$name" is the string "$name".
//
// Everything else is compared as JSON: the order of members and the way in which strings and numbers are written do not matter; a member that is
// missing or not named does.
//
// No wait is longer than Timeout. What fails ends the test as t.Fatal does, and shows what differs and the session so far. When the test ends, the
// peer ends its output, lets the other side finish, and fails the test for each message that nobody expected.
//
// A Peer is for one goroutine, that of the test, or of the script. All of it works in a bubble of testing/synctest; there, a message that does
// not come is noticed at once.
type Peer struct {
	// Timeout bounds each wait: for a message, for one to be taken, for the other side to hang up. It is DefaultTimeout until it is set.
	Timeout time.Duration

	t          testing.TB
	framer     jsonrpc.Framer
	script     bool   // it runs on a goroutine of its own
	location   string // in front of failures; may be empty
	hint       string // behind them
	vars       variables
	transcript transcript

	arrivals chan arrival
	closing  chan struct{}
	closed   bool
	workers  sync.WaitGroup
}

// DefaultTimeout is how long a [Peer] waits unless it is told otherwise.
const DefaultTimeout = 10 * time.Second

// maxArrivals is how many messages may wait to be looked at; then reading waits, and so does the other side in the end.
const maxArrivals = 64

// An arrival is a message that came, or what came instead.
type arrival struct {
	text string
	err  error
}

var errClosed = errors.New("the peer itself has hung up")

// isLast reports whether nothing can come after it: a frame that was unusable is not the end.
func (a arrival) isLast() bool {
	_, bad := errors.AsType[*jsonrpc.FrameError](a.err)
	return a.err != nil && !bad
}

// NewPeer returns a peer that plays this end of f, which may be an [End] or any other transport: a jsonrpc.NewFramer over the process that
// stdio.Command starts, for example. It closes f when the test ends.
func NewPeer(t testing.TB, f jsonrpc.Framer) *Peer {
	t.Helper()
	p := newPeer(t, f)
	t.Cleanup(func() {
		t.Helper()
		p.closeAndCheck()
	})
	return p
}

func newPeer(t testing.TB, f jsonrpc.Framer) *Peer {
	p := &Peer{
		Timeout:  DefaultTimeout,
		t:        t,
		framer:   f,
		vars:     variables{"modern": *parseValid([]byte(withMeta(mcp.LatestRevision, ""))).member("_meta")},
		arrivals: make(chan arrival, maxArrivals),
		closing:  make(chan struct{}),
	}
	p.workers.Go(p.read)
	return p
}

// read takes what comes until nothing comes any more.
func (p *Peer) read() {
	for {
		frame, err := p.framer.ReadFrame()
		a := arrival{string(frame), err}
		select {
		case p.arrivals <- a:
		case <-p.closing:
			return
		}
		if a.isLast() {
			return
		}
	}
}

// Send sends a message.
func (p *Peer) Send(message string) {
	p.t.Helper()
	text, err := p.vars.expand(message)
	if err != nil {
		p.fatalf("Send: %v\nmessage: %s\n(SendRaw sends what is not JSON)", err, clip(message, maxShownBytes))
	}
	p.write("Send", text)
}

// SendRaw sends a frame as it is, JSON or not, without looking for variables. If the transport frames by lines, the text must not have any line breaks.
func (p *Peer) SendRaw(frame string) {
	p.t.Helper()
	p.write("SendRaw", frame)
}

func (p *Peer) write(op, frame string) {
	p.t.Helper()
	p.transcript.add('>', frame)
	written := make(chan error, 1)
	p.workers.Go(func() { written <- p.framer.WriteFrame([]byte(frame)) })
	timer := time.NewTimer(p.Timeout)
	defer timer.Stop()
	select {
	case err := <-written:
		if err != nil {
			p.fatalf("%s: %v", op, err)
		}
	case <-timer.C:
		p.fatalf("%s: the other side does not read: it has not taken the message within %v", op, p.Timeout)
	}
}

// CloseWrite ends the peer's output and goes on reading: a server answers what it has accepted, and hangs up. The transport must be able to do that,
// as an [End] is.
func (p *Peer) CloseWrite() {
	p.t.Helper()
	w, ok := p.framer.(closeWriter)
	if !ok {
		p.fatalf("CloseWrite: a %T cannot end its output alone; Close ends both directions", p.framer)
	}
	p.transcript.add('!', "end of output")
	if err := w.CloseWrite(); err != nil {
		p.fatalf("CloseWrite: %v", err)
	}
}

type closeWriter interface{ CloseWrite() error }

// Close hangs up. Messages that come, or have come and were not looked at, are no failure then. It may be called more than once.
func (p *Peer) Close() {
	p.t.Helper()
	if p.closed {
		return
	}
	p.closed = true
	close(p.closing)
	if err := p.framer.Close(); err != nil && !p.t.Failed() {
		p.t.Logf("%sclose: %v", p.location, err)
	}
	if !waitTimeout(&p.workers, p.Timeout) {
		p.t.Errorf("%sthe transport, a %T, was closed but its ReadFrame or WriteFrame does not return", p.location, p.framer)
	}
}

// waitTimeout waits until a group is, for as long as d.
func waitTimeout(group *sync.WaitGroup, d time.Duration) bool {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// Set gives a variable, named without the dollar sign, a value, which is JSON text.
func (p *Peer) Set(name, json string) {
	p.t.Helper()
	v, err := parse(json)
	switch {
	case err != nil:
		p.fatalf("Set: the value of $%s is not JSON: %v\nvalue: %s", name, err, clip(json, maxShownBytes))
	case !variableText.MatchString("$"+name) || "$"+name == anything:
		p.fatalf("Set: %q cannot be the name of a variable", name)
	}
	p.vars[name] = v
}

// Value returns the value of a variable, named without the dollar sign, as JSON text. The test fails if it has none.
func (p *Peer) Value(name string) string {
	p.t.Helper()
	v, ok := p.vars[name]
	if !ok {
		p.fatalf("Value: $%s has no value; those that have one: %s", name, p.vars.names())
	}
	return v.String()
}

// next waits for what comes next, for as long as d. ok is false if nothing does. The end comes again and again.
func (p *Peer) next(d time.Duration) (a arrival, ok bool) {
	if p.closed {
		return arrival{err: errClosed}, true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case a = <-p.arrivals:
	case <-timer.C:
		select {
		case a = <-p.arrivals:
		default:
			return a, false
		}
	}
	p.logArrival(a)
	return a, true
}

// logArrival writes what came into the transcript, and keeps the end for the next one who asks.
func (p *Peer) logArrival(a arrival) {
	switch {
	case a.err == nil:
		p.transcript.add('<', a.text)
	case !a.isLast():
		p.transcript.add('!', endText(a.err))
	default:
		p.transcript.end(endText(a.err))
		p.arrivals <- a // there is room, as it was the last
	}
}

// fatalf fails the test and ends the goroutine.
func (p *Peer) fatalf(format string, args ...any) {
	p.t.Helper()
	text := p.failureText(format, args...)
	if p.script {
		p.t.Error(text)
		p.Close() // so that the other side does not wait for what will not come
		runtime.Goexit()
	}
	p.t.Fatal(text)
}

// Expect waits for the next message, which must match the pattern.
func (p *Peer) Expect(pattern string) {
	p.t.Helper()
	want := p.parsePattern("Expect", pattern)
	text := p.nextMessage("Expect", want.String())
	got := p.parseMessage("Expect", text)
	m := compare(want, got, p.vars)
	if len(m.diffs) > 0 {
		p.fatalf("Expect: another message came\n%swant: %s\ngot:  %s", m.diffText(), clip(want.String(), maxShownBytes), clip(text, maxShownBytes))
	}
	p.vars = m.vars
}

// ExpectUnordered waits for as many messages as there are patterns, and takes them in any order: each message is that of the first pattern that it
// matches and that has none yet.
func (p *Peer) ExpectUnordered(patterns ...string) {
	p.t.Helper()
	var left []value
	for _, pattern := range patterns {
		left = append(left, p.parsePattern("ExpectUnordered", pattern))
	}
	for len(left) > 0 {
		text := p.nextMessage("ExpectUnordered", patternTexts(left)...)
		got := p.parseMessage("ExpectUnordered", text)
		var closest *match
		for i, want := range left {
			m := compare(want, got, p.vars)
			if closest == nil || len(m.diffs) < len(closest.diffs) {
				closest = m
			}
			if len(m.diffs) == 0 {
				p.vars = m.vars
				left = slices.Delete(left, i, i+1)
				break
			}
		}
		if len(closest.diffs) > 0 {
			p.fatalf("ExpectUnordered: a message came that matches none of those left; the closest differs so:\n%sgot:  %s%s",
				closest.diffText(), clip(text, maxShownBytes), wantLines(patternTexts(left)))
		}
	}
}

// ExpectRaw waits for the next message, which must be the frame, byte for byte. There are no variables in it.
func (p *Peer) ExpectRaw(frame string) {
	p.t.Helper()
	if got := p.nextMessage("ExpectRaw", frame); got != frame {
		at := 0
		for at < len(got) && at < len(frame) && got[at] == frame[at] {
			at++
		}
		p.fatalf("ExpectRaw: the message that came differs from byte %d on\nwant: %s\ngot:  %s", at, clip(frame, maxShownBytes), clip(got, maxShownBytes))
	}
}

// Receive waits for the next message and returns it as it came.
func (p *Peer) Receive() string {
	p.t.Helper()
	return p.nextMessage("Receive")
}

// ExpectSilence sees that no message comes for as long as d. In a bubble of testing/synctest that takes no time and is certain. Elsewhere it really
// waits, and a message that comes later goes unnoticed: it is surer to send a request and to expect its answer as the next message.
func (p *Peer) ExpectSilence(d time.Duration) {
	p.t.Helper()
	switch a, ok := p.next(d); {
	case !ok:
	case a.err != nil:
		p.fatalf("ExpectSilence: %s", endText(a.err))
	default:
		p.fatalf("ExpectSilence: a message came\ngot:  %s", clip(a.text, maxShownBytes))
	}
}

// ExpectClose waits for the other side to hang up, before which no message may come.
func (p *Peer) ExpectClose() {
	p.t.Helper()
	switch a, ok := p.next(p.Timeout); {
	case !ok:
		p.fatalf("ExpectClose: the other side has not hung up within %v", p.Timeout)
	case a.err == nil:
		p.fatalf("ExpectClose: a message came\ngot:  %s", clip(a.text, maxShownBytes))
	case !errors.Is(a.err, io.EOF):
		p.fatalf("ExpectClose: %v", a.err)
	}
}

// endText says in words why no message came.
func endText(err error) string {
	if errors.Is(err, io.EOF) {
		return "the other side has hung up"
	}
	return err.Error()
}

// nextMessage returns the next message. patterns are those that are waited for.
func (p *Peer) nextMessage(op string, patterns ...string) string {
	p.t.Helper()
	a, ok := p.next(p.Timeout)
	switch {
	case !ok:
		p.fatalf("%s: nothing came within %v%s", op, p.Timeout, wantLines(patterns))
	case a.err != nil:
		p.fatalf("%s: %s%s", op, endText(a.err), wantLines(patterns))
	}
	return a.text
}

// wantLines lists patterns in a failure.
func wantLines(patterns []string) string {
	text := ""
	for _, pattern := range patterns {
		text += "\nwant: " + clip(pattern, maxShownBytes)
	}
	return text
}

func patternTexts(list []value) []string {
	var all []string
	for _, v := range list {
		all = append(all, v.String())
	}
	return all
}

func (p *Peer) parsePattern(op, text string) value {
	p.t.Helper()
	v, err := parse(text)
	if err != nil {
		p.fatalf("%s: the pattern is not JSON: %v\npattern: %s", op, err, clip(text, maxShownBytes))
	}
	return v
}

func (p *Peer) parseMessage(op, text string) value {
	p.t.Helper()
	v, err := parse(text)
	if err != nil {
		p.fatalf("%s: what came is not JSON: %v\ngot:  %s", op, err, clip(text, maxShownBytes))
	}
	return v
}

// closeAndCheck is the end of a peer: the other side may finish what it has accepted, and nothing may come that nobody expected.
func (p *Peer) closeAndCheck() {
	p.t.Helper()
	defer p.Close()
	w, ok := p.framer.(closeWriter)
	if p.closed || p.t.Failed() || !ok {
		return
	}
	if err := w.CloseWrite(); err != nil {
		p.t.Errorf("%send of output: %v", p.location, err)
		return
	}
	rest, err := p.readRest()
	if err != nil {
		p.t.Error(p.failureText("%v", err))
		return
	}
	if len(rest) > 0 {
		p.t.Error(p.failureText("messages came that were not expected, %d of them; the last: %s", len(rest), clip(rest[len(rest)-1], maxShownBytes)))
	}
}

// readRest returns all that comes until the other side hangs up.
func (p *Peer) readRest() (messages []string, err error) {
	for {
		switch a, ok := p.next(p.Timeout); {
		case !ok:
			return messages, fmt.Errorf("the other side has not hung up within %v of the end of its input", p.Timeout)
		case a.isLast():
			return messages, nil
		case a.err != nil:
			messages = append(messages, a.err.Error())
		default:
			messages = append(messages, a.text)
		}
	}
}

const (
	maxShownBytes      = 4000 // bytes of a message that is shown by itself
	maxLineBytes       = 1000 // bytes of one in a transcript
	maxTranscriptLines = 50   // lines of a transcript
)

// lateMessageWait is how long a failure waits for messages that are still on the way, so that it can show them.
const lateMessageWait = 50 * time.Millisecond

// A transcript is the session so far, as failures show it: "> " is what was sent, "< " what came, "! " what happened besides.
type transcript struct {
	lines   []string
	dropped int // earlier ones
	ended   bool
}

func (tr *transcript) add(mark byte, text string) {
	if len(tr.lines) == maxTranscriptLines {
		copy(tr.lines, tr.lines[1:])
		tr.lines = tr.lines[:maxTranscriptLines-1]
		tr.dropped++
	}
	tr.lines = append(tr.lines, string(mark)+" "+clip(text, maxLineBytes))
}

// end adds the line that tells of the end, once.
func (tr *transcript) end(text string) {
	if !tr.ended {
		tr.ended = true
		tr.add('!', text)
	}
}

func (tr *transcript) String() string {
	var b strings.Builder
	if tr.dropped > 0 {
		fmt.Fprintf(&b, "  (%d lines before)\n", tr.dropped)
	}
	for _, line := range tr.lines {
		b.WriteString("  " + line + "\n")
	}
	return b.String()
}

// failureText makes the text of a failure: what it is, and the session so far.
func (p *Peer) failureText(format string, args ...any) string {
	text := p.location + fmt.Sprintf(format, args...)
	for n := 0; n < maxTranscriptLines; n++ {
		if a, ok := p.next(lateMessageWait); !ok || a.isLast() {
			break
		}
	}
	if session := p.transcript.String(); session != "" {
		text += "\nthe session so far:\n" + session
	}
	if p.hint != "" {
		text = strings.TrimRight(text, "\n") + "\n" + p.hint
	}
	return strings.TrimRight(text, "\n")
}
