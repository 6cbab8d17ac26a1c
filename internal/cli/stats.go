package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/capture"
	"mcpwire/internal/text/plural"
	"mcpwire/internal/trace"
)

func newStatsCommand(e *env) *cobra.Command {
	var asJSON bool
	var by string
	var side sideFlag
	c := &cobra.Command{
		Use:   "stats [FILE|NAME...] [--by tool|method] [--json]",
		Short: "summarize captures: calls, errors, latency, bytes",
		Long: `Summarize captures by tool or by method: the number of calls and of failures,
the server's response times (median, 95th and 99th percentile), and the bytes of
requests, of responses and of a tool's definition, which every model that is
offered the tool must read.

For a bridge's capture, stats counts the downstream side, unless --side selects
another: each call is on both sides.

Time that the server spends waiting for the client or its user does not count,
and all input rounds of a call count as one call. The default is the newest
capture, with all others of the same time.`,
		Example: `  mcpwire stats
  mcpwire stats fs github --by method
  mcpwire stats session.mcpcap.ndjson --json | jq '.[] | select(.errors > 0)'`,
		ValidArgsFunction: completeCaptures,
		RunE: func(cmd *cobra.Command, args []string) error {
			if by != "tool" && by != "method" {
				return usagef("stats: --by is tool or method, not %q", by)
			}
			paths, err := captureArgs(e, "stats", args)
			if err != nil {
				return err
			}
			m := newWalkModel(cmd.Context(), nil)
			status := e.statusLine()
			defer status.clear()
			status.step("reading %s", plural.Of(len(paths), "capture"))
			if err := walk(cmd.Context(), captureSource{e, paths, side.side}, m, func(*trace.Row) error { return nil }); err != nil {
				return err
			}
			status.clear()
			list := m.Tools()
			if by == "method" {
				list = m.Methods()
			}
			if asJSON {
				return writeStatsJSON(e, list, by)
			}
			return writeStats(e, list, by, len(paths) > 1)
		},
	}
	side.register(c, capture.Downstream)
	c.Flags().StringVar(&by, "by", "tool", "summarize by tool or method")
	c.Flags().BoolVar(&asJSON, "json", false, "print an array of objects")
	_ = c.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{"tool", "method"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// A statRecord holds the statistics of a tool or method for stats --json. Times are in
// milliseconds.
type statRecord struct {
	Server     string `json:"server"`
	Tool       string `json:"tool,omitempty"`
	Method     string `json:"method,omitempty"`
	Calls      uint64 `json:"calls"`
	OK         uint64 `json:"ok"`
	Errors     uint64 `json:"errors"`
	IsErrors   uint64 `json:"isErrors"`
	Cancelled  uint64 `json:"cancelled"`
	Unanswered uint64 `json:"unanswered"`
	// Waited is the longest time that an unanswered call has waited.
	Waited          *float64 `json:"unansweredMaxMs,omitempty"`
	P50             *float64 `json:"p50Ms,omitempty"`
	P95             *float64 `json:"p95Ms,omitempty"`
	P99             *float64 `json:"p99Ms,omitempty"`
	Max             *float64 `json:"maxMs,omitempty"`
	RequestBytes    int64    `json:"requestBytes"`
	ResponseBytes   int64    `json:"responseBytes"`
	DefinitionBytes int64    `json:"definitionBytes,omitempty"`
}

func writeStatsJSON(e *env, list []*trace.Stat, by string) error {
	records := []statRecord{}
	for _, s := range list {
		r := statRecord{
			Server: s.Server, Calls: s.Calls, OK: s.OK, Errors: s.Errors, IsErrors: s.ToolErrors, Cancelled: s.Canceled, Unanswered: s.Unanswered,
			RequestBytes: s.BytesIn, ResponseBytes: s.BytesOut, DefinitionBytes: s.DefinitionBytes,
		}
		if r.Tool = s.Name; by == "method" {
			r.Tool, r.Method = "", s.Name
		}
		ms := func(d time.Duration) *float64 { return new(trace.Millis(d)) }
		if s.Unanswered > 0 {
			r.Waited = ms(s.LongestWait)
		}
		if s.Latency.Count() > 0 {
			r.P50, r.P95, r.P99, r.Max = ms(s.Latency.Quantile(0.5)), ms(s.Latency.Quantile(0.95)), ms(s.Latency.Quantile(0.99)), ms(s.Latency.Max())
		}
		records = append(records, r)
	}
	return writeJSON(e.stdout, records)
}

func writeStats(e *env, list []*trace.Stat, by string, server bool) error {
	if len(list) == 0 {
		fmt.Fprintf(e.stderr, "no %ss found\n", by)
		return nil
	}
	t := &table{
		heads: []string{"CALLS", "ERRORS", "ISERROR", "CANCELLED", "UNANSWERED", "P50", "P95", "P99", "MAX", "REQUESTS", "RESPONSES", "DEFINITION", by}, right: true,
		spare: []string{"CANCELLED", "UNANSWERED", "MAX", "DEFINITION", "REQUESTS"},
	}
	for _, s := range list {
		t.add(statCells(s, server)...)
	}
	if by == "method" {
		t.drop("DEFINITION")
	}
	return t.print(e)
}

// statCells returns the cells of a line of the table.
func statCells(s *trace.Stat, server bool) []string {
	var cells []string
	for _, n := range []uint64{s.Calls, s.Errors, s.ToolErrors, s.Canceled, s.Unanswered} {
		cells = append(cells, strconv.FormatUint(n, 10))
	}
	if s.Unanswered > 0 {
		cells[len(cells)-1] += " in " + trace.FormatDuration(s.LongestWait)
	}
	h := &s.Latency
	for _, d := range []time.Duration{h.Quantile(0.5), h.Quantile(0.95), h.Quantile(0.99), h.Max()} {
		if h.Count() == 0 {
			cells = append(cells, "-")
		} else {
			cells = append(cells, trace.FormatDuration(d))
		}
	}
	size := "-"
	if s.DefinitionBytes > 0 {
		size = trace.FormatSize(s.DefinitionBytes)
	}
	name := column(s.Name, 60)
	if server {
		name = column(s.Server, 24) + " " + name
	}
	return append(cells, trace.FormatSize(s.BytesIn), trace.FormatSize(s.BytesOut), size, name)
}
