package kit

import (
	"math"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/text/spelling"
)

// Nearest returns at most three names that the user may have meant by name, the most likely first.
func Nearest(name string, names []string) []string {
	lower := strings.ToLower(name)
	compare := func(n string) (d int, begun, similar bool) {
		d, shorter := spelling.Distance(lower, strings.ToLower(n)), min(len(name), len(n))
		begun = len(name) >= 3 && strings.HasPrefix(strings.ToLower(n), lower)
		return d, begun, begun || d < shorter && d <= min(3, max(1, shorter/2))
	}
	least := math.MaxInt
	for _, n := range names {
		if d, _, similar := compare(n); similar {
			least = min(least, d)
		}
	}
	var list spelling.Ranking
	for _, n := range names {
		// Names that are further away than the nearest are noise.
		if d, begun, similar := compare(n); begun || similar && d == least {
			list.Add(n, d)
		}
	}
	return list.Nearest(3)
}

// DidYouMean returns a question to append to a message about an unknown name, or "" if no name is
// similar.
func DidYouMean(name string, names []string) string {
	similar := Nearest(name, names)
	if len(similar) == 0 {
		return ""
	}
	for i := range similar {
		similar[i] = safe.Line(similar[i])
	}
	return ": did you mean " + strings.Join(similar, " or ") + "?"
}

// SimilarFlag is DidYouMean for a long flag of a command.
func SimilarFlag(cmd *cobra.Command, name string) string {
	long, ok := strings.CutPrefix(name, "--")
	if !ok {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	similar := Nearest(long, names)
	if len(similar) == 0 {
		return ""
	}
	return ": did you mean --" + similar[0] + "?"
}
