package tap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/trace/filter"
	"mcpwire/internal/trace/live"
	"mcpwire/jsonrpc"
)

// DefaultHoldTimeout is how long a message is held before it is passed on.
const DefaultHoldTimeout = 60 * time.Second

// Breakpoints hold the messages that match a filter until someone decides about them, or until a
// timeout. They are safe for concurrent use.
type Breakpoints struct {
	timeout time.Duration

	mu     sync.Mutex
	filter *filter.Filter
	held   []*held
	nextID uint64
	// changed is called with mu held after each change.
	changed func(*live.Intercepted)
}

// A held is a message that waits.
type held struct {
	live.HeldMessage
	// decided has room for one decision.
	decided chan live.Decision
}

// NewBreakpoints returns breakpoints with a filter, of which nil holds nothing. A timeout of zero
// means DefaultHoldTimeout.
func NewBreakpoints(f *filter.Filter, timeout time.Duration) *Breakpoints {
	if timeout <= 0 {
		timeout = DefaultHoldTimeout
	}
	return &Breakpoints{filter: f, timeout: timeout}
}

// Publish calls f with the state now and after each change. f must return at once.
func (b *Breakpoints) Publish(f func(*live.Intercepted)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.changed = f
	b.publishLocked()
}

func (b *Breakpoints) publishLocked() {
	if b.changed == nil {
		return
	}
	state := &live.Intercepted{TimeoutMS: b.timeout.Milliseconds(), Messages: []live.HeldMessage{}}
	if b.filter != nil {
		state.Filter = b.filter.String()
	}
	for _, h := range b.held {
		state.Messages = append(state.Messages, h.HeldMessage)
	}
	b.changed(state)
}

// Decide executes a viewer's decision. The error tells the viewer why that is impossible.
func (b *Breakpoints) Decide(d *live.Decision) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d.Filter != nil {
		if err := b.setFilterLocked(*d.Filter); err != nil {
			return err
		}
	}
	if d.ID == 0 {
		return nil
	}
	i := slices.IndexFunc(b.held, func(h *held) bool { return h.ID == d.ID })
	if i < 0 {
		return errors.New("the message is no longer held")
	}
	h := b.held[i]
	own := *d
	if err := checkDecision(&own, &h.HeldMessage); err != nil {
		return err
	}
	select {
	case h.decided <- own:
		return nil
	default:
		return errors.New("another decision was faster")
	}
}

func (b *Breakpoints) setFilterLocked(text string) error {
	var f *filter.Filter
	if text != "" {
		var err error
		if f, err = filter.Parse(text); err != nil {
			return fmt.Errorf("the filter: %w", err)
		}
	}
	b.filter = f
	b.publishLocked()
	return nil
}

// checkDecision checks a decision about a message, and brings its data into one line.
func checkDecision(d *live.Decision, m *live.HeldMessage) error {
	switch d.Action {
	case live.Pass, live.Drop:
		return nil
	case live.Delay:
		if d.DelayMS <= 0 || d.DelayMS > live.MaxDelayMS {
			return fmt.Errorf("a delay is between 1 ms and %d s", live.MaxDelayMS/1000)
		}
		return nil
	case live.Edit, live.Answer:
	default:
		return fmt.Errorf("the action %q is unknown: want pass, edit, drop, delay or answer", d.Action)
	}
	switch {
	case len(d.Data) > live.MaxHeldData:
		return errors.New("the message is too long")
	case d.Action == live.Edit && m.Data == "" && m.Len > 0:
		return errors.New("the message is too long to be edited")
	case d.Action == live.Answer && (m.Response || m.RequestID == ""):
		return errors.New("only a request can be answered")
	}
	data := []byte(d.Data)
	if jsonwire.Valid(data, 0) == nil {
		d.Data = string(jsonwire.AppendCompact(nil, data))
		return nil
	}
	switch {
	case d.Action == live.Answer:
		return errors.New("the answer is not valid JSON")
	case bytes.ContainsAny(data, "\r\n"):
		return errors.New("the message is not valid JSON, and has line breaks, which would make it several messages")
	}
	return nil
}

// currentFilter returns the filter, or nil.
func (b *Breakpoints) currentFilter() *filter.Filter {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.filter
}

// A release is the end of holding a message.
type release struct {
	live.Decision
	// note says what happened, for the capture.
	note string
	// rule names the relation of the forwarded message to the received one.
	rule string
}

// hold waits for a decision about a message. When stop is closed, the message is passed on.
func (b *Breakpoints) hold(m live.HeldMessage, stop <-chan struct{}) release {
	begin := time.Now()
	h := &held{HeldMessage: m, decided: make(chan live.Decision, 1)}
	timer := time.NewTimer(b.timeout)
	defer timer.Stop()
	b.add(h, begin)
	defer b.remove(h)
	delayed := false
	for {
		var d live.Decision
		select {
		case d = <-h.decided:
		case <-timer.C:
			if delayed {
				return release{live.Decision{Action: live.Pass}, "delayed for " + roundedTime(begin), "delayed"}
			}
			return release{live.Decision{Action: live.Pass}, "passed on after " + roundedTime(begin) + " because nobody decided about it", "timeout"}
		case <-stop:
			return release{live.Decision{Action: live.Pass}, "passed on after " + roundedTime(begin) + " because the session ends", "timeout"}
		}
		switch d.Action {
		case live.Delay:
			delay := time.Duration(d.DelayMS) * time.Millisecond
			timer.Reset(delay)
			delayed = true
			b.extend(h, time.Now().Add(delay))
		case live.Edit:
			return release{d, "edited after " + roundedTime(begin), "edited"}
		case live.Drop:
			return release{d, "dropped after " + roundedTime(begin), ""}
		case live.Answer:
			return release{d, "answered by a viewer after " + roundedTime(begin) + ", and not forwarded", "answered"}
		default:
			return release{d, "passed on after " + roundedTime(begin), "passed"}
		}
	}
}

func roundedTime(begin time.Time) string {
	return time.Since(begin).Round(time.Millisecond).String()
}

func (b *Breakpoints) add(h *held, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nextID++
	h.ID, h.At, h.Until = b.nextID, at.UnixMilli(), at.Add(b.timeout).UnixMilli()
	b.held = append(b.held, h)
	b.publishLocked()
}

func (b *Breakpoints) extend(h *held, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h.Until = until.UnixMilli()
	b.publishLocked()
}

func (b *Breakpoints) remove(h *held) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = slices.DeleteFunc(b.held, func(x *held) bool { return x == h })
	b.publishLocked()
}

// matchPayload returns the hits of a filter in a message.
func matchPayload(f *filter.Filter, data []byte) filter.Hits {
	if !f.NeedsPayload() {
		return 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return f.Scan(ctx, data)
}

// describeHeld sets the method and the id of a message.
func describeHeld(h *live.HeldMessage, data []byte) {
	var m jsonrpc.Message
	if jsonrpc.Parse(data, &m, 0) != nil {
		return
	}
	h.Method, h.RequestID = string(m.Method), string(m.ID)
	h.Response = len(m.Method) == 0 && len(m.ID) > 0
}
