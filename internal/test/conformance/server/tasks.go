package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// directTime is how long an optional tool may take before it becomes a task. taskTime certainly
// takes longer. An input request within directTime is part of the answer to the call.
const (
	directTime = 300 * time.Millisecond
	taskTime   = 3 * directTime
)

type (
	greetInput struct {
		Name string `json:"name" jsonschema:"whom to greet"`
	}
	computeInput struct {
		Seconds float64 `json:"seconds" jsonschema:"how long it takes" schema:"minimum=0,maximum=120"`
		Label   string  `json:"label,omitempty" jsonschema:"what the answer repeats"`
	}
	deleteInput struct {
		Filename string `json:"filename" jsonschema:"what would be deleted"`
	}
	deleteForm struct {
		Confirm bool `json:"confirm" jsonschema:"delete it"`
	}
)

// addTasks registers the tools for the scenarios of the extension io.modelcontextprotocol/tasks.
func addTasks(srv *server.Server) error {
	return errors.Join(
		server.AddTool(srv, "greet", "Greet, at once.", func(_ context.Context, in greetInput) (string, error) {
			return "Hello, " + in.Name + "!", nil
		}),
		server.AddToolWith(srv, taskTool("slow_compute", "Take some seconds.", mcp.TaskSupportOptional), compute),
		server.AddToolWith(srv, taskTool("failing_job", "Fail after a while, as a tool does.", mcp.TaskSupportRequired), func(ctx context.Context, _ none) (string, error) {
			return "", errors.Join(pause(ctx, taskTime), errors.New("the job failed"))
		}),
		server.AddToolWith(srv, taskTool("protocol_error_job", "Fail after a while with a protocol error.", mcp.TaskSupportRequired), func(ctx context.Context, _ none) (string, error) {
			if err := pause(ctx, taskTime); err != nil {
				return "", err
			}
			return "", jsonrpc.Errorf(jsonrpc.CodeInternalError, "the job met a protocol error")
		}),
		server.AddToolWith(srv, taskTool("confirm_delete", "Ask before deleting nothing.", mcp.TaskSupportRequired), confirmDelete),
		server.AddToolWith(srv, taskTool("multi_input", "Have two questions at once.", mcp.TaskSupportRequired), multiInput),
		server.AddToolWith(srv, taskTool("test_tool_with_task", "Ask first, then become a task.", mcp.TaskSupportOptional), greetAsTask),
	)
}

func taskTool(name, description string, support mcp.TaskSupport) mcp.Tool {
	return mcp.Tool{Name: name, Description: description, Execution: &mcp.ToolExecution{TaskSupport: support}}
}

func compute(ctx context.Context, in computeInput) (string, error) {
	if err := pause(ctx, time.Duration(in.Seconds*float64(time.Second))); err != nil {
		return "", err
	}
	return fmt.Sprintf("Computed %q in %v s.", in.Label, in.Seconds), nil
}

func confirmDelete(ctx context.Context, in deleteInput) (string, error) {
	got, err := server.Elicit[deleteForm](ctx, "confirm", "Delete "+in.Filename+"?")
	if err != nil {
		return "", err
	}
	if !got.Accepted() || !got.Value.Confirm {
		return in.Filename + " was kept.", nil
	}
	return in.Filename + " would be gone now.", nil
}

func multiInput(ctx context.Context, _ none) (string, error) {
	q := server.CallOf(ctx).InputRequests()
	who := server.Form[nameForm](q, "name", "What is your name?")
	sure := server.Form[deleteForm](q, "confirm", "Are you sure?")
	if err := q.Wait(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s is sure: %t", who.Value().Value.Name, sure.Value().Value.Confirm), nil
}

func greetAsTask(ctx context.Context, _ none) (string, error) {
	who, err := userName(ctx)
	if err != nil {
		return "", err
	}
	return "Hello at last, " + who + "!", pause(ctx, taskTime)
}
