// Package inventory takes stock of a server: who it says it is, what it offers, and what it answered; from a capture or result by result. Two inventories can be
// compared, see [Compare]: that is what tells whether a new version of a server breaks those who use the old one.
//
// # Memory
//
// Definitions and answers are kept up to limits; what is beyond is counted.
//
// # Concurrency
//
// An [Inventory] is for one goroutine at a time until it is complete; then any number may read it.
//
// # Errors
//
// Those of the events. Messages that cannot be understood are passed over.
package inventory
