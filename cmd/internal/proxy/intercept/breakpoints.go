package intercept

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/internal/json/jsonwire"
)

// DefaultTimeout is how long a message is held before it is passed on. SDKs wait for a response for
// 60 seconds by default.
const DefaultTimeout = 45 * time.Second

// The limits of what is held at a time.
const (
	maxHeld      = 64
	maxHeldBytes = 64 << 20
	// maxShownBytes limits the data of all messages that viewers get. They get the data of later
	// messages when earlier ones have been released.
	maxShownBytes = 2 * live.MaxHeldData
)

// Breakpoints hold the messages that match a filter until someone decides about them, or until a
// timeout. They are safe for concurrent use.
type Breakpoints struct {
	timeout time.Duration

	mu     sync.Mutex
	filter *filter.Filter
	held   []*held
	// heldBytes counts the bytes of the held messages.
	heldBytes int
	nextID    uint64
	// changed is called with mu held after each change.
	changed func(*live.Intercepted)

	// stopped is closed by Stop.
	stopped  chan struct{}
	stopOnce sync.Once
}

// A held is a message that waits.
type held struct {
	live.HeldMessage
	// decided has room for one decision.
	decided chan live.Decision
}

// New returns breakpoints with a filter, of which nil holds nothing. A timeout of zero
// means DefaultTimeout.
func New(f *filter.Filter, timeout time.Duration) *Breakpoints {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	return &Breakpoints{filter: f, timeout: timeout, stopped: make(chan struct{})}
}

// Stop passes on what is held, and holds nothing more.
func (b *Breakpoints) Stop() { b.stopOnce.Do(func() { close(b.stopped) }) }

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
	shown := 0
	for _, h := range b.held {
		m := h.HeldMessage
		if shown += len(m.Data); shown > maxShownBytes {
			m.Data = ""
		}
		state.Messages = append(state.Messages, m)
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
	case live.Pass, live.Drop, live.Keep:
		return nil
	case live.Delay:
		if d.DelayMS <= 0 || d.DelayMS > live.MaxDelayMS {
			return fmt.Errorf("a delay is between 1 ms and %d s", live.MaxDelayMS/1000)
		}
		return nil
	case live.Edit, live.Answer:
	default:
		return fmt.Errorf("the action %q is unknown: want pass, edit, drop, delay, answer or keep", d.Action)
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

// A Release is the end of holding a message.
type Release struct {
	live.Decision
	// Note says what happened, for the capture.
	Note string
	// Rule names the relation of the forwarded message to the received one.
	Rule string
}

// Hold waits for a decision about a message. When stop is closed, the message is passed on.
func (b *Breakpoints) Hold(m live.HeldMessage, stop <-chan struct{}) Release {
	begin := time.Now()
	h := &held{HeldMessage: m, decided: make(chan live.Decision, 1)}
	timer := time.NewTimer(b.timeout)
	defer timer.Stop()
	pass := live.Decision{Action: live.Pass}
	if !b.add(h, begin) {
		return Release{pass, "passed on at once, because too many messages are held", "passed"}
	}
	defer b.remove(h)
	delayed := false
	for {
		var d live.Decision
		select {
		case d = <-h.decided:
		case <-timer.C:
			if delayed {
				return Release{pass, "delayed for " + roundedTime(begin), "delayed"}
			}
			return Release{pass, "passed on after " + roundedTime(begin) + " because nobody decided about it", "timeout"}
		case <-stop:
			return Release{pass, "passed on after " + roundedTime(begin) + " because the session ends", "timeout"}
		case <-b.stopped:
			return Release{pass, "passed on after " + roundedTime(begin) + " because the tap ends", "timeout"}
		}
		switch d.Action {
		case live.Keep:
			timer.Reset(b.timeout)
			b.extend(h, time.Now().Add(b.timeout))
		case live.Delay:
			delay := time.Duration(d.DelayMS) * time.Millisecond
			timer.Reset(delay)
			delayed = true
			b.extend(h, time.Now().Add(delay))
		case live.Edit:
			return Release{d, "edited after " + roundedTime(begin), "edited"}
		case live.Drop:
			return Release{d, "dropped after " + roundedTime(begin), ""}
		case live.Answer:
			return Release{d, "answered by a viewer after " + roundedTime(begin) + ", and not forwarded", "answered"}
		default:
			return Release{d, "passed on after " + roundedTime(begin), "passed"}
		}
	}
}

func roundedTime(begin time.Time) string {
	return time.Since(begin).Round(time.Millisecond).String()
}

// add adds a message to the held ones, unless there are too many.
func (b *Breakpoints) add(h *held, at time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.held) >= maxHeld || b.heldBytes > maxHeldBytes-h.Len {
		return false
	}
	b.heldBytes += h.Len
	b.nextID++
	h.ID, h.At, h.Until = b.nextID, at.UnixMilli(), at.Add(b.timeout).UnixMilli()
	b.held = append(b.held, h)
	b.publishLocked()
	return true
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
	b.heldBytes -= h.Len
	b.publishLocked()
}
