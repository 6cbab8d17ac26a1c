package specref

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"mcpwire/mcp"
)

var (
	//go:embed methods.txt
	methodsText string
	//go:embed codes.txt
	codesText string
	//go:embed headers.txt
	headersText string
	//go:embed fields.txt
	fieldsText string
	//go:embed rules.txt
	rulesText string
)

// A block is the section of a text file on one subject.
type block struct {
	name       string
	attributes []attribute
}

// An attribute is a line "key: text" or "key [revisions] rest: text".
type attribute struct {
	key, rest, text string
	// revisions lists all revisions unless the line names some.
	revisions []mcp.Revision
}

// readBlocks parses a text file. Lines that begin with # are comments, and "== NAME" begins a
// block.
func readBlocks(text string) ([]*block, error) {
	var all []*block
	for i, raw := range strings.Split(text, "\n") {
		raw = strings.TrimSpace(raw)
		switch name, isName := strings.CutPrefix(raw, "== "); {
		case raw == "" || strings.HasPrefix(raw, "#"):
		case isName:
			all = append(all, &block{name: name})
		case len(all) == 0:
			return nil, fmt.Errorf("line %d: %q is before the first block", i+1, raw)
		default:
			l, err := readAttribute(raw)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			b := all[len(all)-1]
			b.attributes = append(b.attributes, l)
		}
	}
	return all, nil
}

func readAttribute(raw string) (l attribute, err error) {
	head, text, ok := strings.Cut(raw, ": ")
	if !ok {
		return l, fmt.Errorf("%q is not a valid line", raw)
	}
	l.text, l.revisions = text, mcp.Revisions()
	l.key, l.rest, _ = strings.Cut(head, " ")
	if set, rest, ok := cutRevisions(l.rest); ok {
		if l.revisions, err = parseRevisions(set); err != nil {
			return l, err
		}
		l.rest = rest
	}
	return l, nil
}

// cutRevisions splits "[revisions]" from the front of a text.
func cutRevisions(text string) (set, rest string, ok bool) {
	if !strings.HasPrefix(text, "[") {
		return "", text, false
	}
	set, rest, ok = strings.Cut(text[1:], "]")
	return set, strings.TrimSpace(rest), ok
}

// parseRevisions parses "all", "legacy", a date, "from DATE" or "DATE to DATE".
func parseRevisions(text string) ([]mcp.Revision, error) {
	all := mcp.Revisions()
	first, last := all[0], all[len(all)-1]
	from, isFrom := strings.CutPrefix(text, "from ")
	begin, end, isRange := strings.Cut(text, " to ")
	ok, okEnd := true, true
	switch {
	case text == "all":
	case text == "legacy":
		last = mcp.LatestLegacyRevision
	case isFrom:
		first, ok = mcp.ParseRevision(from)
	case isRange:
		first, ok = mcp.ParseRevision(begin)
		last, okEnd = mcp.ParseRevision(end)
	default:
		first, ok = mcp.ParseRevision(text)
		last = first
	}
	if !ok || !okEnd {
		return nil, fmt.Errorf("%q are not revisions", text)
	}
	return all[slices.Index(all, first) : slices.Index(all, last)+1], nil
}

// withKey returns the attributes with a key that concern any of the revisions.
func (b *block) withKey(key string, revs []mcp.Revision) (all []attribute) {
	if b == nil {
		return nil
	}
	for _, l := range b.attributes {
		if l.key == key && overlap(l.revisions, revs) {
			all = append(all, l)
		}
	}
	return all
}

// text returns the first text of a key, or "".
func (b *block) text(key string) string {
	for _, l := range b.withKey(key, mcp.Revisions()) {
		return l.text
	}
	return ""
}

func overlap(a, b []mcp.Revision) bool {
	return slices.ContainsFunc(a, func(r mcp.Revision) bool { return slices.Contains(b, r) })
}

// intersect returns what both lists have, in the order of the first.
func intersect[T comparable](a, b []T) []T {
	return slices.DeleteFunc(slices.Clone(a), func(v T) bool { return !slices.Contains(b, v) })
}

// A Rule is a short form of a MUST or MUST NOT of the specification.
type Rule struct {
	ID string `json:"id"`
	// Side is "server", "client" or "tasks".
	Side      string   `json:"side"`
	Revisions []string `json:"revisions"`
	Text      string   `json:"text"`
	revisions []mcp.Revision
}

// readRules parses lines such as "S36 [revisions] text".
func readRules(text string) (map[string]*Rule, error) {
	sides := map[byte]string{'S': "server", 'C': "client", 'T': "tasks"}
	all := map[string]*Rule{}
	for raw := range strings.SplitSeq(text, "\n") {
		if raw == "" || raw[0] == '#' {
			continue
		}
		id, rest, _ := strings.Cut(raw, " ")
		set, sentence, ok := cutRevisions(rest)
		if !ok || sides[id[0]] == "" {
			return nil, fmt.Errorf("%q is not a rule", raw)
		}
		in, err := parseRevisions(set)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
		all[id] = &Rule{ID: id, Side: sides[id[0]], Revisions: names(in), Text: sentence, revisions: in}
	}
	return all, nil
}

func names(revs []mcp.Revision) []string {
	all := make([]string, len(revs))
	for i, r := range revs {
		all[i] = r.String()
	}
	return all
}
