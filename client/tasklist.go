package client

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// Tasks yields the tasks that a legacy server has for this client, page by page. Modern servers do not list tasks, nor do those of revisions without
// them: the error wraps [errors.ErrUnsupported]. Keep the ids, see [Client.Task].
func (c *Client) Tasks(ctx context.Context) iter.Seq2[TaskState, error] {
	return listAll(ctx, c, mcp.MethodTasksList, c.listTasks, func(t *TaskState) string { return t.ID })
}

func (c *Client) listTasks(ctx context.Context, cursor *string) (tasks []TaskState, next *string, err error) {
	if !era.Of(c.Revision()).CoreTasks {
		return nil, nil, fmt.Errorf("list tasks: revision %v: %w", c.Revision(), errors.ErrUnsupported)
	}
	raw, err := c.roundTrip(ctx, &request{method: mcp.MethodTasksList, params: cursorParams(cursor), repeatable: true})
	if err != nil {
		return nil, nil, err
	}
	elements := jsonwire.ArrayElements(jsonwire.Lookup(raw, "tasks"))
	for elements.Next() {
		state, ok := parseTask(elements.Value())
		if !ok {
			return nil, nil, &ProtocolError{Method: mcp.MethodTasksList, Reason: "a task has no id or no status"}
		}
		tasks = append(tasks, state)
	}
	if s, ok := stringValue(jsonwire.Lookup(raw, "nextCursor")); ok {
		next = &s
	}
	return tasks, next, nil
}
