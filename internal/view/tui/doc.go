// Package tui is the terminal face of the live view: a table of exchanges that grows, with a waterfall and timers that count, and everything about one of them beside or below it.
//
//	err := tui.Run(ctx, hub, nil)
//
// It shows what a [watch.Hub] knows and keeps nothing of it but what is on the screen: a frame costs the same however many rows there are, and the hub is locked only while the
// visible rows are copied.
//
// What was captured is hostile. Every text of it goes through package printable before it becomes part of a line, lines are cut by the columns that they take, and payloads come in
// the bounded form that package detail gives them.
//
// Colours are those of the terminal's palette if it has 16, and fit to its background if it has more. None says anything alone: each has a sign beside it.
//
// # Concurrency
//
// Run owns the terminal until it returns, and waits for all that it started. The model inside is for one goroutine, that of the event loop; what takes time is done by commands
// beside it, each with a limit.
//
// # Errors
//
// Run returns the error of the terminal, or nil when the user leaves or the context ends. What goes wrong with an exchange (it is gone, a server does not start) is said on the
// screen.
package tui
