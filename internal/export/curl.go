package export

import (
	"bufio"
	"fmt"
	"io"

	"mcpwire/internal/detail"
	"mcpwire/internal/printable"
	"mcpwire/internal/resend"
)

// Curl writes the HTTP requests of a capture as a shell script, a command of curl for each, in the order in which they ended. What the capture does not have, secrets above all, is left
// to variables, and a comment says so; but for the id of a session, which comes with the answer that begins one, so that the script runs as a whole. Requests that cannot be a command line are comments that say why. A capture without any HTTP leads to [ErrNoHTTP].
func Curl(w io.Writer, events Events, opts *Options) (Omitted, error) {
	o := opts.withDefaults()
	bw := bufio.NewWriterSize(w, 64<<10)
	bw.WriteString("#!/bin/sh\nset -u # what is to be set below, must be\n")
	x := newCollector(o.MaxBody, func(x *roundTrip) error {
		fmt.Fprintf(bw, "\n# event #%d, %s %s", x.n, printable.Line(clip(x.request.Method, maxPCAPCol)), printable.Line(clip(x.request.URL, maxPCAPCol)))
		if x.response != nil {
			fmt.Fprintf(bw, ": HTTP %d", x.response.Status)
		}
		body := x.sent.data
		if x.sent.cut {
			body = nil
		}
		c, err := detail.CurlRequest(x.url, x.request, x.sent.wireBytes > 0, body)
		if err != nil {
			fmt.Fprintf(bw, "\n# %s\n", printable.Line(err.Error()))
			return bw.Flush()
		}
		for _, note := range c.Notes {
			fmt.Fprintf(bw, "\n# %s", printable.Line(note))
		}
		if beginsSession(x) {
			fmt.Fprintf(bw, "\n# the answer names the session\nanswer=$(%s)\n%s\n", c.Text, sessionScript)
		} else {
			fmt.Fprintf(bw, "\n%s\necho\n", c.Text)
		}
		return bw.Flush()
	})
	count, err := x.run(events)
	if err == nil && count == 0 {
		err = ErrNoHTTP
	}
	return x.omitted, err
}

const sessionHeader = "Mcp-Session-Id"

// sessionScript prints an answer, and sets the variable that the commands of a session have in the place of its id.
const sessionScript = `printf '%s\n' "$answer"
MCPWIRE_MCP_SESSION_ID=$(printf '%s\n' "$answer" | tr -d '\r' | sed -n 's/^[Mm][Cc][Pp]-[Ss]ession-[Ii][Dd]: *//p' | head -n 1)`

// beginsSession reports whether the answer has the id of a session, which is hidden in the capture.
func beginsSession(rt *roundTrip) bool {
	return rt.response != nil && headerValue(rt.request.Headers, sessionHeader) == "" && resend.Placeholders(headerValue(rt.response.Headers, sessionHeader)) != nil
}
