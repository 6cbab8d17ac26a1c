// Package era is the only package that knows how the revisions of the protocol differ.
//
// It converts the requests of a peer to a canonical form, which states the revision and the
// capabilities of the client, as modern requests do. [Session] stores what a legacy peer declared
// in the handshake. The package also converts results to the revision of the peer.
//
// Modern and legacy are the words of the specification
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning). Modern revisions
// have metadata in each request. Legacy revisions have the initialize handshake.
package era
