// Package check checks recorded traffic of the Model Context Protocol against rules. Most rules
// come from the specification (https://modelcontextprotocol.io/specification), each for the
// revisions that contain it; some come from experience.
//
//	for f, err := range check.Run(reader, nil) {
//		…
//		fmt.Println(f.Rule.ID, f.Event, f.Message)
//	}
//
// A [Checker] takes the events of a capture (package capture) one at a time, also while the traffic
// is still going on. For each session it keeps the state that later events are judged by: the
// revision in force, the handshake, capabilities, pending requests, the listed tools, and more. All
// of it is bounded.
//
// A Checker reports only what is certain. Where events are missing, truncated or redacted, rules
// that need them report nothing. A peer that probes for the era of the other one breaks no rule.
// Where the revision is unknown, rules that depend on it do not run.
//
// [Rules] describes all rules: why they exist, how to fix what they find, the page of the
// specification, and a good and a bad [Example]. The examples are also the tests of the rules.
//
// # Adding a rule
//
// A rule is an entry in the table of its group, with a function that looks at a
// view. See the comment of the type rule in rule.go.
//
// # Concurrency
//
// A Checker must not be used by several goroutines at once. Different Checkers
// are independent. The results of Rules and Lookup belong to the caller.
//
// # Errors
//
// Checking never fails: malformed input leads to findings or is ignored. Run
// passes on errors of the Reader.
//
// # Compatibility
//
// The ids of rules are stable. Rules may be added, and their texts and severities may change.
package check
