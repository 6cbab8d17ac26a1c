package mcptest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"

	"mcpwire/mcp"
)

// A session is one section of a golden file; [Golden] says what stands in it.
type goldenCase struct {
	file, name string
	firstLine  int // the number of its first line in the file
	lines      []string

	handshake     mcp.Revision // RevisionNone without one
	handshakeLine int
	unordered     bool
	steps         []step
}

// A step is something that is sent, and what comes then.
type step struct {
	kind stepKind
	text string
	line int // index in session.lines
	want []expected
	got  []string // patterns of what came, for an update
}

type stepKind uint8

const (
	stepSend stepKind = iota
	stepRaw
	stepEOF
)

// An expected message is a pattern and the line where it stands.
type expected struct {
	pattern string
	line    int
}

// sectionLine returns the number of the line with which the data of a section begins in its file.
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
	sends := word == ">" || word == ">raw" || word == "@eof"
	switch {
	case sends && len(gc.steps) > 0 && gc.steps[len(gc.steps)-1].kind == stepEOF:
		return fmt.Errorf("nothing can be sent behind @eof")
	case word == "" || word[0] == '#':
	case word == ">":
		gc.steps = append(gc.steps, step{kind: stepSend, text: rest, line: i})
	case word == ">raw":
		gc.steps = append(gc.steps, step{kind: stepRaw, text: rest, line: i})
	case word == "@eof":
		gc.steps = append(gc.steps, step{kind: stepEOF, line: i})
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
			return fmt.Errorf("%q: a handshake comes first and names one of %v", line, mcp.Revisions())
		}
		gc.handshake, gc.handshakeLine = r, i
	default:
		return fmt.Errorf("%q begins with none of > >raw < @handshake @unordered @eof #", clip(line, maxLineBytes))
	}
	return nil
}

// location names a line, by its index, in front of a message.
func (gc *goldenCase) location(i int) string {
	return fmt.Sprintf("%s:%d: session %q: ", gc.file, gc.firstLine+i, gc.name)
}

func (st *step) send(p *Peer) {
	p.t.Helper()
	switch st.kind {
	case stepSend:
		p.Send(st.text)
	case stepRaw:
		p.SendRaw(st.text)
	case stepEOF:
		p.CloseWrite()
	}
}

// check sees that what comes after a step is what should.
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
