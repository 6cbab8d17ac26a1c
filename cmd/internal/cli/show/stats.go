package show

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/text/plural"
)

// NewStatsCommand returns the command stats.
func NewStatsCommand(e *kit.Env) *cobra.Command {
	var asJSON, all bool
	var by, order string
	var side sources.SideFlag
	c := &cobra.Command{
		Use:   "stats [FILE|NAME...] [--by tool|method] [--sort COLUMN] [FLAGS]",
		Short: "summarize captures: calls, errors, latency, bytes",
		Long: `Summarize captures by tool or by method: the number of calls and of failures,
the server's response times (median, 95th and 99th percentile), and the bytes of
requests, of responses and of a tool's definition, which every model that is
offered the tool must read. By tool, a line for each server with a list of tools
follows: how many o200k tokens their definitions have (mcpwire list --help says
what is counted).

For a bridge's capture, stats counts the downstream side, unless --side selects
another: each call is on both sides.

The most called come first. Tools without calls are only counted, unless --all
is given; --json has them all.

Time that the server spends waiting for the client or its user does not count,
and all input rounds of a call count as one call. The default is the newest
capture, with all others of the same time.`,
		Example: `  mcpwire stats
  mcpwire stats fs github --by method
  mcpwire stats session.mcpcap.ndjson --json | jq '.[] | select(.errors > 0)'`,
		ValidArgsFunction: sources.CompleteCaptures,
		RunE: func(cmd *cobra.Command, args []string) error {
			if by != "tool" && by != "method" {
				return exit.Usagef("stats: --by is tool or method, not %q", by)
			}
			if statOrders[order] == nil {
				return exit.Usagef("stats: --sort is one of %s, not %q", strings.Join(statColumns(), ", "), order)
			}
			paths, err := sources.Args(e, "stats", args)
			if err != nil {
				return err
			}
			m := sources.NewWalkModel(cmd.Context(), nil)
			status := e.StatusLine()
			defer status.Clear()
			status.Step("reading %s", plural.Of(len(paths), "capture"))
			gaps := 0
			count := func(r *trace.Row) error {
				if r.Kind == trace.Gap {
					gaps++
				}
				return nil
			}
			if err := sources.Walk(cmd.Context(), sources.Source{Env: e, Paths: paths, Side: side.Side}, m, count); err != nil {
				return err
			}
			status.Clear()
			e.NoteGaps(gaps)
			list := m.Tools()
			if by == "method" {
				list = m.Methods()
			}
			sortStats(list, order)
			if asJSON {
				return writeStatsJSON(e, list, by)
			}
			if err := writeStats(e, list, by, len(paths) > 1, all); err != nil || by == "method" {
				return err
			}
			return writeTokens(e, m.Tools())
		},
	}
	side.Register(c, capture.Downstream)
	c.Flags().StringVar(&by, "by", "tool", "summarize by tool or method")
	c.Flags().BoolVar(&asJSON, "json", false, "print an array of objects")
	c.Flags().BoolVar(&all, "all", false, "also print tools that were never called")
	c.Flags().StringVar(&order, "sort", "calls", "`COLUMN` to sort by, the largest first: "+strings.Join(statColumns(), ", "))
	kit.CompleteFlag(c, "sort", statColumns)
	_ = c.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{"tool", "method"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// statOrders holds the values to sort by in descending order. A constant leaves the order by name.
var statOrders = map[string]func(*trace.Stat) int64{
	"calls":      func(s *trace.Stat) int64 { return int64(s.Calls) },
	"errors":     func(s *trace.Stat) int64 { return int64(s.Errors + s.ToolErrors) },
	"unanswered": func(s *trace.Stat) int64 { return int64(s.Unanswered) },
	"p50":        func(s *trace.Stat) int64 { return int64(s.Latency.Quantile(0.5)) },
	"p95":        func(s *trace.Stat) int64 { return int64(s.Latency.Quantile(0.95)) },
	"max":        func(s *trace.Stat) int64 { return int64(s.Latency.Max()) },
	"requests":   func(s *trace.Stat) int64 { return s.BytesIn },
	"responses":  func(s *trace.Stat) int64 { return s.BytesOut },
	"definition": func(s *trace.Stat) int64 { return s.DefinitionBytes },
	"name":       func(*trace.Stat) int64 { return 0 },
}

func statColumns() []string { return slices.Sorted(maps.Keys(statOrders)) }

// sortStats sorts by a column. Equal values keep the order by server and name.
func sortStats(list []*trace.Stat, column string) {
	value := statOrders[column]
	slices.SortStableFunc(list, func(a, b *trace.Stat) int { return cmp.Compare(value(b), value(a)) })
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
	// DefinitionTokens counts o200k tokens of the name, the description and the inputSchema.
	DefinitionTokens int `json:"definitionTokens,omitempty"`
}

func writeStatsJSON(e *kit.Env, list []*trace.Stat, by string) error {
	records := []statRecord{}
	for _, s := range list {
		r := statRecord{
			Server: s.Server, Calls: s.Calls, OK: s.OK, Errors: s.Errors, IsErrors: s.ToolErrors, Cancelled: s.Canceled, Unanswered: s.Unanswered,
			RequestBytes: s.BytesIn, ResponseBytes: s.BytesOut, DefinitionBytes: s.DefinitionBytes, DefinitionTokens: s.DefinitionTokens(),
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
	return kit.WriteJSON(e.Stdout, records)
}

func writeStats(e *kit.Env, list []*trace.Stat, by string, server, all bool) error {
	if len(list) == 0 {
		fmt.Fprintf(e.Stderr, "no %ss found\n", by)
		return nil
	}
	if !all {
		n := len(list)
		list = slices.DeleteFunc(list, func(s *trace.Stat) bool { return s.Calls == 0 })
		if n -= len(list); n > 0 {
			fmt.Fprintf(e.Stderr, "%s without calls (--all prints them)\n", plural.Of(n, by))
		}
	}
	t := &kit.Table{
		Heads: []string{"CALLS", "ERRORS", "TOOL FAILED", "CANCELLED", "NO RESPONSE", "P50", "P95", "P99", "MAX", "REQUESTS", "RESPONSES", "DEFINITION", by}, Right: true,
		Spare: []string{"CANCELLED", "NO RESPONSE", "MAX", "DEFINITION", "REQUESTS"},
	}
	for _, s := range list {
		t.Add(statCells(s, server)...)
	}
	if len(list) > 1 {
		t.Add(statCells(total(list), false)...)
	}
	if by == "method" {
		t.Drop("DEFINITION")
	}
	return t.Print(e)
}

// writeTokens prints how many tokens the definitions of each server have. list is ordered by
// server.
func writeTokens(e *kit.Env, list []*trace.Stat) error {
	list = slices.DeleteFunc(list, func(s *trace.Stat) bool { return s.DefinitionBytes == 0 })
	for len(list) > 0 {
		server, count, n := list[0].Server, 0, 0
		for ; n < len(list) && list[n].Server == server; n++ {
			count += list[n].DefinitionTokens()
		}
		if _, err := fmt.Fprintf(e.Stdout, "%s: %s o200k tokens in the definitions of %s\n", column(server, 60), trace.FormatCount(count), plural.Of(n, "tool")); err != nil {
			return err
		}
		list = list[n:]
	}
	return nil
}

// total returns the sum of a list.
func total(list []*trace.Stat) *trace.Stat {
	sum := &trace.Stat{Name: "total"}
	for _, s := range list {
		sum.Calls += s.Calls
		sum.Errors += s.Errors
		sum.ToolErrors += s.ToolErrors
		sum.Canceled += s.Canceled
		sum.Unanswered += s.Unanswered
		sum.LongestWait = max(sum.LongestWait, s.LongestWait)
		sum.BytesIn += s.BytesIn
		sum.BytesOut += s.BytesOut
		sum.DefinitionBytes += s.DefinitionBytes
		sum.Latency.Merge(&s.Latency)
	}
	return sum
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
