package specref

import (
	"slices"
	"strings"

	"mcpwire/internal/shape"
	"mcpwire/internal/spelling"
)

// A Group is a part of the index.
type Group struct {
	Title string   `json:"title"`
	Words []string `json:"words"`
}

// Index returns what can be asked for.
func (b *Book) Index() []Group {
	requests, notifications := Group{Title: "requests"}, Group{Title: "notifications"}
	for _, m := range shape.Methods() {
		if m.Notification {
			notifications.Words = append(notifications.Words, m.Name)
		} else {
			requests.Words = append(requests.Words, m.Name)
		}
	}
	all := []Group{requests, notifications, {Title: "codes"}, {Title: "headers"}, {Title: "fields"}, {Title: "types"}}
	for _, c := range b.codes {
		all[2].Words = append(all[2].Words, c.name)
	}
	for _, h := range b.headers {
		all[3].Words = append(all[3].Words, h.name)
	}
	all[4].Words = b.FieldNames()
	for _, name := range shape.TypeNames() {
		if !strings.Contains(name, ".") {
			all[5].Words = append(all[5].Words, name)
		}
	}
	return all
}

// Suggest returns up to five words that are near an unknown one, the nearest first.
func (b *Book) Suggest(word string) []string {
	const most, longest = 5, 100
	word = strings.ToLower(word)
	if len(word) > longest {
		word = word[:longest]
	}
	type near struct {
		name     string
		distance int
	}
	var all []near
	seen := map[string]bool{}
	add := func(name string, distance int) {
		if !seen[name] {
			seen[name] = true
			all = append(all, near{name, distance})
		}
	}
	for _, g := range b.Index() {
		for _, w := range g.Words {
			for _, form := range spellings(w) {
				d := spelling.Distance(word, strings.ToLower(form))
				switch contains := len(word) > 2 && strings.Contains(strings.ToLower(form), word); {
				case contains:
					add(w, 1)
				case d <= 1+len(word)/4:
					add(w, d)
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b near) int { return a.distance - b.distance })
	var names []string
	for _, n := range all[:min(most, len(all))] {
		name, _, _ := strings.Cut(n.name, " ") // of a code, the number
		names = append(names, name)
	}
	return names
}

// spellings are the ways to write a word.
func spellings(w string) []string {
	all := strings.Fields(w)
	if _, last, ok := strings.Cut(w, metaPrefix); ok {
		all = append(all, last)
	}
	if _, last, ok := strings.Cut(w, "notifications/"); ok {
		all = append(all, last)
	}
	return all
}
