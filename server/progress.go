package server

import (
	"errors"
	"math"
	"strconv"
	"sync"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/mcp"
)

// A callProgress orders the progress notifications of a call.
type callProgress struct {
	// mu is held while sending, so that the notifications are in the order of the numbers.
	mu sync.Mutex
	// last is the last progress.
	last float64
}

var errProgress = errors.New("progress must be a finite number, greater than the last one")

// advance calls send if progress is greater than the last one.
func (cp *callProgress) advance(progress float64, send func() error) error {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	if progress <= cp.last {
		return errProgress
	}
	cp.last = progress
	return send()
}

// WantsProgress reports whether the client asked for progress notifications.
func (c *Call) WantsProgress() bool { return c.ex.Meta.ProgressToken != nil }

// Progress notifies the client of the call's progress, if it asked for that. progress must grow
// with each call. A zero total and an empty message are left out. The notification is sent before
// the result. Progress returns [jsonrpc.ErrRequestEnded] if there is a notification to send and the
// call has ended.
func (c *Call) Progress(progress, total float64, message string) error {
	if math.IsNaN(progress) || math.IsInf(progress, 0) || math.IsNaN(total) || math.IsInf(total, 0) {
		return errProgress
	}
	if c.progress.Load() == nil {
		c.progress.CompareAndSwap(nil, &callProgress{last: math.Inf(-1)})
	}
	return c.progress.Load().advance(progress, func() error { return c.sendProgress(progress, total, message) })
}

// sendProgress sends a progress notification if the client asked for that.
func (c *Call) sendProgress(progress, total float64, message string) error {
	token := c.ex.Meta.ProgressToken
	if token == nil {
		return nil
	}
	params := append(append([]byte(`{"progressToken":`), token...), `,"progress":`...)
	params = appendNumber(params, progress)
	if total != 0 {
		params = appendNumber(append(params, `,"total":`...), total)
	}
	if message != "" && c.ex.ProgressMessage {
		params = jsonwire.AppendQuote(append(params, `,"message":`...), message)
	}
	return c.notify(mcp.NotificationProgress, append(params, '}'))
}

func appendNumber(dst []byte, f float64) []byte {
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return strconv.AppendInt(dst, int64(f), 10)
	}
	return strconv.AppendFloat(dst, f, 'g', -1, 64)
}
