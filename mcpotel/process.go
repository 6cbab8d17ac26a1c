package mcpotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// A ProcessStats has the numbers of a process that serves over HTTP, from the Stats of its
// streamable.Handler and of its cluster.Node.
type ProcessStats struct {
	// InFlight, Streams and Sessions are current numbers of the handler.
	InFlight, Streams, Sessions int
	// RateLimited and Overloaded count requests that the handler has rejected.
	RateLimited, Overloaded uint64
	// Cluster is nil if the process is not in a cluster.
	Cluster *ClusterStats
}

// A ClusterStats has the numbers of a process in a cluster.
type ClusterStats struct {
	// Members is the number of nodes.
	Members int
	// BusLost counts messages between nodes that were lost.
	BusLost uint64
	// Forwarded and Unforwarded are those of streamable.Stats.
	Forwarded, Unforwarded uint64
	// DegradedStreams is the current number of streams that cannot be resumed, Degraded of
	// streamable.Stats, and UnresumableStreams counts them, Unresumable there.
	DegradedStreams    int
	UnresumableStreams uint64
	// StorageDown is the field of cluster.Stats.
	StorageDown bool
}

// appendBuckets are the bucket boundaries for an event in the cluster's log, in seconds.
var appendBuckets = []float64{0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2}

// ObserveProcess records the numbers of a process whenever the metrics are read: the gauges
// mcpwire.calls_in_flight, mcpwire.streams and mcpwire.sessions, the counter mcpwire.refused, and
// in a cluster the gauges mcpwire.cluster.members, mcpwire.cluster.degraded_streams and
// mcpwire.cluster.storage_down and the counters mcpwire.cluster.bus_lost, mcpwire.cluster.forwarded
// and mcpwire.cluster.unresumable_streams. read may be called by multiple goroutines at once, until
// stop is called.
func (t *Telemetry) ObserveProcess(read func() ProcessStats) (stop func()) {
	m := t.opts.MeterProvider.Meter(scope)
	o := observed{
		inFlight: gauge(m, "mcpwire.calls_in_flight", "{request}", "Requests being handled."),
		streams:  gauge(m, "mcpwire.streams", "{stream}", "Standing streams."),
		sessions: gauge(m, "mcpwire.sessions", "{session}", "Sessions of legacy clients."),
		refused:  counter(m, "mcpwire.refused", "{request}", "Requests rejected because of too many in flight."),
		members:  gauge(m, "mcpwire.cluster.members", "{node}", "Nodes of the cluster that this one sees."),
		busLost:  counter(m, "mcpwire.cluster.bus_lost", "{message}", "Messages between nodes that this one has lost."),
		forwarded: counter(m, "mcpwire.cluster.forwarded", "{message}",
			"Responses and notifications of clients for other nodes, by result."),
		degraded: gauge(m, "mcpwire.cluster.degraded_streams", "{stream}",
			"Streams that go on and cannot be resumed, because their events were not stored."),
		unresumable: counter(m, "mcpwire.cluster.unresumable_streams", "{stream}",
			"Streams that could not be resumed because their events were not stored."),
		storageDown: gauge(m, "mcpwire.cluster.storage_down", "{node}",
			"1 if this process runs a machine of the cluster's backend that stores nothing."),
	}
	r, err := m.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		o.observe(to, read())
		return nil
	}, o.inFlight, o.streams, o.sessions, o.refused, o.members, o.busLost, o.forwarded, o.degraded, o.unresumable, o.storageDown)
	if err != nil {
		otel.Handle(err)
		return func() {}
	}
	return func() {
		if err := r.Unregister(); err != nil {
			otel.Handle(err)
		}
	}
}

// observed are the instruments of ObserveProcess.
type observed struct {
	inFlight, streams, sessions, members, degraded, storageDown metric.Int64ObservableGauge
	refused, busLost, forwarded, unresumable                    metric.Int64ObservableCounter
}

func (o *observed) observe(to metric.Observer, s ProcessStats) {
	to.ObserveInt64(o.inFlight, int64(s.InFlight))
	to.ObserveInt64(o.streams, int64(s.Streams))
	to.ObserveInt64(o.sessions, int64(s.Sessions))
	to.ObserveInt64(o.refused, int64(s.RateLimited), metric.WithAttributes(attrReason.String("rate_limited")))
	to.ObserveInt64(o.refused, int64(s.Overloaded), metric.WithAttributes(attrReason.String("overloaded")))
	c := s.Cluster
	if c == nil {
		return
	}
	to.ObserveInt64(o.members, int64(c.Members))
	to.ObserveInt64(o.busLost, int64(c.BusLost))
	to.ObserveInt64(o.forwarded, int64(c.Forwarded), metric.WithAttributes(attrResultKind.String("delivered")))
	to.ObserveInt64(o.forwarded, int64(c.Unforwarded), metric.WithAttributes(attrResultKind.String("lost")))
	to.ObserveInt64(o.degraded, int64(c.DegradedStreams))
	to.ObserveInt64(o.unresumable, int64(c.UnresumableStreams))
	down := int64(0)
	if c.StorageDown {
		down = 1
	}
	to.ObserveInt64(o.storageDown, down)
}

const (
	attrReason     = attribute.Key("reason")
	attrResultKind = attribute.Key("result")
)

// RecordAppend records in the histogram mcpwire.cluster.append, in seconds, how long it took to
// store an event in a cluster. It is for cluster.NodeOptions.OnAppend. The attribute error.type is
// _OTHER if the event was not stored.
func (t *Telemetry) RecordAppend(d time.Duration, err error) {
	var attrs []attribute.KeyValue
	if err != nil {
		attrs = append(attrs, attrErrorType.String(errorOther))
	}
	t.clusterAppend.Record(context.Background(), d.Seconds(), metric.WithAttributes(attrs...))
}

func gauge(m metric.Meter, name, unit, description string) metric.Int64ObservableGauge {
	g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
	if err != nil {
		otel.Handle(err)
		return noop.Int64ObservableGauge{}
	}
	return g
}

func counter(m metric.Meter, name, unit, description string) metric.Int64ObservableCounter {
	c, err := m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	if err != nil {
		otel.Handle(err)
		return noop.Int64ObservableCounter{}
	}
	return c
}
