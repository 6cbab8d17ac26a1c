package importer

import (
	"encoding/json"
	"time"

	"mcpwire/capture"
)

// snoopLine takes a line of a recording of mcpsnoop.
func snoopLine(s *sink, line []byte) error {
	var v struct {
		Session   string    `json:"session_id"`
		Label     string    `json:"server_label"`
		At        time.Time `json:"ts"`
		Direction string    `json:"direction"`
		Transport string    `json:"transport"`
		Raw       json.RawMessage
		Text      string
		Truncated bool
		Status    int
	}
	if err := json.Unmarshal(line, &v); err != nil || v.At.IsZero() {
		return s.malformedLine(line)
	}
	if err := s.begin(v.At, v.Label, v.Transport); err != nil {
		return err
	}
	e := &capture.Event{Kind: capture.KindMessage, Session: s.session(v.Session), Data: v.Raw, Cut: v.Truncated}
	switch v.Direction {
	case "c2s":
		e.Dir = capture.ToServer
	case "s2c":
		e.Dir = capture.ToClient
	case "stderr":
		e.Kind, e.Data = capture.KindStderr, []byte(v.Text)
		return s.add(v.At, e)
	case "meta":
		return s.add(v.At, snoopStart(e))
	default:
		return s.note(v.At, line)
	}
	if len(v.Raw) == 0 {
		e.Data = []byte(v.Text) // what is no message, in the place of one
		if v.Status != 0 {
			e.Kind = capture.KindBody
		}
	}
	return s.add(v.At, e)
}

// snoopStart makes the event of a start of what describes a session.
func snoopStart(e *capture.Event) *capture.Event {
	var meta struct {
		Command []string
		CWD     string
	}
	if json.Unmarshal(e.Data, &meta) != nil || len(meta.Command) == 0 {
		return &capture.Event{Kind: capture.KindNote, Session: e.Session, Data: e.Data}
	}
	return &capture.Event{Kind: capture.KindStart, Session: e.Session, Start: &capture.Start{Command: meta.Command, Dir: meta.CWD}}
}
