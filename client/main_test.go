package client

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childVar makes the test binary behave as a child process of a test: it names an entry of
// children.
const childVar = "CLIENT_TEST_CHILD"

// children are the child processes. Other files add their own.
var children = map[string]func(){}

func TestMain(m *testing.M) {
	if child := children[os.Getenv(childVar)]; child != nil {
		child()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
