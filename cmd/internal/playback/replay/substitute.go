package replay

import (
	"slices"

	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonpointer"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// substitutes are the values that replace recorded ones in the client's messages.
type substitutes struct {
	// tasks maps recorded task ids to the new ones, as JSON text.
	tasks map[string][]byte
	// set is Options.Set.
	set map[string][]byte
}

// fill returns a message with the new task ids, and with the hidden values that are set.
func (s *substitutes) fill(raw []byte, listed []string) []byte {
	raw = s.renameTasks(raw)
	if len(s.set) == 0 {
		return raw
	}
	for _, pointer := range resend.RedactedIn(raw, listed) {
		if value := s.set[pointer]; value != nil {
			raw = edit(raw, jsonpointer.Split(pointer), func([]byte) []byte { return value })
		}
	}
	return raw
}

// hidden returns the places of a message that are still hidden.
func (s *substitutes) hidden(raw []byte, listed []string) (list []string) {
	for _, pointer := range resend.RedactedIn(raw, listed) {
		if s.set[pointer] == nil {
			list = append(list, pointer)
		}
	}
	return list
}

// maxTasks limits the remembered task ids.
const maxTasks = 10_000

// taskIDs returns the task ids in a result, in either design of tasks.
func taskIDs(result []byte) [][]byte {
	var list [][]byte
	for _, place := range [][]string{{"taskId"}, {"task", "taskId"}} {
		if id := jsonwire.Lookup(result, place...); len(id) > 0 && id[0] == '"' {
			list = append(list, id)
		}
	}
	return list
}

// learnTasks remembers the task ids in a result for the recorded ones.
func (s *substitutes) learnTasks(recorded, live []byte) {
	old, now := taskIDs(recorded), taskIDs(live)
	for i := range min(len(old), len(now)) {
		if len(s.tasks) < maxTasks {
			s.tasks[jsonwire.Text(old[i])] = now[i]
		}
	}
}

// renameTasks returns a message with the new task ids.
func (s *substitutes) renameTasks(raw []byte) []byte {
	if len(s.tasks) == 0 {
		return raw
	}
	renamed := func(old []byte) []byte {
		if now, ok := s.tasks[jsonwire.Text(old)]; ok && len(old) > 0 {
			return now
		}
		return old
	}
	for _, top := range []string{"params", "result"} {
		raw = edit(raw, []string{top, "_meta", mcp.MetaRelatedTask, "taskId"}, renamed)
	}
	raw = edit(raw, []string{"params", "taskId"}, renamed)
	return edit(raw, []string{"params", "notifications", "taskIds"}, func(old []byte) []byte {
		if len(old) == 0 || old[0] != '[' {
			return old
		}
		return era.RewriteArray(nil, old, renamed)
	})
}

// An inputResponse answers an input request.
type inputResponse struct {
	key    string
	method string
	value  []byte
	used   bool
}

// inputResponses returns the recorded responses to input requests under their new keys. It prefers
// an answer with the same key and method, and otherwise takes the next one with the method. It
// declines other input requests.
func inputResponses(was, answered, now []byte) []byte {
	if len(now) == 0 || now[0] != '{' {
		return answered
	}
	var list []inputResponse
	if len(answered) > 0 && answered[0] == '{' {
		members := jsonwire.ObjectMembers(answered)
		for members.Next() && len(list) < maxInputRequests {
			key := members.KeyString()
			list = append(list, inputResponse{key: key, method: jsonwire.Text(jsonwire.Lookup(was, key, "method")), value: members.Value()})
		}
	}
	given := map[string][]byte{}
	for _, exact := range []bool{true, false} {
		members := jsonwire.ObjectMembers(now)
		for n := 0; members.Next() && n < maxInputRequests; n++ {
			key, method := members.KeyString(), jsonwire.Text(jsonwire.Lookup(members.Value(), "method"))
			if given[key] != nil {
				continue
			}
			i := slices.IndexFunc(list, func(r inputResponse) bool { return !r.used && r.method == method && (!exact || r.key == key) })
			switch {
			case i >= 0:
				list[i].used, given[key] = true, list[i].value
			case !exact && method == mcp.MethodElicit:
				given[key] = []byte(`{"action":"decline"}`)
			case !exact && method == mcp.MethodRootsList:
				given[key] = []byte(`{"roots":[]}`)
			}
		}
	}
	return era.Rewrite(nil, now, func(m *jsonwire.Members) []byte {
		key := m.KeyString()
		value := given[key]
		delete(given, key)
		return value
	}, nil)
}

// maxInputRequests limits the answered input requests.
const maxInputRequests = 1000
