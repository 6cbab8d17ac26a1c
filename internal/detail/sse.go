package detail

import (
	"context"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/printable"
)

// An SSE is what came in an event stream.
type SSE struct {
	Events        []SSEEvent `json:"events"`         // the newest ones
	OmittedEvents int        `json:"gone,omitempty"` // more that came before
	Open          bool       `json:"open,omitempty"`
}

// An SSEEvent is an event of a stream.
type SSEEvent struct {
	N       uint64      `json:"n"`
	Dir     capture.Dir `json:"dir,omitempty"`
	AtMS    float64     `json:"atMs"` // since the row began
	Event   string      `json:"event,omitempty"`
	ID      *string     `json:"id,omitempty"`
	RetryMS *int64      `json:"retryMs,omitempty"`
	Comment *string     `json:"comment,omitempty"`
	Data    []Span      `json:"data,omitempty"` // the beginning, on one line
	Len     int64       `json:"len"`            // bytes of the data
}

const (
	maxStream   = 256 // events of a stream that are shown
	maxSSEData  = 512 // bytes of the data of one
	maxSSEField = 512 // bytes of its other fields
)

// addStream adds the events of the row's event stream.
func (b *builder) addStream(ctx context.Context) error {
	h := b.snapshot.HTTP
	if h == nil || !h.Stream {
		return nil
	}
	list := h.RecentEvents[max(0, len(h.RecentEvents)-maxStream):]
	s := &SSE{Events: []SSEEvent{}, OmittedEvents: max(0, h.Events-len(list)), Open: !h.Ended}
	for _, n := range list {
		e, err := b.readEvent(ctx, n)
		if err != nil {
			return err
		}
		if e != nil {
			s.Events = append(s.Events, sseEvent(e, e.T-b.snapshot.T))
		}
	}
	b.detail.SSE = s
	return nil
}

func sseEvent(e *capture.Event, at time.Duration) SSEEvent {
	v := SSEEvent{N: e.N, Dir: e.Dir, AtMS: millis(at), Len: wireLen(e)}
	if len(e.Data) > 0 {
		v.Data = oneLine(e.Data, maxSSEData)
	}
	f := e.SSE
	if f == nil {
		return v
	}
	clip := func(s string) string { return printable.Line(s[:min(len(s), maxSSEField)]) }
	v.Event = clip(f.Event)
	if f.HasID {
		id := clip(f.ID)
		v.ID = &id
	}
	if f.HasRetry {
		retry := f.Retry.Milliseconds()
		v.RetryMS = &retry
	}
	if f.HasComment {
		comment := clip(f.Comment)
		v.Comment = &comment
	}
	return v
}
