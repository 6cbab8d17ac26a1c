package archtest

import (
	"fmt"
	"os"
	"testing"

	"mcpwire/internal/test/race"
)

// TestMain skips the package under the race detector: its tests read source text on one goroutine,
// where the detector finds nothing and takes ten times as long.
func TestMain(m *testing.M) {
	if race.Enabled {
		fmt.Println("skipped: these tests read source text, and run without the race detector")
		return
	}
	os.Exit(m.Run())
}
