package trace

// A ResultType says what a row is.
type Kind string

// The kinds of row.
const (
	Request      Kind = "request" // with what became of it
	Notification Kind = "notification"
	Response     Kind = "response" // to no request that is known
	Invalid      Kind = "invalid"  // in the place of a message, something that is none
	Progress     Kind = "progress"
	Log          Kind = "log"
	Stdout       Kind = "stdout" // what a server on stdio wrote to its standard output besides messages
	Stderr       Kind = "stderr"
	Start        Kind = "start" // of a process
	Exit         Kind = "exit"
	EOF          Kind = "eof"
	HTTP         Kind = "http" // an HTTP exchange without a message from the client
	SSE          Kind = "sse"  // an event of a stream without a message
	Body         Kind = "body" // of an HTTP message, which is no message of the protocol
	Gap          Kind = "gap"
	Note         Kind = "note"
	Translate    Kind = "xlate" // a bridge made one event into others
)

// A Status says what became of a request, or of an HTTP exchange.
type Status string

// The states. Rows that nothing can become of have none.
const (
	OK            Status = "ok"
	Failed        Status = "error"          // the response is an error, see Row.Code
	ToolFailed    Status = "iserror"        // the result of the tool says that it failed
	InputRequired Status = "input_required" // the server wants something of the user first, and the client has not come back yet
	TaskCreated   Status = "task"           // it became a task that has not ended yet
	Canceled      Status = "cancelled"
	Pending       Status = "pending"
	Unanswered    Status = "unanswered" // and nothing can come any more
	HTTPFailed    Status = "http"       // HTTP refused it, see Row.Code, without an answer in the body
)

// A Role says why a request stands inside another.
type Role string

// The roles.
const (
	ServerRequest Role = "asked" // the server sent it because of the other
	Retry         Role = "retry" // a further round of the other
	Poll          Role = "poll"  // asks for the task that the other became
)
