package watch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mcpwire/cmd/internal/trace/live"
)

// ErrNoIntercept is wrapped by the error of [Hub.Decide] if the tap of a capture does not hold
// messages, or has ended.
var ErrNoIntercept = errors.New("watch: no running tap with --intercept")

// decisionTimeout limits the time for a tap to respond to a decision.
const decisionTimeout = 5 * time.Second

// followHeld follows what a tap holds until the connection ends.
func (h *Hub) followHeld(ctx context.Context, s *source, path string) {
	defer s.update(func(i *Source) { i.Intercepted = nil })
	conn, err := live.Dial(ctx, path)
	if err != nil {
		return // the connection for events notices too
	}
	defer conn.Close()
	if conn.WatchHeld() != nil {
		return
	}
	for {
		state, err := conn.ReadHeld()
		if err != nil {
			return
		}
		s.update(func(i *Source) { i.Intercepted = state })
	}
}

// Decide sends a decision about a held message, or another filter, to the tap of a capture. The
// error may wrap [ErrNoIntercept], or [live.ErrDecision] if the tap rejects the decision.
func (h *Hub) Decide(ctx context.Context, captureID string, d *live.Decision) error {
	h.sourcesMu.Lock()
	path := ""
	for _, s := range h.sources {
		if s.info.ID == captureID && s.info.Intercepted != nil {
			path = s.socket
		}
	}
	h.sourcesMu.Unlock()
	if path == "" {
		return ErrNoIntercept
	}
	ctx, cancel := context.WithTimeout(ctx, decisionTimeout)
	defer cancel()
	// On its own connection, the next line is the response to the decision.
	conn, err := live.Dial(ctx, path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoIntercept, err)
	}
	defer conn.Close()
	if err = conn.WatchHeld(); err == nil {
		_, err = conn.ReadHeld()
	}
	if err == nil {
		err = conn.Decide(d)
	}
	if err == nil {
		if _, err = conn.ReadHeld(); errors.Is(err, live.ErrDecision) {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoIntercept, err)
	}
	return nil
}
