package tui

import (
	"bufio"
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
	"mcpwire/cmd/internal/view/watch"
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
		return m.result(err, fmt.Sprintf("saved %s to %s", plural.Of(rows, "row"), name))
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
	parts := map[string]*watch.Part{}
	var order []*watch.Part
	rows := 0
	err := forEachRow(ctx, s.src, sel, func(root *trace.Row) {
		rows++
		id := root.Capture.ID
		if parts[id] == nil {
			parts[id] = watch.NewPart(id, capturePath(s.src, id))
			order = append(order, parts[id])
		}
		parts[id].Add(root)
	})
	if err != nil {
		return 0, err
	}
	for i, p := range order {
		to := name
		if i > 0 {
			to = strings.TrimSuffix(name, capture.Suffix) + "-" + strconv.Itoa(i+1) + capture.Suffix
		}
		if err := s.capture(ctx, p, to); err != nil {
			return 0, err
		}
	}
	return rows, nil
}

// capture writes a part of a capture.
func (s *saver) capture(ctx context.Context, p *watch.Part, to string) error {
	r, err := p.Open(ctx, s.src)
	if err != nil {
		return err
	}
	defer r.Close()
	file, err := create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, r)
	if n := r.Missing(); err == nil && n > 0 {
		err = fmt.Errorf("%s of %s could not be read again", plural.Of(n, "event"), safe(p.Capture))
	}
	return errors.Join(err, file.Close())
}
