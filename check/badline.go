package check

import (
	"errors"

	"mcpwire/capture"
	"mcpwire/internal/jsonwire"
)

// A badLine is a line of a stdio stream that is no JSON.
type badLine struct {
	n    uint64
	data []byte // clipped, and not the event's
}

// badLines are what is to be said of lines that are no JSON, now that it is known whether they were the pieces of one message.
type badLines struct {
	dir    capture.Dir
	stray  []badLine // that belong to nothing
	pieces []badLine // of one message with line breaks in it
}

// partials are the lines of each direction that may be pieces of a message with line breaks.
type partials struct {
	of map[capture.Dir]*partial
}

type partial struct {
	buf   []byte
	lines []badLine
}

const (
	maxPartial      = 1 << 20 // bytes
	maxPartialLines = 1000
)

// judgeBad is for an event with bytes that are no JSON.
func judgeBad(v *view) badLines {
	e := v.e
	if v.sess.carrier != carrierStdio || e.Part > 0 || len(trim(e.Data)) == 0 || notUTF8(e.Data) >= 0 && looksJSON(e.Data) {
		return badLines{dir: e.Dir}
	}
	p := partialOf(v.sess, e.Dir)
	if cutOff(e) {
		return badLines{dir: e.Dir, stray: p.take()}
	}
	line := badLine{e.N, append([]byte(nil), e.Data[:min(len(e.Data), 2*maxShown)]...)}
	if len(p.lines) > 0 {
		p.buf = append(append(p.buf, '\n'), e.Data...)
		p.lines = append(p.lines, line)
		switch more, whole := incomplete(p.buf); {
		case whole:
			return badLines{dir: e.Dir, pieces: p.take()}
		case more && len(p.buf) <= maxPartial && len(p.lines) < maxPartialLines:
			return badLines{dir: e.Dir}
		}
		return badLines{dir: e.Dir, stray: p.take()}
	}
	if more, _ := incomplete(e.Data); more && looksJSON(e.Data) && len(e.Data) <= maxPartial && len(e.Redacted) == 0 {
		p.buf, p.lines = append(p.buf[:0], e.Data...), append(p.lines[:0], line)
		return badLines{dir: e.Dir}
	}
	return badLines{dir: e.Dir, stray: []badLine{line}}
}

// cutOff reports whether an event is the beginning of a message in whose middle the stream has ended.
func cutOff(e *capture.Event) bool {
	more, _ := incomplete(e.Data)
	return e.Framing == capture.FramingNone && more && looksJSON(e.Data)
}

// flushBad gives up waiting for the rest of a message.
func flushBad(s *session, dir capture.Dir) badLines {
	return badLines{dir: dir, stray: partialOf(s, dir).take()}
}

func partialOf(s *session, dir capture.Dir) *partial {
	all := recall[partials](&s.state)
	if all.of == nil {
		all.of = map[capture.Dir]*partial{}
	}
	if all.of[dir] == nil {
		all.of[dir] = new(partial)
	}
	return all.of[dir]
}

func (p *partial) take() []badLine {
	lines := p.lines
	*p = partial{}
	return lines
}

// incomplete reports whether a text is the beginning of a JSON text, or a whole one.
func incomplete(text []byte) (more, whole bool) {
	err := jsonwire.Valid(text, 0)
	syntax, ok := errors.AsType[*jsonwire.SyntaxError](err)
	return ok && syntax.Offset >= len(text), err == nil
}
