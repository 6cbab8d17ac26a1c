package mcptest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// GoldenOptions are the options of [Golden]. The zero value is ready to use; a nil *GoldenOptions
// means the same.
type GoldenOptions struct {
	// Bubble runs each session in a bubble of testing/synctest. Its clock starts at
	// 2000-01-01T00:00:00Z and advances only when all goroutines are blocked, so times are
	// comparable and waiting takes no time. It requires servers without real I/O or leaked
	// goroutines.
	Bubble bool

	// Timeout bounds each wait. Zero means ten seconds.
	Timeout time.Duration
}

// Golden runs recorded sessions with a server and compares its messages. files is a pattern of
// package filepath, such as "testdata/*.txtar". Each file holds sessions in the txtar format. Each
// session is a subtest with its own server and connection:
//
//	The text before the first session is for the reader.
//
//	-- echo --
//	# A comment.
//	> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":"$modern","name":"echo"}}
//	< {"jsonrpc":"2.0","id":1,"result":{"content":[],"$any":"$any"}}
//	-- ping --
//	@handshake 2025-11-25
//	> {"jsonrpc":"2.0","id":1,"method":"ping"}
//	< {"jsonrpc":"2.0","id":1,"result":{}}
//
// A line begins with a word:
//
//	>           sends the message
//	>raw        sends the frame unchanged, even if it is not JSON
//	<           expects the message before the next one is sent
//	@handshake  first makes a handshake in the revision, ignoring the result
//	@unordered  allows the messages between two sent ones in any order
//	@eof        ends the input, as the end of the session does; expects what follows
//	#           is a comment
//
// Messages are patterns with variables, as for [Peer]. A message that no line expects fails the
// test.
//
// # Updating
//
// If the environment contains MCPTEST_UPDATE=1, or the test binary has a flag -update and it is
// set, Golden writes the received messages into the files instead of comparing them. Start with a
// session that only sends messages. An update keeps lines that match and, in other lines, the
// variables that still match. To assign messages to requests, Golden waits at most two seconds
// until a request is answered, and then until nothing has arrived for a tenth of a second. Review
// the differences before committing them.
//
// Golden does not declare the flag, because a test package that also declares it would not start.
// Declare it like this:
//
//	var _ = flag.Bool("update", false, "write what the server answers into testdata")
func Golden[S jsonrpc.Server](t *testing.T, files string, newServer func(t testing.TB) S, opts *GoldenOptions) {
	t.Helper()
	names, err := filepath.Glob(files)
	if err != nil || len(names) == 0 {
		t.Fatalf("no file matches %q in the folder of the test (%v)", files, err)
	}
	g := &goldenRunner{update: updateRequested(), newServer: func(t testing.TB) jsonrpc.Server { return newServer(t) }}
	if opts != nil {
		g.opts = *opts
	}
	if g.opts.Timeout <= 0 {
		g.opts.Timeout = defaultTimeout
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			t.Helper()
			g.runFile(t, name)
		})
	}
}

// updateRequested reports whether Golden updates the files.
func updateRequested() bool {
	if os.Getenv("MCPTEST_UPDATE") == "1" {
		return true
	}
	f := flag.Lookup("update")
	if f == nil {
		return false
	}
	v, ok := f.Value.(flag.Getter)
	return ok && v.Get() == true
}

type goldenRunner struct {
	opts      GoldenOptions
	update    bool
	newServer func(t testing.TB) jsonrpc.Server
}

// runFile runs the sessions of a file.
func (g *goldenRunner) runFile(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	archive := txtar.Parse(text)
	if len(archive.Files) == 0 {
		t.Fatalf("%s: no sessions: each begins with a line such as -- name --", name)
	}
	for i := range archive.Files {
		section := &archive.Files[i]
		gc, err := parseCase(name, sectionLine(archive, i), section)
		if err != nil {
			t.Fatal(err)
		}
		run := func(t *testing.T) {
			t.Helper()
			if g.runCase(t, gc); g.update && !t.Failed() {
				section.Data = gc.format()
			}
		}
		t.Run(section.Name, func(t *testing.T) {
			t.Helper()
			if g.opts.Bubble {
				synctest.Test(t, run)
				return
			}
			run(t)
		})
	}
	if written := txtar.Format(archive); g.update && string(written) != string(text) {
		if err := os.WriteFile(name, written, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// runCase runs one session. For an update it records the received messages in the steps.
func (g *goldenRunner) runCase(t testing.TB, gc *goldenCase) {
	t.Helper()
	p := NewPeer(t, Serve(t, g.newServer(t)))
	p.Timeout = g.opts.Timeout
	if !g.update {
		p.hint = "If this is intended, set MCPTEST_UPDATE=1 to write it to the file."
	}
	if gc.handshake != mcp.RevisionNone {
		p.location = gc.location(gc.handshakeLine)
		p.Send(Initialize(gc.handshake))
		p.Expect(Result(0, `"$any"`))
		p.Send(Initialized)
	}
	for i := range gc.steps {
		st := &gc.steps[i]
		p.location = gc.location(st.line)
		st.send(p)
		if g.update {
			gc.recordStep(p, st)
		} else {
			st.check(p, gc)
		}
	}
	if g.update {
		gc.recordEnd(p)
	}
	p.location = gc.location(0)
}

// A goldenCase is one session of a golden file. See [Golden] for the format.
type goldenCase struct {
	file, name string
	// firstLine is the number of its first line in the file.
	firstLine int
	lines     []string

	// handshake is RevisionNone without a handshake.
	handshake     mcp.Revision
	handshakeLine int
	unordered     bool
	steps         []step
}

// A step sends something and expects messages.
type step struct {
	// word is > or >raw or @eof.
	word string
	text string
	// line is an index in goldenCase.lines.
	line int
	want []expected
	// got holds the patterns for an update.
	got []string
}

// An expected message is a pattern and its line.
type expected struct {
	pattern string
	line    int
}

// sectionLine returns the line number in the file of a section's first line.
func sectionLine(archive *txtar.Archive, i int) int {
	before := &txtar.Archive{Comment: archive.Comment, Files: archive.Files[:i]}
	return bytes.Count(txtar.Format(before), []byte("\n")) + 2
}

func parseCase(file string, first int, section *txtar.File) (*goldenCase, error) {
	text := strings.TrimSuffix(string(section.Data), "\n")
	gc := &goldenCase{file: file, name: section.Name, firstLine: first, lines: strings.Split(text, "\n")}
	for i, line := range gc.lines {
		if err := gc.parseLine(i, line); err != nil {
			return nil, fmt.Errorf("%s%w", gc.location(i), err)
		}
	}
	if len(gc.steps) == 0 {
		return nil, fmt.Errorf("%sthe session sends nothing", gc.location(0))
	}
	return gc, nil
}

func (gc *goldenCase) parseLine(i int, line string) error {
	word, rest, _ := strings.Cut(line, " ")
	switch {
	case word == "" || word[0] == '#':
	case word == ">", word == ">raw", word == "@eof":
		if n := len(gc.steps); n > 0 && gc.steps[n-1].word == "@eof" {
			return fmt.Errorf("nothing can be sent after @eof")
		}
		gc.steps = append(gc.steps, step{word: word, text: rest, line: i})
	case word == "<":
		if len(gc.steps) == 0 {
			return fmt.Errorf("no message can be expected before the first that is sent")
		}
		last := &gc.steps[len(gc.steps)-1]
		last.want = append(last.want, expected{rest, i})
	case word == "@unordered":
		gc.unordered = true
	case word == "@handshake":
		r, ok := mcp.ParseRevision(strings.TrimSpace(rest))
		if !ok || len(gc.steps) > 0 {
			return fmt.Errorf("%q: the handshake must come first and name one of %v", line, mcp.Revisions())
		}
		gc.handshake, gc.handshakeLine = r, i
	default:
		return fmt.Errorf("%q begins with none of > >raw < @handshake @unordered @eof #", shorten(line, maxLineBytes))
	}
	return nil
}

// location returns the prefix of failures for the line with index i.
func (gc *goldenCase) location(i int) string {
	return fmt.Sprintf("%s:%d: session %q: ", gc.file, gc.firstLine+i, gc.name)
}

func (st *step) send(p *Peer) {
	p.t.Helper()
	switch st.word {
	case ">":
		p.Send(st.text)
	case ">raw":
		p.SendRaw(st.text)
	case "@eof":
		p.CloseWrite()
	}
}

// check expects the messages of a step.
func (st *step) check(p *Peer, gc *goldenCase) {
	p.t.Helper()
	if gc.unordered {
		var patterns []string
		for _, e := range st.want {
			patterns = append(patterns, e.pattern)
		}
		p.ExpectUnordered(patterns...)
		return
	}
	for _, e := range st.want {
		p.location = gc.location(e.line)
		p.Expect(e.pattern)
	}
}

// These limit how long an update waits: answerWait for the response to a request, quietWait for
// other messages.
const (
	answerWait = 2 * time.Second
	quietWait  = 100 * time.Millisecond
)

// recordStep records the messages of a step instead of comparing them.
func (gc *goldenCase) recordStep(p *Peer, st *step) {
	p.t.Helper()
	if st.word == "@eof" {
		gc.mergeStep(p, st, p.mustReadRest())
		return
	}
	text := st.text
	if st.word == ">" {
		text, _ = p.vars.expand(text) // the message was sent, so it has no error
	}
	gc.mergeStep(p, st, p.readReplies(text))
}

// recordEnd ends the input. It adds a step for further messages.
func (gc *goldenCase) recordEnd(p *Peer) {
	p.t.Helper()
	if gc.steps[len(gc.steps)-1].word == "@eof" {
		return
	}
	p.CloseWrite()
	if got := p.mustReadRest(); len(got) > 0 {
		gc.lines = append(gc.lines, "@eof")
		gc.steps = append(gc.steps, step{word: "@eof", line: len(gc.lines) - 1})
		gc.mergeStep(p, &gc.steps[len(gc.steps)-1], got)
	}
}

// mustReadRest returns the messages until the other side closes the connection. It fails the test
// if the other side doesn't.
func (p *Peer) mustReadRest() []string {
	p.t.Helper()
	got, err := p.readRest()
	if err != nil {
		p.fatalf("%v", err)
	}
	return got
}

// readReplies returns the messages after one was sent: the response, if it is a request, and those
// that follow within quietWait. It returns after the peer's Timeout in any case.
func (p *Peer) readReplies(sent string) []string {
	var request jsonrpc.Message
	waiting := jsonrpc.Parse([]byte(sent), &request, maxDepth) == nil && request.Kind == jsonrpc.KindRequest
	var got []string
	for end := time.Now().Add(p.Timeout); time.Now().Before(end); {
		wait := quietWait
		if waiting {
			wait = answerWait
		}
		a, ok := p.next(wait)
		if !ok || a.err != nil {
			break
		}
		got = append(got, a.text)
		var m jsonrpc.Message
		if jsonrpc.Parse([]byte(a.text), &m, maxDepth) == nil && m.Kind >= jsonrpc.KindResponse && m.ID.Equal(request.ID) {
			waiting = false
		}
	}
	return got
}

// mergeStep merges the messages of a step with the expected patterns.
func (gc *goldenCase) mergeStep(p *Peer, st *step, replies []string) {
	p.t.Helper()
	if gc.unordered {
		replies = st.orderByPattern(p, replies)
	}
	for i, text := range replies {
		got := p.parseMessage("update", text)
		m := &match{vars: p.vars}
		if i >= len(st.want) {
			st.got = append(st.got, string(m.merge(nil, nil, got)))
			continue
		}
		pattern := st.want[i].pattern
		want := p.parsePattern("update", pattern)
		if fits := compare(want, got, p.vars); len(fits.diffs) == 0 {
			p.vars = fits.vars
		} else {
			pattern = string(m.merge(nil, &want, got))
		}
		st.got = append(st.got, pattern)
	}
}

// orderByPattern sorts messages by the patterns that they match. Those without a match fill the
// gaps and the end.
func (st *step) orderByPattern(p *Peer, got []string) []string {
	p.t.Helper()
	rest := slices.Clone(got)
	places := make([]string, len(st.want))
	for i, e := range st.want {
		want := p.parsePattern("update", e.pattern)
		j := slices.IndexFunc(rest, func(text string) bool {
			return len(compare(want, p.parseMessage("update", text), p.vars).diffs) == 0
		})
		if j >= 0 {
			places[i] = rest[j]
			rest = slices.Delete(rest, j, j+1)
		}
	}
	for i, text := range places {
		if text == "" && len(rest) > 0 {
			places[i], rest = rest[0], rest[1:]
		}
	}
	places = slices.DeleteFunc(places, func(text string) bool { return text == "" })
	return append(places, rest...)
}

// format returns the session with the recorded messages instead of the expected ones. Comments stay
// in place.
func (gc *goldenCase) format() []byte {
	replaced := map[int]string{} // expected messages by line; "" removes one
	added := map[int][]string{}
	for _, st := range gc.steps {
		at := st.line
		for i, e := range st.want {
			if replaced[e.line] = ""; i < len(st.got) {
				replaced[e.line], at = "< "+st.got[i], e.line
			}
		}
		for _, text := range st.got[min(len(st.want), len(st.got)):] {
			added[at] = append(added[at], "< "+text)
		}
	}
	var lines []string
	for i, line := range gc.lines {
		switch text, expected := replaced[i]; {
		case !expected:
			lines = append(lines, line)
		case text != "":
			lines = append(lines, text)
		}
		lines = append(lines, added[i]...)
	}
	return []byte(strings.Join(lines, "\n") + "\n")
}
