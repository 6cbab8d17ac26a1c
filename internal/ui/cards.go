package ui

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
func cards(m *wireview.Model) []wireview.Card {
	list := []wireview.Card{}
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

// A cardMemory knows, as hashes, what a page was told of sessions.
type cardMemory struct {
	seed maphash.Seed
	told map[cardKey]uint64
}

type cardKey struct {
	capture string
	session uint64
}

func newCardMemory() cardMemory {
	return cardMemory{maphash.MakeSeed(), map[cardKey]uint64{}}
}

// changed returns the sessions of which the page has not been told, or not as they are now, as JSON.
func (m *cardMemory) changed(hub *watch.Hub) ([][]byte, error) {
	var list []wireview.Card
	hub.Read(func(model *wireview.Model) { list = cards(model) })
	var out [][]byte
	now := map[cardKey]uint64{}
	for i := range list {
		text, err := encode(&list[i])
		if err != nil {
			return nil, err
		}
		k := cardKey{list[i].Capture, list[i].Session}
		now[k] = maphash.Bytes(m.seed, text)
		if was, ok := m.told[k]; !ok || was != now[k] {
			out = append(out, text)
		}
	}
	m.told = now
	return out, nil
}

func (s *Server) serveSessions(w http.ResponseWriter, r *http.Request) {
	var list []wireview.Card
	s.hub.Read(func(m *wireview.Model) { list = cards(m) })
	answer(w, list)
}
