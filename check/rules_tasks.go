package check

import (
	"mcpwire/capture"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// taskStatuses holds the statuses of the tasks of a session.
type taskStatuses struct {
	known map[string]taskStatus
}

// A taskStatus is the last known status of a task.
type taskStatus struct {
	status mcp.TaskStatus
	n      uint64
}

const maxTasks = 4096 // of a session

// observersTasks records the statuses of tasks.
var observersTasks = []observer{{
	kinds: kindResult | kindNotification,
	observe: func(v *view) {
		id, status := v.taskState()
		if id == "" || status == "" {
			return
		}
		b := stateOf[taskStatuses](&v.session.state)
		if era.IsTerminal(status) || !era.IsTerminal(b.known[id].status) {
			setBounded(&b.known, maxTasks, id, taskStatus{status, v.e.N})
		}
	},
}}

// taskState returns the task and status that the message reports, in either design of tasks, or "".
func (v *view) taskState() (id string, status mcp.TaskStatus) {
	var t []byte
	switch m := v.msg; {
	case m.is(kindNotification) && (m.method == mcp.NotificationTaskStatus || m.method == mcp.NotificationTasks):
		t = m.params
	case !m.is(kindResult) || v.call == nil:
	case v.call.method == mcp.MethodTasksGet || v.call.method == mcp.MethodTasksCancel && !v.modern:
		t = m.result
	case v.modern && jsonwire.Text(v.result("resultType")) == string(mcp.ResultTypeTask):
		t = m.result
	case !v.modern && v.result("task") != nil:
		t = v.result("task")
	}
	if id = jsonwire.Text(jsonwire.Lookup(t, "taskId")); len(id) > maxPairedID {
		return "", ""
	}
	return id, mcp.TaskStatus(jsonwire.Text(jsonwire.Lookup(t, "status")))
}

const (
	tasksMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"$rev","io.modelcontextprotocol/clientCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`
	tasksCall = `> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a",` + tasksMeta + `}}`
	tasksMade = `< {"jsonrpc":"2.0","id":1,"result":{"resultType":"task","taskId":"t","status":"working","createdAt":"` + tasksTime + `","lastUpdatedAt":"` + tasksTime + `","ttlMs":null}}`
	tasksTime = "1999-12-31T23:59:59Z"
)

// tasksPoll returns a tasks/get and its response.
func tasksPoll(id, result string) string {
	return `> {"jsonrpc":"2.0","id":` + id + `,"method":"tasks/get","params":{"taskId":"t",` + tasksMeta + `}}` + "\n" +
		`< {"jsonrpc":"2.0","id":` + id + `,"result":{"resultType":"complete","taskId":"t","createdAt":"` + tasksTime + `","lastUpdatedAt":"` + tasksTime + `","ttlMs":null,` + result + `}}`
}

const (
	tasksDone    = `"status":"completed","result":{"content":[]}`
	tasksWorking = `"status":"working"`
)

// rulesTasks returns the rules about tasks, both of 2025-11-25 and of the extension.
func rulesTasks() []rule {
	return []rule{{
		ID: "tasks/undeclared", Severity: Error, Revisions: modernRevisions,
		Title: "A call became a task, but the client has not declared tasks",
		Why:   "The client treats the result as invalid, and the tool's result is lost.",
		Fix:   "Create a task only if the request's clientCapabilities have the extension io.modelcontextprotocol/tasks; if the tool requires a task, respond with -32021.",
		URL:   "https://modelcontextprotocol.io/extensions/tasks/overview",
		Good:  Example{rev20260728, tasksCall + "\n" + tasksMade},
		Bad:   Example{rev20260728, `> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{$meta}}}` + "\n" + tasksMade},
		kinds: kindResult, dir: capture.ToClient,
		check: func(v *view) {
			if v.modern && v.call != nil && jsonwire.Text(v.result("resultType")) == string(mcp.ResultTypeTask) && v.call.client != nil && jsonwire.Lookup(v.call.client, "extensions", mcp.ExtensionTasks) == nil {
				v.report("/result/resultType", "the result is a task, but the request does not declare %s", mcp.ExtensionTasks).with(v.call.n)
			}
		},
	}, {
		ID: "tasks/unexpected", Severity: Error, Revisions: modernRevisions,
		Title: "A request other than tools/call became a task",
		Why:   "Clients expect tasks only in results of tools/call, and treat others as invalid.",
		Fix:   "Create tasks only for tools/call; results of tasks/get have resultType complete.",
		URL:   "https://modelcontextprotocol.io/extensions/tasks/overview",
		Good:  Example{rev20260728, tasksCall + "\n" + tasksMade + "\n" + tasksPoll("2", tasksDone)},
		Bad:   Example{rev20260728, `> {"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"a",` + tasksMeta + `}}` + "\n" + tasksMade},
		kinds: kindResult, dir: capture.ToClient,
		check: func(v *view) {
			if v.modern && v.call != nil && jsonwire.Text(v.result("resultType")) == string(mcp.ResultTypeTask) && v.call.method != mcp.MethodToolsCall {
				v.report("/result/resultType", "the result of %s is a task", show(v.call.method))
			}
		},
	}, {
		ID: "tasks/final", Severity: Error, Revisions: hasURLElicitation,
		Title: "The status of a finished task changes",
		Why:   "Clients have already acted on the final status.",
		Fix:   "Never change the status after completed, failed or cancelled.",
		URL:   "https://modelcontextprotocol.io/extensions/tasks/overview",
		Good:  Example{rev20260728, tasksCall + "\n" + tasksMade + "\n" + tasksPoll("2", tasksWorking) + "\n" + tasksPoll("3", tasksDone)},
		Bad:   Example{rev20260728, tasksCall + "\n" + tasksMade + "\n" + tasksPoll("2", tasksDone) + "\n" + tasksPoll("3", tasksWorking)},
		kinds: kindResult | kindNotification,
		check: func(v *view) {
			id, status := v.taskState()
			before, ok := stateOf[taskStatuses](&v.session.state).known[id]
			// A response to an earlier request, or a message on another stream, may be older
			// than the end.
			late := v.msg.is(kindResult) && v.call != nil && v.call.n > before.n || v.msg.is(kindNotification) && v.session.transport == transportStdio
			if id != "" && ok && late && era.IsTerminal(before.status) && status != before.status && status != "" {
				v.report("", "the task %s is %s now; it was %s", show(id), show(status), show(before.status)).with(before.n)
			}
		},
	}, {
		ID: "tasks/begin", Severity: Error, Revisions: hasCoreTasks,
		Title: "A new task does not have the status working",
		Why:   "Clients that follow the task miss the earlier status.",
		Fix:   "Start with the status working.",
		URL:   "basic/utilities/tasks",
		Good:  Example{rev20251125, tasksLegacy("working")},
		Bad:   Example{rev20251125, tasksLegacy("completed")},
		kinds: kindResult,
		check: func(v *view) {
			if v.call != nil && v.call.method != mcp.MethodTasksGet && v.result("task") != nil {
				if s := jsonwire.Text(v.result("task", "status")); s != "" && s != "working" {
					v.report("/result/task/status", "the task starts as %s", show(s))
				}
			}
		},
	}, {
		ID: "tasks/support", Severity: Error, Revisions: hasCoreTasks,
		Title: "A call's params.task contradicts the tool's taskSupport",
		Why:   "The server responds with -32601, or runs the call without a task.",
		Fix:   "Send params.task only for tools whose execution.taskSupport is optional or required, and always for those where it is required.",
		URL:   "basic/utilities/tasks",
		Good:  Example{rev20251125, tasksLegacy("working")},
		Bad:   Example{rev20251125, tasksInit + "\n" + tasksList("forbidden") + "\n" + `> {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a","task":{}}}` + "\n" + `< {"jsonrpc":"2.0","id":2,"error":{"code":-32601,"message":"no tasks"}}`},
		kinds: kindRequest, dir: capture.ToServer, methods: []string{mcp.MethodToolsCall},
		check: func(v *view) {
			if v.call.tool == nil {
				return
			}
			support, task := jsonwire.Text(jsonwire.Lookup(v.call.tool.text, "execution", "taskSupport")), v.param("task")
			switch {
			case task != nil && (support == "" || support == "forbidden"):
				v.report("/params/task", "the tool cannot run as a task").with(v.call.tool.n)
			case task == nil && support == "required":
				v.report("/params", "the tool must run as a task, but the call has no params.task").with(v.call.tool.n)
			}
		},
	}}
}

const tasksInit = `init server={"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}}`

func tasksList(support string) string {
	return `> {"jsonrpc":"2.0","id":1,"method":"tools/list"}` + "\n" +
		`< {"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"a","inputSchema":{"type":"object"},"execution":{"taskSupport":"` + support + `"}}]}}`
}

func tasksLegacy(status string) string {
	return tasksInit + "\n" + tasksList("optional") + "\n" +
		`> {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a","task":{}}}` + "\n" +
		`< {"jsonrpc":"2.0","id":2,"result":{"task":{"taskId":"t","status":"` + status + `","createdAt":"` + tasksTime + `","lastUpdatedAt":"` + tasksTime + `","ttl":null}}}`
}
