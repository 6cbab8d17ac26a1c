// Package era is the only place that knows how the protocol's revisions differ.
//
// It turns what a peer sends, in whichever revision, into one canonical form: a request that says of itself which revision it is of and what its
// client can do, as requests of the modern era do by themselves. What a legacy peer said once, in the handshake, [Session] remembers for
// it. On the way back it gives results the shape that the revision knows.
//
// Modern and legacy are the specification's words (https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning): with and without
// metadata in each request, without and with the initialize handshake.
package era
