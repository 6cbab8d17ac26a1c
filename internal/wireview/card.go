package trace

import (
	"slices"
	"time"

	"mcpwire/capture"
)

// A SessionInfo sums up a session: who talks to whom, in which revision, and what they can do. Texts in it are as the peers wrote them, if not in full: see [Escape].
type SessionInfo struct {
	Capture    string    `json:"capture"`
	Session    uint64    `json:"session"`        // its number in the capture
	Side       string    `json:"side,omitempty"` // of a bridge: "near" or "far"
	Name       string    `json:"name"`           // of the server, as the user knows it
	Transport  string    `json:"transport"`
	URL        string    `json:"url,omitempty"`  // of the server
	Tool       string    `json:"tool,omitempty"` // that recorded it
	Redact     string    `json:"redact,omitempty"`
	Era        string    `json:"era,omitempty"`
	Offered    string    `json:"offered,omitempty"`   // the revision that the client asked for first
	Negotiated string    `json:"answered,omitempty"`  // the one in force
	Supported  []string  `json:"supported,omitempty"` // that the server says it knows
	Client     PeerInfo  `json:"client"`
	Server     PeerInfo  `json:"server"`
	Command    []string  `json:"command,omitempty"` // of the process: its first arguments
	PID        int       `json:"pid,omitempty"`
	Exited     bool      `json:"exited,omitempty"`
	ExitCode   int       `json:"exitCode,omitempty"`
	Signal     string    `json:"signal,omitempty"`
	Successor  uint64    `json:"next,omitempty"` // the session with the process that was started in the place of the one that has exited; 0 if there is none
	Rows       uint64    `json:"rows"`
	First      time.Time `json:"first"`
	Last       time.Time `json:"last"`
}

// Card returns what there is to know about the session. It shares nothing with it that changes.
func (s *Session) Card() SessionInfo {
	c := s.Capture
	var next uint64
	if s.Exited && c.newestProcess != nil && c.newestProcess != s {
		next = c.newestProcess.Number
	}
	url := c.URL
	if s.Side == capture.Downstream {
		url = "" // that is the server's, and clients come to the bridge
	}
	return SessionInfo{
		Capture: c.ID, Session: s.Number, Side: string(s.Side), Name: c.Name, Transport: c.Transport, URL: url, Tool: c.Tool, Redact: c.Redact,
		Era: s.Era, Offered: s.Offered, Negotiated: s.Negotiated, Supported: slices.Clone(s.Supported), Client: s.Client.clone(), Server: s.Server.clone(),
		Command: slices.Clone(s.Command), PID: s.PID, Exited: s.Exited, ExitCode: s.ExitCode, Signal: s.Signal, Successor: next, Rows: s.Rows, First: s.First, Last: s.Last,
	}
}

func (p PeerInfo) clone() PeerInfo {
	p.Capabilities = slices.Clone(p.Capabilities)
	return p
}
