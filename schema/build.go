package schema

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"strconv"
	"time"
)

// Schemer is implemented by types that give their own JSON Schema in place of
// the one their Go type implies. It is called once for each use of the type, on
// a zero value, by [Of].
//
// The schema is held in both directions: what doesn't validate isn't decoded,
// and isn't encoded either. Decoding goes on as for the Go type, but a struct
// ignores members that no field has and requires none. Below the root of a
// schema only one without $ref, $id, $anchor and $schema can be used, since it
// is copied into the schema of the outer type.
//
// As with MarshalJSON, a struct that embeds a Schemer is one.
type Schemer interface{ JSONSchema() []byte }

// Enumerator is implemented by strings, numbers and text types with a fixed set
// of values. JSONSchemaEnum is called once for each use of the type, on a zero
// value, by [Of]. It returns strings as they are and numbers in decimal.
type Enumerator interface{ JSONSchemaEnum() []string }

var (
	typeTime    = reflect.TypeFor[time.Time]()
	typeRaw     = reflect.TypeFor[json.RawMessage]()
	typeNumber  = reflect.TypeFor[json.Number]()
	typeBigInt  = reflect.TypeFor[big.Int]()
	typeSchemer = reflect.TypeFor[Schemer]()
	typeEnum    = reflect.TypeFor[Enumerator]()

	typeMarshaler       = reflect.TypeFor[json.Marshaler]()
	typeUnmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	typeTextMarshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	typeTextUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// builder compiles types to nodes.
type builder struct {
	opts     Options
	named    map[reflect.Type]*node // finished and unfinished, so that recursion ends
	structs  []*structPlan          // in the order of their discovery
	deferred []func() error         // what has to wait until no node is unfinished
}

func newBuilder(opts Options) *builder {
	return &builder{opts: opts, named: map[reflect.Type]*node{}}
}

// node returns the node of t. Named types have one each.
func (b *builder) node(t reflect.Type) (*node, error) {
	if t.Name() == "" || t.Kind() <= reflect.Complex128 || t.Kind() == reflect.String {
		return b.compile(&node{typ: t})
	}
	if n := b.named[t]; n != nil {
		return n, nil
	}
	n := &node{typ: t, name: t.Name()}
	b.named[t] = n
	return b.compile(n)
}

// finish does what had to wait. Call it once, when the root node is there.
func (b *builder) finish() error {
	for _, f := range b.deferred {
		if err := f(); err != nil {
			return err
		}
	}
	for _, s := range b.structs {
		s.finish()
	}
	return nil
}

// compile fills n for n.typ.
func (b *builder) compile(n *node) (*node, error) {
	t := n.typ
	if n.setKnownType() {
		return n, nil
	}
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface {
		return n, b.kind(n)
	}
	p := reflect.PointerTo(t)
	if p.Implements(typeSchemer) {
		return n, b.customSchema(n)
	}
	if err := b.methods(n); err != nil {
		return nil, err
	}
	if p.Implements(typeEnum) && n.types != "object" { // a struct has it from an embedded field
		values := reflect.New(t).Interface().(Enumerator).JSONSchemaEnum()
		if err := n.setEnum(values); err != nil {
			return nil, fmt.Errorf("type %s: JSONSchemaEnum: %w", t, err)
		}
		n.keywords[len(n.keywords)-1].implied = true
	}
	return n, nil
}

// setKnownType fills n if its type is one of those known by name.
func (n *node) setKnownType() bool {
	switch n.typ {
	case typeTime:
		n.set("string", opTime)
		n.imply("format", `"date-time"`)
	case typeRaw:
		n.set("", opRaw)
	case typeNumber:
		n.set("number", opNumber)
	case typeBigInt:
		n.set("integer", opBigInt)
	default:
		return false
	}
	n.name = ""
	return true
}

func (n *node) set(types string, o op) {
	n.types, n.dec, n.enc = types, o, o
}

// methods fills n for a type that may have methods to encode and decode it.
// Where it has one only for the other direction, its kind decides.
func (b *builder) methods(n *node) error {
	p := reflect.PointerTo(n.typ)
	fromJSON, toJSON := p.Implements(typeUnmarshaler), p.Implements(typeMarshaler)
	fromText, toText := p.Implements(typeTextUnmarshaler), p.Implements(typeTextMarshaler)
	if !fromJSON && !toJSON && !fromText && !toText {
		return b.kind(n)
	}
	if (!fromJSON && !fromText) || (!toJSON && !toText) {
		if err := b.kind(n); err != nil {
			*n = node{typ: n.typ}
		}
	}
	natural := n.types
	n.keywords, n.types, n.name = nil, "", ""
	if !fromJSON && !toJSON {
		n.types = "string"
		if natural != "string" {
			n.dec, n.enc = opNone, opNone
		}
	}
	switch {
	case fromJSON:
		n.dec = opJSON
	case fromText:
		n.dec = opText
	}
	switch {
	case toJSON:
		n.enc = opJSON
	case toText:
		n.enc = opText
	}
	return nil
}

// kind fills n as the kind of its type demands.
func (b *builder) kind(n *node) error {
	t := n.typ
	switch t.Kind() {
	case reflect.Bool:
		n.set("boolean", opBool)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		n.integer()
	case reflect.Float32, reflect.Float64:
		n.set("number", opFloat)
		n.size = uint8(t.Size())
	case reflect.String:
		n.set("string", opString)
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return fmt.Errorf("type %s: values of an interface with methods cannot be decoded", t)
		}
		n.set("", opAny)
		n.name = ""
	case reflect.Pointer:
		for e, depth := t, 0; e.Kind() == reflect.Pointer; e, depth = e.Elem(), depth+1 {
			if depth == 8 {
				return fmt.Errorf("type %s: too many pointers to pointers", t)
			}
		}
		n.set("", opPointer)
		n.name = ""
		return b.elem(n)
	case reflect.Slice:
		if e := t.Elem(); e.Kind() == reflect.Uint8 && !hasMethods(e) {
			n.set("string", opBytes)
			n.imply("contentEncoding", `"base64"`)
			return nil
		}
		n.set("array", opSlice)
		return b.elem(n)
	case reflect.Array:
		n.set("array", opArray)
		n.imply("minItems", strconv.Itoa(t.Len()))
		n.imply("maxItems", strconv.Itoa(t.Len()))
		return b.elem(n)
	case reflect.Map:
		n.set("object", opMap)
		return b.mapType(n)
	case reflect.Struct:
		n.set("object", opStruct)
		return b.structType(n)
	default:
		return fmt.Errorf("type %s has no JSON form", t)
	}
	return nil
}

// integer fills n for a kind of integer. Bounds that a float64 cannot hold are
// not advertised: JavaScript would read others.
func (n *node) integer() {
	n.size = uint8(n.typ.Size())
	n.setIntRange()
	if n.signed() {
		n.set("integer", opInt)
		if n.size < 8 {
			n.imply("minimum", strconv.FormatInt(n.lo, 10))
			n.imply("maximum", strconv.FormatInt(n.hi, 10))
		}
		return
	}
	n.set("integer", opUint)
	n.imply("minimum", "0")
	if n.size < 8 {
		n.imply("maximum", strconv.FormatUint(n.uhi, 10))
	}
}

func hasMethods(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(typeMarshaler) || p.Implements(typeUnmarshaler) ||
		p.Implements(typeTextMarshaler) || p.Implements(typeTextUnmarshaler)
}

func (b *builder) elem(n *node) (err error) {
	n.elem, err = b.node(n.typ.Elem())
	return err
}

func (b *builder) mapType(n *node) error {
	k := n.typ.Key()
	n.key = &keyPlan{typ: k, size: uint8(k.Size())}
	p := reflect.PointerTo(k)
	switch kind := k.Kind(); {
	case kind == reflect.String && !p.Implements(typeTextUnmarshaler) && !k.Implements(typeTextMarshaler):
		n.key.op = opString
	case k.Implements(typeTextMarshaler) && p.Implements(typeTextUnmarshaler):
		n.key.op = opText
	case kind >= reflect.Int && kind <= reflect.Int64:
		n.key.op = opInt
		n.imply("propertyNames", `{"pattern":"^(0|-?[1-9][0-9]*)$"}`)
	case kind >= reflect.Uint && kind <= reflect.Uintptr:
		n.key.op = opUint
		n.imply("propertyNames", `{"pattern":"^(0|[1-9][0-9]*)$"}`)
	default:
		return fmt.Errorf("type %s: a map key is a string, an integer or has both MarshalText and UnmarshalText", n.typ)
	}
	return b.elem(n)
}

// customSchema fills n for a type with a JSONSchema method.
func (b *builder) customSchema(n *node) error {
	t := n.typ
	text := reflect.New(t).Interface().(Schemer).JSONSchema()
	v, err := Compile(text, b.opts.Engine)
	if err != nil {
		return fmt.Errorf("type %s: JSONSchema: %w", t, err)
	}
	if err := b.methods(n); err != nil {
		return err
	}
	if n.fields != nil {
		n.fields.lenient, n.fields.noneRequired = true, true
	}
	n.custom, n.types, n.keywords, n.name = v, "", nil, ""
	return nil
}
