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

	"mcpwire/internal/base/wait"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Peer is one end of a connection that a test controls message by message. [NewPeer] returns one
// that acts as the client of a server under test. [Script] runs one that acts as the server of a
// client under test.
//
// Messages are JSON text; white space does not matter. A string "$name" in place of a value is a
// variable. Its name consists of letters, digits and underscores:
//
//   - In an expected message, a variable without a value matches any value and is set to it. A
//     variable with a value matches that value.
//   - In a sent message, a variable is replaced with its value.
//   - "$any" matches any value and is never set. A member "$any":"$any" matches all other members
//     of the object.
//   - "$modern" is the _meta of a modern request: the latest revision, and no capabilities.
//   - "$$name" is the string "$name".
//
// Everything else is compared as JSON. The order of members and the notation of strings and numbers
// do not matter. Missing and additional members do.
//
// No wait is longer than Timeout. A failure ends the test like t.Fatal and shows the differences
// and the session so far. At the end of the test the peer closes its output and lets the other side
// finish. It fails the test for each unexpected message.
//
// A Peer must be used by one goroutine, that of the test or of the script. It works in a bubble of
// testing/synctest, where a missing message is noticed at once.
type Peer struct {
	// Timeout bounds each wait: for a message, for a message to be read, and for the other side to
	// close the connection. It is initially ten seconds.
	Timeout time.Duration

	t      testing.TB
	framer jsonrpc.Framer
	// script is set if the peer runs on its own goroutine.
	script bool
	// location is the prefix of failures. It may be empty.
	location string
	// hint is appended to failures.
	hint       string
	vars       variables
	transcript transcript

	arrivals chan arrival
	closing  chan struct{}
	closed   bool
	workers  sync.WaitGroup
}

// defaultTimeout is the initial Timeout of a [Peer].
const defaultTimeout = 10 * time.Second

// maxArrivals limits the messages that wait to be processed. Further ones block the other side.
const maxArrivals = 64

// An arrival is a received message or a read error.
type arrival struct {
	text string
	err  error
}

var errClosed = errors.New("the peer itself has closed the connection")

// isLast reports whether nothing can follow. An invalid frame is not the end.
func (a arrival) isLast() bool {
	_, bad := errors.AsType[*jsonrpc.FrameError](a.err)
	return a.err != nil && !bad
}

// NewPeer returns a peer that uses f, which may be an end of a [Pipe] or any other transport, for
// example a jsonrpc.NewFramer over the process that stdio.Command starts. It closes f at the end of
// the test.
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
		Timeout:  defaultTimeout,
		t:        t,
		framer:   f,
		vars:     variables{"modern": *parseValid([]byte(withMeta(mcp.LatestRevision, ""))).member("_meta")},
		arrivals: make(chan arrival, maxArrivals),
		closing:  make(chan struct{}),
	}
	p.workers.Go(p.read)
	return p
}

// read receives messages until the end of input.
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
		p.fatalf("Send: %v\nmessage: %s\n(SendRaw sends what is not JSON)", err, shorten(message, maxShownBytes))
	}
	p.write("Send", text)
}

// SendRaw sends a frame unchanged, JSON or not, without replacing variables. If the transport uses
// one line per frame, the text must not contain line breaks.
func (p *Peer) SendRaw(frame string) {
	p.t.Helper()
	p.write("SendRaw", frame)
}

func (p *Peer) write(op, frame string) {
	p.t.Helper()
	p.transcript.add('>', frame)
	written := make(chan error, 1)
	p.workers.Go(func() { written <- p.framer.WriteFrame([]byte(frame)) })
	select {
	case err := <-written:
		if err != nil {
			p.fatalf("%s: %v", op, err)
		}
	case <-time.After(p.Timeout):
		p.fatalf("%s: the other side does not read: it has not read the message within %v", op, p.Timeout)
	}
}

// CloseWrite closes the peer's output and continues reading. A server then answers the accepted
// requests and closes the connection. The transport must be able to do that, as an end of a [Pipe]
// is.
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

// Close closes the connection. Unread messages are not a failure then. It may be called more than
// once.
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
	if !wait.Timeout(p.Timeout, p.workers.Wait) {
		p.t.Errorf("%sthe transport, a %T, was closed but its ReadFrame or WriteFrame does not return", p.location, p.framer)
	}
}

// Set sets a variable, named without the dollar sign, to a JSON text.
func (p *Peer) Set(name, json string) {
	p.t.Helper()
	v, err := parse(json)
	switch {
	case err != nil:
		p.fatalf("Set: the value of $%s is not JSON: %v\nvalue: %s", name, err, shorten(json, maxShownBytes))
	case !variableText.MatchString("$"+name) || "$"+name == anything:
		p.fatalf("Set: %q cannot be the name of a variable", name)
	}
	p.vars[name] = v
}

// Value returns the JSON text of a variable, named without the dollar sign. It fails the test if
// the variable is not set.
func (p *Peer) Value(name string) string {
	p.t.Helper()
	v, ok := p.vars[name]
	if !ok {
		p.fatalf("Value: $%s has no value; those that have one: %s", name, p.vars.names())
	}
	return v.String()
}

// next waits for the next arrival, at most for d. ok is false if there was nothing. The last
// arrival is returned again and again.
func (p *Peer) next(d time.Duration) (a arrival, ok bool) {
	if p.closed {
		return arrival{err: errClosed}, true
	}
	select {
	case a = <-p.arrivals:
	case <-time.After(d):
		select {
		case a = <-p.arrivals:
		default:
			return a, false
		}
	}
	p.logArrival(a)
	return a, true
}

// logArrival adds an arrival to the transcript. It requeues the last one for the next call.
func (p *Peer) logArrival(a arrival) {
	switch {
	case a.err == nil:
		p.transcript.add('<', a.text)
	case !a.isLast():
		p.transcript.add('!', endText(a.err))
	default:
		p.transcript.end(endText(a.err))
		p.arrivals <- a // does not block: nothing follows the last arrival
	}
}

// fatalf fails the test and exits the goroutine.
func (p *Peer) fatalf(format string, args ...any) {
	p.t.Helper()
	text := p.failureText(format, args...)
	if p.script {
		p.t.Error(text)
		p.Close() // or the other side would wait for messages
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
		p.fatalf("Expect: got another message\n%swant: %s\ngot:  %s", m.diffText(), shorten(want.String(), maxShownBytes), shorten(text, maxShownBytes))
	}
	p.vars = m.vars
}

// ExpectUnordered waits for as many messages as there are patterns, in any order. Each message uses
// up the first remaining pattern that it matches.
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
			p.fatalf("ExpectUnordered: got a message that matches none of the remaining patterns; difference to the closest:\n%sgot:  %s%s",
				closest.diffText(), shorten(text, maxShownBytes), wantLines(patternTexts(left)))
		}
	}
}

// ExpectRaw waits for the next message, which must equal frame byte for byte. It does not use
// variables.
func (p *Peer) ExpectRaw(frame string) {
	p.t.Helper()
	if got := p.nextMessage("ExpectRaw", frame); got != frame {
		at := 0
		for at < len(got) && at < len(frame) && got[at] == frame[at] {
			at++
		}
		p.fatalf("ExpectRaw: the message differs from byte %d on\nwant: %s\ngot:  %s", at, shorten(frame, maxShownBytes), shorten(got, maxShownBytes))
	}
}

// Receive waits for the next message and returns it unchanged.
func (p *Peer) Receive() string {
	p.t.Helper()
	return p.nextMessage("Receive")
}

// ExpectSilence checks that no message arrives for d. In a bubble of testing/synctest this takes no
// time and is reliable. Elsewhere it really waits and misses later messages: prefer to send a
// request and expect its response as the next message.
func (p *Peer) ExpectSilence(d time.Duration) {
	p.t.Helper()
	switch a, ok := p.next(d); {
	case !ok:
	case a.err != nil:
		p.fatalf("ExpectSilence: %s", endText(a.err))
	default:
		p.fatalf("ExpectSilence: got a message\ngot:  %s", shorten(a.text, maxShownBytes))
	}
}

// ExpectClose waits for the other side to close the connection. No message may arrive before.
func (p *Peer) ExpectClose() {
	p.t.Helper()
	switch a, ok := p.next(p.Timeout); {
	case !ok:
		p.fatalf("ExpectClose: the other side has not closed the connection within %v", p.Timeout)
	case a.err == nil:
		p.fatalf("ExpectClose: got a message\ngot:  %s", shorten(a.text, maxShownBytes))
	case !errors.Is(a.err, io.EOF):
		p.fatalf("ExpectClose: %v", a.err)
	}
}

// endText describes why no message arrived.
func endText(err error) string {
	if errors.Is(err, io.EOF) {
		return "the other side has closed the connection"
	}
	return err.Error()
}

// nextMessage returns the next message. patterns are the expected ones, for a failure.
func (p *Peer) nextMessage(op string, patterns ...string) string {
	p.t.Helper()
	a, ok := p.next(p.Timeout)
	switch {
	case !ok:
		p.fatalf("%s: no message within %v%s", op, p.Timeout, wantLines(patterns))
	case a.err != nil:
		p.fatalf("%s: %s%s", op, endText(a.err), wantLines(patterns))
	}
	return a.text
}

// wantLines lists patterns for a failure.
func wantLines(patterns []string) string {
	text := ""
	for _, pattern := range patterns {
		text += "\nwant: " + shorten(pattern, maxShownBytes)
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
		p.fatalf("%s: the pattern is not JSON: %v\npattern: %s", op, err, shorten(text, maxShownBytes))
	}
	return v
}

func (p *Peer) parseMessage(op, text string) value {
	p.t.Helper()
	v, err := parse(text)
	if err != nil {
		p.fatalf("%s: the message is not JSON: %v\ngot:  %s", op, err, shorten(text, maxShownBytes))
	}
	return v
}

// closeAndCheck ends a peer. It lets the other side finish the accepted requests, and fails the
// test if unexpected messages arrive.
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
		p.t.Error(p.failureText("%d unexpected messages; the last: %s", len(rest), shorten(rest[len(rest)-1], maxShownBytes)))
	}
}

// readRest returns the messages until the other side closes the connection.
func (p *Peer) readRest() (messages []string, err error) {
	for {
		switch a, ok := p.next(p.Timeout); {
		case !ok:
			return messages, fmt.Errorf("the other side has not closed the connection within %v of the end of its input", p.Timeout)
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
	maxShownBytes      = 4000 // of a message in a failure
	maxLineBytes       = 1000 // of a message in a transcript
	maxTranscriptLines = 50
)

// lateMessageWait is how long a failure waits for late messages, to show them.
const lateMessageWait = 50 * time.Millisecond

// A transcript is the session so far, for failures. Its lines begin with "> " for a sent message,
// "< " for a received message, and "! " for other events.
type transcript struct {
	lines []string
	// dropped counts the earlier lines that were removed.
	dropped int
	ended   bool
}

func (tr *transcript) add(mark byte, text string) {
	if len(tr.lines) == maxTranscriptLines {
		tr.lines = slices.Delete(tr.lines, 0, 1)
		tr.dropped++
	}
	tr.lines = append(tr.lines, string(mark)+" "+shorten(text, maxLineBytes))
}

// end adds a line for the end of the session, once.
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

// failureText returns the text of a failure with the session so far.
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
