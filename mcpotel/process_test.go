package mcpotel_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"mcpwire/mcpotel"
)

// collect returns the current metrics, one data point to a line.
func (r *recording) collect(t *testing.T) (lines []string) {
	t.Helper()
	var data metricdata.ResourceMetrics
	if err := r.reader.Collect(t.Context(), &data); err != nil {
		t.Fatal(err)
	}
	for _, s := range data.ScopeMetrics {
		for _, m := range s.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					lines = append(lines, fmt.Sprint("gauge ", m.Name, attributes(p.Attributes.ToSlice()), ": ", p.Value))
				}
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					lines = append(lines, fmt.Sprint("counter ", m.Name, attributes(p.Attributes.ToSlice()), ": ", p.Value))
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					lines = append(lines, fmt.Sprint("histogram ", m.Name, " ", m.Unit, attributes(p.Attributes.ToSlice()), ": ", p.Count, " of ", p.Sum))
				}
			}
		}
	}
	slices.Sort(lines)
	return lines
}

func TestObserveProcess(t *testing.T) {
	r := record(mcpotel.Options{})
	stats := mcpotel.ProcessStats{InFlight: 1, Streams: 2, Sessions: 3, RateLimited: 4, Overloaded: 5}
	stop := r.ObserveProcess(func() mcpotel.ProcessStats { return stats })
	want := []string{
		"counter mcpwire.refused reason=overloaded: 5",
		"counter mcpwire.refused reason=rate_limited: 4",
		"gauge mcpwire.calls_in_flight: 1",
		"gauge mcpwire.sessions: 3",
		"gauge mcpwire.streams: 2",
	}
	if diff := gocmp.Diff(want, r.collect(t)); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	stats.Cluster = &mcpotel.ClusterStats{Members: 6, BusLost: 7, Forwarded: 8, Unforwarded: 9, DegradedStreams: 10, UnresumableStreams: 11, StorageDown: true}
	r.RecordAppend(time.Millisecond, nil)
	r.RecordAppend(2*time.Second, errors.New("no quorum"))
	want = append(want,
		"counter mcpwire.cluster.bus_lost: 7",
		"counter mcpwire.cluster.forwarded result=delivered: 8",
		"counter mcpwire.cluster.forwarded result=lost: 9",
		"counter mcpwire.cluster.unresumable_streams: 11",
		"gauge mcpwire.cluster.degraded_streams: 10",
		"gauge mcpwire.cluster.members: 6",
		"gauge mcpwire.cluster.storage_down: 1",
		"histogram mcpwire.cluster.append s error.type=_OTHER: 1 of 2",
		"histogram mcpwire.cluster.append s: 1 of 0.001",
	)
	slices.Sort(want)
	if diff := gocmp.Diff(want, r.collect(t)); diff != "" {
		t.Errorf("metrics of a cluster (-want +got):\n%s", diff)
	}
	stop()
	stats = mcpotel.ProcessStats{InFlight: 100}
	if got := r.collect(t); slices.Contains(got, "gauge mcpwire.calls_in_flight: 100") {
		t.Errorf("the process is read after stop: %q", got)
	}
}
