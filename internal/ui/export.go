package web

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"mcpwire/internal/filter"
	"mcpwire/internal/wireview"
)

// Limits of an exported page.
const (
	maxExportRows    = 5000     // of the timeline
	maxExportPayload = 64 << 10 // bytes of each payload
	maxExportBytes   = 48 << 20 // bytes of all payloads
	maxExportDetail  = 32 << 20 // bytes of all details, as JSON
)

// exportData is what an exported page shows.
type exportData struct {
	Hello    exportHello                `json:"hello"`
	Exported int64                      `json:"exported"`
	Rows     []json.RawMessage          `json:"rows"`
	Sessions []trace.SessionInfo        `json:"sessions"`
	Sources  []source                   `json:"sources"`
	Tools    toolStats                  `json:"tools"`
	Details  map[string]json.RawMessage `json:"details"`
	Left     *omission                  `json:"left,omitempty"`
}

type exportHello struct {
	Hub    string `json:"hub"`
	Reset  bool   `json:"reset"`
	Now    int64  `json:"now"`
	Tool   string `json:"tool,omitempty"`
	Rows   int    `json:"rows,omitempty"`
	Filter string `json:"filter,omitempty"`
}

// omission says what an exported page does not have.
type omission struct {
	Rows    int    `json:"rows,omitempty"`
	Details int    `json:"details,omitempty"`
	Note    string `json:"note,omitempty"`
}

// serveExport answers with a page that opens alone.
func (s *Server) serveExport(w http.ResponseWriter, r *http.Request) {
	f, err := parseFilter(r)
	if err != nil {
		writeErrorOf(w, http.StatusBadRequest, err)
		return
	}
	parts, err := s.export(r.Context(), f)
	if err != nil {
		writeErrorOf(w, http.StatusServiceUnavailable, err)
		return
	}
	attach(w, "mcpwire-"+time.Now().UTC().Format("20060102-150405")+".html")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return // the client is gone
		}
	}
}

// Export writes the page that opens alone, see the package comment, with the rows for which the filter holds; nil is all. The hub must be running. The error is that of ctx or of w.
func (s *Server) Export(ctx context.Context, w io.Writer, f *filter.Filter) error {
	parts, err := s.export(ctx, f)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// export makes the page. Nothing in it is as it was recorded: it is made of what redaction has left of the capture, even if that was redacted before.
func (s *Server) export(ctx context.Context, f *filter.Filter) (parts [3][]byte, err error) {
	b, err := newBundle(s.page)
	if err != nil {
		return parts, err
	}
	p, err := s.selectRows(ctx, f, s.maxExport)
	if err != nil {
		return parts, err
	}
	text := ""
	if f != nil {
		text = f.String()
	}
	x, err := s.exportDataOf(ctx, p, text)
	if err != nil {
		return parts, err
	}
	now := time.Now().UnixMilli()
	x.Exported = now
	x.Hello.Hub, x.Hello.Reset, x.Hello.Now, x.Hello.Tool, x.Hello.Rows = "exported", true, now, s.opts.Tool, len(x.Rows)
	data, err := marshal(x)
	if err != nil {
		return parts, err
	}
	return [3][]byte{b.head, insideHTML(data), b.tail}, nil
}

// insideHTML makes JSON fit to stand inside a script element: nothing in it can end that, or open a comment, since "<" is written as an escape. In JSON it stands in strings alone.
func insideHTML(text []byte) []byte {
	text = bytes.ReplaceAll(text, []byte("<"), []byte(`\u003c`))
	text = bytes.ReplaceAll(text, []byte(">"), []byte(`\u003e`))
	text = bytes.ReplaceAll(text, []byte("\u2028"), []byte(`\u2028`))
	return bytes.ReplaceAll(text, []byte("\u2029"), []byte(`\u2029`))
}
