//go:build unix

package stdio_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"

	"mcpwire/jsonrpc"
	"mcpwire/stdio"
)

// An echoServer returns each message unchanged.
type echoServer struct{}

func (echoServer) Serve(_ context.Context, f jsonrpc.Framer) error {
	defer f.Close()
	for {
		msg, err := f.ReadFrame()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := f.WriteFrame(msg); err != nil {
			return err
		}
	}
}

func ExampleServe() {
	main := func() {
		if err := stdio.Serve(context.Background(), echoServer{}); err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
			os.Exit(1)
		}
	}
	_ = main
}

func ExampleConfig_Serve() {
	// Files replace standard input and output.
	inR, inW, _ := os.Pipe()
	outR, outW, _ := os.Pipe()
	io.WriteString(inW, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n")
	inW.Close()

	config := stdio.Config{Stdin: inR, Stdout: outW}
	err := config.Serve(context.Background(), echoServer{})
	outW.Close()
	out, _ := io.ReadAll(outR)
	fmt.Printf("%s%v\n", out, err)
	// Output:
	// {"jsonrpc":"2.0","id":1,"method":"ping"}
	// <nil>
}

func ExampleCommand() {
	p, err := stdio.Command("cat").Start(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	fmt.Fprintln(p, `{"jsonrpc":"2.0","method":"hello"}`)
	line, _ := bufio.NewReader(p).ReadString('\n')
	fmt.Print(line)
	fmt.Println(p.Close())
	// Output:
	// {"jsonrpc":"2.0","method":"hello"}
	// <nil>
}

func ExampleLogHandler() {
	// a server uses os.Stderr
	h := stdio.NewLogHandler(os.Stdout, &stdio.LogOptions{Level: stdio.LevelTrace})
	defer h.Close()
	log := slog.New(h)
	log.Log(context.Background(), stdio.LevelTrace, `<-- {"jsonrpc":"2.0","id":1,"method":"ping"}`)
	log.Info("call finished", "id", 1, "tool", "word count", "duration", "12ms")
	log.Error("call failed", "error", io.ErrUnexpectedEOF)
	// Output:
	// [TRACE] <-- {"jsonrpc":"2.0","id":1,"method":"ping"}
	// Info: call finished id=1 tool="word count" duration=12ms
	// Error: call failed error="unexpected EOF"
}
