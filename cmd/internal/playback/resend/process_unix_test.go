//go:build unix

package resend_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/internal/test/process"
	"mcpwire/internal/test/wait"
)

// TestRunEndsGroup shows that a server and its child processes are killed if they ignore the end of
// input and SIGTERM.
func TestRunEndsGroup(t *testing.T) {
	res, events, err := run(t, helper(t, "grandchild"), `{"jsonrpc":"2.0","id":3,"method":"m"}`, &resend.Options{GracePeriod: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Result struct{ PID int } }
	if err := json.Unmarshal(res.Response, &answer); err != nil || answer.Result.PID <= 0 {
		t.Fatalf("the answer is %s, %v", res.Response, err)
	}
	for _, pid := range []int{events[2].Start.PID, answer.Result.PID} {
		wait.Until(t, fmt.Sprintf("process %d to end", pid), func() bool { return !process.Running(pid) })
	}
	if exit := events[len(events)-2].Exit; exit == nil || exit.Signal != "killed" || exit.Code != -1 {
		t.Errorf("the end is recorded as %+v", exit)
	}
}
