package endpoint

import (
	"context"
	"sync"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/proxy/bridge"
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

// StartProcess starts a process, records its start for the bridge of ctx and returns the
// connection to it. Closing the connection closes the process.
func StartProcess(ctx context.Context, cmd *stdio.Cmd) (jsonrpc.Framer, error) {
	p, err := cmd.Start(ctx)
	if err != nil {
		return nil, err
	}
	record := bridge.Recorder(ctx)
	start := wireclient.StartOf(cmd)
	start.PID = p.Pid()
	record(&capture.Event{Kind: capture.KindStart, Start: &start})
	opts := &jsonrpc.FramerOptions{Framing: FramingOr(cmd.Framing, jsonrpc.FramingLine), MaxFrame: cmd.MaxFrame}
	return &recordedProcess{Framer: jsonrpc.NewFramer(p, opts), process: p, record: record}, nil
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
