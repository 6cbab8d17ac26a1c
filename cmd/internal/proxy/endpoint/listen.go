// Package endpoint has what the programs between clients and servers share to reach both: standard
// input and output, sockets and paths for clients; processes, sockets and HTTP for servers.
package endpoint

import (
	"context"
	"io"
	"io/fs"
	"net"
	"os"
	"time"

	"mcpwire/cmd/internal/exit"
	"mcpwire/internal/net/neterror"
	"mcpwire/jsonrpc"
	"mcpwire/stdio"
)

// ServeStdio serves a client on standard input and output until its input ends, or nobody reads the
// output any longer.
func ServeStdio(ctx context.Context, stdin *os.File, stdout io.Writer, srv jsonrpc.Server, cfg stdio.Config) error {
	out, ok := stdout.(*os.File)
	if ok && (stdin != os.Stdin || out != os.Stdout) {
		cfg.Stdin, cfg.Stdout = stdin, out
	}
	if ok {
		read, stop := whileRead(ctx, out)
		defer stop()
		if err := cfg.Serve(read, srv); err != nil && read.Err() == nil {
			return err
		}
		return ctx.Err()
	}
	return cfg.Serve(ctx, srv)
}

// StopMargin is the time that closing a bridge or a gateway may take after the drain timeout,
// unless the sum overflows.
const StopMargin = 5 * time.Second

// ListenSocket listens on a unix socket, which only its owner can use, or a TCP port.
func ListenSocket(ctx context.Context, kind, where string) (net.Listener, error) {
	if kind == "unix" {
		removeStale(ctx, where)
	}
	var config net.ListenConfig
	defer privately()()
	l, err := config.Listen(ctx, kind, where)
	if err != nil {
		return nil, exit.Fail(exit.Unexpected, "listen", "another program may be listening there", err)
	}
	return l, nil
}

// removeStale removes a unix socket without a listener.
func removeStale(ctx context.Context, path string) {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != fs.ModeSocket {
		return
	}
	dial := &net.Dialer{Timeout: time.Second}
	conn, err := dial.DialContext(ctx, "unix", path)
	if err == nil {
		conn.Close()
		return
	}
	// After another error there may still be a listener.
	if neterror.IsRefused(err) {
		os.Remove(path)
	}
}
