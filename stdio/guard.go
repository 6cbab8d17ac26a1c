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
	strayMessage = "stray output on stdout was kept out of the protocol"
	strayHint    = "stdout carries protocol messages only; print to stderr, or use slog"
	strayRead    = 4 << 10
	strayQuoted  = 512 // bytes that a warning shows
	strayBurst   = 20  // warnings in a row
	strayPause   = time.Second
)

// A guard stands in for the standard output, and the standard input, while the protocol has the real ones. What is written to descriptor 1 is
// logged.
type guard struct {
	pipe    *os.File // the read end; nil if stdout could not be guarded
	restore func()   // puts the real ones back
	watcher sync.WaitGroup

	// Reading never waits for the logger, which may be slow, blocked, or, by mistake, writing to the very pipe that is read.
	mu        sync.Mutex
	log       *slog.Logger
	stray     []byte // not reported yet, at most strayRead
	more      int    // stray bytes that there was no room for
	reporting bool
	reporter  sync.WaitGroup

	// For the reporter alone.
	burst      int // warnings since burstStart
	burstStart time.Time
	muted      int // bytes that no warning showed
	looped     bool
}

// watch reads the pipe until release interrupts it.
func (g *guard) watch() {
	buf := make([]byte, strayRead)
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
	room := min(len(b), strayRead-len(g.stray))
	g.stray = append(g.stray, b[:room]...)
	g.more += len(b) - room
	if !g.reporting {
		g.reporting = true
		g.reporter.Go(g.reportAll)
	}
}

// reportAll logs what has come until nothing is left.
func (g *guard) reportAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.stray) > 0 {
		stray, more := g.stray, g.more
		g.stray, g.more = nil, 0
		g.mu.Unlock()
		g.report(stray, more)
		g.mu.Lock()
	}
	g.reporting = false
}

// report logs stray bytes, not more often than some twenty times a second. more bytes came that are not kept.
func (g *guard) report(b []byte, more int) {
	if bytes.Contains(b, []byte(strayMessage)) && !g.looped {
		// The logger itself writes to stdout. Each warning would cause the next.
		g.looped = true
		h := NewLogHandler(os.Stderr, nil)
		defer h.Flush(context.Background())
		g.log = slog.New(h)
		g.log.Error("the logger writes to stdout; it must write to stderr")
	}
	now := time.Now()
	if now.Sub(g.burstStart) > strayPause {
		g.reportMuted()
		g.burst, g.burstStart = 0, now
	}
	if g.burst++; g.burst > strayBurst {
		g.muted += len(b) + more
		return
	}
	g.log.LogAttrs(context.Background(), slog.LevelWarn, strayMessage,
		slog.String("bytes", string(b[:min(len(b), strayQuoted)])), slog.Int("count", len(b)+more), slog.String("hint", strayHint))
}

func (g *guard) reportMuted() {
	if g.muted > 0 {
		g.log.Warn(fmt.Sprintf("%d more bytes of stray output on stdout are not shown", g.muted))
		g.muted = 0
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
		g.watcher.Wait()
		// Twice, for what the logger itself may have written to stdout, which must not get out now.
		g.settle()
		g.settle()
	}
	g.restore()
	if !canInterrupt {
		waitFor(&g.watcher, strayPause)
	}
	if g.settle() {
		g.reportMuted()
	}
	g.pipe.Close()
}

// settle has what is in the pipe reported, and reports whether that is finished.
func (g *guard) settle() bool {
	buf := make([]byte, strayRead)
	for range 16 { // as much as a pipe holds, should somebody go on writing
		n := readNow(g.pipe, buf)
		if n <= 0 {
			break
		}
		g.add(buf[:n])
	}
	return waitFor(&g.reporter, strayPause)
}

// waitFor waits for wg, no longer than d, and reports whether wg is done.
func waitFor(wg *sync.WaitGroup, d time.Duration) bool {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	return waitClosed(done, d)
}
