package specref

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/era/shape"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// An Entry is one meaning of a word. Fields that do not apply are empty.
type Entry struct {
	// Kind is "method", "code", "header", "field" or "type".
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Alias is the name of a code.
	Alias   string `json:"alias,omitempty"`
	Summary string `json:"summary,omitempty"`
	// Revisions lists the requested revisions that have it.
	Revisions []string `json:"revisions"`
	// All lists all revisions that have it.
	All []string `json:"allRevisions"`
	// Message is "request" or "notification", for a method.
	Message    string         `json:"message,omitempty"`
	Directions []RevisionText `json:"directions,omitempty"`
	// From is "client", "server" or "both", for a header.
	From     string         `json:"from,omitempty"`
	When     []RevisionText `json:"when,omitempty"`
	Needs    []RevisionText `json:"needs,omitempty"`
	HTTP     string         `json:"httpStatus,omitempty"`
	Page     string         `json:"page,omitempty"`
	Params   *Shape         `json:"params,omitempty"`
	Results  []*Shape       `json:"results,omitempty"`
	Data     *Shape         `json:"data,omitempty"`
	DataNote string         `json:"dataNote,omitempty"`
	// Shape is set for a type.
	Shape  *Shape  `json:"shape,omitempty"`
	Places []Place `json:"places,omitempty"`
	// Answers names the requests that a code answers.
	Answers string `json:"answers,omitempty"`
	// UsedIn lists the types and methods that use a type.
	UsedIn   []string       `json:"usedIn,omitempty"`
	Changes  []Change       `json:"changes,omitempty"`
	Do       string         `json:"whatToDo,omitempty"`
	Notes    []RevisionText `json:"notes,omitempty"`
	Errors   []ErrorCase    `json:"errors,omitempty"`
	Rules    []*Rule        `json:"rules,omitempty"`
	Examples []Example      `json:"examples,omitempty"`
}

// A RevisionText is a text with the revisions that it applies to.
type RevisionText struct {
	Revisions []string `json:"revisions"`
	Text      string   `json:"text"`
}

// A Shape is the shape of a value in one revision.
type Shape struct {
	Revision string `json:"revision"`
	Type     string `json:"type"`
	// Optional is set if params may be absent.
	Optional bool     `json:"optional,omitempty"`
	Members  []Member `json:"members,omitempty"`
	// OneOf lists the alternatives of a union, or the values of an enumeration.
	OneOf []string `json:"oneOf,omitempty"`
	// Alternatives lists the objects of OneOf, if they are expanded.
	Alternatives []*Shape `json:"alternatives,omitempty"`
}

// A Member is a member of an object, with its members if they are expanded.
type Member struct {
	Name     string   `json:"name"`
	Required bool     `json:"required"`
	Type     string   `json:"type"`
	Limits   string   `json:"limits,omitempty"`
	Members  []Member `json:"members,omitempty"`
}

// A Place is a type with a member of a given name.
type Place struct {
	// In is the type that has the member.
	In   string `json:"in"`
	Type string `json:"type"`
	// Required lists the revisions that require it.
	Required  []string `json:"required,omitempty"`
	Revisions []string `json:"revisions"`
}

// A Change lists the changes of a revision.
type Change struct {
	Revision string   `json:"revision"`
	What     []string `json:"what"`
}

// An ErrorCase is an error that may answer a request.
type ErrorCase struct {
	Code      int      `json:"code"`
	Revisions []string `json:"revisions"`
	When      string   `json:"when"`
}

// An Example is a valid message in its revision.
type Example struct {
	Title    string          `json:"title"`
	Revision string          `json:"revision,omitempty"`
	Message  json.RawMessage `json:"message,omitempty"`
	Header   string          `json:"header,omitempty"`
}

func (b *Book) methodEntry(text *block, revs []mcp.Revision) *Entry {
	m, ok := shape.MethodOf(text.name)
	if !ok {
		return nil
	}
	in := intersect(m.Revisions(), revs)
	e := &Entry{Kind: "method", Name: m.Name, Summary: text.text("is"), Revisions: names(in), All: names(m.Revisions()), Message: "request",
		Needs: revisionTexts(text, "needs", in), Page: pageURL(text, in), Notes: revisionNotes(text, in, revs), Rules: b.rulesOf(text, in), Errors: errorCases(text, in)}
	if m.Notification {
		e.Message = "notification"
	}
	if len(in) == 0 {
		return e
	}
	e.Directions = directions(m, in)
	newest := in[len(in)-1]
	params, required, _ := m.Params(newest)
	e.Params = shapeOf(newest, params).expand(newest, params)
	e.Params.Optional = !required
	for _, r := range m.Results(newest) {
		e.Results = append(e.Results, shapeOf(newest, r).expand(newest, r))
	}
	e.Changes = changes(m.Name, m.Revisions(), revs, func(before, after mcp.Revision) []string { return methodDiff(m, before, after) })
	e.Examples = examples(m, text, newest)
	return e
}

// directions returns who sends a message, with revisions grouped by equal text.
func directions(m shape.Method, revs []mcp.Revision) (all []RevisionText) {
	for _, r := range revs {
		text := "client to server"
		switch {
		case m.Input(r):
			text = "server to client, within an input_required result"
		case m.FromClient(r) && m.FromServer(r):
			text = "both ways"
		case m.FromServer(r):
			text = "server to client"
		}
		if m.Extension(r) {
			text += ", of an extension"
		}
		i := slices.IndexFunc(all, func(s RevisionText) bool { return s.Text == text })
		if i < 0 {
			i = len(all)
			all = append(all, RevisionText{Text: text})
		}
		all[i].Revisions = append(all[i].Revisions, r.String())
	}
	return all
}

func errorCases(text *block, revs []mcp.Revision) (all []ErrorCase) {
	for _, l := range text.withKey("error", revs) {
		if code, err := strconv.Atoi(l.rest); err == nil {
			all = append(all, ErrorCase{code, names(intersect(l.revisions, revs)), l.text})
		}
	}
	return all
}

// changes returns the changes in revs of what some revisions have, each compared with the previous
// revision, requested or not.
func changes(name string, has, revs []mcp.Revision, diff func(before, after mcp.Revision) []string) (all []Change) {
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
			what = diff(before, r)
		}
		if len(what) > 0 && slices.Contains(revs, r) {
			all = append(all, Change{r.String(), what})
		}
		before = r
	}
	return all
}

// methodDiff compares params and results. It omits the parts that all messages share: see _meta and
// resultType.
func methodDiff(m shape.Method, before, after mcp.Revision) (all []string) {
	seen := map[string]bool{"MetaObject": true, "RequestMetaObject": true, "NotificationMetaObject": true, "ResultMetaObject": true}
	switch {
	case !m.Input(before) && m.Input(after):
		all = append(all, "~ no longer a request, but part of an input_required result")
	case m.FromClient(before) && m.FromServer(before) && !m.FromClient(after):
		all = append(all, "~ only from server to client")
	case m.FromClient(before) && m.FromServer(before) && !m.FromServer(after):
		all = append(all, "~ only from client to server")
	}
	if !m.Extension(before) && m.Extension(after) {
		all = append(all, "~ moved from the protocol to an extension")
	}
	old, wasRequired, _ := m.Params(before)
	params, required, _ := m.Params(after)
	if required && !wasRequired {
		all = append(all, "~ params is required")
	}
	if alternatives := params.Alternatives(); old.Kind() == shape.KindObject && len(alternatives) > 0 {
		for _, alt := range alternatives {
			if alt.Name() != old.Name() {
				all = append(all, "+ params may be "+alt.Name())
			} else {
				all = append(all, diffTypes(old, alt, "params", seen)...)
			}
		}
	}
	all = append(all, diffTypes(old, params, "params", seen)...)
	results, olds := m.Results(after), m.Results(before)
	for i, r := range results {
		known := slices.ContainsFunc(olds, func(o shape.Type) bool { return o.Name() == r.Name() })
		switch {
		case i == 0 && len(olds) > 0:
			all = append(all, diffTypes(olds[0], r, "result", seen)...)
		case !known:
			all = append(all, "+ the result may be "+r.Name())
		}
	}
	for _, o := range olds[min(1, len(olds)):] {
		if !slices.ContainsFunc(results, func(r shape.Type) bool { return o.Name() == r.Name() }) {
			all = append(all, "- the result is no longer "+o.Name())
		}
	}
	return all
}

// examples returns a message and, for a request, its response.
func examples(m shape.Method, text *block, r mcp.Revision) (all []Example) {
	t, required, _ := m.Params(r)
	params := mergeMembers(t.AppendSample(nil, false), text.text("params"))
	if string(params) == "{}" && !required {
		params = nil
	}
	var message []byte
	switch {
	case m.Input(r):
		message = inputRequest(m.Name, params)
	case m.Notification:
		message = jsonrpc.AppendNotification(nil, m.Name, params)
	default:
		message = jsonrpc.AppendRequest(nil, jsonrpc.IntID(1), m.Name, params)
	}
	all = append(all, Example{Title: map[bool]string{true: "notification", false: "request"}[m.Notification], Revision: r.String(), Message: message})
	if results := m.Results(r); len(results) > 0 {
		result := mergeMembers(results[0].AppendSample(nil, false), text.text("result"))
		if m.Input(r) {
			all = append(all, Example{Title: "its response in inputResponses", Revision: r.String(), Message: result})
		} else {
			all = append(all, Example{Title: "its result", Revision: r.String(), Message: jsonrpc.AppendResult(nil, jsonrpc.IntID(1), result)})
		}
	}
	return all
}

func inputRequest(method string, params []byte) []byte {
	dst := jsonwire.AppendQuote([]byte(`{"method":`), method)
	if params != nil {
		dst = append(append(dst, `,"params":`...), params...)
	}
	return append(dst, '}')
}

// mergeMembers replaces or adds members of an object. It merges _meta.
func mergeMembers(sample []byte, extra string) []byte {
	if extra == "" {
		return sample
	}
	values := map[string]json.RawMessage{}
	var order []string
	put := func(obj []byte) {
		members := jsonwire.ObjectMembers(obj)
		for members.Next() {
			name := members.KeyString()
			if _, ok := values[name]; !ok {
				order = append(order, name)
			}
			values[name] = members.Value()
		}
	}
	put([]byte(extra))
	inner := values["_meta"]
	put(sample)
	put([]byte(extra))
	if own := jsonwire.Lookup(sample, "_meta"); own != nil && inner != nil {
		values["_meta"] = mergeMembers(own, string(inner))
	}
	// Distinctive members come first, and those of all messages last.
	slices.SortStableFunc(order, func(a, b string) int { return memberRank(a) - memberRank(b) })
	dst := []byte{'{'}
	for i, name := range order {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(jsonwire.AppendQuote(dst, name), ':'), values[name]...)
	}
	return append(dst, '}')
}

func memberRank(member string) int {
	switch member {
	case "protocolVersion", "supportedVersions", "taskId":
		return -1
	case "resultType":
		return 1
	case "_meta":
		return 2
	}
	return 0
}

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

// revisionsOf returns the revisions that a text applies to, and the requested ones of them.
func revisionsOf(text *block, revs []mcp.Revision) (has, in []mcp.Revision) {
	has, err := parseRevisions(text.text("in"))
	if err != nil {
		return nil, nil // a test excludes this
	}
	return has, intersect(has, revs)
}

func (b *Book) headerEntry(text *block, revs []mcp.Revision) *Entry {
	has, in := revisionsOf(text, revs)
	e := &Entry{Kind: "header", Name: text.name, Summary: text.text("is"), Revisions: names(in), All: names(has), From: text.text("from"), Page: pageURL(text, in),
		When: revisionTexts(text, "when", in), Notes: revisionNotes(text, in, revs), Rules: b.rulesOf(text, in)}
	if example := text.text("example"); example != "" && len(in) > 0 {
		e.Examples = []Example{{Title: "header", Header: example}}
	}
	return e
}

// fieldEntry describes a member in all types.
func (b *Book) fieldEntry(name string, revs []mcp.Revision) *Entry {
	text := b.texts[name]
	e := &Entry{Kind: "field", Name: name, Revisions: []string{}, All: []string{}}
	wanted := names(revs)
	for _, p := range b.fields[name] {
		e.All = append(e.All, p.Revisions...)
		p.Revisions, p.Required = intersect(p.Revisions, wanted), intersect(p.Required, wanted)
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
	e.Changes = changes(name, has, revs, func(before, after mcp.Revision) []string {
		old, _ := shape.TypeOf(before, name)
		t, _ := shape.TypeOf(after, name)
		return diffTypes(old, t, name, map[string]bool{"MetaObject": true})
	})
	e.UsedIn = b.usedIn(name, newest)
	e.Examples = []Example{{Title: "the least", Revision: newest.String(), Message: t.AppendSample(nil, false)}}
	return e
}

// usedIn returns the types and methods that use a type, directly or as a member.
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

// mentions reports whether a type is a union that contains another one.
func mentions(t shape.Type, name string) bool {
	return slices.ContainsFunc(t.Alternatives(), func(alt shape.Type) bool { return alt.Name() == name })
}

// namedTypes are types in many messages. They are named but not expanded unless requested.
var namedTypes = map[string]bool{
	"Implementation": true, "ClientCapabilities": true, "ServerCapabilities": true, "Icon": true, "Annotations": true, "MetaObject": true,
	"ResultMetaObject": true, "NotificationMetaObject": true, "InputRequests": true, "InputResponses": true, "Error": true,
}

// maxDepth limits the levels of expanded members.
const maxDepth = 3

func shapeOf(rev mcp.Revision, t shape.Type) *Shape {
	s := &Shape{Revision: rev.String(), Type: t.String()}
	switch t.Kind() {
	case shape.KindObject:
		s.Members = members(t, 1, nil)
	case shape.KindUnion:
		for _, alt := range t.Alternatives() {
			s.OneOf = append(s.OneOf, alt.String())
		}
	case shape.KindEnum:
		for _, v := range t.Values() {
			s.OneOf = append(s.OneOf, strconv.Quote(v))
		}
	case shape.KindMap, shape.KindArray:
		if t.Name() != "" {
			s.OneOf = append(s.OneOf, t.Kind().String()+" of "+t.Elem().String())
		}
	}
	return s
}

// expand adds the alternative objects of params, a result or error data.
func (s *Shape) expand(rev mcp.Revision, t shape.Type) *Shape {
	for _, alt := range t.Alternatives() {
		if alt.Kind() == shape.KindObject {
			s.Alternatives = append(s.Alternatives, shapeOf(rev, alt))
		}
	}
	return s
}

// members describes the members of an object. above lists the enclosing types.
func members(t shape.Type, depth int, above []string) []Member {
	var all []Member
	for _, f := range t.Fields() {
		m := Member{Name: f.Name, Required: f.Required, Type: f.Type.String(), Limits: limitsText(f.Type)}
		inner := innermost(f.Type)
		name := inner.Name()
		if depth < maxDepth && inner.Kind() == shape.KindObject && !namedTypes[name] && !slices.Contains(above, name) {
			m.Members = members(inner, depth+1, append(slices.Clip(above), name))
		}
		// The generated name of an inline type says nothing.
		m.Type = withoutInlineName(m.Type, inner)
		all = append(all, m)
	}
	return all
}

// withoutInlineName replaces the name of a type that the specification defines inline.
func withoutInlineName(text string, inner shape.Type) string {
	if name := inner.Name(); strings.Contains(name, ".") {
		return strings.Replace(text, name, "object", 1)
	}
	return text
}

func limitsText(t shape.Type) string {
	least, greatest := t.Bounds()
	switch {
	case least != nil && greatest != nil:
		return fmt.Sprintf("%d to %d", *least, *greatest)
	case least != nil:
		return fmt.Sprintf("at least %d", *least)
	case t.MaxItems() > 0:
		return fmt.Sprintf("at most %d", t.MaxItems())
	case t.Name() != "" && t.Kind() == shape.KindEnum:
		return strings.Join(t.Values(), ", ")
	}
	return ""
}

// diffTypes returns the added, removed and changed members of a type between two revisions. It
// visits each nested type once.
func diffTypes(before, after shape.Type, where string, seen map[string]bool) []string {
	a, b := before.Kind(), after.Kind()
	if a != b {
		// The enclosing member reports it.
		return nil
	}
	if name := after.Name(); name != "" {
		if seen[name] {
			return nil
		}
		seen[name] = true
		where = name
	}
	switch b {
	case shape.KindArray, shape.KindMap:
		return diffTypes(before.Elem(), after.Elem(), where, seen)
	case shape.KindUnion:
		return diffUnion(before, after, where, seen)
	case shape.KindEnum:
		return compareLists(where, before.Values(), after.Values(), strconv.Quote)
	case shape.KindObject:
		return diffObject(before, after, where, seen)
	}
	return nil
}

func diffObject(before, after shape.Type, where string, seen map[string]bool) (all []string) {
	old := map[string]shape.Field{}
	for _, f := range before.Fields() {
		old[f.Name] = f
	}
	fields := after.Fields()
	for _, f := range fields {
		o, had := old[f.Name]
		name := where + "." + f.Name
		switch {
		case !had && f.Required:
			all = append(all, "+ "+name+", required")
		case !had:
			all = append(all, "+ "+name)
		default:
			if o.Required != f.Required {
				all = append(all, "~ "+name+map[bool]string{true: " is required", false: " is optional"}[f.Required])
			}
			if o.Type.Kind() != f.Type.Kind() {
				all = append(all, "~ "+name+": "+o.Type.String()+" becomes "+f.Type.String())
			}
			all = append(all, diffTypes(o.Type, f.Type, name, seen)...)
		}
	}
	for _, f := range before.Fields() {
		if !slices.ContainsFunc(fields, func(n shape.Field) bool { return n.Name == f.Name }) {
			all = append(all, "- "+where+"."+f.Name)
		}
	}
	return all
}

func diffUnion(before, after shape.Type, where string, seen map[string]bool) []string {
	texts := func(t shape.Type) (all []string) {
		for _, alt := range t.Alternatives() {
			all = append(all, alt.String())
		}
		return all
	}
	all := compareLists(where, texts(before), texts(after), func(s string) string { return s })
	for _, alt := range after.Alternatives() {
		for _, o := range before.Alternatives() {
			if alt.Name() != "" && alt.Name() == o.Name() {
				all = append(all, diffTypes(o, alt, where, seen)...)
			}
		}
	}
	return all
}

// compareLists returns the added and removed values of a list.
func compareLists(where string, before, after []string, show func(string) string) (all []string) {
	for _, v := range after {
		if !slices.Contains(before, v) {
			all = append(all, "+ "+where+" may be "+show(v))
		}
	}
	for _, v := range before {
		if !slices.Contains(after, v) {
			all = append(all, "- "+where+" is no longer "+show(v))
		}
	}
	return all
}
