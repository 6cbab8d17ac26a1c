package cli

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/streamable"
)

// writeProgram writes a source file and returns its path.
func writeProgram(t *testing.T, text string) string {
	t.Helper()
	source := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(source, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return source
}

// buildProgram compiles a source file in the module and returns the program's path.
func buildProgram(t *testing.T, text string) string {
	t.Helper()
	source := writeProgram(t, text)
	binary := filepath.Join(filepath.Dir(source), "program.exe")
	goTool(t, "build", "-o", binary, source)
	return binary
}

// TestReadmeServer builds the server in the README, and calls it.
func TestReadmeServer(t *testing.T) {
	cmd := exec.Command(buildProgram(t, fencedBlocks(t, readDoc(t, "README.md"), "go")[0]))
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"me","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"word_count","arguments":{"text":"a b c"}}}
`)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%v, stderr %q", err, stderr.Bytes())
	}
	_, got, _ := strings.Cut(string(out), "\n")
	want := `{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"3"}]}}` + "\n"
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

// TestReadmeClient builds the client in the README, and lets it call the demo server.
func TestReadmeClient(t *testing.T) {
	cmd := exec.Command(buildProgram(t, fencedBlocks(t, readDoc(t, "README.md"), "go")[1]))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v, stderr %q", err, stderr.Bytes())
	}
	if got := strings.Fields(string(out)); len(got) < 2 || got[0] != "echo" || got[len(got)-1] != "3" {
		t.Errorf("printed %q, want names of tools, echo first, and 3", out)
	}
}

// TestReadmeHTTPServer builds the HTTP server in the README on a free port, calls it at the URL
// that it logs, and interrupts it.
func TestReadmeHTTPServer(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process can't send Ctrl-C to another one on Windows")
	}
	const address = `"127.0.0.1:8080"`
	text := fencedBlocks(t, readDoc(t, "README.md"), "go")[2]
	if !strings.Contains(text, address) {
		t.Fatalf("the program does not listen at %s", address)
	}
	cmd := exec.CommandContext(t.Context(), buildProgram(t, strings.Replace(text, address, `"127.0.0.1:0"`, 1)))
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	log := bufio.NewReader(stderr)
	line, err := log.ReadString('\n')
	_, url, ok := strings.Cut(strings.TrimSpace(line), "listening url=")
	if err != nil || !ok {
		t.Fatalf("the first line of the log is %q, %v", line, err)
	}
	c, err := client.Dial(t.Context(), streamable.NewTransport(url, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := client.CallTool[int](t.Context(), c, "word_count", map[string]string{"text": "a b c"})
	if got != 3 || err != nil {
		t.Errorf("got %d, %v, want 3", got, err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(log)
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v, log %q", err, rest)
	}
}

// TestReadmeInput checks that the lines about input requests in the README compile.
func TestReadmeInput(t *testing.T) {
	lines := fencedBlocks(t, readDoc(t, "README.md"), "go")[5]
	goTool(t, "vet", writeProgram(t, `package main

import (
	"context"

	"mcpwire/server"
)

type confirmation struct {
	Sure bool `+"`json:\"sure\"`"+`
}

func handler(ctx context.Context) (string, error) {
	`+lines+`
	if !ok.Accepted() || !ok.Value.Sure {
		return "kept", nil
	}
	return "deleted", nil
}

func main() { handler(context.Background()) }
`))
}

// TestReadmeHTTP checks that the lines about HTTP in the README compile.
func TestReadmeHTTP(t *testing.T) {
	lines := fencedBlocks(t, readDoc(t, "README.md"), "go")
	goTool(t, "vet", writeProgram(t, `package main

import (
	"context"
	"net/http"

	"mcpwire/auth"
	"mcpwire/client"
	"mcpwire/server"
	"mcpwire/streamable"
)

func dial(ctx context.Context) (*client.Client, error) {
	`+lines[3]+`
	return c, err
}

func guarded(srv *server.Server) (http.Handler, error) {
	`+lines[4]+`
	return h, err
}

func main() {
	dial(context.Background())
	guarded(nil)
}
`))
}
