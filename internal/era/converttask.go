package era

import (
	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// The two designs of tasks have the same states and name two members differently.

// CoreTask appends a task of the extension as one of the core protocol, with what it has come to left out. status replaces its own unless it is "".
func CoreTask(dst, task []byte, status mcp.TaskStatus) []byte {
	return convertTask(dst, task, status, "ttlMs", "ttl", "pollIntervalMs", "pollInterval", nil)
}

// ExtensionTask appends a task of the core protocol as one of the extension, and adds the text of members.
func ExtensionTask(dst, task []byte, status mcp.TaskStatus, added []byte) []byte {
	return convertTask(dst, task, status, "ttl", "ttlMs", "pollInterval", "pollIntervalMs", added)
}

func convertTask(dst, task []byte, status mcp.TaskStatus, ttlFrom, ttlTo, pollFrom, pollTo string, added []byte) []byte {
	var more []byte
	add := func(name string, value []byte) {
		if more != nil {
			more = append(more, ',')
		}
		more = append(append(append(append(more, '"'), name...), `":`...), value...)
	}
	ttl := Lookup(task, ttlFrom)
	if ttl == nil {
		ttl = []byte("null")
	}
	add(ttlTo, ttl)
	if poll := Lookup(task, pollFrom); poll != nil {
		add(pollTo, poll)
	}
	if status != "" {
		add("status", jsonwire.AppendQuote(nil, string(status)))
	}
	if len(added) > 0 {
		more = append(append(more, ','), added...)
	}
	drop := except(ttlFrom, pollFrom, ttlTo, pollTo, "resultType", "inputRequests", "result", "error")
	return Rewrite(dst, task, func(m *jsonwire.Members) []byte {
		switch {
		case m.KeyIs("status") && status != "":
			return nil
		case m.KeyIs("_meta"):
			return trimMeta(m.Value())
		}
		return drop(m)
	}, more)
}

// IsTerminal reports whether nothing becomes of a task in that state any more.
func IsTerminal(status mcp.TaskStatus) bool {
	switch status {
	case mcp.TaskStatusCompleted, mcp.TaskStatusFailed, mcp.TaskStatusCancelled:
		return true
	}
	return false
}
