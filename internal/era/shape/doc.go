// Package shape knows what the messages of the Model Context Protocol look like, revision by revision, and says how a message differs from that.
//
// Check looks at the params of a request or notification, at a result or at an error object. Its tables are generated from the specification's
// schemas (https://modelcontextprotocol.io/specification/2026-07-28/schema) together with what these leave out or get wrong: numbers may have
// fractions and null is a value where any value is; a result is of the type that the method asks for, not of any; the object of a union is the one that
// its discriminator names; members of _meta that only the pages define are known; so are the messages of the tasks extension.
//
// The world is open: members that the revision does not have, methods and kinds of results that no revision has, and capabilities of any name are not
// problems. What depends on more than one message is not looked at (which capability was declared, whether a result may be input_required), nor is
// what no shape expresses.
//
// Types and Methods show the tables, for whoever explains them.
//
// # Concurrency
//
// There is no state. All functions may be called by many goroutines at once.
//
// # Errors
//
// There are none: a body that is not JSON is a problem like others.
package shape

//go:generate go run ../../gen -spec ../../../../shared/spec -out= -shape .
