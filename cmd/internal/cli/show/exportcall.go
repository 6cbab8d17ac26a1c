package show

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/cmd/internal/view/detail"
	"mcpwire/cmd/internal/view/export"
	"mcpwire/internal/text/printable"
	"mcpwire/mcp"
)

// exportCall writes a shell script that sends the client's requests again by mcpwire call and the
// like, over any transport. It leaves out handshakes, because each command does its own. What a
// bridge has sent to its server is left out unless it is the side to export.
func exportCall(ctx context.Context, w io.Writer, events export.Events, f *filter.Filter, side capture.Side) error {
	x := &callExport{out: bufio.NewWriter(w), filter: f, side: side, events: map[eventID]*capture.Event{}}
	x.out.WriteString("#!/bin/sh\nset -u # fail if a variable below is not set\n")
	m := trace.New(&trace.Options{MaxRows: sources.MaxWindow, Scan: trace.Scanner(ctx, f)})
	for e, err := range events {
		if err != nil {
			return err
		}
		x.keep(e)
		for _, c := range m.Add(nil, e) {
			if c.Op != trace.Evicted {
				continue
			}
			if err := x.row(ctx, c.Row); err != nil {
				return err
			}
		}
	}
	for _, r := range m.Rows() {
		if err := x.row(ctx, r); err != nil {
			return err
		}
	}
	if x.count == 0 {
		return exit.Fail(exit.Unexpected, "nothing_chosen", "mcpwire show lists the requests", errors.New("no request of a client can be sent again"))
	}
	return x.out.Flush()
}

// A callExport writes the commands of rows in their order. It is a [detail.Source] of what clients
// sent.
type callExport struct {
	out    *bufio.Writer
	filter *filter.Filter
	// side is the side to export. Empty means that of clients.
	side capture.Side
	// events holds the newest messages of clients, up to maxExportedRequests bytes in all.
	// order has their ids.
	events map[eventID]*capture.Event
	order  []eventID
	bytes  int
	count  int
}

// maxExportedRequests limits the bytes of requests that are kept until their command is written.
const maxExportedRequests = 64 << 20

// An eventID identifies an event.
type eventID struct {
	capture string
	n       uint64
}

// keep keeps an event that a command may need.
func (x *callExport) keep(e *capture.Event) {
	if e.Dir != capture.ToServer && e.Kind != capture.KindStart {
		return
	}
	id := eventID{e.Capture, e.N}
	x.events[id] = e.Clone()
	x.order = append(x.order, id)
	x.bytes += sources.EventBytes + len(e.Data)
	for x.bytes > maxExportedRequests {
		oldest := x.order[0]
		x.order = x.order[1:]
		x.bytes -= sources.EventBytes + len(x.events[oldest].Data)
		delete(x.events, oldest)
	}
}

// Event implements [detail.Source].
func (x *callExport) Event(_ context.Context, captureID string, n uint64) (*capture.Event, error) {
	return x.events[eventID{captureID, n}], nil
}

// row writes the command of a row, if it is the request of a client and the filter matches.
func (x *callExport) row(ctx context.Context, r *trace.Row) error {
	switch {
	case r.Kind != trace.Request, r.Parent != nil, r.Dir != capture.ToServer, x.side == "" && r.Session.Side == capture.Upstream, r.Method == mcp.MethodInitialize, r.Method == mcp.MethodDiscover:
		return nil
	case !x.filter.MatchScanned(r, r.Hits):
		return nil
	}
	d, err := detail.Build(ctx, x, detail.TakeSnapshot(r), nil)
	if err != nil {
		return err
	}
	fmt.Fprintf(x.out, "\n# event #%s, %s\n", r.Number(), printable.Line(trace.Summary(r)))
	c, err := detail.CallCommand(d)
	if err != nil {
		_, err = fmt.Fprintf(x.out, "# %s\n", printable.Line(err.Error()))
		return err
	}
	for _, note := range c.Notes {
		fmt.Fprintf(x.out, "# %s\n", printable.Line(note))
	}
	x.count++
	_, err = fmt.Fprintf(x.out, "%s\n", c.Text)
	return err
}
