package kit

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/text/spelling"
)

// Nearest returns at most three names that the user may have meant by name, the most likely first.
func Nearest(name string, names []string) []string {
	type similar struct {
		name     string
		distance int
		// begun is true if name is a prefix.
		begun bool
	}
	var found []similar
	for _, n := range names {
		if len(n) > 256 || len(name) > 256 {
			continue
		}
		d := spelling.Distance(strings.ToLower(name), strings.ToLower(n))
		shorter := min(len(name), len(n))
		begun := len(name) >= 3 && strings.HasPrefix(strings.ToLower(n), strings.ToLower(name))
		if d < shorter && d <= min(3, max(1, shorter/2)) || begun {
			found = append(found, similar{n, d, begun})
		}
	}
	slices.SortStableFunc(found, func(a, b similar) int { return a.distance - b.distance })
	var list []string
	for _, f := range found {
		// Names that are further away than the nearest are noise.
		if len(list) < 3 && (f.begun || f.distance == found[0].distance) {
			list = append(list, f.name)
		}
	}
	return list
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
