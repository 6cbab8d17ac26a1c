package mcptest_test

import (
	"fmt"
	"log"
	"os"
	"testing"

	"mcpwire/mcptest"
)

// goldenTest plays all recorded sessions. In a test file, it would be TestGolden. newWords is
// func(t testing.TB) *server.Server.
func goldenTest(t *testing.T) {
	mcptest.Golden(t, "testdata/words.txtar", newWords, nil)
}

// A golden file. Write the messages that are sent, run the test with MCPTEST_UPDATE=1, check the
// responses that it wrote after them, and put $any where the value does not matter.
func ExampleGolden() {
	text, err := os.ReadFile("testdata/words.txtar")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", text)
	// Output:
	// The server of the examples.
	//
	// -- word_count --
	// > {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":"$modern","name":"word_count","arguments":{"text":"a b c"}}}
	// < {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"3"}],"structuredContent":3,"$any":"$any"}}
	// # What is wrong with the arguments is for the model to read.
	// > {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"_meta":"$modern","name":"word_count","arguments":{"txt":"a"}}}
	// < {"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"$any"}],"isError":true,"$any":"$any"}}
	// -- word_count, with a handshake --
	// @handshake 2025-11-25
	// > {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"word_count","arguments":{"text":"a b c"}}}
	// < {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"3"}]}}
}
