// Package tui shows the live view in the terminal: a growing table of
// exchanges with a waterfall and running timers, and the details of one
// exchange next to or below it.
//
//	err := tui.Run(ctx, hub, nil)
//
// It shows the traffic in a [watch.Hub] and keeps only what is on the
// screen. The cost of a frame does not depend on the number of rows, and
// the hub is locked only while the visible rows are copied.
//
// # Components
//
// A model routes each message to one of its components and arranges them:
//
//	table   lists exchanges or frames; its content decides which
//	pane    shows one exchange in tabs, each with a pager
//	dialogs get the keys first: an editor, a prompt, a chooser with a list of choices,
//	        or an overlay with a pager
//
// A component is a bubbletea model with two differences: it is a pointer, so Update returns no new
// value of it, and its View is a string that has exactly the size of its area. Components have in
// common what is in shared. They do not call each other.
//
// # Untrusted text
//
// Recorded text is untrusted. It passes through package printable before it
// becomes part of a line, lines are cut at their width in columns, and
// payloads have the limits of package detail.
//
// # Colors
//
// With 16 colors, the view uses the terminal's palette; with more, colors
// that suit the background. Every color comes with a symbol of the same
// meaning.
//
// # Concurrency
//
// [Run] owns the terminal until it returns and waits for its goroutines.
// The model belongs to the goroutine of the event loop. Slow work runs in
// background commands, each with a time limit.
//
// # Errors
//
// Run returns the error of the terminal, or nil when the user quits or the
// context ends. Errors of an exchange, such as an evicted row or a server
// that does not start, are shown on the screen.
package tui
