//go:build linux

package main

// A crossed is what was measured of one crossing.
type crossed struct {
	crossing crossing
	names    []string // of subjects, the one without a bridge first
	took     []taken  // with all texts for each number of calls in flight
}

// A taken is what one load showed.
type taken struct {
	window  int
	samples [][]sample
	failed  []bool
}

// bridgeTable shows what was measured with one of the texts.
func bridgeTable(title string, all []*crossed, text int) table {
	t := table{title: title, columns: []string{"eras", "",
		"p50 of 1 in flight", "/ no bridge", "/ mcpwire", "CPU", "/ mcpwire",
		"time per call, 16 in flight", "/ no bridge", "/ mcpwire", "CPU", "/ mcpwire",
	}}
	for _, m := range all {
		for who, name := range m.names {
			eras := m.crossing.String()
			if who < 2 { // there is no bridge
				eras = m.crossing.server.name
			}
			row := []string{eras, name}
			for i, load := range m.took {
				if i%len(bridgeTexts) == text {
					row = append(row, m.cells(load, who)...)
				}
			}
			t.rows = append(t.rows, row)
		}
	}
	return t
}

// cells are the columns about a subject under one load.
func (m *crossed) cells(load taken, who int) []string {
	if load.failed[who] {
		return []string{"failed", "", "", "", ""}
	}
	c := comparison{samples: load.samples}
	for _, name := range m.names {
		c.peers = append(c.peers, peer{name: name})
	}
	cells := []string{micros(c.median(who, timeOf)), times(c.ratios(who, unbridged, timeOf), who > 0), times(c.ratios(who, ours, timeOf), false)}
	if who < 2 {
		return append(cells, "", "")
	}
	return append(cells, micros(c.median(who, cpuOf)), times(c.ratios(who, ours, cpuOf), false))
}
