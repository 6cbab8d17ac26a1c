package server

import (
	"mcpwire/internal/era"
	"mcpwire/mcp"
)

// eras are the rules of sessions that have both eras, or only one; nil if the server speaks no revision of it.
type eras struct{ both, legacy, modern *era.Rules }

func (s *Server) initEras() {
	rules := func(revisions []mcp.Revision) *era.Rules {
		if len(revisions) == 0 {
			return nil
		}
		return era.NewRules(era.Config{Revisions: revisions, Lenient: s.opts.Lenient, Offers: s.offers, Custom: s.custom.hasMethod})
	}
	var legacy, modern []mcp.Revision
	for _, r := range s.opts.Revisions {
		if r.Modern() {
			modern = append(modern, r)
		} else {
			legacy = append(legacy, r)
		}
	}
	s.eras = eras{both: rules(s.opts.Revisions), legacy: rules(legacy), modern: rules(modern)}
}
