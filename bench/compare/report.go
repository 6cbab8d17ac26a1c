//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// A table holds what was measured with one era and window.
type table struct {
	kind    string // of the peers: server or client
	era     string
	window  int
	peers   []peer
	samples [][]sample // of each peer, one per round
}

func p50(s sample) time.Duration { return s.p50 }
func cpu(s sample) time.Duration { return s.cpu }

// median is that of one peer's samples.
func (t table) median(who int, of func(sample) time.Duration) time.Duration {
	var values []float64
	for _, s := range t.samples[who] {
		values = append(values, float64(of(s)))
	}
	return time.Duration(median(values))
}

// ratio is the median over the rounds of a peer's sample to that of the peer
// called base, or not a number where that one takes no part.
func (t table) ratio(who int, base string, of func(sample) time.Duration) float64 {
	b := slices.IndexFunc(t.peers, func(p peer) bool { return p.name == base })
	if b < 0 {
		return math.NaN()
	}
	var values []float64
	for round, s := range t.samples[who] {
		values = append(values, float64(of(s))/float64(of(t.samples[b][round])))
	}
	return median(values)
}

func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// columns are the titles; the first is the kind of the peers.
var columns = []string{"", "p50", "CPU per call",
	"p50 / " + limit, "CPU / " + limit, "p50 / " + ours, "CPU / " + ours}

// row is the table's line about one peer.
func (t table) row(who int) []string {
	micros := func(d time.Duration) string { return fmt.Sprintf("%.1f µs", float64(d)/1e3) }
	times := func(r float64) string {
		if math.IsNaN(r) {
			return "n/a"
		}
		return fmt.Sprintf("%.2f", r)
	}
	return []string{
		t.peers[who].name, micros(t.median(who, p50)), micros(t.median(who, cpu)),
		times(t.ratio(who, limit, p50)), times(t.ratio(who, limit, cpu)),
		times(t.ratio(who, ours, p50)), times(t.ratio(who, ours, cpu)),
	}
}

func (t table) title() string {
	return fmt.Sprintf("%ss, %s era, %d in flight", t.kind, t.era, t.window)
}

func writeText(w io.Writer, tables []table) {
	for _, t := range tables {
		fmt.Fprintf(w, "\n%s\n", t.title())
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(tw, t.kind+strings.Join(columns, "\t")+"\t")
		for who := range t.peers {
			fmt.Fprintln(tw, strings.Join(t.row(who), "\t")+"\t")
		}
		tw.Flush()
	}
}

func writeMarkdown(w io.Writer, o options, tables []table) {
	fmt.Fprintf(w, "%s on %s/%s, %d processors, %s. Echo of %d bytes, %d rounds of %v.\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), time.Now().UTC().Format(time.DateOnly), o.text, o.rounds, o.block)
	for _, t := range tables {
		fmt.Fprintf(w, "\n**%s**\n\n| %s%s |\n|---%s|\n", t.title(), t.kind, strings.Join(columns, " | "), strings.Repeat("|--:", len(columns)-1))
		for who := range t.peers {
			fmt.Fprintf(w, "| %s |\n", strings.Join(t.row(who), " | "))
		}
	}
}

// resultsHeading starts the section that updateMarkdown writes.
const resultsHeading = "## Results\n"

// updateMarkdown replaces the section Results of the file o.markdown, which
// ends with the next heading of its level or with the file, or appends one.
func updateMarkdown(o options, tables []table) error {
	old, err := os.ReadFile(o.markdown)
	if err != nil {
		return err
	}
	before, rest, _ := bytes.Cut(old, []byte(resultsHeading))
	var after []byte
	if i := bytes.Index(rest, []byte("\n## ")); i >= 0 {
		after = rest[i:]
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n\n%s\n", bytes.TrimRight(before, "\n"), resultsHeading)
	writeMarkdown(&b, o, tables)
	b.Write(after)
	return os.WriteFile(o.markdown, b.Bytes(), 0o644)
}
