package web_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(serverVariable) != "" {
		os.Exit(copyOfServer())
	}
	goleak.VerifyTestMain(m)
}
