package web

import (
	"net/http"

	"mcpwire/internal/watch"
)

// A source is a watch.Source as JSON.
type source struct {
	ID        string `json:"id"`
	Path      string `json:"path,omitempty"`
	Name      string `json:"name,omitempty"`
	Transport string `json:"transport,omitempty"`
	State     string `json:"state,omitempty"`
	Err       string `json:"err,omitempty"`
	Read      int64  `json:"read,omitempty"`
	Size      int64  `json:"size,omitempty"`
	Restart   bool   `json:"restart,omitempty"`
}

func sources(hub *watch.Hub) []source {
	list := []source{}
	for _, s := range hub.Sources() {
		list = append(list, source{s.ID, s.Path, s.Name, s.Transport, string(s.State), s.Err, s.Read, s.Size, s.CanRestart})
	}
	return list
}

func (s *Server) serveSources(w http.ResponseWriter, r *http.Request) { writeJSON(w, sources(s.hub)) }
