package shape

import (
	"slices"
	"strings"

	"mcpwire/mcp"
)

// lookup returns what is known of a method, or nil.
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

// A Type is what a revision says that a value may be. The zero Type is any value.
type Type struct {
	rev  mcp.Revision
	expr expr
}

// TypeOf returns a type by the specification's name, such as "Tool", or by the place that it is defined in, such as "Tool.inputSchema". ok is false if the
// revision has none.
func TypeOf(rev mcp.Revision, name string) (t Type, ok bool) {
	n, found := defIndex(name)
	if !found || !defs[n].in.has(rev) {
		return Type{}, false
	}
	return Type{rev, expr{kind: kindNamed, ref: uint16(n)}}, true
}

// TypeNames returns the names of all types of all revisions in order.
func TypeNames() []string {
	all := make([]string, len(defs))
	for i := range defs {
		all[i] = defs[i].name
	}
	return all
}

// Revisions returns the revisions that have a type of that name, the oldest first.
func Revisions(name string) []mcp.Revision {
	n, ok := defIndex(name)
	if !ok {
		return nil
	}
	return defs[n].in.list()
}

// Name is the specification's name of the type, or "".
func (t Type) Name() string {
	if t.expr.kind == kindNamed {
		return defs[t.expr.ref].name
	}
	return ""
}

// resolve follows names to what they stand for. An object with fields stands for itself.
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

// Kind says what a value of the type is.
func (t Type) Kind() Kind {
	if k := t.resolve().expr.kind; k != kindNamed {
		return k
	}
	return KindObject
}

// Fields returns the known members of a KindObject, in an order that is good to read. The slice is the caller's.
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

// Elem is the type of the elements of a KindArray and of the values of a KindMap.
func (t Type) Elem() Type { return Type{t.rev, exprs[t.resolve().expr.ref]} }

// Alternatives are the types of a KindUnion. The slice is the caller's.
func (t Type) Alternatives() []Type {
	var all []Type
	for _, alt := range t.resolve().expr.alts {
		all = append(all, Type{t.rev, exprs[alt]})
	}
	return all
}

// Tag is the member that tells the alternatives of a KindUnion apart, or "".
func (t Type) Tag() string { return t.resolve().expr.tag }

// Values are the strings of a KindEnum, one for a constant. The slice is the caller's.
func (t Type) Values() []string { return slices.Clone(t.resolve().expr.values) }

// Format is what a KindString has to be: "uri", "uri-template", "byte" for base64, or "" for any text.
func (t Type) Format() string { return t.resolve().expr.format }

// MaxItems is how many elements a KindArray has at most; 0 is any number.
func (t Type) MaxItems() int { return int(t.resolve().expr.items) }

// Bounds are the least and the greatest value of a number, each nil if there is none.
func (t Type) Bounds() (least, greatest *int) {
	e := t.resolve().expr
	if e.low {
		least = new(int)
		*least = int(e.min)
	}
	if e.high {
		greatest = new(int)
		*greatest = int(e.max)
	}
	return least, greatest
}

// String writes the type in one line: its name, or what it is made of.
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
