// Package httphead puts the heads of HTTP messages into captures, where net/http has read or is about to write them.
//
// Fields are sorted by name, since net/http does not keep their order, and have the spelling of its own; whoever has seen the bytes of the wire puts what was there in the place
// of it. Nothing is hidden: that is the business of the capture's writer.
//
// # Concurrency
//
// The functions keep nothing. What they return shares no memory with what they are given that net/http changes later.
package httphead
