// Package check holds what went over the wire of the Model Context Protocol against rules: those that the specification
// (https://modelcontextprotocol.io/specification) has for what can be seen on the wire, each for the revisions that have it, and some that experience has.
//
//	for f, err := range check.Run(reader, nil) {
//		…
//		fmt.Println(f.Rule.ID, f.Event, f.Message)
//	}
//
// A [Checker] takes the events of a capture (package capture) one by one, and may be used on traffic that is still going on. It keeps, for each session, what is needed to
// judge what comes next: the revision in force, the state of the handshake, capabilities, requests that wait, the tools that the server has shown, and more; all of it
// bounded.
//
// Nothing is found that is not certain. Where events are missing, were cut or are redacted, the rules that would need them keep quiet; a peer that probes for the era of
// the other does nothing wrong; and what depends on the revision is left alone where the revision is not known.
//
// [Rules] has the description of all rules: why they are there, how to mend what they find, where the specification says so, and a good and a bad [Example], which are
// their tests.
//
// # Adding a rule
//
// See the comment of the type rule, in rule.go: a rule is an entry in the table of its role with a function that looks at a view.
//
// # Concurrency
//
// A Checker is for one goroutine at a time; any number of Checkers may be used at once. What Rules and Lookup return belongs to the caller.
//
// # Errors
//
// Checking has none: whatever peers send leads to findings or to nothing. Run passes on those of the Reader. The functions that write reports return those of the writer.
//
// # Compatibility
//
// The ids of rules are stable. Rules are added, and their texts and severities may change.
package check
