package specref

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"mcpwire/cmd/internal/text/spelling"
	"mcpwire/internal/era/shape"
	"mcpwire/mcp"
)

// A Book is the parsed reference.
type Book struct {
	methods, codes, headers []*block
	// texts holds the blocks of members.
	texts  map[string]*block
	fields map[string][]Place
	rules  map[string]*Rule
}

// Open parses the reference, in about a millisecond. It panics if the texts are invalid.
func Open() *Book {
	b := &Book{texts: map[string]*block{}, fields: map[string][]Place{}}
	read := func(name, text string) []*block {
		blocks, err := readBlocks(text)
		if err != nil {
			panic(fmt.Sprintf("specref: %s: %v", name, err))
		}
		return blocks
	}
	b.methods, b.codes, b.headers = read("methods.txt", methodsText), read("codes.txt", codesText), read("headers.txt", headersText)
	for _, f := range read("fields.txt", fieldsText) {
		b.texts[f.name] = f
	}
	var err error
	if b.rules, err = readRules(rulesText); err != nil {
		panic(fmt.Sprintf("specref: rules.txt: %v", err))
	}
	b.readFields()
	return b
}

// readFields indexes where members occur.
func (b *Book) readFields() {
	for _, name := range shape.TypeNames() {
		for _, r := range shape.Revisions(name) {
			t, _ := shape.TypeOf(r, name)
			for _, f := range t.Fields() {
				b.addPlace(f, name, r.String())
			}
		}
	}
}

func (b *Book) addPlace(f shape.Field, typ, rev string) {
	text := withoutInlineName(f.Type.String(), innermost(f.Type))
	places := b.fields[f.Name]
	i := slices.IndexFunc(places, func(p Place) bool { return p.In == typ && p.Type == text })
	if i < 0 {
		i = len(places)
		places = append(places, Place{In: typ, Type: text})
	}
	places[i].Revisions = append(places[i].Revisions, rev)
	if f.Required {
		places[i].Required = append(places[i].Required, rev)
	}
	b.fields[f.Name] = places
}

func innermost(t shape.Type) shape.Type {
	for t.Kind() == shape.KindArray || t.Kind() == shape.KindMap {
		t = t.Elem()
	}
	return t
}

// Lookup returns the meanings of a word in the revisions: methods first, then codes, headers,
// members and types. The word is a name on the wire ("tools/call", "-32020", "Mcp-Name",
// "resultType", "_meta.progressToken") or in the specification ("HeaderMismatch", "Tool"). Case
// matters only if an exact match exists. revs, in order, limits the result; nil means all. A
// meaning outside of revs has no Revisions.
func (b *Book) Lookup(word string, revs []mcp.Revision) []*Entry {
	if len(revs) == 0 {
		revs = mcp.Revisions()
	}
	word = strings.TrimSuffix(strings.TrimSpace(word), ":")
	all := b.find(word, revs, func(name, word string) bool { return name == word })
	if len(all) == 0 {
		all = b.find(word, revs, strings.EqualFold)
	}
	return all
}

func (b *Book) find(word string, revs []mcp.Revision, same func(name, word string) bool) (all []*Entry) {
	add := func(e *Entry) {
		if e != nil {
			all = append(all, e)
		}
	}
	for _, m := range b.methods {
		if same(m.name, word) || same(strings.TrimPrefix(m.name, "notifications/"), word) {
			add(b.methodEntry(m, revs))
		}
	}
	for _, c := range b.codes {
		if isCode(c.name, word, same) {
			add(b.codeEntry(c, revs))
		}
	}
	for _, h := range b.headers {
		prefix, star := strings.CutSuffix(h.name, "*")
		if strings.EqualFold(h.name, word) || star && len(word) >= len(prefix) && strings.EqualFold(word[:len(prefix)], prefix) {
			add(b.headerEntry(h, revs))
		}
	}
	field := strings.TrimPrefix(word, "_meta.")
	for _, name := range b.FieldNames() {
		if same(name, field) || same(strings.TrimPrefix(name, metaPrefix), field) {
			add(b.fieldEntry(name, revs))
		}
	}
	for _, name := range shape.TypeNames() {
		if same(name, word) {
			add(b.typeEntry(name, revs))
		}
	}
	return all
}

const metaPrefix = "io.modelcontextprotocol/"

// isCode reports whether a word names a code, by number with or without sign, or by name with or
// without the suffix Error.
func isCode(name, word string, same func(name, word string) bool) bool {
	number, text, _ := strings.Cut(name, " ")
	if same(text, word) || same(text+"Error", word) || same(text, word+"Error") {
		return true
	}
	first, last, isRange := strings.Cut(number, "..")
	n, err := strconv.Atoi(word)
	if err != nil {
		return word == number
	}
	if n > 1000 {
		n = -n
	}
	low, _ := strconv.Atoi(first)
	if !isRange {
		return n == low || low == -32000 && n < -32000 && n >= -32019 && n != -32002
	}
	high, _ := strconv.Atoi(last)
	return n <= low && n >= high && n != -32020 && n != -32021 && n != -32022 && n != -32042
}

// FieldNames returns the sorted names of all members.
func (b *Book) FieldNames() []string {
	return sortedUnique(slices.AppendSeq(slices.Collect(maps.Keys(b.fields)), maps.Keys(b.texts)))
}

// rulesOf returns the rules that a block lists for the revisions.
func (b *Book) rulesOf(text *block, revs []mcp.Revision) (all []*Rule) {
	for id := range strings.FieldsSeq(text.text("rules")) {
		if r := b.rules[id]; r != nil && overlap(r.revisions, revs) {
			all = append(all, r)
		}
	}
	sides := []string{"server", "client", "tasks"}
	slices.SortStableFunc(all, func(a, b *Rule) int { return slices.Index(sides, a.Side) - slices.Index(sides, b.Side) })
	return all
}

// pageURL returns the URL of the page on a subject, in the latest revision that has one.
func pageURL(text *block, revs []mcp.Revision) string {
	for _, r := range slices.Backward(revs) {
		lines := text.withKey("page", []mcp.Revision{r})
		switch {
		case len(lines) == 0:
		case strings.Contains(lines[0].text, "://"):
			return lines[0].text
		default:
			return "https://modelcontextprotocol.io/specification/" + r.String() + "/" + lines[0].text
		}
	}
	return ""
}

// revisionTexts returns the texts of a key with their revisions.
func revisionTexts(text *block, key string, revs []mcp.Revision) (all []RevisionText) {
	for _, l := range text.withKey(key, revs) {
		all = append(all, RevisionText{names(intersect(l.revisions, revs)), l.text})
	}
	return all
}

// revisionNotes returns the notes on a subject. A note with specific revisions is kept if it
// concerns revs, even if these no longer have the subject. Other notes apply to the revisions in.
func revisionNotes(text *block, in, revs []mcp.Revision) (all []RevisionText) {
	for _, l := range text.withKey("note", revs) {
		concerned := intersect(l.revisions, revs)
		if len(l.revisions) == len(mcp.Revisions()) {
			concerned = in
		}
		if len(concerned) > 0 {
			all = append(all, RevisionText{names(concerned), l.text})
		}
	}
	return all
}

// A Group is a part of the index.
type Group struct {
	Title string   `json:"title"`
	Words []string `json:"words"`
}

// Index returns all words that Lookup knows, by group.
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

// Suggest returns up to five words similar to an unknown one, the nearest first.
func (b *Book) Suggest(word string) []string {
	const most, longest = 5, 100
	word = strings.ToLower(word)
	if len(word) > longest {
		word = word[:longest]
	}
	var similar spelling.Ranking
	for _, g := range b.Index() {
		for _, w := range g.Words {
			for _, form := range spellings(w) {
				d := spelling.Distance(word, strings.ToLower(form))
				if len(word) > 2 && strings.Contains(strings.ToLower(form), word) {
					d = min(d, 1)
				}
				if d <= 1+len(word)/4 {
					similar.Add(w, d)
				}
			}
		}
	}
	names := similar.Nearest(most)
	for i, name := range names {
		names[i], _, _ = strings.Cut(name, " ") // of a code, the number
	}
	return names
}

// spellings returns the ways to write a word.
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
