//go:build unix

package tap_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"

	"mcpwire/capture"
	"mcpwire/cmd/internal/proxy/tap"
)

// Tap a command, here one that says what it reads, and look at what was recorded.
func ExampleRun() {
	in, host, err := os.Pipe()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintln(host, `{"jsonrpc":"2.0","method":"hello"}`)
	host.Close()
	out, err := os.Open(os.DevNull)
	if err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer
	rec := capture.NewWriter(&file, &capture.Options{Transport: "stdio"})
	status, err := tap.Run(context.Background(), tap.Options{Command: []string{"sh", "-c", "read -r line; exit 3"}, Stdin: in, Stdout: out, Record: rec})
	if err != nil {
		log.Fatal(err)
	}
	if err := rec.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("status", status)
	for e, err := range capture.NewReader(&file, nil).Events() {
		if err != nil {
			log.Fatal(err)
		}
		if e.Kind == capture.KindMessage {
			fmt.Printf("%s %s\n", e.Dir, e.Data)
		}
	}
	// Output:
	// status 3
	// c2s {"jsonrpc":"2.0","method":"hello"}
}
