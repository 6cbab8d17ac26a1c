package check

import (
	"errors"

	"mcpwire/capture"
	"mcpwire/internal/jsonwire"
)

// A invalidLine is a line of a stdio stream that is no JSON.
type invalidLine struct {
	n    uint64
	data []byte // clipped, and not the event's
}

// invalidLines are what is to be said of lines that are no JSON, now that it is known whether they were the pieces of one message.
type invalidLines struct {
	dir       capture.Dir
	stray     []invalidLine // that belong to nothing
	fragments []invalidLine // of one message with line breaks in it
}

// partials are the lines of each direction that may be pieces of a message with line breaks.
type partials struct {
	of map[capture.Dir]*partial
}

type partial struct {
	buf   []byte
	lines []invalidLine
}

const (
	maxPartial      = 1 << 20 // bytes
	maxPartialLines = 1000
)

// classifyInvalid is for an event with bytes that are no JSON.
func classifyInvalid(v *view) invalidLines {
	e := v.e
	if v.session.transport != transportStdio || e.Part > 0 || len(trim(e.Data)) == 0 || notUTF8(e.Data) >= 0 && looksJSON(e.Data) {
		return invalidLines{dir: e.Dir}
	}
	p := partialOf(v.session, e.Dir)
	if cutOff(e) {
		return invalidLines{dir: e.Dir, stray: p.flush()}
	}
	line := invalidLine{e.N, append([]byte(nil), e.Data[:min(len(e.Data), 2*maxShown)]...)}
	if len(p.lines) > 0 {
		p.buf = append(append(p.buf, '\n'), e.Data...)
		p.lines = append(p.lines, line)
		switch more, whole := incomplete(p.buf); {
		case whole:
			return invalidLines{dir: e.Dir, fragments: p.flush()}
		case more && len(p.buf) <= maxPartial && len(p.lines) < maxPartialLines:
			return invalidLines{dir: e.Dir}
		}
		return invalidLines{dir: e.Dir, stray: p.flush()}
	}
	if more, _ := incomplete(e.Data); more && looksJSON(e.Data) && len(e.Data) <= maxPartial && len(e.Redacted) == 0 {
		p.buf, p.lines = append(p.buf[:0], e.Data...), append(p.lines[:0], line)
		return invalidLines{dir: e.Dir}
	}
	return invalidLines{dir: e.Dir, stray: []invalidLine{line}}
}

// cutOff reports whether an event is the beginning of a message in whose middle the stream has ended.
func cutOff(e *capture.Event) bool {
	more, _ := incomplete(e.Data)
	return e.Framing == capture.FramingNone && more && looksJSON(e.Data)
}

// flushInvalid gives up waiting for the rest of a message.
func flushInvalid(s *session, dir capture.Dir) invalidLines {
	return invalidLines{dir: dir, stray: partialOf(s, dir).flush()}
}

func partialOf(s *session, dir capture.Dir) *partial {
	all := stateOf[partials](&s.state)
	if all.of == nil {
		all.of = map[capture.Dir]*partial{}
	}
	if all.of[dir] == nil {
		all.of[dir] = new(partial)
	}
	return all.of[dir]
}

func (p *partial) flush() []invalidLine {
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
