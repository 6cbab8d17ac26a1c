// Package spelling measures how similar two words are, to suggest corrections of misspelled words.
//
// # Concurrency
//
// Distance is safe for concurrent use.
package spelling

import "slices"

// maxCompared limits the compared bytes of a word, so that untrusted words cost little.
const maxCompared = 64

// Distance returns the number of insertions, deletions, replacements and swaps of adjacent bytes
// that turn a into b (https://en.wikipedia.org/wiki/Damerau%E2%80%93Levenshtein_distance, optimal
// string alignment). It compares only the first 64 bytes of each.
func Distance(a, b string) int {
	a, b = a[:min(len(a), maxCompared)], b[:min(len(b), maxCompared)]
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			cost := row[j]
			if a[i] != b[j] {
				cost++
			}
			next[j+1] = min(cost, next[j]+1, row[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

// A Ranking collects names by their distance from a word. The zero value is empty.
type Ranking struct {
	names     []string
	distances map[string]int
}

// Add adds a name. It does nothing if the name was added before.
func (r *Ranking) Add(name string, distance int) {
	if _, known := r.distances[name]; known {
		return
	}
	if r.distances == nil {
		r.distances = map[string]int{}
	}
	r.names, r.distances[name] = append(r.names, name), distance
}

// Nearest returns at most n names, the nearest first, and equally near ones in the order in which
// they were added.
func (r *Ranking) Nearest(n int) []string {
	slices.SortStableFunc(r.names, func(a, b string) int { return r.distances[a] - r.distances[b] })
	return slices.Clone(r.names[:min(n, len(r.names))])
}
