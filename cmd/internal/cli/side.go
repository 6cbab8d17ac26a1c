package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/capture"
)

// sideFlag selects one side of a bridge's capture.
type sideFlag struct{ side capture.Side }

// both is the value of --side that selects both sides.
const both = "both"

// register defines the flag. fallback is its default.
func (f *sideFlag) register(c *cobra.Command, fallback capture.Side) {
	f.side = fallback
	what := both
	if fallback != "" {
		what = string(fallback)
	}
	c.Flags().Var(f, "side", "side of a bridge's capture to read: `SIDE` is downstream (clients), upstream (server) or both (default "+what+")")
	completeFlag(c, "side", func() []string { return []string{string(capture.Downstream), string(capture.Upstream), both} })
}

// registerOne is register for commands that can read one side only.
func (f *sideFlag) registerOne(fs *pflag.FlagSet, fallback capture.Side) {
	f.side = fallback
	fs.Func("side", "side of a bridge's capture to read: `SIDE` is downstream (clients) or upstream (server) (default "+string(fallback)+")", func(s string) error {
		if s == both {
			return fmt.Errorf("want downstream or upstream")
		}
		return f.Set(s)
	})
}

// String implements pflag.Value.
func (f *sideFlag) String() string { return "" }

// Type implements pflag.Value.
func (f *sideFlag) Type() string { return "side" }

// Set implements pflag.Value.
func (f *sideFlag) Set(s string) error {
	switch side := capture.Side(s); {
	case side == capture.Downstream, side == capture.Upstream:
		f.side = side
	case s == both:
		f.side = ""
	default:
		return fmt.Errorf("want downstream, upstream or both")
	}
	return nil
}
