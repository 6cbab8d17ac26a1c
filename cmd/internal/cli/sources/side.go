package sources

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/kit"
)

// SideFlag selects one side of a bridge's capture.
type SideFlag struct{ Side capture.Side }

// both is the value of --side that selects both sides.
const both = "both"

// Register defines the flag. fallback is its default.
func (f *SideFlag) Register(c *cobra.Command, fallback capture.Side) {
	f.Side = fallback
	what := both
	if fallback != "" {
		what = string(fallback)
	}
	c.Flags().Var(f, "side", "side of a bridge's capture to read: `SIDE` is downstream (clients), upstream (server) or both (default "+what+")")
	kit.CompleteFlag(c, "side", func() []string { return []string{string(capture.Downstream), string(capture.Upstream), both} })
}

// RegisterOne is [SideFlag.Register] for commands that can read one side only.
func (f *SideFlag) RegisterOne(fs *pflag.FlagSet, fallback capture.Side) {
	f.Side = fallback
	fs.Func("side", "side of a bridge's capture to read: `SIDE` is downstream (clients) or upstream (server) (default "+string(fallback)+")", func(s string) error {
		if s == both {
			return fmt.Errorf("want downstream or upstream")
		}
		return f.Set(s)
	})
}

// String implements pflag.Value.
func (f *SideFlag) String() string { return "" }

// Type implements pflag.Value.
func (f *SideFlag) Type() string { return "side" }

// Set implements pflag.Value.
func (f *SideFlag) Set(s string) error {
	switch side := capture.Side(s); {
	case side == capture.Downstream, side == capture.Upstream:
		f.Side = side
	case s == both:
		f.Side = ""
	default:
		return fmt.Errorf("want downstream, upstream or both")
	}
	return nil
}
