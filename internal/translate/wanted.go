package translate

import (
	"iter"
	"strings"
)

// wanted reports whether a resource is one of those subscribed to, or a part of one.
func wanted(subscribed iter.Seq[string], uri string) bool {
	for whole := range subscribed {
		rest, ok := strings.CutPrefix(uri, whole)
		if ok && (rest == "" || strings.HasSuffix(whole, "/") || strings.ContainsRune("/?#", rune(rest[0]))) {
			return true
		}
	}
	return false
}
