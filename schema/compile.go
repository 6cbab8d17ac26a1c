package schema

import (
	"fmt"
	"math"
	"net/url"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"

	"mcpwire/internal/json/decimal"
	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
)

// unsupportedError is about a schema that may be right but needs an engine.
type unsupportedError struct {
	loc, keyword, detail string
}

func (e *unsupportedError) Error() string {
	return fmt.Sprintf("schema: #%s: %s: %s; compile with a full engine (package schema/fullschema) or write the schema without it", e.loc, e.keyword, e.detail)
}

// invalid is the error for a schema that no engine could make sense of.
func invalid(loc, keyword, format string, args ...any) error {
	return fmt.Errorf("schema: #%s: %s: %s", loc, keyword, fmt.Sprintf(format, args...))
}

// compiler compiles one schema document.
type compiler struct {
	text    []byte // the document, compact
	base    string // $id of the root
	subs    map[string]*subschema
	anchors map[string]*subschema
	refs    []pendingRef

	patterns int // instructions of all compiled so far
}

// pendingRef is a $ref whose target may not be compiled yet.
type pendingRef struct {
	from *subschema
	ref  string
}

func compileSchema(text []byte) (*subschema, error) {
	c := &compiler{text: text, subs: map[string]*subschema{}, anchors: map[string]*subschema{}}
	if err := knownDialect(text); err != nil {
		return nil, err
	}
	root, err := c.schema(text, "")
	if err != nil {
		return nil, err
	}
	for len(c.refs) > 0 { // resolving may compile more
		p := c.refs[0]
		c.refs = c.refs[1:]
		if p.from.applicators.ref, err = c.resolve(p); err != nil {
			return nil, err
		}
	}
	if s := c.findCycle(); s != nil {
		return nil, invalid(s.loc, "$ref", "the schema applies itself to the same value endlessly")
	}
	return root, nil
}

// knownDialect looks at $schema before anything else: keywords mean other things in other dialects.
func knownDialect(text []byte) error {
	if raw := jsonwire.Lookup(text, "$schema"); raw != nil && raw[0] == '"' {
		k := &keywords{}
		return k.core("$schema", raw)
	}
	return nil
}

// schema compiles the schema with the text raw at a location. Compiling the
// same location again returns the same subschema.
func (c *compiler) schema(raw []byte, loc string) (*subschema, error) {
	if s, ok := c.subs[loc]; ok {
		return s, nil
	}
	s := &subschema{loc: loc}
	c.subs[loc] = s
	switch raw[0] {
	case 't':
		return s, nil
	case 'f':
		s.never = true
		return s, nil
	case '{':
	default:
		return nil, invalid(loc, "schema", "expected an object or a boolean, got %s", gotAt(raw, 0))
	}
	k := &keywords{c: c, s: s, loc: loc, minContains: 1, maxContains: -1}
	for m := jsonwire.ObjectMembers(raw); m.Next(); {
		if err := k.read(m.KeyString(), m.Value()); err != nil {
			return nil, err
		}
	}
	k.finish()
	return s, nil
}

// child compiles a schema that is the value of a keyword.
func (k *keywords) child(raw []byte, path ...string) (*subschema, error) {
	loc := k.loc
	for _, p := range path {
		loc += "/" + jsonpointer.Escape(p)
	}
	return k.c.schema(raw, loc)
}

// children compiles a non-empty array of schemas.
func (k *keywords) children(name string, raw []byte) (list []*subschema, err error) {
	if raw[0] != '[' || len(raw) == 2 {
		return nil, invalid(k.loc, name, "expected an array of schemas with at least one, got %s", gotAt(raw, 0))
	}
	for e := jsonwire.ArrayElements(raw); e.Next(); {
		s, err := k.child(e.Value(), name, strconv.Itoa(len(list)))
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// childMap compiles an object of schemas.
func (k *keywords) childMap(name string, raw []byte, each func(name string, s *subschema) error) error {
	if raw[0] != '{' {
		return invalid(k.loc, name, "expected an object of schemas, got %s", gotAt(raw, 0))
	}
	for m := jsonwire.ObjectMembers(raw); m.Next(); {
		key := m.KeyString()
		s, err := k.child(m.Value(), name, key)
		if err != nil {
			return err
		}
		if err := each(key, s); err != nil {
			return err
		}
	}
	return nil
}

// resolve finds the target of a $ref within the document.
func (c *compiler) resolve(p pendingRef) (*subschema, error) {
	doc, fragment, _ := strings.Cut(p.ref, "#")
	if doc != "" && doc != c.base {
		return nil, &unsupportedError{p.from.loc, "$ref", fmt.Sprintf("%s is outside this document, and nothing is fetched", quote(p.ref))}
	}
	fragment, err := url.PathUnescape(fragment)
	if err != nil {
		return nil, invalid(p.from.loc, "$ref", "%s has a malformed fragment", quote(p.ref))
	}
	if fragment != "" && fragment[0] != '/' {
		if s := c.anchors[fragment]; s != nil {
			return s, nil
		}
		return nil, invalid(p.from.loc, "$ref", "$anchor %s not found", quote(fragment))
	}
	if s, ok := c.subs[fragment]; ok {
		return s, nil
	}
	raw := jsonpointer.Find(c.text, fragment)
	if raw == nil {
		return nil, invalid(p.from.loc, "$ref", "nothing found at %s", quote(p.ref))
	}
	return c.schema(raw, fragment)
}

// findCycle finds a schema that leads back to itself through keywords that apply
// to the same value. No instance could ever be valid or invalid against it.
func (c *compiler) findCycle() *subschema {
	const active, done = 1, 2
	state := map[*subschema]int{}
	var visit func(s *subschema) *subschema
	visit = func(s *subschema) *subschema {
		if s == nil || state[s] == done {
			return nil
		}
		if state[s] == active {
			return s
		}
		state[s] = active
		for _, next := range s.inPlaceSchemas() {
			if loop := visit(next); loop != nil {
				return loop
			}
		}
		state[s] = done
		return nil
	}
	for _, s := range c.subs {
		if loop := visit(s); loop != nil {
			return loop
		}
	}
	return nil
}

// inPlaceSchemas lists the schemas that s applies to the value it is applied to.
func (s *subschema) inPlaceSchemas() []*subschema {
	var list []*subschema
	if p := s.applicators; p != nil {
		list = append(list, p.ref, p.not, p.cond, p.then, p.els)
		list = append(append(append(list, p.all...), p.any...), p.one...)
	}
	if s.obj != nil {
		for _, d := range s.obj.dependencies {
			list = append(list, d.schema)
		}
	}
	return list
}

// Bounds of compiled patterns, in instructions.
const (
	maxPatternSize = 10_000 // of each: matching takes up to that many steps for each byte
	// maxPatternsSize limits the instructions of all patterns in a schema. One takes about 100
	// bytes, and less than one byte of text.
	maxPatternsSize = 200_000
)

// dialect is the one draft compiled here.
const dialect = "https://json-schema.org/draft/2020-12/schema"

// keywords reads the members of one schema object into s. Those that only mean
// something together wait for finish.
type keywords struct {
	c   *compiler
	s   *subschema
	loc string

	arr         arrayRule
	hasArr      bool
	minContains int
	maxContains int
}

// read compiles one keyword.
func (k *keywords) read(name string, raw []byte) error {
	switch name {
	case "$schema", "$id", "$anchor", "$dynamicAnchor", "$ref", "$defs":
		return k.core(name, raw)
	case "type", "enum", "const":
		return k.any(name, raw)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
		return k.number(name, raw)
	case "minLength", "maxLength", "pattern":
		return k.string(name, raw)
	case "properties", "required", "additionalProperties", "patternProperties", "propertyNames",
		"minProperties", "maxProperties", "dependentRequired", "dependentSchemas":
		return k.object(name, raw)
	case "prefixItems", "items", "contains", "minContains", "maxContains", "minItems", "maxItems", "uniqueItems":
		k.hasArr = true
		return k.array(name, raw)
	case "allOf", "anyOf", "oneOf", "not", "if", "then", "else":
		return k.applicators(name, raw)
	case "unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef", "$recursiveAnchor", "$vocabulary", "dependencies":
		return k.unsupported(name, "this keyword is not supported by the compiler")
	}
	return nil // an annotation, or unknown
}

func (k *keywords) unsupported(name, detail string) error {
	return &unsupportedError{k.loc, name, detail}
}

func (k *keywords) invalid(name, want string, raw []byte) error {
	return invalid(k.loc, name, "expected %s, got %s", want, gotAt(raw, 0))
}

// text returns the value of a keyword that is a string.
func (k *keywords) text(name string, raw []byte) (string, error) {
	if raw[0] != '"' {
		return "", k.invalid(name, "a string", raw)
	}
	return jsonwire.UnquoteString(raw[1 : len(raw)-1]), nil
}

// size returns the value of a keyword that counts something.
func (k *keywords) size(name string, raw []byte) (int, error) {
	if typeOf(raw[0]) == typeFloat {
		if d := decimal.Parse(raw); d.IsInteger() && !d.Neg {
			if n, ok := d.Uint64(); ok && n <= math.MaxInt32 {
				return int(n), nil
			}
			return math.MaxInt32, nil // nothing in memory is longer
		}
	}
	return 0, k.invalid(name, "an integer of 0 or more", raw)
}

func (k *keywords) core(name string, raw []byte) error {
	if name == "$defs" {
		return k.childMap(name, raw, func(string, *subschema) error { return nil })
	}
	v, err := k.text(name, raw)
	if err != nil {
		return err
	}
	switch name {
	case "$schema":
		if strings.TrimSuffix(v, "#") != dialect {
			return k.unsupported(name, quote(v)+" is another dialect than "+dialect)
		}
	case "$id":
		if k.loc != "" {
			return k.unsupported(name, "only the root may have an id")
		}
		k.c.base = strings.TrimSuffix(v, "#")
	case "$anchor", "$dynamicAnchor":
		if k.c.anchors[v] != nil && k.c.anchors[v] != k.s {
			return invalid(k.loc, name, "%s is defined twice", quote(v))
		}
		k.c.anchors[v] = k.s
	case "$ref":
		k.ensureApplicators()
		k.c.refs = append(k.c.refs, pendingRef{k.s, v})
	}
	return nil
}

func (k *keywords) ensureApplicators() *applicators {
	if k.s.applicators == nil {
		k.s.applicators = &applicators{}
	}
	return k.s.applicators
}

func (k *keywords) any(name string, raw []byte) error {
	if name == "type" {
		return k.types(raw)
	}
	if name == "const" {
		k.s.constant = newEnum([]string{string(raw)})
		return nil
	}
	if raw[0] != '[' {
		return k.invalid(name, "an array", raw)
	}
	var texts []string
	for e := jsonwire.ArrayElements(raw); e.Next(); {
		texts = append(texts, string(e.Value()))
	}
	k.s.enum = newEnum(texts)
	return nil
}

func (k *keywords) types(raw []byte) error {
	list := [][]byte{raw}
	if raw[0] == '[' {
		list = nil
		for e := jsonwire.ArrayElements(raw); e.Next(); {
			list = append(list, e.Value())
		}
	}
	for _, raw := range list {
		v, err := k.text("type", raw)
		if err != nil {
			return err
		}
		var t typeSet
		for i, name := range typeNames {
			if name == v {
				t = 1 << i
			}
		}
		if t == 0 {
			return invalid(k.loc, "type", "unknown type %s; known are %s", quote(v), listNames(typeNames[:]))
		}
		if k.s.types&t != 0 {
			return invalid(k.loc, "type", "%s is listed twice", quote(v))
		}
		k.s.types |= t
	}
	if k.s.types == 0 {
		return k.invalid("type", "at least one type", raw)
	}
	return nil
}

// maxDivisorDigits bounds the digits of a multipleOf.
const maxDivisorDigits = 1000

func (k *keywords) number(name string, raw []byte) error {
	if typeOf(raw[0]) != typeFloat {
		return k.invalid(name, "a number", raw)
	}
	if k.s.num == nil {
		k.s.num = &numberRule{}
	}
	if name != "multipleOf" {
		k.s.num.addBound(name, string(raw))
		return nil
	}
	d := decimal.Parse(raw)
	if d.Sign() <= 0 {
		return k.invalid(name, "a number greater than 0", raw)
	}
	if d.Size() > maxDivisorDigits {
		return invalid(k.loc, name, "more than %d digits", maxDivisorDigits)
	}
	k.s.num.setMultiple(string(raw))
	return nil
}

func (k *keywords) string(name string, raw []byte) error {
	if k.s.str == nil {
		k.s.str = &stringRule{sizeRule: sizeRule{max: -1}}
	}
	if name != "pattern" {
		return k.bound(name, "minLength", raw, &k.s.str.min, &k.s.str.max)
	}
	v, err := k.text(name, raw)
	if err != nil {
		return err
	}
	k.s.str.source = v
	k.s.str.pattern, k.s.strCost, err = k.pattern(name, v)
	return err
}

// bound reads a keyword that is either lower or its upper counterpart.
func (k *keywords) bound(name, lower string, raw []byte, minimum, maximum *int) error {
	n, err := k.size(name, raw)
	if name == lower {
		*minimum = n
	} else {
		*maximum = n
	}
	return err
}

// pattern compiles a regular expression and estimates what it costs to match.
func (k *keywords) pattern(name, source string) (re *regexp.Regexp, cost int, err error) {
	expr := goPattern(source)
	var prog *syntax.Prog
	tree, err := syntax.Parse(expr, syntax.Perl)
	if err == nil {
		prog, err = syntax.Compile(tree.Simplify())
	}
	if err == nil {
		re, err = regexp.Compile(expr)
	}
	if err != nil {
		return nil, 0, k.unsupported(name, fmt.Sprintf("%s is not a regular expression that Go can match: %s", quote(source), clip.String(err.Error(), maxErrorText)))
	}
	if len(prog.Inst) > maxPatternSize {
		return nil, 0, invalid(k.loc, name, "%s is too large to match in bounded time", quote(source))
	}
	if k.c.patterns += len(prog.Inst); k.c.patterns > maxPatternsSize {
		return nil, 0, invalid(k.loc, name, "with %s, the patterns of the schema are too large together", quote(source))
	}
	return re, 1 + len(prog.Inst)/8, nil
}

func (k *keywords) applicators(name string, raw []byte) (err error) {
	p := k.ensureApplicators()
	switch name {
	case "allOf":
		p.all, err = k.children(name, raw)
	case "anyOf":
		p.any, err = k.children(name, raw)
	case "oneOf":
		p.one, err = k.children(name, raw)
	case "not":
		p.not, err = k.child(raw, name)
	case "if":
		p.cond, err = k.child(raw, name)
	case "then":
		p.then, err = k.child(raw, name)
	case "else":
		p.els, err = k.child(raw, name)
	}
	return err
}

func (k *keywords) array(name string, raw []byte) (err error) {
	a := &k.arr
	switch name {
	case "prefixItems":
		a.prefix, err = k.children(name, raw)
	case "items":
		if raw[0] == '[' {
			return invalid(k.loc, name, "expected one schema, got an array, which is prefixItems in this draft")
		}
		a.items, err = k.child(raw, name)
	case "contains":
		a.contains, err = k.child(raw, name)
	case "minContains":
		k.minContains, err = k.size(name, raw)
	case "maxContains":
		k.maxContains, err = k.size(name, raw)
	case "uniqueItems":
		a.unique, err = k.flag(name, raw)
	default:
		if a.count == nil {
			a.count = &sizeRule{max: -1}
		}
		return k.bound(name, "minItems", raw, &a.count.min, &a.count.max)
	}
	return err
}

func (k *keywords) flag(name string, raw []byte) (bool, error) {
	if typeOf(raw[0]) != typeBoolean {
		return false, k.invalid(name, "a boolean", raw)
	}
	return raw[0] == 't', nil
}

func (k *keywords) object(name string, raw []byte) (err error) {
	if k.s.obj == nil {
		k.s.obj = &objectRule{}
	}
	o := k.s.obj
	switch name {
	case "properties":
		return k.childMap(name, raw, func(name string, s *subschema) error {
			o.members[o.index(name)].schema = s
			o.names = append(o.names, name)
			return nil
		})
	case "required":
		o.required, err = k.nameList(name, raw)
	case "additionalProperties":
		o.additional, err = k.child(raw, name)
	case "propertyNames":
		o.propName, err = k.child(raw, name)
	case "patternProperties":
		return k.childMap(name, raw, func(source string, s *subschema) error {
			re, cost, err := k.pattern(name, source)
			o.patterns = append(o.patterns, patternRule{re, cost, s})
			return err
		})
	case "dependentSchemas":
		return k.childMap(name, raw, func(name string, s *subschema) error {
			o.dependencies = append(o.dependencies, dependency{name: o.index(name), schema: s})
			return nil
		})
	case "dependentRequired":
		return k.dependentRequired(name, raw)
	default:
		if o.count == nil {
			o.count = &sizeRule{max: -1}
		}
		return k.bound(name, "minProperties", raw, &o.count.min, &o.count.max)
	}
	return err
}

// nameList reads an array of distinct member names as indexes.
func (k *keywords) nameList(keyword string, raw []byte) (list []int, err error) {
	if raw[0] != '[' {
		return nil, k.invalid(keyword, "an array of names", raw)
	}
	seen := map[int]bool{}
	for e := jsonwire.ArrayElements(raw); e.Next(); {
		name, err := k.text(keyword, e.Value())
		if err != nil {
			return nil, err
		}
		n := k.s.obj.index(name)
		if seen[n] {
			return nil, invalid(k.loc, keyword, "%s is listed twice", quote(name))
		}
		seen[n] = true
		list = append(list, n)
	}
	return list, nil
}

func (k *keywords) dependentRequired(keyword string, raw []byte) error {
	if raw[0] != '{' {
		return k.invalid(keyword, "an object", raw)
	}
	for m := jsonwire.ObjectMembers(raw); m.Next(); {
		needs, err := k.nameList(keyword, m.Value())
		if err != nil {
			return err
		}
		k.s.obj.dependencies = append(k.s.obj.dependencies, dependency{name: k.s.obj.index(m.KeyString()), required: needs})
	}
	return nil
}

// finish puts together what depends on several keywords.
func (k *keywords) finish() {
	s := k.s
	if s.num != nil {
		s.num.finish()
	}
	if o := s.obj; o != nil && len(o.members) <= maxLinearFields {
		o.byName = nil
	}
	if k.hasArr {
		k.arr.matches = sizeRule{min: k.minContains, max: k.maxContains}
		s.arr = &k.arr
	}
	// then and else mean nothing without if.
	if p := s.applicators; p != nil && p.cond == nil {
		p.then, p.els = nil, nil
	}
}

// typeSet is a set of JSON types.
type typeSet uint8

const (
	typeNull typeSet = 1 << iota
	typeBoolean
	typeObject
	typeArray
	typeString
	typeFloat   // any number
	typeInteger // a number without fraction
)

var typeNames = [...]string{"null", "boolean", "object", "array", "string", "number", "integer"}

// typeOf is the type of the value that starts with a byte.
func typeOf(ch byte) typeSet {
	switch ch {
	case '"':
		return typeString
	case '{':
		return typeObject
	case '[':
		return typeArray
	case 't', 'f':
		return typeBoolean
	case 'n':
		return typeNull
	}
	return typeFloat
}

func (t typeSet) String() string {
	var names []string
	for i, name := range typeNames {
		if t>>i&1 != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " or ")
}

// subschema is a compiled schema object. nil pointers in it mean the keyword is
// absent. Schemas that refer to each other form cycles.
type subschema struct {
	loc         string // JSON pointer within the document
	never       bool   // the schema false
	types       typeSet
	enum        *enumRule
	constant    *enumRule
	num         *numberRule
	str         *stringRule
	strCost     int // steps for each 64 bytes under the pattern
	obj         *objectRule
	arr         *arrayRule
	applicators *applicators
}

// applicators is the keywords that apply schemas to the same value.
type applicators struct {
	ref             *subschema
	all, any, one   []*subschema
	not             *subschema
	cond, then, els *subschema
}

// objectRule is the keywords about objects.
type objectRule struct {
	members      []memberRule   // every name that any keyword mentions
	byName       map[string]int // if they are more than a few
	required     []int          // indexes in members
	names        []string       // of properties, for messages
	patterns     []patternRule
	additional   *subschema // additionalProperties
	propName     *subschema // propertyNames
	count        *sizeRule
	dependencies []dependency
}

// memberRule is what is known of one name.
type memberRule struct {
	name   string
	schema *subschema // nil: not in properties
}

type patternRule struct {
	re     *regexp.Regexp
	cost   int
	schema *subschema
}

// dependency is an entry of dependentRequired or of dependentSchemas.
type dependency struct {
	name     int // index in members
	required []int
	schema   *subschema
}

// arrayRule is the keywords about arrays.
type arrayRule struct {
	prefix   []*subschema
	items    *subschema
	contains *subschema
	matches  sizeRule // minContains and maxContains
	count    *sizeRule
	unique   bool
}

// member returns the index of a name in members, or -1.
func (o *objectRule) member(raw []byte) int {
	if o.byName != nil {
		if k, ok := o.byName[string(raw)]; ok {
			return k
		}
		return -1
	}
	for k := range o.members {
		if o.members[k].name == string(raw) {
			return k
		}
	}
	return -1
}

// index returns the index of a name in members, which it adds if need be.
func (o *objectRule) index(name string) int {
	if o.byName == nil {
		o.byName = map[string]int{}
	}
	k, ok := o.byName[name]
	if !ok {
		k = len(o.members)
		o.byName[name] = k
		o.members = append(o.members, memberRule{name: name})
	}
	return k
}

// goPattern rewrites the escapes of ECMA-262 that Go's regular expressions
// spell differently: \uXXXX. Everything else is the same for what schemas use,
// or fails to compile, as look-ahead does.
func goPattern(source string) string {
	if !strings.Contains(source, `\u`) {
		return source
	}
	var b strings.Builder
	for i := 0; i < len(source); {
		if source[i] != '\\' || i+1 == len(source) {
			b.WriteByte(source[i])
			i++
			continue
		}
		if hex := source[i+2 : min(i+6, len(source))]; source[i+1] == 'u' && len(hex) == 4 {
			b.WriteString(`\x{` + hex + `}`)
			i += 6
			continue
		}
		b.WriteString(source[i : i+2])
		i += 2
	}
	return b.String()
}
