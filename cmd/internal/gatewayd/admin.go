package gatewayd

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"mcpwire/capture"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/proxy/gateway"
	gatewayconfig "mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/health"
	"mcpwire/internal/net/httpserve"
	"mcpwire/internal/net/loopback"
	"mcpwire/internal/text/printable"
)

// serveAdmin serves operators, if the configuration has an address for them, until until ends. The
// gateway is not ready before started is called, nor after serving ends. The server runs in
// background.
func (p *process) serveAdmin(serving, until context.Context, background *sync.WaitGroup) (started func(), err error) {
	a := p.now().Admin
	if a.Address == "" {
		return func() {}, nil
	}
	probes := health.New(serving)
	mux := http.NewServeMux()
	for _, path := range []string{"/livez", "/readyz", "/startupz"} {
		mux.Handle(path, probes)
	}
	metrics := p.gateway.Metrics()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		metrics.ServeHTTP(w, r)
		_, _ = w.Write(p.appendMetrics(nil)) // a client that disconnected needs none
	})
	mux.HandleFunc("GET /upstreamz", func(w http.ResponseWriter, r *http.Request) { writeAdminJSON(w, p.upstreamz(r.Context())) })
	mux.HandleFunc("GET /configz", func(w http.ResponseWriter, _ *http.Request) { writeAdminJSON(w, p.configz()) })
	l, err := new(net.ListenConfig).Listen(until, "tcp", withHost(a.Address))
	if err != nil {
		return nil, exit.Fail(exit.Unexpected, "listen", "another program may be listening there", p.now().Errorf("admin", "admin: %v", err))
	}
	p.log.Info("admin", "address", l.Addr())
	background.Go(func() {
		var h http.Handler = mux
		if !a.AllowRemote {
			h = LocalOnly(mux)
		}
		o := &httpserve.Options{AllowRemote: a.AllowRemote, MaxConns: maxAdminConns, Logger: p.log}
		if err := httpserve.Serve(until, l, h, o); err != nil {
			p.log.Error("admin", "error", err)
		}
	})
	return probes.Start, nil
}

// maxAdminConns limits the connections of operators.
const maxAdminConns = 100

// withHost returns an address, with the host of this machine if it has none.
func withHost(address string) string {
	if strings.HasPrefix(address, ":") {
		return "127.0.0.1" + address
	}
	return address
}

func writeAdminJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false) // commands have < > and &
	if err := e.Encode(v); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	// Servers choose some of the texts, and operators read them on terminals.
	_, _ = w.Write(printable.JSON(text.Bytes())) // a client that disconnected needs none
}

// upstreamz returns the state of the upstreams, without credentials in errors.
func (p *process) upstreamz(ctx context.Context) any {
	var page struct {
		Upstreams []gateway.UpstreamStatus `json:"upstreams"`
		// SilentNodes are the nodes that have not reported whether they run processes.
		SilentNodes []string `json:"silentNodes,omitempty"`
	}
	page.Upstreams = p.gateway.Upstreams()
	if p.node != nil && p.node.Status != nil {
		page.SilentNodes = p.node.Status(ctx, page.Upstreams)
	}
	redactor := capture.NewRedactor(nil)
	for i := range page.Upstreams {
		u := &page.Upstreams[i]
		u.LastError = redactor.Text(u.LastError)
		for j := range u.Nodes {
			u.Nodes[j].LastError = redactor.Text(u.Nodes[j].LastError)
		}
	}
	return page
}

// configz returns the present configuration, without what looks like a secret.
func (p *process) configz() any {
	p.mu.Lock()
	defer p.mu.Unlock()
	return struct {
		File   string                `json:"file"`
		Listen string                `json:"listen"`
		Status ReloadStatus          `json:"status"`
		Config *gatewayconfig.Config `json:"config"`
	}{p.path, p.address, p.reloads, withoutSecrets(p.current.Config)}
}

// withoutSecrets returns a copy of a configuration without what looks like a secret. References to
// secrets stay.
func withoutSecrets(c *gatewayconfig.Config) *gatewayconfig.Config {
	r := capture.NewRedactor(nil)
	values := func(all gatewayconfig.Values) gatewayconfig.Values {
		all = maps.Clone(all)
		for name, v := range all {
			v.Text = r.Args([]string{strings.TrimPrefix(r.Text(name+"="+v.Text), name+"=")})[0]
			all[name] = v
		}
		return all
	}
	shown := *c
	shown.Instructions, shown.Upstreams = r.Text(c.Instructions), nil
	for _, u := range c.Upstreams {
		one := *u
		args := r.Args(slices.Concat(u.Command, u.Args))
		one.Command, one.Args = args[:len(u.Command)], slices.Clip(args[len(u.Command):])
		one.Env, one.Headers, one.URL.Text = values(u.Env), values(u.Headers), r.URL(u.URL.Text)
		shown.Upstreams = append(shown.Upstreams, &one)
	}
	return &shown
}

// appendMetrics appends the metrics of the configuration, the audit, the process and the calls, in
// the text format of Prometheus (https://prometheus.io/docs/instrumenting/exposition_formats/).
func (p *process) appendMetrics(dst []byte) []byte {
	p.mu.Lock()
	reloads, audit, durations := p.reloads, p.current.policy.audit, p.current.policy.durations
	p.mu.Unlock()
	lost := uint64(0)
	if audit != nil {
		lost = audit.Lost()
	}
	type metric struct {
		name, kind, help string
		value            float64
	}
	metrics := []metric{
		{"mcpwire_gateway_config_reload_success_timestamp_seconds", "gauge", "Time of the last load of the configuration.", float64(reloads.Loaded.UnixMilli()) / 1000},
		{"mcpwire_gateway_config_reloads_total", "counter", "Reloads of the configuration.", float64(reloads.Reloads)},
		{"mcpwire_gateway_config_reload_failures_total", "counter", "Reloads that failed because the configuration was invalid.", float64(reloads.Failures)},
		{"mcpwire_gateway_audit_lost_total", "counter", "Lines of the audit that were lost.", float64(lost)},
		{"go_goroutines", "gauge", "Number of goroutines that currently exist.", float64(runtime.NumGoroutine())},
	}
	if p.traces != nil {
		exported, dropped := p.traces.Counts()
		metrics = append(metrics, metric{"mcpwire_gateway_spans_exported_total", "counter", "Spans that the collector has accepted.", float64(exported)},
			metric{"mcpwire_gateway_spans_lost_total", "counter", "Spans that were not exported.", float64(dropped)})
	}
	for _, m := range metrics {
		dst = append(dst, "# HELP "+m.name+" "+m.help+"\n# TYPE "+m.name+" "+m.kind+"\n"+m.name+" "...)
		dst = append(strconv.AppendFloat(dst, m.value, 'f', -1, 64), '\n')
	}
	if durations != nil {
		dst = durations.Append(dst)
	}
	return dst
}

// LocalOnly returns h for requests that are for this machine and not from a web page. Others get
// status 403.
func LocalOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loopback.Allows(r.Host, r.Header.Get("Origin")) {
			http.Error(w, "only for this machine", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
