package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"mcpwire/cluster"
	"mcpwire/health"
	"mcpwire/internal/net/loopback"
	"mcpwire/mcpotel"
	"mcpwire/streamable"
)

// metrics are what /metrics of the admin port shows, and the spans.
type metrics struct {
	telemetry *mcpotel.Telemetry
	handler   http.Handler
}

// newMetrics returns metrics that also export spans to traces, which may be nil.
func newMetrics(traces *sdktrace.TracerProvider) (*metrics, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	o := &mcpotel.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)), Transport: "tcp", Attributes: upstreamAttribute}
	if traces != nil {
		o.TracerProvider = traces
	}
	return &metrics{
		telemetry: mcpotel.New(o),
		handler:   promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}),
	}, nil
}

// observe shows the numbers of the node and its handler.
func (m *metrics) observe(node *cluster.Node, h *streamable.Handler) {
	m.telemetry.ObserveProcess(func() mcpotel.ProcessStats {
		ns, hs := node.Stats(), h.Stats()
		return mcpotel.ProcessStats{
			InFlight: hs.InFlight, Streams: hs.Streams, Sessions: hs.Sessions, RateLimited: hs.RateLimited, Overloaded: hs.Overloaded,
			Cluster: &mcpotel.ClusterStats{
				Members: ns.Members, BusLost: ns.BusLost, StorageDown: ns.StorageDown,
				Forwarded: hs.Forwarded, Unforwarded: hs.Unforwarded, DegradedStreams: hs.Degraded, UnresumableStreams: hs.Unresumable,
			},
		}
	})
}

// serveAdmin serves the probes and the metrics until stop is called.
func serveAdmin(address string, probes *health.Probes, m *metrics, log *slog.Logger) (stop func(), err error) {
	mux := http.NewServeMux()
	mux.Handle("/", probes)
	mux.Handle("/metrics", m.handler)
	var h http.Handler = mux
	if host, _, err := net.SplitHostPort(address); err == nil && (host == "" || loopback.IsHost(host)) {
		h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !loopback.Allows(r.Host, r.Header.Get("Origin")) {
				http.Error(w, "only for this machine", http.StatusForbidden)
				return
			}
			mux.ServeHTTP(w, r)
		})
	}
	ctx, cancel := context.WithCancel(context.Background())
	listening, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- streamable.ListenAndServe(ctx, address, h, &streamable.ServeOptions{
			AllowRemote: true, // if the address is one, it was given on purpose
			OnListen: func(a net.Addr) {
				log.Info("serving probes and metrics", "url", "http://"+a.String())
				close(listening)
			},
			Logger: log,
		})
	}()
	select {
	case err := <-done:
		cancel()
		return nil, fmt.Errorf("--admin: %w", err)
	case <-listening:
	}
	return func() {
		cancel()
		if err := <-done; err != nil {
			log.Warn("the admin port was closed with a request in flight", "error", err)
		}
	}, nil
}
