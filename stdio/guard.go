package stdio

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"mcpwire/internal/base/wait"
)

const (
	strayMessage     = "stray output on stdout was removed from the protocol stream"
	strayHint        = "stdout carries protocol messages only; print to stderr, or use slog"
	strayBufferBytes = 4 << 10
	strayShownBytes  = 512 // in one warning
	strayBurst       = 20  // warnings per strayInterval
	strayInterval    = time.Second
)

// A guard replaces the standard output and input while the protocol uses the real ones. It logs
// what is written to descriptor 1.
type guard struct {
	// pipe is the read end. It is nil if stdout is not guarded.
	pipe *os.File
	// restore restores the real files.
	restore func()
	watchWG sync.WaitGroup

	// mu guards the fields below. Reading never waits for the logger, which may be slow, blocked,
	// or by mistake write to the pipe itself.
	mu  sync.Mutex
	log *slog.Logger
	// stray has unreported bytes, at most strayBufferBytes.
	stray []byte
	// dropped counts the bytes beyond that.
	dropped   int
	reporting bool
	reportWG  sync.WaitGroup

	// The fields below belong to the reporter. burst counts the warnings since burstStart.
	burst      int
	burstStart time.Time
	// suppressed counts the bytes that no warning showed.
	suppressed int
	looped     bool
}

// newGuard replaces the standard output by a pipe and the standard input by the null device, as
// requested. It logs a warning for what it cannot replace.
func newGuard(log *slog.Logger, stdin, stdout bool) *guard {
	g := &guard{log: log}
	var undo []func()
	g.restore = func() {
		for _, f := range undo {
			f()
		}
	}
	if stdin {
		f, err := replaceStdin()
		if err != nil {
			log.Warn("stdin could not be protected: programs started by handlers may read the protocol's input", "error", err)
		} else {
			undo = append(undo, f)
		}
	}
	if stdout {
		f, err := g.replaceStdout()
		if err != nil {
			log.Warn("stdout could not be protected: write only protocol messages to it", "error", err)
		} else {
			undo = append(undo, f)
			g.watchWG.Go(g.watch)
		}
	}
	return g
}

// watch reads the pipe until release interrupts it.
func (g *guard) watch() {
	buf := make([]byte, strayBufferBytes)
	for {
		n, err := g.pipe.Read(buf)
		g.add(buf[:n])
		if err != nil {
			return
		}
	}
}

// add adds stray bytes for the reporter.
func (g *guard) add(b []byte) {
	if len(b) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	room := min(len(b), strayBufferBytes-len(g.stray))
	g.stray = append(g.stray, b[:room]...)
	g.dropped += len(b) - room
	if !g.reporting {
		g.reporting = true
		g.reportWG.Go(g.reportAll)
	}
}

// reportAll logs stray bytes until none is left.
func (g *guard) reportAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.stray) > 0 {
		stray, dropped := g.stray, g.dropped
		g.stray, g.dropped = nil, 0
		g.mu.Unlock()
		g.report(stray, dropped)
		g.mu.Lock()
	}
	g.reporting = false
}

// report logs stray bytes, at most strayBurst times per strayInterval. dropped is the number of
// bytes that were not kept.
func (g *guard) report(b []byte, dropped int) {
	if bytes.Contains(b, []byte(strayMessage)) && !g.looped {
		// The logger itself writes to stdout: each warning would cause the next.
		g.looped = true
		h := NewLogHandler(os.Stderr, nil)
		defer h.Flush(context.Background())
		g.log = slog.New(h)
		g.log.Error("the logger writes to stdout; it must write to stderr")
	}
	now := time.Now()
	if now.Sub(g.burstStart) > strayInterval {
		g.reportSuppressed()
		g.burst, g.burstStart = 0, now
	}
	if g.burst++; g.burst > strayBurst {
		g.suppressed += len(b) + dropped
		return
	}
	g.log.LogAttrs(context.Background(), slog.LevelWarn, strayMessage,
		slog.String("bytes", string(b[:min(len(b), strayShownBytes)])), slog.Int("count", len(b)+dropped), slog.String("hint", strayHint))
}

func (g *guard) reportSuppressed() {
	if g.suppressed > 0 {
		g.log.Warn(fmt.Sprintf("%d more bytes of stray output on stdout are not shown", g.suppressed))
		g.suppressed = 0
	}
}

// release logs the last stray bytes, restores the descriptors and waits for the guard's goroutines,
// unless the logger hangs.
func (g *guard) release() {
	if g.pipe == nil {
		g.restore()
		return
	}
	// A child may have inherited the write end, so the end of input may never come.
	canInterrupt := g.pipe.SetReadDeadline(time.Unix(1, 0)) == nil
	if canInterrupt {
		g.watchWG.Wait()
		// Twice, because the logger itself may write to stdout, and that must not reach the client.
		g.drainPipe()
		g.drainPipe()
	}
	g.restore()
	if !canInterrupt {
		wait.Timeout(strayInterval, g.watchWG.Wait)
	}
	if g.drainPipe() {
		g.reportSuppressed()
	}
	g.pipe.Close()
}

// drainPipe reports what is in the pipe. It returns false if the reporter does not finish in time.
func (g *guard) drainPipe() bool {
	buf := make([]byte, strayBufferBytes)
	for range 16 { // the capacity of a pipe, in case someone keeps writing
		n := readAvailable(g.pipe, buf)
		if n <= 0 {
			break
		}
		g.add(buf[:n])
	}
	return wait.Timeout(strayInterval, g.reportWG.Wait)
}
