// Package schema makes JSON Schemas from Go types, decodes and validates against
// them in one pass, and validates against hand-written ones (JSON Schema 2020-12,
// https://json-schema.org/draft/2020-12/json-schema-core).
//
//	type Args struct {
//		Text  string `json:"text" jsonschema:"what to search for" schema:"minLength=1"`
//		Limit int    `json:"limit" jsonschema:"how many" schema:"minimum=1,maximum=50,default=10"`
//	}
//	t, err := schema.Of[Args](nil) // once
//	var args Args
//	err = t.Decode(text, &args)
//
// [Of] compiles a type to a plan for decoding and encoding; its schema is [Typed.JSON]. Decoding
// accepts what that schema accepts, with these exceptions, which JSON Schema cannot express well:
// numbers must fit the Go type, dates and base64 must be well-formed, a type's own method may
// reject a value, and no member name may occur twice. [Compile] compiles a hand-written schema to a
// validator that reads the bytes.
//
// # Types
//
// Structs are objects. Members are named and promoted as in encoding/json, but names match exactly.
// Members without a field are rejected unless [Options.AllowUnknown] is set. A field is required
// unless it has omitempty, omitzero or a default, is a pointer or promoted through an embedded
// pointer; the tag keywords required and optional override that. Only a pointer, an any and a type
// that decodes itself may be null.
//
// Maps are also objects; keys are strings, integers or have MarshalText and UnmarshalText. Slices
// are arrays, Go arrays are arrays of their length, []byte is a base64 string. time.Time is a
// string with an RFC 3339 date-time. json.Number and big.Int take any number and any integer,
// exactly. A json.RawMessage and an any take any value; see [Options.UseNumber] for numbers in an
// any. Types with UnmarshalJSON take any value and types with UnmarshalText any string. Recursive
// types, and large ones that occur more than once, are put under $defs.
//
// A number is an integer by its value, as in JSON Schema: 1.0 and 1e2 are integers,
// 1.5 is not. No number is rounded or wrapped to fit.
//
// A type can give its own schema, see [Schemer], or list its values, see [Enumerator]. [Either] is
// one of two types. Methods with a pointer receiver count everywhere; encoding/json ignores them
// for values in maps and interfaces. The option string of json tags is not supported.
//
// # Tags
//
// The tag jsonschema is the description of a field; a keyword in it is an error. The tag schema
// lists keywords, separated by commas:
//
//	minimum=1 maximum=10 exclusiveMinimum=0 exclusiveMaximum=1 multipleOf=5   numbers
//	minLength=1 maxLength=80 pattern=^[a-z]+$ format=uri                      strings
//	minItems=1 maxItems=9 uniqueItems items.minLength=1                       slices
//	minProperties=1 maxProperties=9 values.minimum=0                          maps
//	enum=a|b|c                                                                strings and numbers
//	default=5 title=Limit required optional deprecated examples=a|b           all
//	x-mcp-header=Region                                                       arguments of tools
//
// Put a value with a comma, or one of an enum or of examples with a bar, into single quotes, and
// double a single quote in it: pattern='^a{1,3}$'. items. and values. apply a keyword to the
// elements. A default and an example are JSON, or plain text for strings. x-mcp-header names the
// header that repeats the argument over HTTP. Of returns an error for a keyword that is unknown or
// does not apply to the type, and for an invalid value. Patterns are those of package regexp, and
// may have \uXXXX. format is not checked.
//
// A default is in the schema, and is the value of a member that is absent from its
// object. Lengths count code points.
//
// # Concurrency
//
// [Typed] and [Validator] are immutable and may be used by any number of
// goroutines. No state is shared between values.
//
// # Errors
//
// Bad input is an [*Error], whose text tells a language model what to change.
// Other errors mean that a type, a tag or a schema cannot be used.
//
// # Compatibility
//
// The texts for Decode and Validate must be valid JSON. For other texts the result
// is undefined, but nothing panics or hangs.
package schema
