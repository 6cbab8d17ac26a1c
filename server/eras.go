package server

import (
	"mcpwire/internal/era"
	"mcpwire/mcp"
)

// eras are what sessions speak that have both eras, or only one. All sessions share them.
type eras struct{ both, legacy, modern era.Config }

func (s *Server) initEras() {
	config := func(revisions []mcp.Revision) era.Config {
		return era.Config{Revisions: revisions, Lenient: s.opts.Lenient, Offers: s.offers, Custom: s.custom.hasMethod}
	}
	var legacy, modern []mcp.Revision
	for _, r := range s.opts.Revisions {
		if r.Modern() {
			modern = append(modern, r)
		} else {
			legacy = append(legacy, r)
		}
	}
	s.eras = eras{both: config(s.opts.Revisions), legacy: config(legacy), modern: config(modern)}
}
