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

// A block is what a text file says of one thing.
type block struct {
	name       string
	attributes []attribute
}

// A line is "key: text" or "key [revisions] rest: text".
type attribute struct {
	key, rest, text string
	revisions       []mcp.Revision // all, unless the line says which
}

// readBlocks reads a text file: lines that begin with # are comments, "== NAME" begins a block.
func readBlocks(text string) ([]*block, error) {
	var all []*block
	for i, raw := range strings.Split(text, "\n") {
		raw = strings.TrimSpace(raw)
		switch name, isName := strings.CutPrefix(raw, "== "); {
		case raw == "" || strings.HasPrefix(raw, "#"):
		case isName:
			all = append(all, &block{name: name})
		case len(all) == 0:
			return nil, fmt.Errorf("line %d: %q stands before the first block", i+1, raw)
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
		return l, fmt.Errorf("%q is no line", raw)
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

// cutRevisions takes "[revisions]" from the front of a text.
func cutRevisions(text string) (set, rest string, ok bool) {
	if !strings.HasPrefix(text, "[") {
		return "", text, false
	}
	set, rest, ok = strings.Cut(text[1:], "]")
	return set, strings.TrimSpace(rest), ok
}

// parseRevisions reads "all", "legacy", a date, "from DATE" and "DATE to DATE".
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
		return nil, fmt.Errorf("%q are no revisions", text)
	}
	return all[slices.Index(all, first) : slices.Index(all, last)+1], nil
}

// withKey returns the texts of a key that concern any of the revisions.
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

// text returns the only text of a key, or "".
func (b *block) text(key string) string {
	for _, l := range b.withKey(key, mcp.Revisions()) {
		return l.text
	}
	return ""
}

func overlap(a, b []mcp.Revision) bool {
	return slices.ContainsFunc(a, func(r mcp.Revision) bool { return slices.Contains(b, r) })
}

func intersect(a, b []mcp.Revision) (both []mcp.Revision) {
	for _, r := range a {
		if slices.Contains(b, r) {
			both = append(both, r)
		}
	}
	return both
}

// A Rule is a MUST or MUST NOT of the specification in short.
type Rule struct {
	ID        string   `json:"id"`
	Side      string   `json:"side"` // "server", "client" or "tasks"
	Revisions []string `json:"revisions"`
	Text      string   `json:"text"`
	revisions []mcp.Revision
}

// readRules reads lines such as "S36 [revisions] text".
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
			return nil, fmt.Errorf("%q is no rule", raw)
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
