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
		Good:  check.Example{Revision: rev20251125, Text: "init\neof >\nexit 0"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\neof >\nwait 5s\nexit signal terminated"},
	},
	{
		ID: "probe/sigterm", Severity: check.Warning,
		Title: "The server goes on when it is sent SIGTERM",
		Why:   "Hosts then kill it, and what it has open is lost; service managers wait for minutes.",
		Fix:   "Leave SIGTERM alone, or exit soon after it.",
		URL:   "basic/transports/stdio#shutdown",
		Good:  check.Example{Revision: rev20251125, Text: "init\nexit signal terminated"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\nwait 5s\nexit signal killed"},
	},
	{
		ID: "probe/eof-answers", Severity: check.Info,
		Title: "What was asked just before the end of the input is not answered",
		Why:   "Scripts that write requests into a pipe, and shells, close it at once. The specification does not say what is due.",
		Fix:   "Answer what has been read, then exit.",
		URL:   "basic/transports/stdio#shutdown",
		Good:  check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\neof >\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\nexit 0"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\neof >\nexit 0"},
	},
}

// maxExitTime is how soon a server should end.
const maxExitTime = 2 * time.Second

// endOfInput closes the input.
func endOfInput(_ context.Context, d *driver) {
	if took, ok := d.stdio.closeInputAndWait(maxExitTime); !ok {
		d.endFinding("eof", fmt.Sprintf("it still runs %v after the end of its input", took.Round(time.Millisecond)))
	}
}

func (d *driver) endFinding(rule, text string) {
	d.report(rule, &reply{event: d.stdio.endEvent}, "%s", text)
}

// answersAtEnd asks and closes the input at once.
func answersAtEnd(ctx context.Context, d *driver) {
	a := d.send(ctx, outgoing{body: d.harmlessRequest(d.nextID())})
	d.r.recorder.waive(a.requestEvent)
	d.stdio.closeInput()
	if len(a.before) > 0 {
		return // it was quick
	}
	b := d.send(ctx, outgoing{id: d.lastID(), wait: maxExitTime, receiveOnly: true})
	if b.state != answered {
		d.report("eof-answers", &a, "a request just before the end of the input has no answer")
	}
}

// terminate sends SIGTERM, on systems that have it.
func terminate(_ context.Context, d *driver) {
	if d.stdio.proc.Pid() <= 0 || !canSignal {
		return
	}
	select {
	case <-d.stdio.proc.Done(): // its number may be somebody else's
		return
	default:
	}
	start := time.Now()
	if signal(d.stdio.proc.Pid(), syscall.SIGTERM) != nil {
		return
	}
	late := time.NewTimer(maxExitTime)
	defer late.Stop()
	d.stdio.waived = true
	d.stdio.endEvent = d.stdio.record(&capture.Event{Kind: capture.KindNote, Data: []byte("the probe sent SIGTERM")})
	if took, ok := d.stdio.waitExit(start, late.C); !ok {
		d.endFinding("sigterm", fmt.Sprintf("it still runs %v after SIGTERM", took.Round(time.Millisecond)))
	}
	d.stdio.inputClosed = true
}
