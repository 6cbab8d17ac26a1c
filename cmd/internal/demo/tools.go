package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"mcpwire/internal/base/wait"
	"mcpwire/mcp"
	"mcpwire/server"
)

type (
	textInput struct {
		Text string `json:"text" jsonschema:"the text"`
	}
	addInput struct {
		A int64 `json:"a" jsonschema:"first summand"`
		B int64 `json:"b" jsonschema:"second summand"`
	}
	slowInput struct {
		Steps   int `json:"steps,omitempty" jsonschema:"how many steps to take" schema:"minimum=1,maximum=1000,default=5"`
		DelayMS int `json:"delay_ms,omitempty" jsonschema:"milliseconds each step takes" schema:"minimum=0,maximum=60000,default=200"`
	}
	failInput struct {
		Message string `json:"message,omitempty" jsonschema:"what the failure says" schema:"default=this tool always fails"`
	}
)

func addTools(srv *server.Server) error {
	yes, no := true, false
	readOnly := &mcp.ToolAnnotations{ReadOnlyHint: &yes, OpenWorldHint: &no}
	return errors.Join(
		server.AddToolWith(srv, mcp.Tool{Name: "echo", Description: "Return the input string unchanged.", Annotations: readOnly}, echo),
		server.AddToolWith(srv, mcp.Tool{Name: "word_count", Description: "Count words in the input string.", Annotations: readOnly}, wordCount),
		server.AddToolWith(srv, mcp.Tool{Name: "add", Description: "Add two integers exactly.", Annotations: readOnly}, add),
		server.AddToolWith(srv, mcp.Tool{Name: "slow", Description: "Run some steps, report progress after each, and stop when cancelled.", Annotations: readOnly}, slow),
		server.AddTool(srv, "fail", "Fail with a result that has isError.", failTool),
		server.AddTool(srv, "crash", "Panic: the request gets an internal error, and the server keeps running.", crash),
	)
}

func echo(_ context.Context, in textInput) (string, error) { return in.Text, nil }

func wordCount(_ context.Context, in textInput) (int, error) {
	return len(strings.Fields(in.Text)), nil
}

func add(_ context.Context, in addInput) (int64, error) {
	sum := in.A + in.B
	if in.B != 0 && (sum > in.A) != (in.B > 0) {
		return 0, fmt.Errorf("%d + %d does not fit into 64 bits", in.A, in.B)
	}
	return sum, nil
}

func slow(ctx context.Context, in slowInput) (string, error) {
	call := server.CallOf(ctx)
	for step := 1; step <= in.Steps; step++ {
		if !wait.Sleep(ctx, time.Duration(in.DelayMS)*time.Millisecond) {
			return "", ctx.Err()
		}
		if err := call.Progress(float64(step), float64(in.Steps), fmt.Sprintf("step %d of %d", step, in.Steps)); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("done after %d steps", in.Steps), nil
}

func failTool(_ context.Context, in failInput) (string, error) { return "", errors.New(in.Message) }

func crash(context.Context, struct{}) (string, error) {
	panic("the crash tool was called")
}
