package schema

import (
	"regexp"
	"strings"
)

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
