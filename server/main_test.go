package server_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write what the server answers into testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
