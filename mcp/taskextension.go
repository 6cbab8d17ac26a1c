package mcp

// There are two designs of tasks, and they do not mix.
//
// The core protocol of 2025-11-25 has [Task], [TaskMetadata], [CreateTaskResult], [GetTaskResult] and those next to them: the caller asks for a task,
// the result has it in a member of its own, and tasks/result gets what the request would have got.
//
// The extension of 2026-07-28 has [ExtensionTask], [ExtensionCreateTaskResult], [DetailedTask] and [UpdateTaskRequestParams]: the server decides, the
// result is the task, and tasks/get gets a [DetailedTask] with the result in it. [GetTaskRequestParams] and [CancelTaskRequestParams] are of both;
// [Result] answers tasks/update and tasks/cancel.

// ExtensionTasks names the tasks extension among the extensions of [ClientCapabilities] and [ServerCapabilities].
// (https://github.com/modelcontextprotocol/ext-tasks)
const ExtensionTasks = "io.modelcontextprotocol/tasks"
