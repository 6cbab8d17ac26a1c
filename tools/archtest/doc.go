// Package archtest tests rules of the architecture: which package may import which
// (groups_test.go, list_test.go), which packages may compare revisions of the
// protocol (revision_test.go), and that JSON is not built with fmt (json_test.go).
// Each rule is itself tested on small sources that break it.
package archtest
