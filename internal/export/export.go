package export

import (
	"errors"
	"iter"

	"mcpwire/capture"
)

// Events are those of one capture, or of several that were merged.
type Events = iter.Seq2[*capture.Event, error]

// Options are the options of exports. nil means defaults.
type Options struct {
	// Tool is who exports, such as "mcpwire"; Version is its version.
	Tool, Version string
	// MaxBody is how much of the body of an HTTP message, or of an event stream, is held and exported, in bytes; 0 is DefaultMaxBody.
	MaxBody int
}

// DefaultMaxBody is the limit on bodies of an export that is not told another.
const DefaultMaxBody = 16 << 20

// maxOpenRoundTrips is how many HTTP exchanges are held that have not ended. The oldest is exported as it is when there are more.
const maxOpenRoundTrips = 4096

// maxBufferedBytes is how many bytes of them are held, about. The oldest is exported as it is when there are more.
const maxBufferedBytes = 256 << 20

// maxStreamEvents is how many events of one stream are held and exported.
const maxStreamEvents = 1 << 18

// ErrNoHTTP is the error of an export that is about HTTP, of a capture that has none.
var ErrNoHTTP = errors.New("there is no HTTP in the capture")

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	if d.MaxBody <= 0 {
		d.MaxBody = DefaultMaxBody
	}
	if d.Tool == "" {
		d.Tool = "mcpwire"
	}
	return d
}

// Omitted is what was left out, because the format has no place for it.
type Omitted struct {
	Events uint64 // of kinds that the format does not know
	Cut    uint64 // bodies of which only the beginning is there
}
