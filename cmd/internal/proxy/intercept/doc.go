// Package intercept holds messages of a tap until a viewer decides about them, or
// until a timeout. A [Matcher] reports which messages match the filter, and
// [Breakpoints] hold those and take the decisions. Packages tap and taphttp forward
// what they get back.
//
// A filter is evaluated on the exchange when a message arrives, by the model of package
// trace, so that it means the same as for the commands that read captures. A response
// matches only if its request did not, or if the decision about the request asks for
// that.
//
// At most 64 messages with 64 MiB are held at a time. Further ones are passed on at once,
// with a note.
//
// # Concurrency
//
// All methods are safe for concurrent use.
//
// # Errors
//
// The errors of [Breakpoints.Decide] are texts for the viewer.
package intercept
