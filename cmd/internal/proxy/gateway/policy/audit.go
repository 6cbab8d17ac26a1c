package policy

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/internal/base/wait"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/printable"
	"mcpwire/internal/text/traceparent"
)

// Limits of the audit log.
const (
	// maxAuditText limits the bytes of one text in a line.
	maxAuditText = 1024
	// maxAuditBuffer limits the bytes of the lines that wait for the disk.
	maxAuditBuffer = 1 << 20
	// auditCloseTimeout limits how long Close waits for the disk.
	auditCloseTimeout = 5 * time.Second
)

// AuditOptions are the options of [OpenAudit].
type AuditOptions struct {
	// Path is the file, which is appended to. It is created with mode 0600. Empty means Writer.
	Path string
	// Writer receives the lines if Path is empty. Each Write has whole lines.
	Writer io.Writer
	// Logger receives failures to write, at most one for each row of failures. Nil discards them.
	Logger *slog.Logger
}

// An Audit is a log with one line of JSON for each call:
//
//	{"time":"2026-11-27T10:00:00.123Z","caller":"https://idp.example.com alice app",
//	"method":"tools/call","upstream":"files","name":"read","outcome":"ok","ms":1.52,
//	"request":212,"response":1034,"arguments":"e3b0…","trace":"4bf9…"}
//
// (in one line). "caller" is the id of the principal or the network address, and absent for a local
// client. "code" is that of a JSON-RPC error. "request" and "response" are the lengths in bytes of
// the request, also of a denied one, and of the server's response if there was one. "arguments" is
// the SHA-256 of the JSON text of the arguments, so that the log has no secrets but a call can be
// found by its arguments. "trace" is the trace id of the call's traceparent
// (https://www.w3.org/TR/trace-context/#traceparent-header).
//
// Calls never wait for the disk. If it is too slow or fails, lines are lost: the next line that can
// be written is {"time":…,"lost":N}, and [Audit.Lost] counts them.
type Audit struct {
	path string
	log  *slog.Logger
	wake chan struct{}
	done chan struct{}

	mu sync.Mutex
	// lines are the lines to write. They have calls calls, and say that reported others are lost.
	lines           []byte
	calls, reported uint64
	// allLost is the number of lost lines, and lost the number of them that no line reports yet.
	lost, allLost uint64
	closed        bool

	// out is where the goroutine writes, and nil when a file is closed. It is guarded by outMu,
	// which is held while the disk is slow.
	outMu sync.Mutex
	out   io.Writer
	// torn says that the last write may have ended inside a line.
	torn   bool
	failed bool
}

// OpenAudit opens the log. Close it after the last call.
func OpenAudit(o AuditOptions) (*Audit, error) {
	a := &Audit{path: o.Path, out: o.Writer, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler)), wake: make(chan struct{}, 1), done: make(chan struct{})}
	if a.path != "" {
		f, err := openAppend(a.path)
		if err != nil {
			return nil, fmt.Errorf("open the audit log: %w", err)
		}
		a.out = f
	}
	if a.out == nil {
		return nil, errors.New("the audit log has neither a file nor a writer")
	}
	go a.run()
	return a, nil
}

// openAppend opens a regular file. Opening a named pipe would wait for its reader.
func openAppend(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
}

// Record adds the line of a call. It is a gateway.Options.Audit.
func (a *Audit) Record(r *gateway.CallRecord) {
	var array [1024]byte
	line := appendCall(array[:0], r)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || len(a.lines) > maxAuditBuffer {
		a.lost++
		a.allLost++
		return
	}
	if a.lost > 0 {
		a.lines = appendLost(a.lines, r.Start.Add(r.Duration), a.lost)
		a.reported += a.lost
		a.lost = 0
	}
	a.lines = append(a.lines, line...)
	a.calls++
	wait.Signal(a.wake)
}

// Lost returns the number of lines that were lost since the start.
func (a *Audit) Lost() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.allLost
}

// Reopen opens the file again under its name, for programs that rename it, such as logrotate. If
// that fails, the audit log continues in the old file. Without a file it does nothing.
func (a *Audit) Reopen() error {
	if a.path == "" {
		return nil
	}
	f, err := openAppend(a.path)
	if err != nil {
		return fmt.Errorf("reopen the audit log: %w", err)
	}
	a.outMu.Lock()
	defer a.outMu.Unlock()
	old := a.out
	if old == nil { // closed
		return f.Close()
	}
	a.out, a.torn = f, false
	return closeWriter(old)
}

func closeWriter(w io.Writer) error {
	if f, ok := w.(*os.File); ok {
		return f.Close()
	}
	return nil
}

// Close writes the pending lines and closes the file. After five seconds it gives up and returns an
// error. Calls recorded later are lost.
func (a *Audit) Close() error {
	a.mu.Lock()
	already := a.closed
	a.closed = true
	a.mu.Unlock()
	if !already {
		close(a.wake)
	}
	if !wait.Closed(a.done, auditCloseTimeout) {
		return errors.New("close the audit log: the disk does not take the last lines")
	}
	if a.path == "" {
		return nil
	}
	a.outMu.Lock()
	defer a.outMu.Unlock()
	old := a.out
	a.out = nil
	return closeWriter(old)
}

// run writes the lines until the log is closed.
func (a *Audit) run() {
	defer close(a.done)
	var lines []byte
	for open := true; open; {
		_, open = <-a.wake
		a.mu.Lock()
		lines, a.lines = a.lines, lines[:0]
		calls, reported := a.calls, a.reported
		a.calls, a.reported = 0, 0
		a.mu.Unlock()
		if len(lines) > 0 && !a.write(lines) {
			a.mu.Lock()
			a.lost += calls + reported
			a.allLost += calls
			a.mu.Unlock()
		}
	}
}

// write writes lines and reports whether all were written.
func (a *Audit) write(lines []byte) bool {
	a.outMu.Lock()
	defer a.outMu.Unlock()
	if a.torn {
		if _, err := a.out.Write([]byte("\n")); err != nil {
			return false
		}
		a.torn = false
	}
	n, err := a.out.Write(lines)
	a.torn = err != nil && n > 0
	if err != nil && !a.failed {
		a.log.Error("the audit log cannot be written; lines are lost", "path", a.path, "error", err)
	}
	if err == nil && a.failed {
		a.log.Info("the audit log is written again", "path", a.path)
	}
	a.failed = err != nil
	return err == nil
}

func appendLost(dst []byte, now time.Time, n uint64) []byte {
	dst = append(dst, `{"time":"`...)
	dst = now.UTC().AppendFormat(dst, auditTime)
	dst = append(dst, `","lost":`...)
	dst = strconv.AppendUint(dst, n, 10)
	return append(dst, "}\n"...)
}

const auditTime = "2006-01-02T15:04:05.000Z07:00"

func appendCall(dst []byte, r *gateway.CallRecord) []byte {
	dst = append(dst, `{"time":"`...)
	dst = r.Start.UTC().AppendFormat(dst, auditTime)
	dst = append(dst, '"')
	dst = appendText(dst, "caller", callerOf(r.Context))
	dst = appendText(dst, "method", r.Method)
	dst = appendText(dst, "upstream", r.Upstream)
	dst = appendText(dst, "name", r.Name)
	dst = appendText(dst, "outcome", string(r.Outcome))
	if r.Code != 0 {
		dst = append(dst, `,"code":`...)
		dst = strconv.AppendInt(dst, int64(r.Code), 10)
	}
	dst = append(dst, `,"ms":`...)
	dst = strconv.AppendFloat(dst, float64(r.Duration.Microseconds())/1000, 'f', -1, 64)
	dst = appendLength(dst, "request", r.RequestBytes)
	dst = appendLength(dst, "response", r.ResponseBytes)
	if r.Arguments != nil {
		sum := r.Digest()
		dst = append(dst, `,"arguments":"`...)
		dst = hex.AppendEncode(dst, sum[:])
		dst = append(dst, '"')
	}
	if trace, _, _, ok := traceparent.Parse(jsonwire.Text(jsonwire.Lookup(r.Meta, "traceparent"))); ok {
		dst = append(append(append(dst, `,"trace":"`...), trace...), '"')
	}
	return append(dst, "}\n"...)
}

// appendLength appends a member with the length of a message, unless there was no message.
func appendLength(dst []byte, name string, n int) []byte {
	if n == 0 {
		return dst
	}
	dst = append(append(append(dst, `,"`...), name...), `":`...)
	return strconv.AppendInt(dst, int64(n), 10)
}

// appendText appends a member with a text that a client may have chosen, unless it is empty.
func appendText(dst []byte, name, text string) []byte {
	if text == "" {
		return dst
	}
	dst = append(append(append(dst, `,"`...), name...), `":`...)
	n := len(dst)
	dst = jsonwire.AppendQuote(dst, clip.String(text, maxAuditText))
	// Operators read it on terminals.
	return append(dst[:n], printable.JSON(dst[n:])...)
}
