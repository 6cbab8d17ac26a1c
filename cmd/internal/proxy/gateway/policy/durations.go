package policy

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"mcpwire/cmd/internal/proxy/gateway"
)

const (
	// maxSeries limits the combinations of labels. Calls beyond it count without the name of the
	// tool or prompt.
	maxSeries = 4096
	// maxLabel limits the bytes of the name of a tool or prompt.
	maxLabel = 200
)

// durationBounds are the upper bounds of the buckets, in seconds: those of the conventions of
// OpenTelemetry for MCP.
var durationBounds = [...]float64{0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300}

// Durations count how long calls take. The zero value is ready to use. Its methods may be called by
// many goroutines at once.
type Durations struct {
	mu     sync.Mutex
	series map[durationLabels]*histogram
	// names holds the tools and prompts that have answered: models make names up.
	names map[targetName]bool
}

type durationLabels struct {
	upstream, method, name string
	outcome                gateway.Outcome
}

type targetName struct {
	upstream string
	kind     gateway.Kind
	name     string
}

// A histogram has a bucket for each bound and one for longer times.
type histogram struct {
	buckets [len(durationBounds) + 1]uint64
	seconds float64
}

// Record counts a call. It is for gateway.Options.Audit.
func (d *Durations) Record(r *gateway.CallRecord) {
	seconds := r.Duration.Seconds()
	labels := durationLabels{upstream: r.Upstream, method: r.Method, outcome: r.Outcome}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.series == nil {
		d.series, d.names = map[durationLabels]*histogram{}, map[targetName]bool{}
	}
	if target := (targetName{r.Upstream, r.Kind, r.Name}); hasName(r) && (d.names[target] || answered(r.Outcome) && len(d.names) < maxSeries) {
		d.names[target] = true
		labels.name = r.Name
	}
	h := d.series[labels]
	if h == nil && len(d.series) >= maxSeries {
		labels.name = "" // the names of upstreams and methods are few
		h = d.series[labels]
	}
	if h == nil {
		h = &histogram{}
		d.series[labels] = h
	}
	i, _ := slices.BinarySearch(durationBounds[:], seconds)
	h.buckets[i]++
	h.seconds += seconds
}

// hasName reports if a call names a tool or a prompt. There may be any number of resources and
// tasks.
func hasName(r *gateway.CallRecord) bool {
	return r.Upstream != "" && (r.Kind == gateway.KindTool || r.Kind == gateway.KindPrompt) && !strings.HasPrefix(r.Method, "tasks/") && r.Name != "" && len(r.Name) <= maxLabel
}

// answered reports if the server has carried out a call.
func answered(o gateway.Outcome) bool {
	return o == gateway.OutcomeOK || o == gateway.OutcomeToolError || o == gateway.OutcomeInput
}

// Append appends the histograms in the text format of Prometheus
// (https://prometheus.io/docs/instrumenting/exposition_formats/).
func (d *Durations) Append(dst []byte) []byte {
	const name = "mcpwire_gateway_call_duration_seconds"
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.series) == 0 {
		return dst
	}
	dst = append(dst, "# HELP "+name+" Duration of calls, with the gateway's own time.\n# TYPE "+name+" histogram\n"...)
	for _, labels := range slices.SortedFunc(maps.Keys(d.series), durationLabels.compare) {
		h := d.series[labels]
		text := labels.String()
		count := uint64(0)
		for i, n := range h.buckets {
			count += n
			bound := "+Inf"
			if i < len(durationBounds) {
				bound = strconv.FormatFloat(durationBounds[i], 'g', -1, 64)
			}
			dst = append(dst, name+"_bucket{"+text+`,le="`+bound+`"} `...)
			dst = append(strconv.AppendUint(dst, count, 10), '\n')
		}
		dst = append(strconv.AppendFloat(append(dst, name+"_sum{"+text+"} "...), h.seconds, 'g', -1, 64), '\n')
		dst = append(strconv.AppendUint(append(dst, name+"_count{"+text+"} "...), count, 10), '\n')
	}
	return dst
}

func (l durationLabels) compare(o durationLabels) int {
	return cmp.Or(strings.Compare(l.upstream, o.upstream), strings.Compare(l.method, o.method), strings.Compare(l.name, o.name), strings.Compare(string(l.outcome), string(o.outcome)))
}

// String returns the labels in the text format.
func (l durationLabels) String() string {
	return `upstream="` + escapeLabel(l.upstream) + `",method="` + escapeLabel(l.method) + `",name="` + escapeLabel(l.name) + `",outcome="` + escapeLabel(string(l.outcome)) + `"`
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// escapeLabel escapes the value of a label.
func escapeLabel(text string) string { return labelEscapes.Replace(strings.ToValidUTF8(text, "�")) }
