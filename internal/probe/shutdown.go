package probe

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"mcpwire/capture"
	"mcpwire/check"
)

// rulesShutdown are the rules about the end of a process.
var rulesShutdown = []check.Rule{
	{
		ID: "probe/eof", Severity: check.Warning,
		Title: "The server goes on when its standard input has ended",
		Why:   "The end of its input is how a server learns that its host has gone, and the only way on all systems. Servers that go on are left behind, one for each start.",
		Fix:   "Exit when standard input ends; do not wait for timers, watchers or sockets.",
		URL:   "basic/transports/stdio#shutdown",
		Good:  check.Example{Revision: r4, Text: "init\neof >\nexit 0"},
		Bad:   check.Example{Revision: r4, Text: "init\neof >\nwait 5s\nexit signal terminated"},
	},
	{
		ID: "probe/sigterm", Severity: check.Warning,
		Title: "The server goes on when it is sent SIGTERM",
		Why:   "Hosts then kill it, and what it has open is lost; service managers wait for minutes.",
		Fix:   "Leave SIGTERM alone, or exit soon after it.",
		URL:   "basic/transports/stdio#shutdown",
		Good:  check.Example{Revision: r4, Text: "init\nexit signal terminated"},
		Bad:   check.Example{Revision: r4, Text: "init\nwait 5s\nexit signal killed"},
	},
	{
		ID: "probe/eof-answers", Severity: check.Info,
		Title: "What was asked just before the end of the input is not answered",
		Why:   "Scripts that write requests into a pipe, and shells, close it at once. The specification does not say what is due.",
		Fix:   "Answer what has been read, then exit.",
		URL:   "basic/transports/stdio#shutdown",
		Good:  check.Example{Revision: r4, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\neof >\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nexit 0"},
		Bad:   check.Example{Revision: r4, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\neof >\nexit 0"},
	},
}

// promptly is how soon a server should end.
const promptly = 2 * time.Second

// endOfInput closes the input.
func endOfInput(_ context.Context, v *visit) {
	if took, ok := v.pipe.shutInput(promptly); !ok {
		v.endFinding("eof", fmt.Sprintf("it still runs %v after the end of its input", took.Round(time.Millisecond)))
	}
}

func (v *visit) endFinding(rule, text string) {
	v.find(rule, &answer{at: v.pipe.mark}, "%s", text)
}

// answersAtEnd asks and closes the input at once.
func answersAtEnd(ctx context.Context, v *visit) {
	a := v.ask(ctx, question{body: v.harmless(v.id())})
	v.r.journal.excuse(a.asked)
	v.pipe.endInput()
	if len(a.before) > 0 {
		return // it was quick
	}
	b := v.ask(ctx, question{id: v.last(), wait: promptly, listen: true})
	if b.fate != answered {
		v.find("eof-answers", &a, "a request just before the end of the input has no answer")
	}
}

// terminate sends SIGTERM, on systems that have it.
func terminate(_ context.Context, v *visit) {
	if v.pipe.proc.Pid() <= 0 || !canSignal {
		return
	}
	select {
	case <-v.pipe.proc.Done(): // its number may be somebody else's
		return
	default:
	}
	start := time.Now()
	if signal(v.pipe.proc.Pid(), syscall.SIGTERM) != nil {
		return
	}
	late := time.NewTimer(promptly)
	defer late.Stop()
	v.pipe.excused = true
	v.pipe.mark = v.pipe.record(&capture.Event{Kind: capture.KindNote, Data: []byte("the probe sent SIGTERM")})
	if took, ok := v.pipe.awaitEnd(start, late.C); !ok {
		v.endFinding("sigterm", fmt.Sprintf("it still runs %v after SIGTERM", took.Round(time.Millisecond)))
	}
	v.pipe.shut = true
}
