package mcptest_test

import (
	"testing"

	"mcpwire/client"
	"mcpwire/mcptest"
)

// testWordCount calls a tool of the server under test. In a test file, it would be TestWordCount(t
// *testing.T).
func testWordCount(t testing.TB) {
	c := mcptest.Connect(t, newWords(t), nil)
	n, err := client.CallTool[int](t.Context(), c, "word_count", map[string]any{"text": "a b c"})
	if err != nil {
		t.Fatal(err)
	}
	if n != 3 {
		t.Errorf("got %d words, want 3", n)
	}
}

// The usual test of a server: connect a client to it, in memory, and call it.
func Example() {
	run(testWordCount)
	// Output: PASS
}
