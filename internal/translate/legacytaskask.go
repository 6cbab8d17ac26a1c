package translate

import (
	"mcpwire/internal/era"
	"mcpwire/mcp"
)

// A taskInput is what a client is asked for a task that it asks for again and again, without tasks/result, where it would be asked. Servers of the core protocol may ask for a
// task whenever they like, and some clients rely on that.
type taskInput struct {
	req     *legacyRequest      // that the questions are of; the client made none
	asked   map[string]struct{} // keys of the questions that the client got
	refused map[string]struct{} // of these, which it gave no answer to
}

// pollTaskInput asks the client what a task wants to know, if it has heard before that it wants something. Then it is not about to ask for the result.
func (t *LegacyToModern) pollTaskInput(r *legacyRequest, id string, task []byte) {
	input := t.tasks.inputs[id]
	switch {
	case input == nil && t.awaitsResult(id):
	case input == nil:
		if t.tasks.inputs == nil {
			t.tasks.inputs = make(map[string]*taskInput)
		}
		for old, one := range t.tasks.inputs {
			if len(t.tasks.inputs) >= t.opts.Limits.Tasks && one.req.pendingInputs == 0 {
				delete(t.tasks.inputs, old)
			}
		}
		if len(t.tasks.inputs) >= t.opts.Limits.Tasks {
			return // it asks for the result, or goes without
		}
		t.tasks.inputs[id] = &taskInput{req: &legacyRequest{method: mcp.MethodTasksResult}, asked: make(map[string]struct{}), refused: make(map[string]struct{})}
	default:
		input.req.stream = r.stream // which there is until r is answered
		// A client that cannot be asked is told when it asks for the result.
		_ = t.sendTaskInputs(input.req, id, era.Lookup(task, "inputRequests"), input.asked)
		input.req.stream = 0
	}
}

// awaitsResult reports whether the client waits for the result of a task, and is asked on that account.
func (t *LegacyToModern) awaitsResult(id string) bool {
	for _, r := range t.requests {
		if r.method == mcp.MethodTasksResult && era.LookupString(r.params, "taskId") == id {
			return true
		}
	}
	return false
}

// cancelTaskInput takes back what the client was asked for a task.
func (t *LegacyToModern) cancelTaskInput(id string) {
	if input := t.tasks.inputs[id]; input != nil {
		delete(t.tasks.inputs, id)
		t.finish(input.req)
	}
}

// adoptTaskInput has a request for the result of a task wait for the answers to what the client was asked for it already. It returns the keys of that.
func (t *LegacyToModern) adoptTaskInput(r *legacyRequest, id string) (asked map[string]struct{}) {
	input := t.tasks.inputs[id]
	if input == nil {
		return make(map[string]struct{})
	}
	delete(t.tasks.inputs, id)
	r.inputRequests, r.pendingInputs = input.req.inputRequests, input.req.pendingInputs
	for _, in := range r.inputRequests {
		in.req = r
	}
	for key := range input.refused {
		delete(input.asked, key)
	}
	return input.asked
}

// taskInputAnswered takes note of an answer that no request waits for, and reports whether it is one.
func (t *LegacyToModern) taskInputAnswered(id string, in *inputRequest, refused bool) bool {
	input := t.tasks.inputs[id]
	if input == nil || input.req != in.req {
		return false
	}
	if refused {
		input.refused[unquoted(in.key)] = struct{}{}
		t.drop("the task waits until the client asks for the result")
	} else {
		t.sendUpdate(in.req, id, in)
	}
	t.reserved -= in.req.size
	in.req.size, in.req.causes = 0, nil
	return true
}
