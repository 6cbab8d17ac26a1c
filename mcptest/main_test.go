package mcptest_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

var _ = flag.Bool("update", false, "write the responses of servers into testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
