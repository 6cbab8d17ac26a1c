package mcptest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"

	"mcpwire/mcp"
)

// A session is one section of a golden file; [Golden] says what stands in it.
type session struct {
	file, name string
	first      int // the number of its first line in the file
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
	came []string // patterns of what came, for an update
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

func parseSession(file string, first int, section *txtar.File) (*session, error) {
	text := strings.TrimSuffix(string(section.Data), "\n")
	s := &session{file: file, name: section.Name, first: first, lines: strings.Split(text, "\n")}
	for i, line := range s.lines {
		if err := s.parseLine(i, line); err != nil {
			return nil, fmt.Errorf("%s%w", s.place(i), err)
		}
	}
	if len(s.steps) == 0 {
		return nil, fmt.Errorf("%sthe session sends nothing", s.place(0))
	}
	return s, nil
}

func (s *session) parseLine(i int, line string) error {
	word, rest, _ := strings.Cut(line, " ")
	sends := word == ">" || word == ">raw" || word == "@eof"
	switch {
	case sends && len(s.steps) > 0 && s.steps[len(s.steps)-1].kind == stepEOF:
		return fmt.Errorf("nothing can be sent behind @eof")
	case word == "" || word[0] == '#':
	case word == ">":
		s.steps = append(s.steps, step{kind: stepSend, text: rest, line: i})
	case word == ">raw":
		s.steps = append(s.steps, step{kind: stepRaw, text: rest, line: i})
	case word == "@eof":
		s.steps = append(s.steps, step{kind: stepEOF, line: i})
	case word == "<":
		if len(s.steps) == 0 {
			return fmt.Errorf("no message can be expected before the first that is sent")
		}
		last := &s.steps[len(s.steps)-1]
		last.want = append(last.want, expected{rest, i})
	case word == "@unordered":
		s.unordered = true
	case word == "@handshake":
		r, ok := mcp.ParseRevision(strings.TrimSpace(rest))
		if !ok || len(s.steps) > 0 {
			return fmt.Errorf("%q: a handshake comes first and names one of %v", line, mcp.Revisions())
		}
		s.handshake, s.handshakeLine = r, i
	default:
		return fmt.Errorf("%q begins with none of > >raw < @handshake @unordered @eof #", clip(line, maxLine))
	}
	return nil
}

// place names a line, by its index, in front of a message.
func (s *session) place(i int) string {
	return fmt.Sprintf("%s:%d: session %q: ", s.file, s.first+i, s.name)
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
func (st *step) check(p *Peer, s *session) {
	p.t.Helper()
	if s.unordered {
		var patterns []string
		for _, e := range st.want {
			patterns = append(patterns, e.pattern)
		}
		p.ExpectUnordered(patterns...)
		return
	}
	for _, e := range st.want {
		p.where = s.place(e.line)
		p.Expect(e.pattern)
	}
}
