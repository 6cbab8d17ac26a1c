package export

import (
	"io"

	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/view/picture"
)

// Sequence writes the messages between hosts, bridges and servers as a picture, in SVG.
func Sequence(w io.Writer, events Events, _ *Options) (Omitted, error) {
	return writePicture(w, events, func(m *trace.Model) string { return picture.NewSequence(m.Rows()).SVG(0) })
}

// Mermaid writes the messages between hosts, bridges and servers as a sequence diagram of Mermaid.
func Mermaid(w io.Writer, events Events, _ *Options) (Omitted, error) {
	return writePicture(w, events, func(m *trace.Model) string { return picture.NewSequence(m.Rows()).Mermaid() })
}

// Overview writes requests over time, latencies, sizes of definitions and the lives of servers as a
// picture, in SVG.
func Overview(w io.Writer, events Events, _ *Options) (Omitted, error) {
	return writePicture(w, events, func(m *trace.Model) string { return picture.NewOverview(m, m.Rows()).SVG(0) })
}

func writePicture(w io.Writer, events Events, draw func(m *trace.Model) string) (Omitted, error) {
	m := trace.New(nil)
	for e, err := range events {
		if err != nil {
			return Omitted{}, err
		}
		m.Add(nil, e)
	}
	m.Finish()
	_, err := io.WriteString(w, draw(m))
	return Omitted{}, err
}
