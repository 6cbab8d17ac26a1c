package web

import (
	"net/http"

	"mcpwire/cmd/internal/trace"
)

// A stat is the JSON form of a trace.Stat. Times are in milliseconds.
type stat struct {
	Server     string  `json:"srv,omitempty"`
	Name       string  `json:"name"`
	Calls      uint64  `json:"calls,omitempty"`
	OK         uint64  `json:"ok,omitempty"`
	Errors     uint64  `json:"errors,omitempty"`
	IsErrors   uint64  `json:"iserrors,omitempty"`
	Cancelled  uint64  `json:"cancelled,omitempty"`
	Unanswered uint64  `json:"unanswered,omitempty"`
	P50        float64 `json:"p50,omitempty"`
	P95        float64 `json:"p95,omitempty"`
	Max        float64 `json:"max,omitempty"`
	In         int64   `json:"in,omitempty"`
	Out        int64   `json:"out,omitempty"`
	Definition int64   `json:"def,omitempty"`
	// Histogram has pairs of an upper bound and a count.
	Histogram [][2]float64 `json:"hist,omitempty"`
}

// toolStats has all statistics.
type toolStats struct {
	Tools   []stat `json:"tools"`
	Methods []stat `json:"methods"`
}

// newToolStats returns the statistics. The caller must hold the lock of the model.
func newToolStats(m *trace.Model) toolStats {
	return toolStats{stats(m.Tools()), stats(m.Methods())}
}

func stats(from []*trace.Stat) []stat {
	list := make([]stat, 0, len(from))
	for _, s := range from {
		l := &s.Latency
		list = append(list, stat{
			Server: s.Server, Name: s.Name, Calls: s.Calls, OK: s.OK, Errors: s.Errors, IsErrors: s.ToolErrors, Cancelled: s.Canceled, Unanswered: s.Unanswered,
			P50: trace.TruncatedMillis(l.Quantile(0.5)), P95: trace.TruncatedMillis(l.Quantile(0.95)), Max: trace.TruncatedMillis(l.Max()),
			In: s.BytesIn, Out: s.BytesOut, Definition: s.DefinitionBytes, Histogram: histogram(l),
		})
	}
	return list
}

func (s *Server) serveTools(w http.ResponseWriter, r *http.Request) error {
	var t toolStats
	s.hub.Read(func(m *trace.Model) { t = newToolStats(m) })
	return writeJSON(w, t)
}

// maxBars limits the bars of a histogram.
const maxBars = 48

func histogram(h *trace.Histogram) [][2]float64 {
	var bars [][2]float64
	for _, b := range h.Buckets(maxBars) {
		bars = append(bars, [2]float64{trace.TruncatedMillis(b.Upper), float64(b.Count)})
	}
	return bars
}
