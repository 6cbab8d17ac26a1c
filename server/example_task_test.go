package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"mcpwire/mcp"
	"mcpwire/server"
)

// A tool that takes long gets a task as its response, and the client comes back for the result. The
// handler needs no code for tasks, but it should end when its context does: when the task is
// canceled, or when it has taken longer than its TTL.
func ExampleTaskOptions() {
	srv := server.MustNew("bakery", "1.0.0", &server.Options{Tasks: &server.TaskOptions{TTL: 10 * time.Minute, PollInterval: time.Second}})
	defer srv.Close(context.Background())
	oven := make(chan string)
	def := mcp.Tool{Name: "bake", Description: "Bake something.", Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportOptional}}
	err := server.AddToolWith(srv, def, func(ctx context.Context, _ struct{}) (string, error) {
		select {
		case baked := <-oven:
			return baked, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	read := func(text []byte, v json.Unmarshaler) {
		if err := v.UnmarshalJSON(text); err != nil {
			log.Fatal(err)
		}
	}
	const declared = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

	c := startPerson(srv, "2026-07-28", nil)
	defer c.conn.Close()
	var created mcp.ExtensionCreateTaskResult
	read(c.request("tools/call", `{"name":"bake",`+declared+`}`), &created)
	fmt.Printf("%s, come back every %d ms\n", created.Status, *created.PollIntervalMs)
	oven <- "a loaf"
	var task mcp.DetailedTask
	// a real client pauses here
	for ended := false; !ended; ended = task.Status != mcp.TaskStatusWorking {
		read(c.request("tasks/get", `{"taskId":"`+created.TaskID+`",`+declared+`}`), &task)
	}
	var result mcp.CallToolResult
	read(task.Result, &result)
	fmt.Printf("%s: %s\n", task.Status, result.Content[0].(mcp.TextContent).Text)

	// A client of 2025-11-25 requests a task, and may wait for its result.
	c = startPerson(srv, "2025-11-25", nil)
	defer c.conn.Close()
	var legacy mcp.CreateTaskResult
	read(c.request("tools/call", `{"name":"bake","task":{"ttl":60000}}`), &legacy)
	fmt.Printf("%s, kept for %d ms\n", legacy.Task.Status, *legacy.Task.TTL)
	oven <- "a cake"
	read(c.request("tasks/result", `{"taskId":"`+legacy.Task.TaskID+`"}`), &result)
	fmt.Println(result.Content[0].(mcp.TextContent).Text)
	// Output:
	// working, come back every 1000 ms
	// completed: a loaf
	// working, kept for 60000 ms
	// a cake
}
