package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"mcpwire/internal/base/wait"
	"mcpwire/mcp"
	"mcpwire/server"
)

// maxRuns limits the ids that the tool work remembers.
const maxRuns = 1_000_000

// noteURI is the resource that the tool set_note changes.
const noteURI = "demo://note"

type (
	workInput struct {
		ID    string `json:"id" jsonschema:"identifies the call"`
		MS    int    `json:"ms,omitempty" jsonschema:"milliseconds to wait" schema:"minimum=0,maximum=600000"`
		Steps int    `json:"steps,omitempty" jsonschema:"how often to report progress meanwhile: the id and a number" schema:"minimum=0,maximum=1000"`
	}
	workOutput struct {
		Node string `json:"node" jsonschema:"the node that did the work"`
		ID   string `json:"id" jsonschema:"the id of the call"`
		Runs int    `json:"runs" jsonschema:"how often this node has begun work with the id"`
	}
	nameInput struct {
		Name string `json:"name" jsonschema:"a name"`
	}
	nameForm struct {
		Name string `json:"name" jsonschema:"your name"`
	}
)

// testTools are the tools of one process.
type testTools struct {
	srv  *server.Server
	node string

	mu   sync.Mutex
	runs map[string]int
	note string
}

// AddTestTools adds tools that tests of a cluster use to a server of [New]. node is the name of the
// process. The server must have tasks.
func AddTestTools(srv *server.Server, node string) error {
	t := &testTools{srv: srv, node: node, runs: make(map[string]int)}
	return errors.Join(
		server.AddTool(srv, "node", "Return the name of the node that answers.", func(context.Context, struct{}) (string, error) { return node, nil }),
		server.AddTool(srv, "work", "Count the call, wait, and return the node, the id and the count.", t.work),
		server.AddTool(srv, "runs", "Return how often this node has begun work with an id.", t.countRuns),
		server.AddTool(srv, "greet", "Ask the user for a name, and greet.", t.greet),
		server.AddToolWith(srv, mcp.Tool{Name: "job", Description: "Do work as a task.", Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportRequired}}, t.work),
		server.AddTool(srv, "add_tool", "Add a tool at this node. All clients are told that the list has changed.", t.addTool),
		server.AddTool(srv, "remove_tool", "Remove a tool that add_tool has added at this node.", t.removeTool),
		server.AddTool(srv, "set_note", "Change the resource "+noteURI+" at this node. Subscribers of all nodes are told.", t.setNote),
		server.AddResource(srv, mcp.Resource{URI: noteURI, Name: "note", Description: "A text that set_note changes.", MIMEType: "text/plain"}, t.readNote),
	)
}

func (t *testTools) work(ctx context.Context, in workInput) (workOutput, error) {
	t.mu.Lock()
	if _, known := t.runs[in.ID]; !known && len(t.runs) >= maxRuns {
		t.mu.Unlock()
		return workOutput{}, fmt.Errorf("more than %d ids", maxRuns)
	}
	t.runs[in.ID]++
	out := workOutput{Node: t.node, ID: in.ID, Runs: t.runs[in.ID]}
	t.mu.Unlock()
	steps := max(in.Steps, 1)
	for i := range steps {
		if !wait.Sleep(ctx, time.Duration(in.MS)*time.Millisecond/time.Duration(steps)) {
			return workOutput{}, ctx.Err()
		}
		if i < in.Steps {
			if err := server.CallOf(ctx).Progress(float64(i+1), float64(steps), fmt.Sprintf("%s %d", in.ID, i+1)); err != nil {
				return workOutput{}, err
			}
		}
	}
	return out, nil
}

func (t *testTools) countRuns(_ context.Context, in workInput) (workOutput, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return workOutput{Node: t.node, ID: in.ID, Runs: t.runs[in.ID]}, nil
}

func (t *testTools) greet(ctx context.Context, in textInput) (string, error) {
	who, err := server.Elicit[nameForm](ctx, "name", "What is your name?")
	switch {
	case err != nil:
		return "", err
	case !who.Accepted():
		return "no name for " + in.Text, nil
	}
	return fmt.Sprintf("%s, %s, says %s", in.Text, who.Value.Name, t.node), nil
}

func (t *testTools) addTool(_ context.Context, in nameInput) (string, error) {
	return "added", server.AddTool(t.srv, "added_"+in.Name, "Was added by add_tool.", echo)
}

func (t *testTools) removeTool(_ context.Context, in nameInput) (string, error) {
	t.srv.RemoveTools("added_" + in.Name)
	return "removed", nil
}

func (t *testTools) setNote(_ context.Context, in textInput) (string, error) {
	t.mu.Lock()
	t.note = in.Text
	t.mu.Unlock()
	t.srv.ResourceUpdated(noteURI)
	return "changed", nil
}

func (t *testTools) readNote(context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.note, nil
}
