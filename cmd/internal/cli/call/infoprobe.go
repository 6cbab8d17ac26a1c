package call

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"mcpwire/client"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace"
	"mcpwire/mcp"
)

// A probeLine is the outcome of one revision.
type probeLine struct {
	Revision mcp.Revision    `json:"revision"`
	Era      string          `json:"era"`
	OK       bool            `json:"ok"`
	MS       float64         `json:"ms"`
	Code     string          `json:"code,omitempty"`
	Message  string          `json:"message,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
}

// alone runs the verb's part that needs no session. It reports whether nothing else is to be done.
func (v *infoVerb) alone(ctx context.Context, d *targets.Dialer) (done bool, err error) {
	if !v.probe {
		return false, nil
	}
	if d.Flags.Given("protocol") {
		return true, exit.Usagef("info: --probe tries all revisions: it cannot be combined with --protocol")
	}
	s := &session{e: d.Env, d: d, notes: d.Notes}
	works := 0
	var last error
	for _, r := range mcp.Revisions() {
		line, err := probeRevision(ctx, d, r)
		if ctx.Err() != nil {
			return true, ctx.Err()
		}
		if err != nil {
			last = err
		} else {
			works++
		}
		if err := v.printProbe(s, &line); err != nil {
			return true, err
		}
		if f, ok := errors.AsType[*exit.Failure](err); ok && (f.Status == exit.Auth || f.Code == "cannot_start") {
			// Other revisions would fail in the same way.
			return true, err
		}
	}
	if works == 0 {
		return true, last
	}
	return true, nil
}

// probeRevision connects with one revision only.
func probeRevision(ctx context.Context, d *targets.Dialer, r mcp.Revision) (probeLine, error) {
	d.Trace.Forget()
	line := probeLine{Revision: r, Era: targets.EraName(r)}
	start := time.Now()
	c, err := d.Dial(ctx, func(o *client.Options) { o.Revisions = []mcp.Revision{r} })
	line.MS = trace.TruncatedMillis(time.Since(start))
	if err != nil {
		line.Code, line.Message = "failed", err.Error()
		if f, ok := errors.AsType[*exit.Failure](err); ok {
			line.Code = f.Code
		}
		return line, err
	}
	defer c.Close()
	line.OK = true
	line.Result, _ = d.Trace.Result(targets.HandshakeMethod(r))
	return line, nil
}

func (v *infoVerb) printProbe(s *session, line *probeLine) error {
	if v.json {
		text, err := json.Marshal(line)
		if err != nil {
			return err
		}
		return s.writeValue(text)
	}
	if line.OK {
		return s.write(fmt.Sprintf("%v  %-6s  yes  %s\n", line.Revision, line.Era, kit.ShortTime(time.Duration(line.MS*float64(time.Millisecond)))))
	}
	return s.write(fmt.Sprintf("%v  %-6s  no   %s\n", line.Revision, line.Era, safe.Clip(line.Message, 300)))
}
