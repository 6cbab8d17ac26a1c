package importer

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
)

// A logEntry is a line of a host's log.
type logEntry struct {
	at     time.Time
	server string
	text   []byte
}

// parseDesktop parses a line such as
//
//	2025-07-12T05:51:44.601Z [files] [info] Message from client: {…} { metadata: undefined }
func parseDesktop(line []byte) (logEntry, bool) {
	stamp, rest, ok := bytes.Cut(line, []byte(" ["))
	if !ok {
		return logEntry{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return logEntry{}, false
	}
	server, rest, ok := bytes.Cut(rest, []byte("] "))
	if !ok {
		return logEntry{}, false
	}
	if bytes.HasPrefix(rest, []byte("[")) { // the level
		if _, after, ok := bytes.Cut(rest, []byte("] ")); ok {
			rest = after
		}
	}
	return logEntry{at, string(server), rest}, true
}

// desktopLine handles a line of a Claude Desktop log. Lines between those of the host are the
// server's standard error.
func desktopLine(s *sink, line []byte) error {
	e, ok := parseDesktop(line)
	if !ok {
		return s.untimedLine(line)
	}
	if err := s.begin(e.at, e.server, "stdio"); err != nil {
		return err
	}
	for _, x := range []struct {
		prefix string
		dir    capture.Dir
	}{{"Message from client: ", capture.ToServer}, {"Message from server: ", capture.ToClient}} {
		if rest, ok := bytes.CutPrefix(e.text, []byte(x.prefix)); ok {
			return s.message(e.at, x.dir, rest)
		}
	}
	return s.note(e.at, e.text)
}

// parseVSCode parses a line such as
//
//	2026-07-24 02:03:14.089 [debug] [editor -> server] {"jsonrpc":"2.0",…}
func parseVSCode(line []byte, zone *time.Location) (logEntry, bool) {
	const layout = "2006-01-02 15:04:05.000"
	if len(line) < len(layout)+3 || line[len(layout)] != ' ' || line[len(layout)+1] != '[' {
		return logEntry{}, false
	}
	at, err := time.ParseInLocation(layout, string(line[:len(layout)]), zone)
	if err != nil {
		return logEntry{}, false
	}
	_, rest, ok := bytes.Cut(line[len(layout)+1:], []byte("] "))
	return logEntry{at: at, text: rest}, ok
}

// vscodeLine handles a line of a server's output in VS Code.
func vscodeLine(s *sink, line []byte) error {
	e, ok := parseVSCode(line, s.opts.Zone)
	if !ok {
		return s.untimedLine(line)
	}
	name := ""
	if rest, ok := bytes.CutPrefix(e.text, []byte("Starting server ")); ok && !bytes.HasPrefix(rest, []byte("from ")) {
		name = string(rest)
	}
	if err := s.begin(e.at, name, ""); err != nil {
		return err
	}
	for _, x := range []struct {
		prefix string
		dir    capture.Dir
	}{
		{"[editor -> server] ", capture.ToServer}, {"[Client Says] ", capture.ToServer},
		{"[server -> editor] ", capture.ToClient}, {"[Server Says] ", capture.ToClient},
	} {
		if rest, ok := bytes.CutPrefix(e.text, []byte(x.prefix)); ok {
			return s.message(e.at, x.dir, rest)
		}
	}
	if rest, ok := bytes.CutPrefix(e.text, []byte("[server stderr] ")); ok {
		return s.add(e.at, &capture.Event{Kind: capture.KindStderr, Data: rest})
	}
	return s.note(e.at, e.text)
}

// codeLine handles a line of a Claude Code log: an object with a member "debug" or "error", which
// rarely contains a whole message.
func codeLine(s *sink, line []byte) error {
	var v struct {
		Debug, Error json.RawMessage
		Timestamp    time.Time
		SessionID    string `json:"sessionId"`
	}
	if json.Unmarshal(line, &v) != nil || v.Timestamp.IsZero() {
		return s.malformedLine(line)
	}
	if err := s.begin(v.Timestamp, "", "stdio"); err != nil {
		return err
	}
	raw := v.Debug
	if raw == nil {
		raw = v.Error
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	if rest, ok := strings.CutPrefix(text, "Server stderr: "); ok {
		return s.add(v.Timestamp, &capture.Event{Kind: capture.KindStderr, Session: s.session(v.SessionID), Data: []byte(rest)})
	}
	if i := strings.Index(text, `{"`); i >= 0 {
		if msg, ok := leadingJSON([]byte(text[i:])); ok && bytes.Contains(msg, []byte(`"jsonrpc"`)) {
			dir := capture.ToServer
			if !strings.Contains(text[:i], "Sending") && !strings.Contains(text[:i], "client") {
				dir = capture.ToClient
			}
			return s.add(v.Timestamp, &capture.Event{Kind: capture.KindMessage, Dir: dir, Session: s.session(v.SessionID), Data: msg})
		}
	}
	s.result.Notes++
	return s.add(v.Timestamp, &capture.Event{Kind: capture.KindNote, Session: s.session(v.SessionID), Data: []byte(text)})
}

// untimedLine handles a line without a timestamp.
func (s *sink) untimedLine(line []byte) error {
	if s.enc == nil { // before the first timestamp
		s.result.Dropped++
		return nil
	}
	return s.add(s.start.Add(s.last), &capture.Event{Kind: capture.KindStderr, Data: line})
}

// malformedLine handles an invalid line in a format whose lines all have timestamps.
func (s *sink) malformedLine(line []byte) error {
	if s.enc == nil { // before the first timestamp
		s.result.Dropped++
		return nil
	}
	return s.note(s.start.Add(s.last), line)
}

// message handles a message and drops the text that the log put behind it.
func (s *sink) message(at time.Time, dir capture.Dir, text []byte) error {
	msg, ok := leadingJSON(text)
	if !ok { // the host cut it off
		s.result.Notes++
		return s.add(at, &capture.Event{Kind: capture.KindMessage, Dir: dir, Data: text})
	}
	return s.add(at, &capture.Event{Kind: capture.KindMessage, Dir: dir, Data: msg})
}

// leadingJSON returns the JSON value at the beginning of a text.
func leadingJSON(text []byte) ([]byte, bool) {
	if trimmed := bytes.TrimSpace(text); jsonwire.Valid(trimmed, 0) == nil {
		return trimmed, true
	}
	d := json.NewDecoder(bytes.NewReader(text))
	var v json.RawMessage
	if d.Decode(&v) != nil || len(v) == 0 || v[0] != '{' && v[0] != '[' {
		return nil, false
	}
	return v, true
}

// snoopLine handles a line of an mcpsnoop recording.
func snoopLine(s *sink, line []byte) error {
	var v struct {
		Session   string            `json:"session_id"`
		Label     string            `json:"server_label"`
		At        time.Time         `json:"ts"`
		Direction string            `json:"direction"`
		Transport capture.Transport `json:"transport"`
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
		e.Data = []byte(v.Text) // not a message, but in its place
		if v.Status != 0 {
			e.Kind = capture.KindBody
		}
	}
	return s.add(v.At, e)
}

// snoopStart converts a session description to a start event.
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
