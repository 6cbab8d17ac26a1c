package specref

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/jsonwire"
	"mcpwire/internal/shape"
	"mcpwire/mcp"
)

// codeEntry describes an error code.
func (b *Book) codeEntry(text *block, revs []mcp.Revision) *Entry {
	number, name, _ := strings.Cut(text.name, " ")
	has, in := revisionsOf(text, revs)
	e := &Entry{Kind: "code", Name: number, Alias: name, Summary: text.text("is"), Revisions: names(in), All: names(has), HTTP: text.text("http"),
		Do: text.text("do"), Page: pageURL(text, in), Rules: b.rulesOf(text, in), DataNote: text.text("data")}
	if len(in) == 0 {
		return e
	}
	newest := in[len(in)-1]
	if t, ok := shape.TypeOf(newest, e.DataNote); ok {
		e.Data, e.DataNote = shapeOf(newest, t), ""
		e.Examples = []Example{{Title: "error object", Revision: newest.String(), Message: errorObject(number, name, t.AppendSample(nil, false))}}
	}
	if e.Answers = text.text("answers"); e.Answers == "" {
		e.Answers = strings.Join(b.methodsWithError(number, in), ", ")
	}
	return e
}

// methodsWithError returns the methods that an error is said to answer.
func (b *Book) methodsWithError(code string, revs []mcp.Revision) (methods []string) {
	for _, m := range b.methods {
		if slices.ContainsFunc(m.withKey("error", revs), func(l attribute) bool { return l.rest == code }) {
			methods = append(methods, m.name)
		}
	}
	return methods
}

func errorObject(code, message string, data []byte) json.RawMessage {
	n, _ := strconv.Atoi(code)
	dst := strconv.AppendInt([]byte(`{"code":`), int64(n), 10)
	dst = jsonwire.AppendQuote(append(dst, `,"message":`...), message)
	dst = append(append(dst, `,"data":`...), data...)
	return append(dst, '}')
}

// revisionsOf returns the revisions that a text says it holds for, and those of them that are asked for.
func revisionsOf(text *block, revs []mcp.Revision) (has, in []mcp.Revision) {
	has, err := parseRevisions(text.text("in"))
	if err != nil {
		return nil, nil // a test sees to it that this cannot be
	}
	return has, intersect(has, revs)
}

// headerEntry describes an HTTP header.
func (b *Book) headerEntry(text *block, revs []mcp.Revision) *Entry {
	has, in := revisionsOf(text, revs)
	e := &Entry{Kind: "header", Name: text.name, Summary: text.text("is"), Revisions: names(in), All: names(has), From: text.text("from"), Page: pageURL(text, in),
		When: revisionTexts(text, "when", in), Notes: revisionNotes(text, in, revs), Rules: b.rulesOf(text, in)}
	for i := range e.When {
		e.When[i].Revisions = intersectNames(e.When[i].Revisions, e.Revisions)
	}
	if example := text.text("example"); example != "" && len(in) > 0 {
		e.Examples = []Example{{Title: "header", Header: example}}
	}
	return e
}

func intersectNames(a, b []string) (both []string) {
	for _, s := range a {
		if slices.Contains(b, s) {
			both = append(both, s)
		}
	}
	return both
}

// fieldEntry describes a member, wherever it occurs.
func (b *Book) fieldEntry(name string, revs []mcp.Revision) *Entry {
	text := b.texts[name]
	e := &Entry{Kind: "field", Name: name, Revisions: []string{}, All: []string{}}
	asked := names(revs)
	for _, p := range b.fields[name] {
		e.All = append(e.All, p.Revisions...)
		p.Revisions, p.Required = intersectNames(p.Revisions, asked), intersectNames(p.Required, asked)
		if len(p.Revisions) > 0 {
			e.Places = append(e.Places, p)
			e.Revisions = append(e.Revisions, p.Revisions...)
		}
	}
	e.All, e.Revisions = sortedUnique(e.All), sortedUnique(e.Revisions)
	if text == nil {
		return e
	}
	if b.fields[name] == nil {
		has, in := revisionsOf(text, revs)
		e.All, e.Revisions = names(has), names(in)
	}
	e.Summary, e.Page = text.text("is"), pageURL(text, revs)
	e.Rules = b.rulesOf(text, revs)
	return e
}

func sortedUnique(all []string) []string {
	slices.Sort(all)
	return slices.Compact(all)
}

// typeEntry describes a type.
func (b *Book) typeEntry(name string, revs []mcp.Revision) *Entry {
	has := shape.Revisions(name)
	in := intersect(has, revs)
	e := &Entry{Kind: "type", Name: name, Revisions: names(in), All: names(has)}
	if len(in) == 0 {
		return e
	}
	newest := in[len(in)-1]
	t, _ := shape.TypeOf(newest, name)
	e.Shape = shapeOf(newest, t)
	if e.Shape.Type = ""; t.Kind() != shape.KindObject && t.Kind() != shape.KindUnion && t.Kind() != shape.KindEnum {
		e.Shape.Type = t.Kind().String()
	}
	if !strings.Contains(name, ".") {
		e.Page = "https://modelcontextprotocol.io/specification/" + newest.String() + "/schema#" + strings.ToLower(name)
	}
	e.Changes = typeChanges(name, has, revs)
	e.UsedIn = b.usedIn(name, newest)
	e.Examples = []Example{{Title: "the least", Revision: newest.String(), Message: t.AppendSample(nil, false)}}
	return e
}

func typeChanges(name string, has, revs []mcp.Revision) (all []Change) {
	before := mcp.RevisionNone
	for _, r := range mcp.Revisions() {
		was, is := slices.Contains(has, before), slices.Contains(has, r)
		var what []string
		switch {
		case is && !was && before != mcp.RevisionNone:
			what = []string{"+ " + name}
		case was && !is:
			what = []string{"- " + name}
		case was && is:
			old, _ := shape.TypeOf(before, name)
			t, _ := shape.TypeOf(r, name)
			what = diffTypes(old, t, name, map[string]bool{"MetaObject": true})
		}
		if len(what) > 0 && slices.Contains(revs, r) {
			all = append(all, Change{r.String(), what})
		}
		before = r
	}
	return all
}

// usedIn returns the types and methods that have a type as their own, or as what a member is.
func (b *Book) usedIn(name string, r mcp.Revision) (all []string) {
	for _, m := range shape.Methods() {
		params, _, _ := m.Params(r)
		if params.Name() == name {
			all = append(all, m.Name+" params")
		}
		for _, result := range m.Results(r) {
			if result.Name() == name {
				all = append(all, m.Name+" result")
			}
		}
	}
	for _, other := range shape.TypeNames() {
		t, ok := shape.TypeOf(r, other)
		if !ok || other == name {
			continue
		}
		if mentions(t, name) {
			all = append(all, other)
		}
		for _, f := range t.Fields() {
			if inner := innermost(f.Type); inner.Name() == name || mentions(inner, name) && inner.Name() == "" {
				all = append(all, other+"."+f.Name)
			}
		}
	}
	return all
}

// mentions reports whether a type is a union that has another.
func mentions(t shape.Type, name string) bool {
	return slices.ContainsFunc(t.Alternatives(), func(alt shape.Type) bool { return alt.Name() == name })
}
