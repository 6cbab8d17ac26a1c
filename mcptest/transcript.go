package mcptest

import (
	"fmt"
	"strings"
	"time"
)

const (
	maxShown   = 4000 // bytes of a message that is shown by itself
	maxLine    = 1000 // bytes of one in a transcript
	maxHistory = 50   // lines of a transcript
)

// afterglow is how long a failure waits for messages that are still on the way, so that it can show them.
const afterglow = 50 * time.Millisecond

// A transcript is the session so far, as failures show it: "> " is what was sent, "< " what came, "! " what happened besides.
type transcript struct {
	lines   []string
	dropped int // earlier ones
	ended   bool
}

func (l *transcript) add(sign byte, text string) {
	if len(l.lines) == maxHistory {
		copy(l.lines, l.lines[1:])
		l.lines = l.lines[:maxHistory-1]
		l.dropped++
	}
	l.lines = append(l.lines, string(sign)+" "+clip(text, maxLine))
}

// end adds the line that tells of the end, once.
func (l *transcript) end(text string) {
	if !l.ended {
		l.ended = true
		l.add('!', text)
	}
}

func (l *transcript) String() string {
	var b strings.Builder
	if l.dropped > 0 {
		fmt.Fprintf(&b, "  (%d lines before)\n", l.dropped)
	}
	for _, line := range l.lines {
		b.WriteString("  " + line + "\n")
	}
	return b.String()
}

// report makes the text of a failure: what it is, and the session so far.
func (p *Peer) report(format string, args ...any) string {
	text := p.where + fmt.Sprintf(format, args...)
	for n := 0; n < maxHistory; n++ {
		if a, ok := p.next(afterglow); !ok || a.last() {
			break
		}
	}
	if session := p.log.String(); session != "" {
		text += "\nthe session so far:\n" + session
	}
	if p.hint != "" {
		text = strings.TrimRight(text, "\n") + "\n" + p.hint
	}
	return strings.TrimRight(text, "\n")
}
