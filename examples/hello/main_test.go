package main

import (
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/mcptest"
)

// The test binary is also the server: with this variable it runs main.
const runMain = "HELLO_RUN_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(runMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestGreet(t *testing.T) {
	srv, err := newServer()
	if err != nil {
		t.Fatal(err)
	}
	c := mcptest.Connect(t, srv, nil)
	got, err := client.CallTool[string](t.Context(), c, "greet", greeting{Name: "Ada"})
	if want := "Hello, Ada!"; got != want || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if got, err := client.CallTool[string](t.Context(), c, "greet", greeting{}); err == nil {
		t.Errorf("an empty name was accepted: %q", got)
	}
}

// TestInterrupt sends Ctrl-C to the program while its standard input is open.
func TestInterrupt(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process can't send Ctrl-C to another one on Windows")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), runMain+"=1")
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	both := struct {
		io.Reader
		io.WriteCloser
	}{stdout, stdin}
	c, err := client.Dial(t.Context(), client.FramerTransport(jsonrpc.NewFramer(both, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := client.CallTool[string](t.Context(), c, "greet", greeting{Name: "Ada"})
	if want := "Hello, Ada!"; got != want || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-c.Done() // the program has closed standard output
	if err := cmd.Wait(); err != nil {
		t.Errorf("the program ended with %v, want status 0", err)
	}
}
