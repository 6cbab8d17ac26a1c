package live

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"mcpwire/capture"
)

// Intercepted is what a tap that intercepts messages holds.
type Intercepted struct {
	// Filter chooses the messages to hold. Empty means none.
	Filter string `json:"filter"`
	// TimeoutMS is how long a message is held before it is passed on, in milliseconds.
	TimeoutMS int64 `json:"timeoutMs"`
	// Messages are the held ones, oldest first: on stdio at most one for each direction, since
	// others wait behind it.
	Messages []HeldMessage `json:"messages"`
}

// A HeldMessage is a message that waits for a decision. Its texts are those of a peer.
type HeldMessage struct {
	// ID names the message in a Decision.
	ID  uint64      `json:"id"`
	Dir capture.Dir `json:"dir"`
	// Event is its number in the capture.
	Event uint64 `json:"n,omitempty"`
	// Response reports that the message is a response.
	Response bool   `json:"response,omitempty"`
	Method   string `json:"method,omitempty"`
	Target   string `json:"target,omitempty"`
	// RequestID is the JSON text of the id. Empty means a notification.
	RequestID string `json:"requestId,omitempty"`
	// At and Until are when it was held and when it will be passed on, in milliseconds since 1970.
	At    int64 `json:"at"`
	Until int64 `json:"until"`
	// Data is the message, with its secrets. It is empty if the message is longer than
	// MaxHeldData, and then it cannot be edited, or while older messages have much data.
	Data string `json:"data,omitempty"`
	// Len is the length of the message in bytes.
	Len int `json:"len"`
}

// An Action is what to do with a held message.
type Action string

// The actions.
const (
	Pass   Action = "pass"
	Edit   Action = "edit"   // forward Data in its place
	Drop   Action = "drop"   // forward nothing
	Delay  Action = "delay"  // pass it on after DelayMS
	Answer Action = "answer" // send Data back to its sender, and forward nothing
	Keep   Action = "keep"   // hold it for the whole time again, because somebody edits it
)

// A Decision is a request of a viewer to a tap that intercepts messages.
type Decision struct {
	// Filter replaces the filter. Nil keeps it.
	Filter *string `json:"filter,omitempty"`
	// ID names the held message. Zero means none.
	ID     uint64 `json:"id,omitempty"`
	Action Action `json:"action,omitempty"`
	// Data is the message for Edit and Answer.
	Data    string `json:"data,omitempty"`
	DelayMS int64  `json:"delayMs,omitempty"`
	// HoldResponse makes the tap hold the response to the message too.
	HoldResponse bool `json:"holdResponse,omitempty"`
}

const (
	// MaxHeldData limits the length of a message that viewers can see and edit, in bytes.
	MaxHeldData = 1 << 20
	// MaxDelayMS limits Decision.DelayMS.
	MaxDelayMS = 600_000
)

// ErrDecision is wrapped by the error for a decision that the tap rejects.
var ErrDecision = errors.New("live: the tap rejects the decision")

// interceptLine is a line for viewers of held messages.
type interceptLine struct {
	Held  *Intercepted `json:"held,omitempty"`
	Error string       `json:"error,omitempty"`
}

// PublishIntercepted sends viewers what the tap holds.
func (s *Server) PublishIntercepted(state *Intercepted) {
	line, err := json.Marshal(interceptLine{Held: state})
	if err != nil {
		return // cannot happen
	}
	line = append(line, '\n')
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercepted = line
	for v := range s.viewers {
		if v.heldOnly {
			v.enqueue(line)
		}
	}
}

// intercept handles a viewer's decision.
func (s *Server) intercept(v *viewer, d *Decision) {
	if s.opts.Decide == nil {
		return
	}
	err := s.opts.Decide(d)
	if err == nil {
		return
	}
	if line, err := json.Marshal(interceptLine{Error: err.Error()}); err == nil {
		v.enqueue(append(line, '\n'))
	}
}

// WatchHeld makes the tap send what it holds in place of events, for [Conn.ReadHeld].
func (c *Conn) WatchHeld() error { return c.sendControl(control{Held: true}) }

// Decide sends a decision. The result arrives at ReadHeld.
func (c *Conn) Decide(d *Decision) error { return c.sendControl(control{Intercept: d}) }

// ReadHeld waits for a change of what the tap holds. An error that wraps ErrDecision reports a
// decision that the tap has rejected; others end the connection.
func (c *Conn) ReadHeld() (*Intercepted, error) {
	for {
		line, err := c.readLine()
		if err != nil {
			return nil, err
		}
		// Other lines were queued before WatchHeld.
		if !bytes.HasPrefix(line, []byte(`{"held":`)) && !bytes.HasPrefix(line, []byte(`{"error":`)) {
			continue
		}
		var l interceptLine
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, err
		}
		if l.Error != "" {
			return nil, fmt.Errorf("%w: %s", ErrDecision, l.Error)
		}
		if l.Held != nil {
			return l.Held, nil
		}
	}
}

// maxHeldLine limits a line with held messages, whose text escapes may make six times as long.
const maxHeldLine = 2*6*MaxHeldData + 64<<10

// readLine reads a line. It skips longer ones than those with held messages.
func (c *Conn) readLine() ([]byte, error) {
	var line []byte
	for long := false; ; {
		part, more, err := c.in.ReadLine()
		switch {
		case err != nil:
			if errors.Is(err, io.EOF) && len(line) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		case long || len(line)+len(part) > maxHeldLine:
			line, long = nil, true
		default:
			line = append(line, part...)
		}
		if !more {
			return line, nil
		}
	}
}
