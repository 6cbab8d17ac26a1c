// Package plural formats counts of things.
package plural

import (
	"strconv"
	"strings"
)

// Of returns a count with the singular or the plural of an English noun: "1 item", "2 items", "3
// properties". The noun's plural must be regular.
func Of(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok && stem != "" && !strings.ContainsRune("aeiou", rune(stem[len(stem)-1])) {
		return strconv.Itoa(n) + " " + stem + "ies"
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
