//go:build linux

package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// A table holds the results of a suite. The first column has names.
type table struct {
	title   string
	columns []string
	rows    [][]string
}

// A comparison is the samples of peers under one load.
type comparison struct {
	title   string
	time    string // what is in sample.time
	peers   []peer // the limit first
	samples [][]sample
}

func timeOf(s sample) time.Duration { return s.time }
func cpuOf(s sample) time.Duration  { return s.cpu }

// median returns the median of one peer's samples.
func (c comparison) median(who int, of func(sample) time.Duration) time.Duration {
	var values []float64
	for _, s := range c.samples[who] {
		values = append(values, float64(of(s)))
	}
	return time.Duration(quantile(values, 0.5))
}

// ratios are those of a peer's samples to those of another in the same round;
// none if that one takes no part.
func (c comparison) ratios(who int, base string, of func(sample) time.Duration) []float64 {
	b := slices.IndexFunc(c.peers, func(p peer) bool { return p.name == base })
	if b < 0 {
		return nil
	}
	var values []float64
	for round, s := range c.samples[who] {
		values = append(values, float64(of(s))/float64(of(c.samples[b][round])))
	}
	return values
}

// quantile is not a number if there are no values.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	slices.Sort(values)
	at := q * float64(len(values)-1)
	low := int(at)
	high := min(low+1, len(values)-1)
	return values[low] + (at-float64(low))*(values[high]-values[low])
}

func (c comparison) table() table {
	limit := c.peers[0].name
	t := table{title: c.title, columns: []string{"", c.time, "CPU per call",
		c.time + " / " + limit, "CPU / " + limit, c.time + " / " + ours, "CPU / " + ours}}
	for who := range c.peers {
		t.rows = append(t.rows, c.row(who))
	}
	return t
}

func micros(d time.Duration) string { return fmt.Sprintf("%.1f µs", float64(d)/1e3) }

// times shows the median of ratios, and with spread the quartiles.
func times(ratios []float64, spread bool) string {
	switch {
	case len(ratios) == 0:
		return "n/a"
	case spread:
		return fmt.Sprintf("%.2f (%.2f–%.2f)", quantile(ratios, 0.5), quantile(ratios, 0.25), quantile(ratios, 0.75))
	}
	return fmt.Sprintf("%.2f", quantile(ratios, 0.5))
}

// row is the table's line about one peer.
func (c comparison) row(who int) []string {
	limit := c.peers[0].name
	return []string{
		c.peers[who].name, micros(c.median(who, timeOf)), micros(c.median(who, cpuOf)),
		times(c.ratios(who, limit, timeOf), who > 0), times(c.ratios(who, limit, cpuOf), who > 0),
		times(c.ratios(who, ours, timeOf), false), times(c.ratios(who, ours, cpuOf), false),
	}
}

func writeText(w io.Writer, tables []table) {
	for _, t := range tables {
		fmt.Fprintf(w, "\n%s\n", t.title)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(tw, strings.Join(t.columns, "\t")+"\t")
		for _, row := range t.rows {
			fmt.Fprintln(tw, strings.Join(row, "\t")+"\t")
		}
		tw.Flush()
	}
}
