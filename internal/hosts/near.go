package hosts

import (
	"cmp"
	"slices"
	"strings"

	"mcpwire/internal/printable"
	"mcpwire/internal/spelling"
)

// similarNames returns the names of servers that look like name, the nearest first, each as show has it.
func similarNames(name string, list []Server, show func(Server) string) []string {
	type hit struct {
		text     string
		distance int
	}
	var hits []hit
	seen := map[string]bool{}
	for _, s := range list {
		text := printable.Line(show(s))
		if seen[text] {
			continue
		}
		seen[text] = true
		a, b := strings.ToLower(name), strings.ToLower(s.Name)
		d := spelling.Distance(a, b)
		if a != "" && (strings.Contains(b, a) || b != "" && strings.Contains(a, b)) {
			d = min(d, 1)
		}
		if d <= max(1, len(a)/3) {
			hits = append(hits, hit{text, d})
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return cmp.Compare(a.distance, b.distance) })
	var out []string
	for _, h := range hits[:min(len(hits), maxSimilar)] {
		out = append(out, h.text)
	}
	return out
}
