// Package spelling finds what somebody may have meant who has misspelled a word.
//
// # Concurrency
//
// Its function may be called by many goroutines at once.
//
// # Errors
//
// There are none.
package spelling

// maxCompared is how many bytes of words are compared, so that words of strangers cost little.
const maxCompared = 64

// Distance returns how many bytes have to be put in, taken out, replaced, or swapped with their neighbours to make b of a
// (https://en.wikipedia.org/wiki/Damerau%E2%80%93Levenshtein_distance, in the variant that changes no part twice). Only the first 64 bytes of each count.
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
