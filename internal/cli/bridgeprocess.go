package cli

import (
	"sync"

	"mcpwire/capture"
	"mcpwire/internal/trace/wireclient"
	"mcpwire/jsonrpc"
	"mcpwire/stdio"
)

// A recordedProcess is the connection to a server's process. It records how the process started and
// ended.
type recordedProcess struct {
	jsonrpc.Framer
	process *stdio.Process
	record  func(*capture.Event)
	ended   sync.Once
}

// newRecordedProcess records the start of a process and returns the connection to it. Closing the
// connection closes the process.
func newRecordedProcess(cmd *stdio.Cmd, p *stdio.Process, record func(*capture.Event)) *recordedProcess {
	start := wireclient.StartOf(cmd)
	start.PID = p.Pid()
	record(&capture.Event{Kind: capture.KindStart, Start: &start})
	opts := &jsonrpc.FramerOptions{Framing: framingOr(cmd.Framing, jsonrpc.FramingLine), MaxFrame: cmd.MaxFrame}
	return &recordedProcess{Framer: jsonrpc.NewFramer(p, opts), process: p, record: record}
}

// Close implements jsonrpc.Framer.
func (r *recordedProcess) Close() error {
	err := r.Framer.Close()
	r.ended.Do(func() {
		select {
		case <-r.process.Done():
			r.record(&capture.Event{Kind: capture.KindExit, Exit: wireclient.ExitOf(r.process.Wait())})
		default: // the process survived being killed
		}
	})
	return err
}
