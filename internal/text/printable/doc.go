// Package printable makes text of strangers fit to be shown to people, on terminals above all: what would steer a terminal, change the direction of
// writing, hide, or pretend to be another line becomes an escape sequence that can be seen.
//
// # Concurrency
//
// All functions may be called by many goroutines at once; none keeps what it is given.
//
// # Errors
//
// There are none: every text has a form that can be shown.
package printable
