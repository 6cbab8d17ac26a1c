package gateway

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"mcpwire/internal/proxy/bridge"
)

// Upstreams returns the states of all upstreams in the order of the configuration, and then those
// that drain.
func (g *Gateway) Upstreams() []UpstreamStatus {
	st := g.state.Load()
	all := slices.Clone(st.upstreams)
	g.mu.Lock()
	for u := range g.live {
		if !slices.Contains(st.upstreams, u) {
			all = append(all, u)
		}
	}
	g.mu.Unlock()
	list := make([]UpstreamStatus, 0, len(all))
	for _, u := range all {
		list = append(list, u.status())
	}
	return list
}

// status returns the state of the upstream. With PerPrincipal, it sums up those of all principals.
func (u *upstream) status() UpstreamStatus {
	s := UpstreamStatus{Name: u.name, State: "idle"}
	u.mu.Lock()
	backends := slices.Collect(maps.Values(u.backends))
	retired := u.retired
	s.InFlight = u.inFlight // the bridges also count subscriptions
	u.mu.Unlock()
	eras := map[bridge.Era]bool{}
	for _, be := range backends {
		b := be.bridge.Status()
		s.Sessions += b.Clients
		s.Connections += b.Connections
		s.Requests += b.Requests
		s.Errors += b.Errors
		s.Restarts += b.Restarts
		eras[bridge.EraLegacy] = eras[bridge.EraLegacy] || b.Legacy
		eras[bridge.EraModern] = eras[bridge.EraModern] || b.Modern
		switch {
		case b.Err != nil:
			s.State, s.LastError = "down", b.Err.Error()
		case b.Up && s.State == "idle":
			s.State = "up"
		}
		for _, c := range be.catalogs[:2] {
			c.addStatus(&s, b)
		}
	}
	for _, e := range []bridge.Era{bridge.EraLegacy, bridge.EraModern} {
		if eras[e] {
			s.Eras = append(s.Eras, e.String())
		}
	}
	if retired {
		s.State = "draining"
	}
	return s
}

// addStatus adds the state of the catalog, if it was requested. b is that of the bridge.
func (c *catalog) addStatus(s *UpstreamStatus, b bridge.Status) {
	c.mu.Lock()
	snap, err := c.snap, c.err
	c.mu.Unlock()
	if err != nil && s.LastError == "" {
		s.LastError = err.Error()
	}
	if snap == nil {
		return
	}
	cs := CatalogStatus{
		Tools: len(snap.lists[KindTool].items), Prompts: len(snap.lists[KindPrompt].items),
		Resources: len(snap.lists[KindResource].items), Templates: len(snap.lists[KindTemplate].items),
		AgeSeconds: time.Since(snap.loaded).Seconds(), Stale: err != nil,
	}
	for i := range snap.lists {
		cs.Warned += snap.lists[i].warned
		cs.Hidden += snap.lists[i].hidden
	}
	g := c.be.u.g
	ix := g.index(c.be.base, c.era)
	if i := slices.Index(ix.st.upstreams, c.be.u); i >= 0 {
		cs.Duplicates = ix.duplicates[i]
	}
	if s.Catalogs == nil {
		s.Catalogs = map[string]CatalogStatus{}
	}
	s.Catalogs[c.era.String()] = cs
	s.Server, s.Version = snap.profile.Info.Name, snap.profile.Info.Version
	// Otherwise it is the bridge's own.
	if c.era == bridge.EraModern && b.Modern || c.era == bridge.EraLegacy && b.Legacy {
		s.Revision = snap.revision
	}
}

// Metrics returns a handler that serves the counters in the text format of Prometheus
// (https://prometheus.io/docs/instrumenting/exposition_formats/).
func (g *Gateway) Metrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.Write(g.appendMetrics(nil))
	})
}

const metricPrefix = "mcpwire_gateway_"

// appendMetrics appends the metrics of the gateway and of each upstream.
func (g *Gateway) appendMetrics(dst []byte) []byte {
	g.mu.Lock()
	sessions := len(g.sessions)
	g.mu.Unlock()
	dst = appendMetricHead(dst, "sessions", "gauge", "Legacy sessions of clients.")
	dst = append(strconv.AppendInt(append(dst, metricPrefix+"sessions "...), int64(sessions), 10), '\n')
	list := g.Upstreams()
	for _, m := range []struct {
		name, kind, help string
		value            func(s *UpstreamStatus) int64
	}{
		{"upstream_up", "gauge", "1 if the server works or was not needed yet, 0 after an error.", func(s *UpstreamStatus) int64 {
			if s.State == "down" {
				return 0
			}
			return 1
		}},
		{"upstream_sessions", "gauge", "Clients of the upstream's bridges.", func(s *UpstreamStatus) int64 { return int64(s.Sessions) }},
		{"upstream_connections", "gauge", "Connections to the server, or its processes.", func(s *UpstreamStatus) int64 { return int64(s.Connections) }},
		{"upstream_requests_in_flight", "gauge", "Pending requests of clients to the server, without subscriptions.", func(s *UpstreamStatus) int64 { return int64(s.InFlight) }},
		{"upstream_requests_total", "counter", "Requests to the server.", func(s *UpstreamStatus) int64 { return s.Requests }},
		{"upstream_errors_total", "counter", "Requests that were answered with an error.", func(s *UpstreamStatus) int64 { return s.Errors }},
		{"upstream_restarts_total", "counter", "Connections to the server that were made again.", func(s *UpstreamStatus) int64 { return s.Restarts }},
	} {
		dst = appendMetricHead(dst, m.name, m.kind, m.help)
		for i := range list {
			if list[i].State == "draining" {
				continue // another upstream may have its name
			}
			dst = append(dst, metricPrefix+m.name+`{upstream="`+list[i].Name+`"} `...)
			dst = append(strconv.AppendInt(dst, m.value(&list[i]), 10), '\n')
		}
	}
	return dst
}

func appendMetricHead(dst []byte, name, kind, help string) []byte {
	return append(dst, "# HELP "+metricPrefix+name+" "+help+"\n# TYPE "+metricPrefix+name+" "+kind+"\n"...)
}
