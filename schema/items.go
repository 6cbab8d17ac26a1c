package schema

import "fmt"

// equalItems finds two equal elements of the array text and returns their
// indexes. It costs about as much as reading the text a few times, whatever the
// number of elements. If spend is not nil it is told the bytes looked at, and
// ends the search by returning false.
func equalItems(text []byte, spend func(bytes int) bool) (i, j int, ok bool) {
	seen := map[string]int{}
	var buf []byte
	c := cursor{b: text}
	c.space()
	k := 0
	for more := c.open(); more; more = c.more() {
		start := c.i
		buf = c.appendCanonical(buf[:0], canonicalDepth)
		if spend != nil && !spend(c.i-start) {
			return 0, 0, false
		}
		if first, dup := seen[string(buf)]; dup {
			return first, k, true
		}
		seen[string(buf)] = k
		k++
	}
	return 0, 0, false
}

func itemsEqual(i, j int) string {
	return fmt.Sprintf("expected unique items, but items %d and %d are equal", i, j)
}
