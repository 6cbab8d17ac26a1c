package translate

import (
	"mcpwire/internal/era"
	"mcpwire/mcp"
)

// A taskTalk is what a client is asked for a task that it asks for again and again, without tasks/result, where it would be asked. Servers of the core protocol may ask for a
// task whenever they like, and some clients rely on that.
type taskTalk struct {
	req     *request            // that the questions are of; the client made none
	asked   map[string]struct{} // keys of the questions that the client got
	refused map[string]struct{} // of these, which it gave no answer to
}

// talk asks the client what a task wants to know, if it has heard before that it wants something. Then it is not about to ask for the result.
func (t *LegacyClient) talk(r *request, id string, task []byte) {
	talk := t.tasks.talks[id]
	switch {
	case talk == nil && t.awaits(id):
	case talk == nil:
		if t.tasks.talks == nil {
			t.tasks.talks = make(map[string]*taskTalk)
		}
		for old, one := range t.tasks.talks {
			if len(t.tasks.talks) >= t.opts.Limits.Tasks && one.req.open == 0 {
				delete(t.tasks.talks, old)
			}
		}
		if len(t.tasks.talks) >= t.opts.Limits.Tasks {
			return // it asks for the result, or goes without
		}
		t.tasks.talks[id] = &taskTalk{req: &request{method: mcp.MethodTasksResult}, asked: make(map[string]struct{}), refused: make(map[string]struct{})}
	default:
		talk.req.stream = r.stream // which there is until r is answered
		// A client that cannot be asked is told when it asks for the result.
		_ = t.askForTask(talk.req, id, era.Lookup(task, "inputRequests"), talk.asked)
		talk.req.stream = 0
	}
}

// awaits reports whether the client waits for the result of a task, and is asked on that account.
func (t *LegacyClient) awaits(id string) bool {
	for _, r := range t.reqs {
		if r.method == mcp.MethodTasksResult && era.LookupString(r.params, "taskId") == id {
			return true
		}
	}
	return false
}

// hush takes back what the client was asked for a task.
func (t *LegacyClient) hush(id string) {
	if talk := t.tasks.talks[id]; talk != nil {
		delete(t.tasks.talks, id)
		t.end(talk.req)
	}
}

// takeTalk has a request for the result of a task wait for the answers to what the client was asked for it already. It returns the keys of that.
func (t *LegacyClient) takeTalk(r *request, id string) (asked map[string]struct{}) {
	talk := t.tasks.talks[id]
	if talk == nil {
		return make(map[string]struct{})
	}
	delete(t.tasks.talks, id)
	r.asks, r.open = talk.req.asks, talk.req.open
	for _, a := range r.asks {
		a.req = r
	}
	for key := range talk.refused {
		delete(talk.asked, key)
	}
	return talk.asked
}

// talked takes note of an answer that no request waits for, and reports whether it is one.
func (t *LegacyClient) talked(id string, a *ask, refused bool) bool {
	talk := t.tasks.talks[id]
	if talk == nil || talk.req != a.req {
		return false
	}
	if refused {
		talk.refused[unquoted(a.key)] = struct{}{}
		t.drop("the task waits until the client asks for the result")
	} else {
		t.sendUpdate(a.req, id, a)
	}
	t.kept -= a.req.size
	a.req.size, a.req.marks = 0, nil
	return true
}
