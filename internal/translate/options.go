package translate

import (
	"crypto/rand"
	"sync/atomic"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/seal"
	"mcpwire/mcp"
)

// Options are the options of both directions. nil is the zero value, which is ready to use.
type Options struct {
	Modern mcp.Revision // of the modern side; RevisionNone is the latest
	Legacy mcp.Revision // the newest of the legacy side; RevisionNone is the latest

	// Supported is what a modern client is told that can be spoken here; nil is Modern alone.
	Supported []mcp.Revision
	// Hints go with what a legacy server says and modern clients may keep; the zero value is that they keep it for no time.
	Hints era.CacheHints

	// Ring seals what a modern client keeps between the rounds of a call. nil is one of the translator's own.
	Ring *seal.Ring
	// IDs counts the ids of calls. Translators that share a connection to the server must share it, and go by [Route]. nil is one of the translator's own.
	IDs *atomic.Int64
	// IsolateClients says that requests of modern clients may be of several, who are not to see what is the others': a log message that may belong to one or another goes to
	// none. Only questions go to the one who is asked by turns, since the server waits.
	IsolateClients bool
	// NewID makes ids that nobody guesses. nil makes random ones.
	NewID func() string

	Limits Limits
}

// Limits bound what a translator keeps. Zero values are the defaults.
type Limits struct {
	Requests      int           // of the client, open at once, listening not counted: 1024
	Bytes         int           // of requests and results that are kept: 256 MiB
	AwaitingInput int           // calls held open for a client that has to answer first; beyond it the oldest is given up: 256
	InputRequests int           // questions of a server that are open at once: 1024
	InputRounds   int           // of asking the client in one request: 32
	Subscriptions int           // subscriptions/listen requests of a client that are open at once: 64
	Resources     int           // resources that are subscribed to: 1024
	Tasks         int           // that are remembered: 256
	ToolNames     int           // of tools whose way with tasks is remembered: 4096
	InputTimeout  time.Duration // how long a question may go unanswered: 10 minutes
	GatherDelay   time.Duration // how long a legacy server's first question waits for others to go with it: 10 ms
	PollInterval  time.Duration // how often a task is asked for that does not say: 1 s
	Depth         int           // levels of nesting in a message: 512
}

// orDefault returns o with everything filled in.
func (o *Options) orDefault() Options {
	var full Options
	if o != nil {
		full = *o
	}
	set(&full.Modern, mcp.LatestRevision)
	set(&full.Legacy, mcp.LatestLegacyRevision)
	set(&full.Ring, new(seal.Ring))
	set(&full.IDs, new(atomic.Int64))
	if full.Supported == nil {
		full.Supported = []mcp.Revision{full.Modern}
	}
	if full.NewID == nil {
		full.NewID = rand.Text
	}
	l := &full.Limits
	set(&l.Requests, 1024)
	set(&l.Bytes, 256<<20)
	set(&l.AwaitingInput, 256)
	set(&l.InputRequests, 1024)
	set(&l.InputRounds, 32)
	set(&l.Subscriptions, 64)
	set(&l.Resources, 1024)
	set(&l.Tasks, 256)
	set(&l.ToolNames, 4096)
	set(&l.InputTimeout, 10*time.Minute)
	set(&l.GatherDelay, 10*time.Millisecond)
	set(&l.PollInterval, time.Second)
	set(&l.Depth, 512)
	return full
}

// set gives an option its default.
func set[T comparable](option *T, value T) {
	var zero T
	if *option == zero {
		*option = value
	}
}
