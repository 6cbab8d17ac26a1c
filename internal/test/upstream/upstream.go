// Package upstream has the server behind the gateways in tests with several nodes. It is the test
// program itself, which a gateway starts with Variable in its environment.
package upstream

import (
	"context"
	"errors"
	"fmt"
	"os"

	"mcpwire/server"
	"mcpwire/stdio"
)

// Variable is the environment variable that makes a test program the server. Any value except the
// empty one does that.
const Variable = "MCPWIRE_TEST_UPSTREAM"

// ServeIfSet serves on standard input and output and ends the process, if Variable is set. The tool
// "where" returns the ids of the process and of its parent, and a call of "hang" ends only when it
// is canceled.
func ServeIfSet() {
	if os.Getenv(Variable) == "" {
		return
	}
	srv := server.MustNew("upstream", "1", nil)
	err := errors.Join(
		server.AddTool(srv, "where", "", func(context.Context, struct{}) (string, error) {
			return fmt.Sprint(os.Getpid(), " ", os.Getppid()), nil
		}),
		server.AddTool(srv, "hang", "", func(ctx context.Context, _ struct{}) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}))
	if err == nil {
		err = stdio.Serve(context.Background(), srv)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}
