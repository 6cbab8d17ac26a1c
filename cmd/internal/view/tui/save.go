package tui

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/internal/text/plural"
)

// saveTimeout limits the time for saving.
const saveTimeout = 5 * time.Minute

// saveName proposes a file name from the name of the server and the time.
func (m *model) saveName() string {
	name := "mcpwire"
	if m.table.view.hasSession && m.table.view.session.Name != "" && !m.table.view.multipleSources {
		name = captures.FileName(m.table.view.session.Name)
	}
	return name + "-" + m.now().In(m.zone).Format("20060102-150405") + capture.Suffix
}

// save writes the rows of the table to a file, as text or as captures.
func (m *model) save(name string) tea.Cmd {
	if name = strings.TrimSpace(name); name == "" || m.table.sel == nil {
		m.showFlash(false, "nothing was saved")
		return nil
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(m.opts.Folder, name)
	}
	sel, w := m.table.sel, &saver{m.src, m.zone}
	m.showFlash(false, "saving …")
	return m.background.cmd(saveTimeout, func(ctx context.Context) tea.Msg {
		write := w.captures
		if strings.HasSuffix(name, ".txt") {
			write = w.text
		}
		rows, err := write(ctx, sel, name)
		if err != nil {
			return doneMsg{text: err.Error(), bad: true}
		}
		return doneMsg{text: fmt.Sprintf("saved %s to %s", plural.Of(rows, "row"), name)}
	})
}

// A saver writes rows to files. It runs outside the event loop.
type saver struct {
	src  source
	zone *time.Location
}

// create creates a file that only the user can read. It returns an error if the file exists.
func create(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// text writes a line for each row, with inner rows indented.
func (s *saver) text(ctx context.Context, sel selection, name string) (int, error) {
	file, err := create(name)
	if err != nil {
		return 0, err
	}
	w := bufio.NewWriter(file)
	n := 0
	err = forEachRow(ctx, s.src, sel, func(r *trace.Row) {
		s.row(w, r, 0)
		n++
	})
	return n, errors.Join(err, w.Flush(), file.Close())
}

// row writes a line for a row, and for each row in it.
func (s *saver) row(w io.Writer, r *trace.Row, depth int) {
	fmt.Fprintf(w, "%6d  %s  %s  %s%s %s", r.N, r.At.In(s.zone).Format("2006-01-02 15:04:05.000"), safe(r.Capture.Name), spaces(2*depth), trace.Glyph(r), trace.Summary(r))
	for _, l := range r.Findings {
		fmt.Fprintf(w, "  ▲ %s: %s", safe(l.Rule), safe(l.Message))
	}
	fmt.Fprintln(w)
	for _, c := range r.Children {
		s.row(w, c, depth+1)
	}
}

// captures writes a capture for each capture with selected rows: the first to the named file,
// others to files with a number in the name. It redacts secrets again.
func (s *saver) captures(ctx context.Context, sel selection, name string) (int, error) {
	if !strings.HasSuffix(name, capture.Suffix) {
		name += capture.Suffix
	}
	wanted := map[string]map[uint64]bool{}
	var order []string
	rows := 0
	err := forEachRow(ctx, s.src, sel, func(root *trace.Row) {
		rows++
		for r := range root.All() {
			set := wanted[r.Capture.ID]
			if set == nil {
				set = map[uint64]bool{}
				wanted[r.Capture.ID] = set
				order = append(order, r.Capture.ID)
			}
			for _, n := range r.Events {
				set[n] = true
			}
		}
	})
	if err != nil {
		return 0, err
	}
	for i, id := range order {
		to := name
		if i > 0 {
			to = strings.TrimSuffix(name, capture.Suffix) + "-" + strconv.Itoa(i+1) + capture.Suffix
		}
		if err := s.capture(ctx, id, wanted[id], to); err != nil {
			return 0, err
		}
	}
	return rows, nil
}

// capture writes the wanted events of a capture.
func (s *saver) capture(ctx context.Context, id string, wanted map[uint64]bool, to string) error {
	path := capturePath(s.src, id)
	if path == "" {
		return fmt.Errorf("capture %s has no file", safe(id))
	}
	r, err := capture.Open(path, nil)
	if err != nil {
		return err
	}
	defer r.Close()
	file, err := create(to)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(file)
	c := &redactingWriter{w: w}
	c.enc = capture.NewEncoder(&c.buf, nil)
	for e, err := range r.Events() {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && e.Capture == id {
			err = c.writeEvent(e, wanted[e.N])
		}
		if err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return errors.Join(w.Flush(), file.Close())
}

// A redactingWriter writes some events of a capture without secrets. It also reads the other
// events, to learn secrets that occur there.
type redactingWriter struct {
	w   io.Writer
	enc *capture.Encoder
	buf bytes.Buffer
}

func (rw *redactingWriter) writeEvent(e *capture.Event, wanted bool) error {
	switch {
	case e.Kind == capture.KindHead && e.Head != nil:
		wanted = true
		if e.Head.Redact == "off" {
			head, copied := *e.Head, *e
			head.Redact, copied.Head = "default", &head
			e = &copied
		}
	// The tail has wrong numbers, and the reader added the gap.
	case e.Kind == capture.KindTail, e.Kind == capture.KindGap && e.N == 0:
		return nil
	}
	rw.buf.Reset()
	if err := errors.Join(rw.enc.Encode(e), rw.enc.Flush()); err != nil || !wanted {
		return err
	}
	_, err := rw.buf.WriteTo(rw.w)
	return err
}
