// Package archtest holds the rules of the house as tests, so that they are
// kept without anyone having to remember them: which package may import which
// (layers_test.go), where the revisions of the protocol may be told apart
// (revision_test.go), and that JSON is not built with fmt (json_test.go). Each
// rule has a test of its own on small sources that break it.
package archtest
