package replay

import (
	"context"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/internal/json/jsonpointer"
)

// Conn is the connection that a recording is replayed over.
type Conn = conn

// Play is Run over an existing connection.
func Play(ctx context.Context, rec *Recording, over capture.Transport, c Conn, opts *Options) (*Summary, error) {
	all := opts.withDefaults()
	o := &resend.Origin{Transport: over, Modern: rec.Modern, Revision: rec.Revision, StandingStream: rec.standingStream, Params: rec.paramsOf()}
	return play(ctx, rec, o, c, &all)
}

// Compare compares two messages.
func Compare(recorded, live string, recordedAt, liveAt time.Time, hidden []string, opts *Options) []Difference {
	all := opts.withDefaults()
	return newComparer(new(Recording), &all).compare(side{[]byte(recorded), recordedAt, hidden}, side{raw: []byte(live), at: liveAt})
}

// Edit replaces the value at a pointer; an empty value removes it.
func Edit(text, pointer, by string) string {
	return string(edit([]byte(text), jsonpointer.Split(pointer), func([]byte) []byte {
		if by == "" {
			return nil
		}
		return []byte(by)
	}))
}
