package cli

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/text/spelling"
)

// nearest returns at most three names that the user may have meant by name, the most likely first.
func nearest(name string, names []string) []string {
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

// didYouMean returns a question to append to a message about an unknown name, or "" if no name is
// similar.
func didYouMean(name string, names []string) string {
	similar := nearest(name, names)
	if len(similar) == 0 {
		return ""
	}
	for i := range similar {
		similar[i] = safe.Line(similar[i])
	}
	return ": did you mean " + strings.Join(similar, " or ") + "?"
}

// nearestRules returns up to three rule ids that resemble id, the most likely first. The group of
// id may be missing or wrong.
func nearestRules(id string) []string {
	type candidate struct {
		id       string
		distance int
	}
	var candidates []candidate
	id = strings.ToLower(id[:min(len(id), 100)])
	_, name, _ := strings.Cut(id, "/")
	for _, rule := range ruleIDs() {
		_, ruleName, _ := strings.Cut(rule, "/")
		d := min(spelling.Distance(id, rule), spelling.Distance(id, ruleName))
		switch {
		case ruleName == id || ruleName == name:
			d = 0
		case len(id) >= 3 && strings.Contains(rule, id):
			d = min(d, 2)
		}
		if d <= max(2, len(id)/3) {
			candidates = append(candidates, candidate{rule, d})
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.id, b.id))
	})
	var ids []string
	for _, c := range candidates[:min(len(candidates), 3)] {
		ids = append(ids, c.id)
	}
	return ids
}

// similarFlag is didYouMean for a long flag of a command.
func similarFlag(cmd *cobra.Command, name string) string {
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
	similar := nearest(long, names)
	if len(similar) == 0 {
		return ""
	}
	return ": did you mean --" + similar[0] + "?"
}
