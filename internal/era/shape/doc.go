// Package shape checks messages of the Model Context Protocol against the schemas of a revision
// (https://modelcontextprotocol.io/specification/2026-07-28/schema).
//
// [Check] checks the params of a request or notification, a result or an error object. Its tables
// are generated from the specification's schemas, with some corrections:
//
//   - Numbers may have fractions, and any value may be null.
//   - The method determines the type of a result.
//   - The discriminator determines the object of a union.
//   - The tables include members of _meta that only the pages define, and the
//     tasks extension.
//
// Check accepts unknown members, methods, kinds of results and capabilities. It does not check what
// depends on other messages, such as declared capabilities or the use of input_required.
//
// [Type] and [Method] describe the tables.
//
// # Concurrency
//
// The package has no state. All functions may be called by many goroutines at once.
//
// # Errors
//
// A body that is not JSON causes a [Finding] like any other.
package shape

//go:generate go run ../../../tools/gen -spec ../../../../shared/spec -out= -shape .
