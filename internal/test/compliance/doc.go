// Package compliance writes doc/compliance.md, which lists the requirements of the
// specification and the tests that verify them. requirements.txt has the
// requirements; comments in the tests refer to them:
//
//	// Spec: S12 C8
//	func TestNotification(t *testing.T) {
//
// Such a line counts for the Test, Fuzz or Example function that it precedes (in
// the function's comment) or that contains it, for example above a row of a table.
// In a txtar file below testdata the line is
//
//	# Spec: S12
//
// and counts for its section, or before the first section for the file. The
// function that runs the file says so in a line with the file's path relative to
// the function's folder:
//
//	// Spec: testdata/*.txtar
//	func TestTranscripts(t *testing.T) {
//
// A line may list several IDs, and a function may have several lines. All _test.go
// files of the repository are read, including those of nested modules and of other
// platforms.
//
// After a change of comments or requirements,
//
//	go test ./internal/test/compliance -update
//
// rewrites the page, and removes the status "open" from requirements that now have
// a test.
package compliance
