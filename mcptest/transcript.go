package mcptest

import (
	"fmt"
	"strings"
	"time"
)

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
