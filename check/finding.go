package check

import (
	"fmt"
	"strconv"
	"unicode/utf8"

	"mcpwire/capture"
	"mcpwire/internal/printable"
	"mcpwire/mcp"
)

// A Finding is a place where a rule was broken. What peers wrote is in it clipped, quoted and without control characters.
type Finding struct {
	Rule     *Rule        // shared, must not be changed; its URL is of the revision of the finding
	Capture  string       // the id in the capture's head
	Event    uint64       // number of the event in the capture
	Dir      capture.Dir  // which way what is wrong went
	Session  uint64       // as in the capture
	Exchange uint64       // as in the capture
	ID       string       // of the message: JSON text, clipped; "" if it has none
	Method   string       // of the message, or of the request that it answers; clipped
	Revision mcp.Revision // that the message was held against; RevisionNone if that is not known
	Pointer  string       // JSON pointer into the message, "" for all of it or none
	Message  string       // what was seen, and what is due
	Related  []uint64     // numbers of other events that have to do with it
	// SDK is the library whose code breaks the rule, in all servers built with it. "" is the server's
	// own code, or not known.
	SDK string
}

const (
	maxShown   = 80  // bytes of a peer's text in a finding
	maxText    = 500 // bytes of the message of a finding
	maxRelated = 8
)

// show returns text of a peer for people: quoted, clipped, nothing in it that a terminal acts on.
func show[T ~string | ~[]byte](text T) string {
	s := string(text[:min(len(text), maxShown+utf8.UTFMax)])
	cut := len(text) > maxShown
	if cut {
		s = clipBytes(s, maxShown)
	}
	s = strconv.QuoteToGraphic(s)
	if cut {
		s += fmt.Sprintf("… (%d bytes)", len(text))
	}
	return printable.Line(s)
}

// showJSON returns JSON text of a peer for people. It is not quoted again.
func showJSON(text []byte) string {
	s := string(text)
	if len(s) > maxShown {
		s = clipBytes(s, maxShown) + "…"
	}
	return printable.Line(s)
}

// clipBytes returns at most n bytes of s, and no half character at the end.
func clipBytes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
