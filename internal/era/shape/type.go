package shape

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// lookup returns the message of a method, or nil.
func lookup(name string) *message {
	i, ok := slices.BinarySearchFunc(messages[:], name, func(m message, name string) int { return strings.Compare(m.name, name) })
	if !ok {
		return nil
	}
	return &messages[i]
}

func defIndex(name string) (n int, ok bool) {
	return slices.BinarySearchFunc(defs[:], name, func(t def, name string) int { return strings.Compare(t.name, name) })
}

// A Type is the type of a value in a revision. The zero Type is any value.
type Type struct {
	rev  mcp.Revision
	expr expr
}

// TypeOf returns a type by the specification's name, such as "Tool", or by its place, such as
// "Tool.inputSchema". ok is false if the revision does not have the type.
func TypeOf(rev mcp.Revision, name string) (t Type, ok bool) {
	n, found := defIndex(name)
	if !found || !defs[n].in.has(rev) {
		return Type{}, false
	}
	return Type{rev, expr{kind: kindNamed, ref: uint16(n)}}, true
}

// TypeNames returns the sorted names of the types of all revisions.
func TypeNames() []string {
	all := make([]string, len(defs))
	for i := range defs {
		all[i] = defs[i].name
	}
	return all
}

// Revisions returns the revisions that have a type of that name, oldest first.
func Revisions(name string) []mcp.Revision {
	n, ok := defIndex(name)
	if !ok {
		return nil
	}
	return defs[n].in.list()
}

// Name returns the specification's name of the type, or "".
func (t Type) Name() string {
	if t.expr.kind == kindNamed {
		return defs[t.expr.ref].name
	}
	return ""
}

// resolve follows names to their definitions. An object with fields resolves to itself.
func (t Type) resolve() Type {
	for t.expr.kind == kindNamed {
		d := &defs[t.expr.ref]
		i := slices.IndexFunc(d.aliases, func(v variant) bool { return v.in.has(t.rev) })
		if i < 0 {
			return t
		}
		t.expr = exprs[d.aliases[i].is]
	}
	return t
}

// Kind returns the kind of the type.
func (t Type) Kind() Kind {
	if k := t.resolve().expr.kind; k != kindNamed {
		return k
	}
	return KindObject
}

// Fields returns the known members of a KindObject, in reading order. The caller owns the slice.
func (t Type) Fields() []Field {
	t = t.resolve()
	if t.expr.kind != kindNamed {
		return nil
	}
	var all []Field
	for _, f := range defs[t.expr.ref].fields {
		if f.in.has(t.rev) {
			all = append(all, Field{Name: f.name, Required: f.need.has(t.rev), Type: Type{t.rev, exprs[f.is]}})
		}
	}
	return all
}

// A Field is a member of an object.
type Field struct {
	Name     string
	Required bool
	Type     Type
}

// Elem returns the type of the elements of a KindArray and of the values of a KindMap.
func (t Type) Elem() Type { return Type{t.rev, exprs[t.resolve().expr.ref]} }

// Alternatives returns the types of a KindUnion. The caller owns the slice.
func (t Type) Alternatives() []Type {
	var all []Type
	for _, alt := range t.resolve().expr.alts {
		all = append(all, Type{t.rev, exprs[alt]})
	}
	return all
}

// Values returns the strings of a KindEnum. A constant has one. The caller owns the slice.
func (t Type) Values() []string { return slices.Clone(t.resolve().expr.values) }

// MaxItems returns the maximum number of elements of a KindArray. Zero means no limit.
func (t Type) MaxItems() int { return int(t.resolve().expr.items) }

// Bounds returns the least and the greatest value of a number. Each is nil without a limit.
func (t Type) Bounds() (least, greatest *int) {
	e := t.resolve().expr
	if e.low {
		least = new(int(e.min))
	}
	if e.high {
		greatest = new(int(e.max))
	}
	return least, greatest
}

// String describes the type in one line.
func (t Type) String() string {
	switch e := t.expr; e.kind {
	case kindNamed:
		return defs[e.ref].name
	case KindArray, KindMap:
		elem := t.Elem()
		if elem.expr.kind == KindUnion || elem.expr.kind == KindEnum && len(elem.expr.values) > 1 {
			return kindNames[e.kind] + " of (" + elem.String() + ")"
		}
		return kindNames[e.kind] + " of " + elem.String()
	case KindEnum:
		return quotedList(e.values)
	case KindUnion:
		var all []string
		for _, alt := range t.Alternatives() {
			all = append(all, alt.String())
		}
		return strings.Join(all, " | ")
	case KindString:
		switch e.format {
		case "byte":
			return "string (base64)"
		case "":
			return "string"
		}
		return "string (" + e.format + ")"
	}
	return kindNames[t.expr.kind]
}

func quotedList(values []string) string {
	return `"` + strings.Join(values, `" | "`) + `"`
}

var kindNames = [...]string{KindAny: "any", KindNull: "null", KindBoolean: "boolean", KindInteger: "integer", KindNumber: "number", KindString: "string",
	KindArray: "array", KindObject: "object", KindMap: "map", KindEnum: "enum", KindUnion: "union", kindNamed: "object"}

// String returns the kind's name, such as "object".
func (k Kind) String() string {
	if int(k) >= len(kindNames) {
		return ""
	}
	return kindNames[k]
}

// A Method describes a request or notification in all revisions.
type Method struct {
	Name         string
	Notification bool
	msg          *message
}

// Methods returns the methods of all revisions and of the tasks extension, sorted by name.
func Methods() []Method {
	all := make([]Method, len(messages))
	for i := range messages {
		all[i] = Method{messages[i].name, messages[i].notification, &messages[i]}
	}
	return all
}

// MethodOf returns a method by its name. ok is false if no revision has it.
func MethodOf(name string) (m Method, ok bool) {
	msg := lookup(name)
	if msg == nil {
		return Method{}, false
	}
	return Method{msg.name, msg.notification, msg}, true
}

// Revisions returns the revisions that have the method as a message or as an input request, oldest
// first.
func (m Method) Revisions() []mcp.Revision {
	return (m.msg.client | m.msg.server | m.msg.input).list()
}

// FromClient reports if clients send the method.
func (m Method) FromClient(r mcp.Revision) bool { return m.msg.client.has(r) }

// FromServer reports if servers send the method.
func (m Method) FromServer(r mcp.Revision) bool { return m.msg.server.has(r) }

// Input reports if the method is only an input request of an input_required result in the revision.
func (m Method) Input(r mcp.Revision) bool { return m.msg.input.has(r) }

// Extension reports if the method is part of an extension in the revision.
func (m Method) Extension(r mcp.Revision) bool { return m.msg.extension.has(r) }

// Params returns the type of the params. required reports if they must be present. ok is false if
// the revision does not have the method.
func (m Method) Params(r mcp.Revision) (t Type, required, ok bool) {
	for _, v := range m.msg.params {
		if v.in.has(r) {
			return Type{r, exprs[v.is]}, !m.msg.bare.has(r), true
		}
	}
	return Type{}, false, false
}

// Results returns the types of the result, the usual one first. It returns nil for notifications
// and if the revision does not have the method.
func (m Method) Results(r mcp.Revision) []Type {
	var all []Type
	for _, v := range m.msg.results {
		if v.in.has(r) {
			all = append(all, Type{r, exprs[v.is]})
		}
	}
	return all
}

// revs is a set of revisions.
type revs uint8

func revisionBit(r mcp.Revision) revs {
	if r == mcp.RevisionNone {
		return 0
	}
	return 1 << (r - 1)
}

func (r revs) has(rev mcp.Revision) bool { return r&revisionBit(rev) != 0 }

// list returns the revisions of the set, oldest first.
func (r revs) list() []mcp.Revision {
	var all []mcp.Revision
	for _, rev := range mcp.Revisions() {
		if r.has(rev) {
			all = append(all, rev)
		}
	}
	return all
}

// A def is a definition of the specification: an object with fields, or an alias in some revisions.
type def struct {
	name    string
	in      revs
	fields  []field
	aliases []variant
}

// A field is a member of an object in some revisions. If its type differs between revisions, there
// are several fields.
type field struct {
	name string
	in   revs
	// need holds the revisions that require the field.
	need revs
	is   uint16
}

// A variant is an expression in some revisions.
type variant struct {
	in revs
	is uint16
}

// An expr describes the type of a value. ref is the index of the definition of a kindNamed, or of
// the element type of KindArray and KindMap.
type expr struct {
	kind Kind
	ref  uint16
	// alts and tag are for KindUnion. The tag is the member that selects the alternative, or "".
	alts []uint16
	tag  string
	// values are for KindEnum.
	values []string
	format string
	// min and max apply if low and high are set.
	min  int8
	max  int8
	low  bool
	high bool
	// items is the maximum number of elements of a KindArray. Zero means no limit.
	items uint16
}

// A message describes a method in all revisions.
type message struct {
	name         string
	notification bool
	// client and server hold the revisions in which clients and servers send the method.
	client revs
	server revs
	// extension holds the revisions with the method in the tasks extension.
	extension revs
	// input holds the revisions with the method as an input request.
	input revs
	// bare holds the revisions in which params may be absent.
	bare   revs
	params []variant
	// results holds the types of the result. The first of a revision is the usual one.
	results []variant
}

// A failure is the shape of the data of an error.
type failure struct {
	code int
	in   revs
	name string
	need bool
	data uint16
	// has says that data is set.
	has bool
}

// AppendSample appends a value of the type, with the required members, or with all members of the
// revision if all is set. Check accepts the value. With all, arrays have an element.
func (t Type) AppendSample(dst []byte, all bool) []byte {
	return t.sample(dst, "", all)
}

// samples holds values for members by name. Other members get a value by type.
var samples = map[string]string{
	"protocolVersion": "", "name": "example", "version": "1.0.0", "uri": "file:///notes.txt", "uriTemplate": "file:///{path}", "mimeType": "text/plain", "text": "Hello",
	"message": "Which city?", "description": "An example", "model": "example-model", "taskId": "task-1", "createdAt": "2006-01-02T15:04:05Z",
	"lastUpdatedAt": "2006-01-02T15:04:05Z", "lastModified": "2006-01-02T15:04:05Z", "cursor": "page-2", "nextCursor": "page-2", "requestState": "opaque",
	"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "vendor=1", "baggage": "key=value", "sizes": "48x48",
	"$schema": "https://json-schema.org/draft/2020-12/schema", "reason": "no longer needed",
}

func (t Type) sample(dst []byte, name string, all bool) []byte {
	t = t.resolve()
	switch e := &t.expr; e.kind {
	case kindNamed:
		return t.sampleObject(dst, all)
	case KindBoolean:
		return append(dst, "true"...)
	case KindNull:
		return append(dst, "null"...)
	case KindInteger:
		return strconv.AppendInt(dst, max(1, int64(e.min)), 10)
	case KindNumber:
		return append(dst, "0.5"...)
	case KindString:
		return jsonwire.AppendQuote(dst, t.sampleString(name))
	case KindEnum:
		return jsonwire.AppendQuote(dst, e.values[0])
	case KindArray:
		if !all {
			return append(dst, "[]"...)
		}
		return append(t.Elem().sample(append(dst, '['), name, all), ']')
	case KindMap:
		if !all {
			return append(dst, "{}"...)
		}
		return append(t.Elem().sample(append(dst, `{"example":`...), name, all), '}')
	case KindUnion:
		return Type{t.rev, exprs[e.alts[0]]}.sample(dst, name, all)
	}
	if strings.EqualFold(name, "data") || name == "structuredContent" {
		return append(dst, `{"example":true}`...)
	}
	return append(dst, "{}"...)
}

func (t Type) sampleString(name string) string {
	if text := samples[name]; text != "" && (t.expr.format == "" || name == "uri" || name == "uriTemplate") {
		return text
	}
	switch {
	case strings.HasSuffix(name, "rotocolVersion"), name == "supportedVersions", name == "supported":
		return t.rev.String()
	case name == "requested":
		return "1900-01-01"
	case name == "resultType":
		return "complete"
	case t.expr.format == "byte":
		return "SGVsbG8="
	case t.expr.format == "uri":
		return "https://example.com/"
	case t.expr.format == "uri-template":
		return "file:///{path}"
	}
	return "example"
}

func (t Type) sampleObject(dst []byte, all bool) []byte {
	dst = append(dst, '{')
	first := true
	for _, f := range t.Fields() {
		if !f.Required && !all {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(jsonwire.AppendQuote(dst, f.Name), ':')
		start := len(dst)
		dst = f.Type.sample(dst, f.Name, all)
		if f.Name == "resultType" && t.Name() == "InputRequiredResult" && bytes.Equal(dst[start:], []byte(`"complete"`)) {
			dst = append(dst[:start], `"input_required"`...)
		}
	}
	return append(dst, '}')
}
