package call

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
)

const pingLong = `Send requests to a server, and print the response time of each, and the minimum,
the median and the maximum. A legacy server gets ping. A modern server, which
has no ping, gets server/discover.

--json prints one object: the method, and the times in milliseconds.`

const pingExample = `  mcpwire ping -- mcpwire serve
  mcpwire ping -c 100 --interval 10ms http://127.0.0.1:8080/mcp`

// NewPingCommand returns the command ping.
func NewPingCommand(e *kit.Env) *cobra.Command {
	return newVerbCommand(e, &cobra.Command{
		Use:     "ping TARGET [FLAGS]",
		Short:   "measure the response time of a server",
		Long:    pingLong,
		Example: pingExample,
	}, &pingVerb{})
}

// A pingVerb measures how long a server takes to answer.
type pingVerb struct {
	json     bool
	count    int
	interval time.Duration
}

func (v *pingVerb) register(fs *pflag.FlagSet) {
	fs.BoolVar(&v.json, "json", false, "print the times as one object")
	fs.IntVarP(&v.count, "count", "c", 4, "`NUMBER` of requests to send")
	fs.DurationVar(&v.interval, "interval", 200*time.Millisecond, "time to wait between requests")
}

func (v *pingVerb) parse(args []string) error {
	switch {
	case len(args) > 0:
		return exit.Usagef("ping: unexpected argument %q", clip.Characters(args[0], 60))
	case v.count < 1:
		return exit.Usagef("ping: --count %d: want at least 1", v.count)
	case v.interval < 0:
		return exit.Usagef("ping: --interval cannot be negative")
	}
	return nil
}

func (v *pingVerb) run(ctx context.Context, s *session) error {
	var times []time.Duration
	var err error
	for i := range v.count {
		if i > 0 && !wait.Sleep(ctx, v.interval) {
			err = ctx.Err()
			break
		}
		start := time.Now()
		if err = s.Ping(ctx); err != nil {
			break
		}
		took := time.Since(start)
		times = append(times, took)
		if v.json {
			continue
		}
		if e := s.write(fmt.Sprintf("%d: %s\n", i+1, kit.ShortTime(took))); e != nil {
			return e
		}
	}
	if len(times) > 0 {
		if e := v.sum(s, times); e != nil {
			return e
		}
	}
	return err
}

func (v *pingVerb) sum(s *session, times []time.Duration) error {
	sorted := slices.Sorted(slices.Values(times))
	least, median, most := sorted[0], sorted[len(sorted)/2], sorted[len(sorted)-1]
	if !v.json {
		return s.write(fmt.Sprintf("%d answered: min %s, median %s, max %s\n", len(times), kit.ShortTime(least), kit.ShortTime(median), kit.ShortTime(most)))
	}
	type report struct {
		Method string    `json:"method"`
		Count  int       `json:"count"`
		Min    float64   `json:"min"`
		Median float64   `json:"median"`
		Max    float64   `json:"max"`
		Times  []float64 `json:"times"`
	}
	r := report{Method: mcp.MethodPing, Count: len(times), Min: trace.TruncatedMillis(least), Median: trace.TruncatedMillis(median), Max: trace.TruncatedMillis(most)}
	if s.Revision().Modern() {
		r.Method = mcp.MethodDiscover
	}
	for _, t := range times {
		r.Times = append(r.Times, trace.TruncatedMillis(t))
	}
	return s.writeObject(r)
}
