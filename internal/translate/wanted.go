package translate

import (
	"iter"
	"strings"
)

// matchesSubscription reports whether a resource is one of those subscribed to, or a part of one.
func matchesSubscription(subscribed iter.Seq[string], uri string) bool {
	for prefix := range subscribed {
		rest, ok := strings.CutPrefix(uri, prefix)
		if ok && (rest == "" || strings.HasSuffix(prefix, "/") || strings.ContainsRune("/?#", rune(rest[0]))) {
			return true
		}
	}
	return false
}
