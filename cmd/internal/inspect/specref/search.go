package specref

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"

	"mcpwire/mcp"
)

// A Hit is a line of the reference that has words of a search.
type Hit struct {
	// Word is what [Book.Lookup] finds the line under, or "rule" with the id of a rule.
	Word      string   `json:"word"`
	Revisions []string `json:"revisions"`
	Text      string   `json:"text"`
	// matches is the number of different words of the search in the line.
	matches int
}

const (
	// maxHits limits the lines that Search returns.
	maxHits = 12
	// maxSearchWords limits the words of a search that count.
	maxSearchWords = 16
)

// sameMeaning maps words that people search for to those that the reference uses.
var sameMeaning = map[string]string{
	"expired": "ended", "expires": "ended", "terminated": "ended", "lost": "ended", "closed": "ended",
	"login": "authorization", "auth": "authorization", "oauth": "authorization", "abort": "cancel", "cancelled": "cancel", "canceled": "cancel",
	"invalid": "malformed", "version": "revision",
}

// Search returns the lines of the reference and the rules with the most words of the query, in the
// revisions. Nil means all. Letters match regardless of case, and the beginning of a longer word.
func (b *Book) Search(query string, revs []mcp.Revision) []Hit {
	if len(revs) == 0 {
		revs = mcp.Revisions()
	}
	words := searchWords(query)
	words = words[:min(len(words), maxSearchWords)]
	var all []Hit
	best := 1
	add := func(word, text string, in []mcp.Revision) {
		if in = intersect(in, revs); len(in) == 0 {
			return
		}
		have := searchWords(word + " " + text)
		n := 0
		for _, w := range words {
			if slices.ContainsFunc(have, func(h string) bool { return matchesWord(h, w) || matchesWord(h, sameMeaning[w]) }) {
				n++
			}
		}
		if n >= best {
			best = n
			all = append(all, Hit{word, names(in), text, n})
		}
	}
	for _, blocks := range [][]*block{b.methods, b.codes, b.headers, slices.SortedFunc(maps.Values(b.texts), func(x, y *block) int { return cmp.Compare(x.name, y.name) })} {
		for _, bl := range blocks {
			word, _, _ := strings.Cut(bl.name, " ")
			in := b.revisionsOf(bl)
			for _, a := range bl.attributes {
				if slices.Contains([]string{"is", "when", "note", "do", "answers", "http", "needs", "error"}, a.key) {
					revisions := a.revisions
					if len(revisions) == len(mcp.Revisions()) { // the line names none
						revisions = in
					}
					add(word, strings.TrimSpace(a.rest+" "+a.text), revisions)
				}
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(b.rules)) {
		add("rule "+id, b.rules[id].Text, b.rules[id].revisions)
	}
	all = slices.DeleteFunc(all, func(h Hit) bool { return h.matches < best })
	return all[:min(len(all), maxHits)]
}

// revisionsOf returns the revisions that have what a block describes.
func (b *Book) revisionsOf(bl *block) []mcp.Revision {
	if in, err := parseRevisions(bl.text("in")); err == nil {
		return in
	}
	if !slices.Contains(b.methods, bl) {
		return mcp.Revisions()
	}
	has := b.methodEntry(bl, mcp.Revisions()).Revisions
	return slices.DeleteFunc(mcp.Revisions(), func(r mcp.Revision) bool { return !slices.Contains(has, r.String()) })
}

// searchWords returns the words of a text in lower case.
func searchWords(text string) []string {
	return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// matchesWord reports whether a word is another one or begins with it. A number only matches
// itself.
func matchesWord(word, want string) bool {
	if len(want) > 3 && want[0] > '9' {
		return strings.HasPrefix(word, want)
	}
	return want != "" && word == want
}

// WriteHits writes what a search has found.
func WriteHits(w io.Writer, hits []Hit, style Style) error {
	return writeEach(w, style, hits, func(p *printer, h Hit) {
		where := h.Revisions[0]
		if last := h.Revisions[len(h.Revisions)-1]; last != where {
			where += " to " + last
		}
		p.line(fmt.Sprintf("%s (%s)", p.Strong(h.Word), where))
		p.wrap("  ", "  ", h.Text)
	})
}
