// Package compliance writes doc/compliance.md: what the specification demands,
// and which test shows it. requirements.txt has the demands, the tests have the
// rest, in comments:
//
//	// Spec: S12 C8
//	func TestNotification(t *testing.T) {
//
// Such a line counts for the Test, Fuzz or Example function that it stands
// above (in the function's comment) or inside, above a row of a table for
// example. In a txtar file below testdata the line is
//
//	# Spec: S12
//
// and counts for the section that it stands in, or in front of all sections for
// the file. The function that plays the file says so in a line of its own, with
// a path from its folder:
//
//	// Spec: testdata/*.txtar
//	func TestTranscripts(t *testing.T) {
//
// A line may hold several words, and there may be several lines. All _test.go
// files of the repository are read, those of nested modules and of other
// platforms included.
//
// After a change of comments or requirements,
//
//	go test ./internal/test/compliance -update
//
// writes the page anew, and takes the status "open" from requirements that are
// tested by now.
package compliance
