package schema

import (
	"math"
	"reflect"
	"strconv"
)

// op is how values of a node are read or written.
type op uint8

const (
	opNone    op = iota // there is no way
	opAny               // interface{}
	opBool              //
	opInt               // signed, of any size
	opUint              // unsigned, of any size
	opFloat             // float32 and float64
	opString            //
	opBytes             // []byte as base64
	opTime              // time.Time
	opRaw               // json.RawMessage
	opNumber            // json.Number
	opBigInt            // big.Int
	opPointer           // null or the element
	opStruct            //
	opSlice             //
	opArray             //
	opMap               //
	opText              // encoding.TextMarshaler and TextUnmarshaler
	opJSON              // json.Marshaler and json.Unmarshaler
	opEither            // Either
)

// node is the compiled form of one Go type, or of one use of it with its own
// constraints. Decoder and encoder walk nodes and values together. Nodes don't
// change once Of has returned; those of recursive types form cycles.
type node struct {
	typ      reflect.Type
	dec, enc op
	size     uint8 // bytes of a number

	elem     *node       // pointer, slice, array, map
	required bool        // pointer: null is refused
	key      *keyPlan    // map
	fields   *structPlan // struct
	// alternatives are the types of the fields of an Either.
	alternatives []*node

	// Constraints. Nil means none.
	lo, hi   int64  // opInt, inclusive
	ulo, uhi uint64 // opUint, inclusive
	num      *numberRule
	str      *stringRule
	count    *sizeRule // items or properties
	unique   bool
	enum     *enumRule
	custom   *Validator // the type's own schema

	// What the schema says.
	name     string // of a named type that may get a place in $defs
	types    string // the JSON type, "" for any
	keywords []keyword
}

// keyword is a member of a JSON Schema object, its value as JSON.
type keyword struct {
	name, value string
	implied     bool // it comes from the Go type, not from a tag
}

// addKeyword adds to the node's own list, even if it shares one so far.
func (n *node) addKeyword(name, value string) {
	n.keywords = append(n.keywords[:len(n.keywords):len(n.keywords)], keyword{name: name, value: value})
}

func (n *node) imply(name, value string) {
	n.keywords = append(n.keywords[:len(n.keywords):len(n.keywords)], keyword{name, value, true})
}

// keyPlan is how the keys of a map become member names.
type keyPlan struct {
	typ  reflect.Type
	op   op // opString, opInt, opUint, opText
	size uint8
}

// structPlan is the members of a struct, in the order of the schema.
type structPlan struct {
	fields   []fieldPlan
	names    []string
	byName   map[string]int // if there are more than a few
	required []uint64       // bit sets, one bit for each field
	defaults []uint64
	lenient  bool // unknown members are ignored
	// noneRequired is set if the type's own schema says what is required.
	noneRequired bool
}

// fieldPlan is one member of a struct.
type fieldPlan struct {
	name         string
	quoted       string // the name as JSON
	node         *node
	hops         []hop   // pointers to embedded structs on the way
	offset       uintptr // from there on
	required     bool
	omitted      func(address) bool // on output, nil for never
	defaultValue []byte             // default, as JSON; nil for none

	description string
	keywords    []keyword // that describe this use: title, default
}

// hop is a pointer to an embedded struct.
type hop struct {
	offset uintptr
	typ    reflect.Type // of the struct
}

// maxLinearFields is up to how many fields comparing each name is faster than a map.
const maxLinearFields = 8

// finish computes what follows from the fields.
func (s *structPlan) finish() {
	words := (len(s.fields) + 63) / 64
	s.required = make([]uint64, words)
	s.defaults = make([]uint64, words)
	for i := range s.fields {
		f := &s.fields[i]
		s.names = append(s.names, f.name)
		if f.required && !s.noneRequired {
			s.required[i/64] |= 1 << (i % 64)
		}
		if f.defaultValue != nil {
			s.defaults[i/64] |= 1 << (i % 64)
		}
	}
	if len(s.fields) > maxLinearFields {
		s.byName = make(map[string]int, len(s.fields))
		for i := range s.fields {
			s.byName[s.fields[i].name] = i
		}
	}
}

// at returns the address of the field in the struct at a. A nil pointer on the
// way reports false, unless grow is set: then it is filled.
func (f *fieldPlan) at(a address, grow bool) (address, bool) {
	for _, h := range f.hops {
		a = a.field(h.offset)
		next, ok := a.load()
		if !ok {
			if !grow {
				return a, false
			}
			next = newAddress(h.typ)
			a.store(next)
		}
		a = next
	}
	return a.field(f.offset), true
}

// setIntRange sets what values the integer type allows.
func (n *node) setIntRange() {
	bits := 8 * uint(n.size)
	if n.signed() {
		n.lo, n.hi = -1<<(bits-1), 1<<(bits-1)-1
		if bits == 64 {
			n.lo, n.hi = math.MinInt64, math.MaxInt64
		}
		return
	}
	n.uhi = 1<<(bits-1)<<1 - 1
}

// intRange returns the bounds of an integer in decimal.
func (n *node) intRange() (lo, hi string) {
	if n.signed() {
		return strconv.FormatInt(n.lo, 10), strconv.FormatInt(n.hi, 10)
	}
	return strconv.FormatUint(n.ulo, 10), strconv.FormatUint(n.uhi, 10)
}

// fullIntRange returns the bounds of the integer type in decimal.
func (n *node) fullIntRange() (lo, hi string) {
	full := node{typ: n.typ, size: n.size}
	full.setIntRange()
	return full.intRange()
}

func (n *node) signed() bool {
	k := n.typ.Kind()
	return k >= reflect.Int && k <= reflect.Int64
}
