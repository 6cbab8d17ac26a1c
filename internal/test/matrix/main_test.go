package matrix

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/stdio"
)

// Environment variables that make the test binary a server: the name of the server, and the
// principal of its client.
const (
	serverVar    = "MATRIX_SERVER"
	principalVar = "MATRIX_PRINCIPAL"
)

// servers has the constructors of the servers by name. crash is the function of their tool "crash".
var servers = map[string]func(crash func()) *server.Server{
	"handshake": newHandshakeServer,
	"empty":     newEmptyServer,
	"tools":     newToolServer,
	"many":      newManyServer,
	"content":   newContentServer,
	"progress":  newProgressServer,
	"cancel":    newCancelServer,
	"timeout":   newTimeoutServer,
	"resources": newResourceServer,
	"prompts":   newPromptServer,
	"listen":    newListenServer,
	"views":     newViewServer,
	"input":     newInputServer,
	"custom":    newCustomServer,
	"tasks":     newTaskServer,
	"late":      newLateTaskServer,
	"load":      newLoadServer,
	"rate":      newRateServer,
	"single":    newSingleServer,
	"crash":     newCrashServer,
}

func init() {
	for _, r := range mcp.Revisions() {
		servers[r.String()] = newServerOf(r)
	}
}

func TestMain(m *testing.M) {
	if name := os.Getenv(serverVar); name != "" {
		os.Exit(serveChild(name))
	}
	goleak.VerifyTestMain(childCheck{m})
}

// crashCode is the exit status of a child that crashed on request.
const crashCode = 7

// serveChild is the main function of a child process. It fails if the server leaks goroutines.
func serveChild(name string) (status int) {
	srv := servers[name](func() {
		fmt.Fprintln(os.Stderr, "crash requested")
		os.Exit(crashCode)
	})
	ctx := server.WithPrincipalID(context.Background(), os.Getenv(principalVar))
	err := stdio.Serve(ctx, srv)
	if err == nil {
		err = closeServer(srv)
	}
	if err == nil {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// closeServer closes a server and ends its tasks.
func closeServer(srv *server.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return srv.Close(ctx)
}

// A childCheck runs the tests, and checks that no child process is left.
type childCheck struct{ m *testing.M }

func (c childCheck) Run() int {
	status := c.m.Run()
	if err := noChildren(); err != nil && status == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}
