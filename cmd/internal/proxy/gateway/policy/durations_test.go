package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/mcp"
)

// durationLines returns the lines of d that begin with a name.
func durationLines(d *Durations, name string) (list []string) {
	for line := range strings.Lines(string(d.Append(nil))) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			list = append(list, strings.TrimSpace(rest))
		}
	}
	return list
}

func callRecord(upstream, name string, outcome gateway.Outcome, d time.Duration) *gateway.CallRecord {
	return &gateway.CallRecord{
		CallInfo: gateway.CallInfo{Method: mcp.MethodToolsCall, Upstream: upstream, Kind: gateway.KindTool, Name: name}, Outcome: outcome, Duration: d,
	}
}

// TestDurations checks the histograms, and that only names that a server has answered are labels.
func TestDurations(t *testing.T) {
	var d Durations
	if text := d.Append(nil); text != nil {
		t.Errorf("without calls: %s", text)
	}
	for _, r := range []*gateway.CallRecord{
		callRecord("files", "made_up", gateway.OutcomeError, time.Second),
		callRecord("files", "read", gateway.OutcomeOK, 10*time.Millisecond),
		callRecord("files", "read", gateway.OutcomeOK, 15*time.Millisecond),
		callRecord("files", "read", gateway.OutcomeError, 10*time.Minute),
		callRecord("files", `a"\b`+"\n", gateway.OutcomeToolError, 0),
		callRecord("files", strings.Repeat("x", maxLabel+1), gateway.OutcomeOK, 0),
		callRecord("", "unknown", gateway.OutcomeDenied, 0),
		{CallInfo: gateway.CallInfo{Method: mcp.MethodResourcesRead, Upstream: "files", Kind: gateway.KindResource, Name: "file:///1"}, Outcome: gateway.OutcomeOK},
		{CallInfo: gateway.CallInfo{Method: mcp.MethodTasksGet, Upstream: "files", Kind: gateway.KindTool, Name: "task-1"}, Outcome: gateway.OutcomeOK},
	} {
		d.Record(r)
	}
	want := []string{
		`{upstream="",method="tools/call",name="",outcome="denied"} 1`,
		`{upstream="files",method="resources/read",name="",outcome="ok"} 1`,
		`{upstream="files",method="tasks/get",name="",outcome="ok"} 1`,
		`{upstream="files",method="tools/call",name="",outcome="error"} 1`,
		`{upstream="files",method="tools/call",name="",outcome="ok"} 1`,
		`{upstream="files",method="tools/call",name="a\"\\b\n",outcome="tool_error"} 1`,
		`{upstream="files",method="tools/call",name="read",outcome="error"} 1`,
		`{upstream="files",method="tools/call",name="read",outcome="ok"} 2`,
	}
	if diff := cmp.Diff(want, durationLines(&d, "mcpwire_gateway_call_duration_seconds_count")); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
	read := `_bucket{upstream="files",method="tools/call",name="read",outcome="ok",le=`
	if diff := cmp.Diff([]string{`"0.01"} 1`, `"0.02"} 2`, `"0.05"} 2`}, durationLines(&d, "mcpwire_gateway_call_duration_seconds"+read)[:3]); diff != "" {
		t.Errorf("buckets (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{`"+Inf"} 1`}, durationLines(&d, "mcpwire_gateway_call_duration_seconds"+strings.Replace(read, `"ok"`, `"error"`, 1))[len(durationBounds):]); diff != "" {
		t.Errorf("a call of 10 min (-want +got):\n%s", diff)
	}
}

// TestManyDurations checks that the number of histograms is bounded, and that no call is lost.
func TestManyDurations(t *testing.T) {
	var d Durations
	const calls = 2 * maxSeries
	for i := range calls {
		d.Record(callRecord("files", fmt.Sprint("tool", i), gateway.OutcomeOK, 0))
	}
	if n := len(d.series); n > maxSeries+1 {
		t.Errorf("%d histograms", n)
	}
	total := uint64(0)
	for _, h := range d.series {
		total += h.buckets[0]
	}
	if total != calls {
		t.Errorf("%d calls are counted, want %d", total, calls)
	}
	// A histogram that is there goes on. A call that would need another one counts without the name.
	d.Record(callRecord("files", "tool0", gateway.OutcomeOK, 0))
	d.Record(callRecord("files", "tool0", gateway.OutcomeError, 0))
	text := string(d.Append(nil))
	for _, want := range []string{`name="tool0",outcome="ok"} 2`, `name="",outcome="error"} 1`} {
		if !strings.Contains(text, `_count{upstream="files",method="tools/call",`+want+"\n") {
			t.Errorf("the histograms have no line %s", want)
		}
	}
}
