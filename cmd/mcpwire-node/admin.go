package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"mcpwire/cluster"
	"mcpwire/cmd/internal/gatewayd"
	"mcpwire/health"
	"mcpwire/internal/net/loopback"
	"mcpwire/mcpotel"
	"mcpwire/streamable"
)

// metrics are what /metrics of the admin port shows.
type metrics struct {
	telemetry *mcpotel.Telemetry
	registry  *prometheus.Registry
	appends   *prometheus.HistogramVec
	handler   http.Handler
}

func newMetrics() (*metrics, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	telemetry := mcpotel.New(&mcpotel.Options{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)), Transport: "tcp"})
	appends := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "mcpwire_cluster_append_seconds", Help: "Duration of appending an event to the log of the cluster.",
		Buckets: []float64{0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2},
	}, []string{"error_type"})
	registry.MustRegister(appends)
	return &metrics{
		telemetry: telemetry, registry: registry, appends: appends,
		handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}),
	}, nil
}

// recordAppend records how long it took to store an event, or to fail.
func (m *metrics) recordAppend(d time.Duration, err error) {
	errorType := ""
	if err != nil {
		errorType = "_OTHER"
	}
	m.appends.WithLabelValues(errorType).Observe(d.Seconds())
}

// observe shows the numbers of the node and its handler.
func (m *metrics) observe(node *cluster.Node, h *streamable.Handler) {
	m.registry.MustRegister(processCollector{node, h})
}

// A processCollector reads the numbers of a node and its handler when the metrics are read.
type processCollector struct {
	node    *cluster.Node
	handler *streamable.Handler
}

// Describe implements [prometheus.Collector]. Without descriptions, the registry does not check
// that the same metrics are collected each time.
func (processCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (p processCollector) Collect(to chan<- prometheus.Metric) {
	send := func(kind prometheus.ValueType, name, help, label, labelValue string, value float64) {
		labels := prometheus.Labels{}
		if label != "" {
			labels[label] = labelValue
		}
		to <- prometheus.MustNewConstMetric(prometheus.NewDesc("mcpwire_"+name, help, nil, labels), kind, value)
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	hs, ns := p.handler.Stats(), p.node.Stats()
	send(gauge, "calls_in_flight", "Requests being handled.", "", "", float64(hs.InFlight))
	send(gauge, "streams", "Standing streams.", "", "", float64(hs.Streams))
	send(gauge, "sessions", "Sessions of legacy clients.", "", "", float64(hs.Sessions))
	refused := "Requests rejected because of too many in flight."
	send(counter, "refused_total", refused, "reason", "rate_limited", float64(hs.RateLimited))
	send(counter, "refused_total", refused, "reason", "overloaded", float64(hs.Overloaded))
	send(gauge, "cluster_members", "Nodes of the cluster that this one sees.", "", "", float64(ns.Members))
	send(counter, "cluster_bus_lost_total", "Messages between nodes that this one has lost.", "", "", float64(ns.BusLost))
	forwarded := "Responses and notifications of clients for other nodes, by result."
	send(counter, "cluster_forwarded_total", forwarded, "result", "delivered", float64(hs.Forwarded))
	send(counter, "cluster_forwarded_total", forwarded, "result", "lost", float64(hs.Unforwarded))
	send(gauge, "cluster_degraded_streams", "Streams that go on and cannot be resumed, because their events were not stored.", "", "", float64(hs.Degraded))
	send(counter, "cluster_unresumable_streams_total", "Streams that could not be resumed because their events were not stored.", "", "", float64(hs.Unresumable))
	down := 0.0
	if ns.StorageDown {
		down = 1
	}
	send(gauge, "cluster_storage_down", "1 if this process runs a machine of the cluster's backend that stores nothing.", "", "", down)
}

// serveAdmin serves the probes and the metrics until stop is called.
func serveAdmin(address string, probes *health.Probes, m *metrics, log *slog.Logger) (stop func(), err error) {
	mux := http.NewServeMux()
	mux.Handle("/", probes)
	mux.Handle("/metrics", m.handler)
	var h http.Handler = mux
	if host, _, err := net.SplitHostPort(address); err == nil && (host == "" || loopback.IsHost(host)) {
		h = gatewayd.LocalOnly(mux)
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
