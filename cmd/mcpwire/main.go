// Command mcpwire speaks the Model Context Protocol on the bare wire. See mcpwire --help.
package main

import (
	"context"
	"os"

	"mcpwire/cmd/internal/cli"
)

func main() {
	os.Exit(cli.Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
