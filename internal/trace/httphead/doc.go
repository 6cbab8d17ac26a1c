// Package httphead converts the heads of net/http requests and responses for captures.
//
// Header fields are sorted by name, since net/http does not keep their order, and have the
// canonical spelling of net/http. A caller that has seen the bytes on the wire replaces the fields
// with the original ones. The package redacts nothing; the capture's writer does.
//
// # Concurrency
//
// The functions are safe for concurrent use. Their results share no memory
// with the parts of the arguments that net/http changes later.
package httphead
