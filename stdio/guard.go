package stdio

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

const (
	strayMessage     = "stray output on stdout was kept out of the protocol"
	strayHint        = "stdout carries protocol messages only; print to stderr, or use slog"
	strayBufferBytes = 4 << 10
	strayShownBytes  = 512 // bytes that a warning shows
	strayBurst       = 20  // warnings in a row
	strayInterval    = time.Second
)

// A guard stands in for the standard output, and the standard input, while the protocol has the real ones. What is written to descriptor 1 is
// logged.
type guard struct {
	pipe    *os.File // the read end; nil if stdout could not be guarded
	restore func()   // puts the real ones back
	watchWG sync.WaitGroup

	// Reading never waits for the logger, which may be slow, blocked, or, by mistake, writing to the very pipe that is read.
	mu        sync.Mutex
	log       *slog.Logger
	stray     []byte // not reported yet, at most strayBufferBytes
	dropped   int    // stray bytes that there was no room for
	reporting bool
	reportWG  sync.WaitGroup

	// For the reporter alone.
	burst      int // warnings since burstStart
	burstStart time.Time
	suppressed int // bytes that no warning showed
	looped     bool
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

// add has b reported.
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

// reportAll logs what has come until nothing is left.
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

// report logs stray bytes, not more often than some twenty times a second. more bytes came that are not kept.
func (g *guard) report(b []byte, dropped int) {
	if bytes.Contains(b, []byte(strayMessage)) && !g.looped {
		// The logger itself writes to stdout. Each warning would cause the next.
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

// release logs what was written until now, puts the descriptors back and waits for the guard's goroutines, unless the logger is stuck.
func (g *guard) release() {
	if g.pipe == nil {
		g.restore()
		return
	}
	// Somebody may have inherited the write end, so the end of input may never come.
	canInterrupt := g.pipe.SetReadDeadline(time.Unix(1, 0)) == nil
	if canInterrupt {
		g.watchWG.Wait()
		// Twice, for what the logger itself may have written to stdout, which must not get out now.
		g.drainPipe()
		g.drainPipe()
	}
	g.restore()
	if !canInterrupt {
		waitTimeout(&g.watchWG, strayInterval)
	}
	if g.drainPipe() {
		g.reportSuppressed()
	}
	g.pipe.Close()
}

// drainPipe has what is in the pipe reported, and reports whether that is finished.
func (g *guard) drainPipe() bool {
	buf := make([]byte, strayBufferBytes)
	for range 16 { // as much as a pipe holds, should somebody go on writing
		n := readAvailable(g.pipe, buf)
		if n <= 0 {
			break
		}
		g.add(buf[:n])
	}
	return waitTimeout(&g.reportWG, strayInterval)
}

// waitTimeout waits for wg, no longer than d, and reports whether wg is done.
func waitTimeout(wg *sync.WaitGroup, d time.Duration) bool {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	return waitClosed(done, d)
}
