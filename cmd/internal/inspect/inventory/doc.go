// Package inventory takes an inventory of a server: its name and version, the
// definitions that it offers, and its responses, from a capture or result by
// result. [Compare] compares two inventories, to determine whether a new
// version of a server breaks users of the old one.
//
// # Memory
//
// Definitions and responses are stored up to limits. Dropped responses are counted.
//
// # Concurrency
//
// An [Inventory] must not be used by several goroutines at once while it is
// filled. Afterwards it may be read concurrently.
//
// # Errors
//
// Functions return the errors of the events. They skip malformed messages.
package inventory
