//go:build !unix && !windows

package procgroup

// Systems such as wasip1 and js have no processes. A program that serves standard input and output
// there can use jsonrpc.NewFramer and server.Server.Serve.
var _ = package_stdio_needs_Unix_or_Windows
