package cli

import (
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
)

// gatewaying holds a function for each script that stops the gateway it started last.
var gatewaying sync.Map

// cmdGatewaying starts "mcpwire gateway" with these arguments, waits until it listens, and sets
// GATEWAY: gatewaying ARGS... The process ends with the script, or by ungateway.
func cmdGatewaying(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: gatewaying ARGS...")
	}
	stop := listen(ts, "GATEWAY", append([]string{"gateway"}, args...)...)
	gatewaying.Store(ts, stop)
	ts.Defer(func() { stop() })
}

// cmdUngateway stops the gateway, checks that its exit status is 0, and prints what it wrote to
// standard error: ungateway
func cmdUngateway(ts *testscript.TestScript, neg bool, args []string) {
	stop, ok := gatewaying.Load(ts)
	if neg || len(args) > 0 || !ok {
		ts.Fatalf("usage: ungateway, after gatewaying")
	}
	log, err := stop.(func() (string, error))()
	ts.Stderr().Write([]byte(log))
	ts.Check(err)
}
