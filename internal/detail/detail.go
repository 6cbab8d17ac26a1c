package detail

import (
	"context"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/wireview"
)

// A Source returns events with their payloads, as watch.Hub does.
type Source interface {
	Event(ctx context.Context, captureID string, n uint64) (*capture.Event, error)
}

// Options are the options of [Build]. nil means defaults.
type Options struct {
	// MaxShown is how many bytes of a payload are shown; 0 is 256 KiB.
	MaxShown int
	// Hex puts hexadecimal digits into Detail.RawEvent.
	Hex bool
	// URL is that of the server, if the caller knows it better than the capture does: for [CallCommand] and [CurlCommand].
	URL string
}

// A Detail is all that there is to show about a row, a section for each tab. Sections that do not apply are nil.
type Detail struct {
	Seq     uint64     `json:"seq"`
	Capture string     `json:"capture"`
	N       uint64     `json:"n"`
	Kind    trace.Kind `json:"kind"`
	Glyph   string     `json:"glyph"`
	Title   string     `json:"title"` // the method or kind, and what it is about, on one line

	Summary         Summary           `json:"summary"`
	Request         *Payload          `json:"request,omitempty"`  // of rows that are no request, what the row consists of
	Response        *Payload          `json:"response,omitempty"` // of the first round, if there are several
	Last            *Payload          `json:"last,omitempty"`     // the response of the last round, or the last answer about the task that the request became
	Rounds          []Round           `json:"rounds,omitempty"`
	Children        []Child           `json:"inside,omitempty"`
	OmittedChildren int               `json:"gone,omitempty"` // more that were inside, and have made room
	Raw             []RawEvent        `json:"raw,omitempty"`
	HTTP            *HTTP             `json:"http,omitempty"`
	SSE             *SSE              `json:"sse,omitempty"`
	Timing          Timing            `json:"timing"`
	Findings        []Finding         `json:"lint,omitempty"`
	Translations    []Translation     `json:"translated,omitempty"`
	Counterparts    []Counterpart     `json:"others,omitempty"` // on a bridge's other side, what it was made of or became
	Session         trace.SessionInfo `json:"session"`
	Redacted        int               `json:"redacted,omitempty"` // places at which something was hidden in the events of the row
	Missing         []Missing         `json:"missing,omitempty"`  // events that cannot be read again

	events            []EventLine
	snapshot          *Snapshot
	url               string         // of the server
	start             *capture.Start // of the session's process
	requestHead       *capture.Request
	request           []byte // the whole message, or nil if it is too long for a command
	body              []byte // the whole body of the HTTP request, likewise
	method            string // of the message
	redactedInRequest int    // places that are hidden in the request, as the capture says
	noCommand         string // why there is no command, if there is none
}

// A Missing is an event that cannot be read again.
type Missing struct {
	N   uint64 `json:"n"`
	Why string `json:"why"`
}

// A Summary says in plain words what happened.
type Summary struct {
	Sentences []string `json:"words"` // sentences
	Facts     []Fact   `json:"facts"`
}

// A Fact is a name and a value, to stand in a table.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Event is the number of the event that says so, if it is one that can be gone to.
	Event uint64 `json:"event,omitempty"`
}

// A Timing says how long what took. Milliseconds count from when the row began.
type Timing struct {
	At       time.Time `json:"at"`
	WallMS   float64   `json:"wallMs"` // so far, if Open
	ServerMS float64   `json:"serverMs"`
	ClientMS float64   `json:"clientMs"` // that the server waited for the client
	Open     bool      `json:"open,omitempty"`
	Segments []Segment `json:"segments,omitempty"` // in the order in which they begin
	Marks    []Mark    `json:"marks,omitempty"`    // what happened meanwhile, the newest ones
}

// A Segment is a part of the waterfall.
type Segment struct {
	Kind   trace.SegmentKind `json:"kind"`
	Label  string            `json:"label"`
	FromMS float64           `json:"fromMs"`
	ToMS   float64           `json:"toMs"`
	Open   bool              `json:"open,omitempty"` // it goes on
}

// A Mark is a moment.
type Mark struct {
	MS    float64 `json:"ms"`
	N     uint64  `json:"n"`
	Label string  `json:"label"`
}

// A Lint is a finding, with what its rule says.
type Finding struct {
	Rule     string `json:"rule"`
	Severity string `json:"severity"`
	Title    string `json:"title,omitempty"` // what is wrong, in general
	Message  string `json:"message"`         // what was seen
	Why      string `json:"why,omitempty"`   // it matters
	Fix      string `json:"fix,omitempty"`   // how to mend it
	Pointer  string `json:"pointer,omitempty"`
	URL      string `json:"url,omitempty"`
	Event    uint64 `json:"event"`
}
