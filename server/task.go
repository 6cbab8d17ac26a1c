package server

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// TaskOptions let tools run as tasks: work that goes on after the request was answered, and whose result the client comes back for. A tool takes part if its
// definition's Execution says so: with "required" it always runs as a task, with "optional" where the client can deal with one.
//
// Two designs of the protocol are served: that of 2025-11-25, in which the client asks for a task
// (https://modelcontextprotocol.io/specification/2025-11-25/basic/utilities/tasks), and the extension io.modelcontextprotocol/tasks of modern revisions,
// in which the server decides.
//
// The context of a handler that runs as a task does not end with its request, nor with [Options.HandlerTimeout]. It ends when the task is cancelled, when
// its TTL is over, and with [Server.Close]; that of a 2025-11-25 client without a principal also with its connection, since nobody else could ask
// for the task.
//
// A task of the extension of which the client has not been told, because it has cancelled the request or gone before the answer was written, is cancelled at
// once. After that only tasks/cancel cancels it.
type TaskOptions struct {
	Store        TaskStore     // nil keeps tasks in memory
	TTL          time.Duration // how long a task is kept after it was made, and how long it may run; a 2025-11-25 client may ask for less. 0 is an hour
	PollInterval time.Duration // how often clients should come back; 0 is a second
	MaxTasks     int           // of one caller that have not expired, with their results; who has no principal shares. 0 is 1000
	MaxRunning   int           // of the whole server, those that may yet become tasks among them; 0 is 256

	// After is when an optional tool that has not answered yet becomes a task, for clients of modern revisions. 0 is at once. What the tool asks the
	// client until then is asked in the answer to the request, see [Call.Elicit]; a tool that has asked so answers directly, and so does one that
	// cannot become a task, because the store fails or the caller has too many.
	After time.Duration
}

const (
	defaultTaskTTL    = time.Hour
	defaultTaskPoll   = time.Second
	defaultMaxTasks   = 1000
	defaultMaxRunning = 256
)

// A Task is one task, as a [TaskStore] keeps it.
type Task struct {
	ID     string // unguessable; those of one process grow
	Owner  string // who may ask for it: the principal's ID, else that of a legacy session; "" is whoever knows the ID
	Core   bool   // a task of the core protocol of 2025-11-25, not of the extension
	Method string
	Name   string // of the tool

	Status        mcp.TaskStatus
	StatusMessage string
	Created       time.Time
	Updated       time.Time
	TTL           time.Duration
	PollInterval  time.Duration

	Result json.RawMessage // of a task that has one
	Error  *jsonrpc.Error  // of one that failed with it, or was cancelled

	// Questions to the client that have no answer, and answers that the tool has not taken yet.
	InputRequests  map[string]mcp.InputRequest
	InputResponses map[string]json.RawMessage

	Version uint64 // grows with each update; the store's
}

// Expires returns when the store may forget the task.
func (t *Task) Expires() time.Time { return t.Created.Add(t.TTL) }

// Ended reports whether the status is one that nothing can change any more.
func (t *Task) Ended() bool {
	switch t.Status {
	case mcp.TaskStatusCompleted, mcp.TaskStatusFailed, mcp.TaskStatusCancelled:
		return true
	}
	return false
}

// ErrTaskNotFound is what a TaskStore returns for a task that it does not have, or not any more.
var ErrTaskNotFound = errors.New("there is no such task")

// A TaskStore keeps tasks until they expire. Its methods may be called by many goroutines at once; the tasks they return are the caller's, but for the
// JSON texts in them, which nobody changes. Their errors wrap [ErrTaskNotFound], or the context's, or say that the store is not available.
type TaskStore interface {
	// Create adds a copy of a task, and sets the Version of t; once it has returned, the task can be asked for.
	Create(ctx context.Context, t *Task) error
	// Task returns a task.
	Task(ctx context.Context, id string) (*Task, error)
	// Update changes a task and returns what it is then. Between the task that change sees and the one it leaves, no other update takes place; change
	// may be called more than once. If it returns an error, nothing is changed, and that error is returned.
	Update(ctx context.Context, id string, change func(*Task) error) (*Task, error)
	// Wait returns the task as soon as its version is greater.
	Wait(ctx context.Context, id string, version uint64) (*Task, error)
	// Tasks returns the owner's tasks whose ids are greater than after, in the order of their ids, which is that in which they were made.
	Tasks(ctx context.Context, owner, after string, limit int) ([]*Task, error)
}
