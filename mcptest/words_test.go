package mcptest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"mcpwire/server"
)

// newWords returns the server that the examples test.
func newWords(t testing.TB) *server.Server {
	t.Helper()
	type input struct {
		Text string `json:"text" jsonschema:"the text to count"`
	}
	srv := server.MustNew("words", "1.0.0", nil)
	err := errors.Join(
		server.AddTool(srv, "word_count", "Count the words of a text.", func(_ context.Context, in input) (int, error) {
			return len(strings.Fields(in.Text)), nil
		}),
		server.AddTool(srv, "longest", "Find the longest word of a text.", func(ctx context.Context, in input) (string, error) {
			longest := ""
			for i, word := range strings.Fields(in.Text) {
				if err := server.CallOf(ctx).Progress(float64(i+1), 0, ""); err != nil {
					return "", err
				}
				if len(word) > len(longest) {
					longest = word
				}
			}
			return longest, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	return srv
}

// run runs the test of an example and prints its failures and its result, like go test.
func run(test func(t testing.TB)) {
	failed := failures(&testing.T{}, test)
	if len(failed) == 0 {
		fmt.Println("PASS")
		return
	}
	for _, text := range failed {
		fmt.Println(text)
	}
	fmt.Println("FAIL")
}
