package schema

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
	"unicode"

	"mcpwire/internal/json/jsonwire"
)

// A Schemer is a type that has its own JSON Schema in place of the one that its Go type implies.
// [Of] calls JSONSchema once for each use of the type, on a zero value.
//
// The schema applies in both directions: an invalid value is neither decoded nor encoded. Decoding
// works as for the Go type, but a struct ignores members without a field and requires none. Below
// the root of a schema, only a schema without $ref, $id, $anchor and $schema can be used, since it
// is copied into the schema of the outer type.
//
// As with MarshalJSON, a struct that embeds a Schemer is one.
type Schemer interface{ JSONSchema() []byte }

// An Enumerator is a string, a number or a text type with a fixed set of values. [Of] calls
// JSONSchemaEnum once for each use of the type, on a zero value. It returns strings unchanged and
// numbers in decimal.
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
	deferred []func() error         // run when every node is finished
	eithers  []reflect.Type         // that contain the type
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
	if text := b.opts.Types[t]; text != nil {
		return n, b.customSchema(n, text)
	}
	if n.setKnownType() {
		return n, nil
	}
	if t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface {
		return n, b.kind(n)
	}
	if isEither(t) {
		return n, b.either(n)
	}
	p := reflect.PointerTo(t)
	if p.Implements(typeSchemer) {
		return n, b.customSchema(n, reflect.New(t).Interface().(Schemer).JSONSchema())
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

// customSchema fills n for a type with its own schema.
func (b *builder) customSchema(n *node, text []byte) error {
	v, err := Compile(text, b.opts.Engine)
	if err != nil {
		return fmt.Errorf("type %s: JSONSchema: %w", n.typ, err)
	}
	if n.setKnownType() {
		n.types, n.keywords = "", nil
	} else if err := b.methods(n); err != nil {
		return err
	}
	if n.fields != nil {
		n.fields.lenient, n.fields.noneRequired = true, true
	}
	n.custom, n.types, n.keywords, n.name = v, "", nil, ""
	return nil
}

// structType fills n with the members of its struct type.
func (b *builder) structType(n *node) error {
	fields, err := structFields(n.typ)
	if err != nil {
		return fmt.Errorf("type %s: %w", n.typ, err)
	}
	n.fields = &structPlan{lenient: b.opts.AllowUnknown}
	b.structs = append(b.structs, n.fields)
	for _, sf := range fields {
		f, err := b.field(sf)
		if err != nil {
			return fmt.Errorf("type %s: field %s: %w", n.typ, sf.Name, err)
		}
		n.fields.fields = append(n.fields.fields, f)
	}
	for i, sf := range fields {
		b.deferred = append(b.deferred, func() error {
			if err := n.fields.fields[i].applyTag(sf); err != nil {
				return fmt.Errorf("type %s: field %s: %w", n.typ, sf.Name, err)
			}
			return nil
		})
	}
	return nil
}

// misplacedKeyword returns the first keyword in a description, as the tags of other packages have
// it, or "".
func misplacedKeyword(description string) string {
	for part := range strings.SplitSeq(description, ",") {
		switch name, _, ok := strings.Cut(strings.TrimSpace(part), "="); {
		case !ok:
		case name == "minimum", name == "maximum", name == "exclusiveMinimum", name == "exclusiveMaximum", name == "multipleOf",
			name == "minLength", name == "maxLength", name == "pattern", name == "format", name == "minItems", name == "maxItems",
			name == "minProperties", name == "maxProperties", name == "enum", name == "default", name == "title", name == "description", name == "required":
			return name
		}
	}
	return ""
}

func (b *builder) field(sf structField) (fieldPlan, error) {
	f := fieldPlan{
		name:        sf.name,
		quoted:      string(jsonwire.AppendQuote(nil, sf.name)),
		hops:        sf.hops,
		offset:      sf.offset,
		description: sf.Tag.Get("jsonschema"),
	}
	if keyword := misplacedKeyword(f.description); keyword != "" {
		return f, fmt.Errorf("tag jsonschema:%q: all of it is the description, so it must not contain %s=; keywords are in the tag schema", f.description, keyword)
	}
	var err error
	if f.node, err = b.node(sf.Type); err != nil {
		return f, err
	}
	f.required = !sf.mayBeAbsent() && sf.Type.Kind() != reflect.Pointer && len(sf.hops) == 0
	f.omitted = omission(sf)
	return f, nil
}

// applyTag adds what the schema tag says.
func (f *fieldPlan) applyTag(sf structField) (err error) {
	tag, ok := sf.Tag.Lookup("schema")
	if !ok {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("tag schema:%q: %w", tag, err)
		}
	}()
	items, err := parseTag(tag)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, it := range items {
		if seen[it.key] {
			return fmt.Errorf("%s appears twice", it.key)
		}
		seen[it.key] = true
		if err := f.applyItem(it, sf.mayBeAbsent()); err != nil {
			return err
		}
	}
	if seen["required"] && (seen["optional"] || seen["default"]) {
		return fmt.Errorf("required contradicts optional and default")
	}
	return nil
}

func (f *fieldPlan) applyItem(it tagItem, maybeAbsent bool) (err error) {
	switch it.key {
	case "required", "optional", "uniqueItems", "deprecated":
		if it.hasValue && it.value != "true" {
			return fmt.Errorf("%s: takes no value", it.key)
		}
	default:
		if !it.hasValue && slices.Contains(strings.Split(knownKeywords, ", "), it.key) {
			return fmt.Errorf("%s: has no value", it.key)
		}
	}
	switch it.key {
	case "required":
		if maybeAbsent {
			return fmt.Errorf("required contradicts omitempty and omitzero")
		}
		if len(f.hops) > 0 {
			return fmt.Errorf("required: the field is absent when its embedded pointer is nil")
		}
		f.required = true
	case "optional":
		f.required = false
	case "deprecated":
		f.keywords = append(f.keywords, keyword{name: it.key, value: "true"})
	case "title", "x-mcp-header":
		f.keywords = append(f.keywords, keyword{name: it.key, value: string(jsonwire.AppendQuote(nil, it.value))})
	case "examples":
		var texts [][]byte
		for _, v := range it.list {
			text, err := f.node.defaultText(v)
			if err != nil {
				return fmt.Errorf("examples: %w", err)
			}
			texts = append(texts, text)
		}
		f.keywords = append(f.keywords, keyword{name: it.key, value: "[" + string(bytes.Join(texts, []byte{','})) + "]"})
	case "default":
		if f.defaultValue, err = f.node.defaultText(it.value); err != nil {
			return fmt.Errorf("default: %w", err)
		}
		f.required = false
		f.keywords = append(f.keywords, keyword{name: "default", value: string(f.defaultValue)})
	default:
		f.node, err = f.node.constrain(it)
	}
	return err
}

// omission returns the test for leaving a field out of the output.
func omission(sf structField) func(address) bool {
	t := sf.Type
	var zero, empty func(address) bool
	if sf.omitZero {
		zero = zeroTest(t)
	}
	if sf.omitEmpty {
		empty = emptyTest(t)
	}
	switch {
	case zero == nil:
		return empty
	case empty == nil:
		return zero
	}
	return func(a address) bool { return zero(a) || empty(a) }
}

func zeroTest(t reflect.Type) func(address) bool {
	type zeroer interface{ IsZero() bool }
	typeZeroer := reflect.TypeFor[zeroer]()
	switch {
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface:
		// A nil one is zero, and must not be asked.
		return func(a address) bool {
			v := a.value(t)
			if v.IsNil() {
				return true
			}
			z, ok := v.Interface().(zeroer)
			return ok && t.Implements(typeZeroer) && z.IsZero()
		}
	case reflect.PointerTo(t).Implements(typeZeroer):
		return func(a address) bool { return a.pointer(t).(zeroer).IsZero() }
	}
	return func(a address) bool { return a.value(t).IsZero() }
}

// emptyTest is what omitempty asks: false, 0, "", nil and what has no elements.
func emptyTest(t reflect.Type) func(address) bool {
	switch t.Kind() {
	case reflect.String:
		return func(a address) bool { return *as[string](a) == "" }
	case reflect.Bool:
		return func(a address) bool { return !*as[bool](a) }
	case reflect.Slice, reflect.Map, reflect.Array:
		return func(a address) bool { return a.value(t).Len() == 0 }
	case reflect.Struct:
		return nil
	}
	return func(a address) bool { return a.value(t).IsZero() }
}

// defName makes a type's name fit for a JSON pointer and a URI fragment.
func defName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}

// structField is a field that becomes a member, found by the rules of encoding/json: fields of
// embedded structs count as the outer struct's own, the shallowest field of a name wins, then the
// one with a tag, and if several are left none of them is used.
type structField struct {
	reflect.StructField
	name      string // of the member
	untagged  int    // 0 if the name comes from the tag, else 1
	index     []int
	hops      []hop
	offset    uintptr // from the last hop
	omitEmpty bool
	omitZero  bool
}

// mayBeAbsent reports whether the field may be missing in the output.
func (f *structField) mayBeAbsent() bool { return f.omitEmpty || f.omitZero }

// embedded is a struct whose fields are yet to be collected.
type embedded struct {
	typ    reflect.Type
	index  []int
	hops   []hop
	offset uintptr
}

// structFields returns the members of struct type t in the order of the source.
func structFields(t reflect.Type) ([]structField, error) {
	var all []structField
	level := []embedded{{typ: t}}
	seen := map[reflect.Type]bool{}
	for len(level) > 0 {
		var next []embedded
		count := map[reflect.Type]int{}
		for _, e := range level {
			count[e.typ]++
		}
		for _, e := range level {
			if seen[e.typ] {
				continue
			}
			own, inner, err := e.fields()
			if err != nil {
				return nil, err
			}
			for _, f := range own {
				all = append(all, f)
				if count[e.typ] > 1 {
					all = append(all, f) // embedded twice: hides itself
				}
			}
			next = append(next, inner...)
			if count[e.typ] > 1 {
				seen[e.typ] = true
			}
		}
		for _, e := range level {
			seen[e.typ] = true
		}
		level = next
	}
	return dominant(all), nil
}

func (e embedded) fields() (own []structField, inner []embedded, err error) {
	for i := range e.typ.NumField() {
		sf := e.typ.Field(i)
		ft := sf.Type
		if sf.Anonymous && ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		if !sf.IsExported() && (!sf.Anonymous || ft.Kind() != reflect.Struct) {
			continue
		}
		tag := sf.Tag.Get("json")
		if tag == "-" {
			continue
		}
		index := append(slices.Clone(e.index), i)
		name, options, _ := strings.Cut(tag, ",")
		if !validName(name) {
			name = ""
		}
		if name == "" && sf.Anonymous && ft.Kind() == reflect.Struct {
			if _, ok := sf.Tag.Lookup("schema"); ok {
				return nil, nil, fmt.Errorf("field %s: a schema tag on an embedded struct applies to nothing", sf.Name)
			}
			in := embedded{typ: ft, index: index, hops: e.hops, offset: e.offset + sf.Offset}
			if sf.Type.Kind() == reflect.Pointer {
				if !sf.IsExported() {
					return nil, nil, fmt.Errorf("field %s: cannot fill an embedded pointer to the unexported struct %s", sf.Name, ft)
				}
				in.hops = append(slices.Clone(e.hops), hop{offset: in.offset, typ: ft})
				in.offset = 0
			}
			inner = append(inner, in)
			continue
		}
		f := structField{StructField: sf, name: name, index: index, hops: e.hops, offset: e.offset + sf.Offset}
		if name == "" {
			f.name, f.untagged = sf.Name, 1
		}
		if err := f.setOptions(options); err != nil {
			return nil, nil, fmt.Errorf("field %s: %w", sf.Name, err)
		}
		own = append(own, f)
	}
	return own, inner, nil
}

func (f *structField) setOptions(options string) error {
	for option := range strings.SplitSeq(options, ",") {
		switch option {
		case "omitempty":
			f.omitEmpty = true
		case "omitzero":
			f.omitZero = true
		case "string":
			return fmt.Errorf(`the json option "string" is not supported: the schema would require a string where models send a number`)
		}
	}
	return nil
}

// validName is what encoding/json accepts as a name in a tag.
func validName(s string) bool {
	for _, r := range s {
		if !strings.ContainsRune("!#$%&()*+-./:;<=>?@[]^_{|}~ ", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return false
		}
	}
	return s != ""
}

// dominant picks one field for each name and sorts them by position.
func dominant(all []structField) []structField {
	sort.SliceStable(all, func(i, j int) bool {
		a, b := &all[i], &all[j]
		return cmp.Or(
			strings.Compare(a.name, b.name),
			cmp.Compare(len(a.index), len(b.index)),
			cmp.Compare(a.untagged, b.untagged),
			slices.Compare(a.index, b.index)) < 0
	})
	var out []structField
	for i := 0; i < len(all); {
		n := i + 1
		for n < len(all) && all[n].name == all[i].name {
			n++
		}
		unique := n == i+1 || len(all[i].index) != len(all[i+1].index) || all[i].untagged != all[i+1].untagged
		if unique {
			out = append(out, all[i])
		}
		i = n
	}
	sort.Slice(out, func(i, j int) bool { return slices.Compare(out[i].index, out[j].index) < 0 })
	return out
}

// tagItem is one keyword of a schema tag: minimum=1 or uniqueItems.
type tagItem struct {
	key      string
	value    string
	list     []string // enum only: the values
	hasValue bool
}

// parseTag splits a schema tag. See the package documentation for the grammar.
func parseTag(tag string) ([]tagItem, error) {
	var items []tagItem
	for rest := tag; ; {
		n := strings.IndexAny(rest, ",=")
		if n < 0 {
			n = len(rest)
		}
		item := tagItem{key: strings.TrimSpace(rest[:n])}
		if item.key == "" {
			return nil, fmt.Errorf("empty keyword")
		}
		rest = rest[n:]
		if strings.HasPrefix(rest, "=") {
			var err error
			if rest, err = item.parseValue(rest[1:]); err != nil {
				return nil, fmt.Errorf("%s: %w", item.key, err)
			}
		}
		items = append(items, item)
		if rest == "" {
			return items, nil
		}
		rest = rest[1:] // the comma
	}
}

// parseValue reads the value and returns what is left, from the comma on.
func (t *tagItem) parseValue(s string) (rest string, err error) {
	t.hasValue = true
	ends := ","
	isList := t.key == "enum" || t.key == "examples" || strings.HasSuffix(t.key, ".enum")
	if isList {
		ends = ",|"
	}
	for {
		var v string
		if v, s, err = cutValue(s, ends); err != nil {
			return "", err
		}
		t.value = v
		if isList {
			t.list = append(t.list, v)
		}
		if s == "" || s[0] == ',' {
			return s, nil
		}
		s = s[1:]
	}
}

// cutValue reads up to one of ends. A value in single quotes may contain them;
// a quote in it is doubled.
func cutValue(s, ends string) (v, rest string, err error) {
	if !strings.HasPrefix(s, "'") {
		if n := strings.IndexAny(s, ends); n >= 0 {
			return s[:n], s[n:], nil
		}
		return s, "", nil
	}
	var b strings.Builder
	for s = s[1:]; ; {
		n := strings.IndexByte(s, '\'')
		if n < 0 {
			return "", "", fmt.Errorf("missing closing quote")
		}
		b.WriteString(s[:n])
		s = s[n+1:]
		if !strings.HasPrefix(s, "'") {
			break
		}
		b.WriteByte('\'')
		s = s[1:]
	}
	if s != "" && strings.IndexByte(ends, s[0]) < 0 {
		return "", "", fmt.Errorf("unexpected %q after the closing quote", s)
	}
	return b.String(), s, nil
}
