package archtest

import (
	"fmt"
	"os"
	"testing"
)

// TestMain skips the package under the race detector: its tests read source text on one goroutine,
// where the detector finds nothing and takes ten times as long.
func TestMain(m *testing.M) {
	if raceEnabled {
		fmt.Println("skipped: these tests read source text, and run without the race detector")
		return
	}
	os.Exit(m.Run())
}
