package server_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the responses of the server into testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
