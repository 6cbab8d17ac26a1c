//go:build linux

// Command compare measures a small validated tool call, the echo of a short
// text, on mcpwire's server, on those of two Go SDKs and on a raw pipe, and
// then on the three client libraries, in one interleaved run:
//
//	go run ./compare                        # in the folder bench
//	go run ./compare -markdown README.md    # and keep the tables
//
// All servers run at the same time and are loaded one after the other in
// blocks of a fraction of a second. Every round loads each of them once, in
// changing order. A ratio is the median of the ratios within the rounds, so
// that what slows the machine down for a while concerns both of its sides. It
// needs Linux, for the CPU clock of another process.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"
)

// options are the command's flags.
type options struct {
	rounds   int
	block    time.Duration
	text     int
	pin      bool
	peers    string
	clients  bool
	markdown string
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 15, "how often to load each server")
	flag.DurationVar(&o.block, "block", 150*time.Millisecond, "how long to load a server at a time")
	flag.IntVar(&o.text, "text", 64, "bytes of text in a call")
	flag.BoolVar(&o.pin, "pin", true, "with one call in flight, run client and server on one processor")
	flag.StringVar(&o.peers, "peers", strings.Join(peerNames(), ","), "which servers to load")
	flag.BoolVar(&o.clients, "clients", true, "also compare client libraries, each calling mcpwire's server")
	flag.StringVar(&o.markdown, "markdown", "", "also write the tables into the section Results of this `file`")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	if o.rounds < 1 || o.block <= 0 || o.text < 0 {
		return errors.New("rounds and block must be positive, text at least 0")
	}
	dir, err := os.MkdirTemp("", "mcpwire-compare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	peers, err := build(dir, strings.Split(o.peers, ","))
	if err != nil {
		return err
	}
	var tables []table
	for _, e := range eras {
		measured, err := measure(o, e, peers)
		if err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		tables = append(tables, measured...)
	}
	for _, e := range eras {
		if !o.clients {
			break
		}
		measured, err := measureClients(o, e, dir)
		if err != nil {
			return fmt.Errorf("clients, %s: %w", e.name, err)
		}
		tables = append(tables, measured...)
	}
	out := bufio.NewWriter(os.Stdout)
	writeText(out, tables)
	if err := out.Flush(); err != nil {
		return err
	}
	if o.markdown != "" {
		return updateMarkdown(o, tables)
	}
	return nil
}

// measure starts a process of each peer and loads it as the era has it, with
// one and with many calls in flight.
func measure(o options, e era, peers []peer) ([]table, error) {
	var conns []*conn
	defer func() {
		for _, c := range conns {
			c.close()
		}
	}()
	for _, p := range peers {
		c, err := p.start(e, strings.Repeat("x", o.text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		conns = append(conns, c)
	}
	var tables []table
	for _, window := range []int{1, 64} {
		t := table{kind: "server", era: e.name, window: window, peers: peers, samples: make([][]sample, len(peers))}
		for round := range o.rounds + 1 {
			for i := range conns {
				who := turn(round, i, len(conns))
				s, err := conns[who].load(window, o.block, o.pin && window == 1)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", peers[who].name, err)
				}
				if round > 0 { // the first one warms up
					t.samples[who] = append(t.samples[who], s)
				}
			}
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// turn is which of n peers is the i-th of a round: every second round goes
// backwards, and after two rounds another peer is the first.
func turn(round, i, n int) int {
	if round%2 == 1 {
		i = n - 1 - i
	}
	return (i + round/2) % n
}
