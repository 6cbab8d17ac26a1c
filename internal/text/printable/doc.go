// Package printable makes untrusted text safe to display, mainly on terminals.
// Characters that control a terminal, change the writing direction, are
// invisible or break lines become visible escape sequences.
//
// # Concurrency
//
// All functions are safe for concurrent use. They do not keep their arguments.
//
// # Errors
//
// No function returns an error: every text has a printable form.
package printable
