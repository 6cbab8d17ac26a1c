package web

import (
	"hash/maphash"
	"net/http"
	"slices"

	"mcpwire/internal/watch"
	"mcpwire/internal/wireview"
)

// maxCards is how many sessions are told of, the newest ones.
const maxCards = 500

// cards returns what there is to know about the newest sessions, the oldest of them first. The model must be locked.
func cards(m *trace.Model) []trace.SessionInfo {
	list := []trace.SessionInfo{}
	for _, c := range slices.Backward(m.Captures()) {
		for _, s := range slices.Backward(c.Sessions()) {
			if len(list) == maxCards {
				break
			}
			list = append(list, s.Card())
		}
	}
	slices.Reverse(list)
	return list
}

// A sentCards knows, as hashes, what a page was told of sessions.
type sentCards struct {
	seed maphash.Seed
	sent map[cardKey]uint64
}

type cardKey struct {
	capture string
	session uint64
}

func newSentCards() sentCards {
	return sentCards{maphash.MakeSeed(), map[cardKey]uint64{}}
}

// changed returns the sessions of which the page has not been told, or not as they are now, as JSON.
func (c *sentCards) changed(hub *watch.Hub) ([][]byte, error) {
	var list []trace.SessionInfo
	hub.Read(func(model *trace.Model) { list = cards(model) })
	var out [][]byte
	now := map[cardKey]uint64{}
	for i := range list {
		text, err := marshal(&list[i])
		if err != nil {
			return nil, err
		}
		k := cardKey{list[i].Capture, list[i].Session}
		now[k] = maphash.Bytes(c.seed, text)
		if was, ok := c.sent[k]; !ok || was != now[k] {
			out = append(out, text)
		}
	}
	c.sent = now
	return out, nil
}

func (s *Server) serveSessions(w http.ResponseWriter, r *http.Request) {
	var list []trace.SessionInfo
	s.hub.Read(func(m *trace.Model) { list = cards(m) })
	writeJSON(w, list)
}
