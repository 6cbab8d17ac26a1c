//go:build linux

// Command compare measures a small validated tool call, the echo of a short
// text, on mcpwire, on two Go SDKs and on programs that do no more than must be
// done, in suites:
//
//	stdio     servers on stdio
//	client    client libraries, on stdio and over HTTP
//	http      servers over HTTP
//	sessions  the memory that standing streams take
//	bridge    what bridges between transports and eras add
//	gateway   what gateways in front of many servers add
//
// In the folder bench:
//
//	go run ./compare                         # all of it, in about five minutes
//	go run ./compare -suite http,sessions
//	go run ./compare -markdown README.md     # and keep the tables
//
// All programs that are compared run at the same time and are loaded one after
// the other in blocks of a fraction of a second. Every round loads each of them
// once, in changing order. A ratio is the median of the ratios within the rounds,
// so that what slows the machine down for a while concerns both of its sides. It
// needs Linux, for the CPU clock of another process.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// options are the command's flags.
type options struct {
	suites   string
	rounds   int
	block    time.Duration
	text     int
	pin      bool
	peers    string
	sessions int
	markdown string
	vmcp     string
}

// A suite is what can be measured by itself.
type suite struct {
	name    string
	measure func(*run) ([]table, error)
}

var suites = []suite{
	{"stdio", measureStdio},
	{"client", measureClients},
	{"http", measureHTTP},
	{"sessions", measureSessions},
	{"bridge", measureBridges},
	{"gateway", measureGateways},
}

// A run is what the suites need.
type run struct {
	options
	dir  string  // of the binaries
	echo string  // the text of a call
	busy float64 // the load average before
}

func main() {
	var names []string
	for _, s := range suites {
		names = append(names, s.name)
	}
	var o options
	flag.StringVar(&o.suites, "suite", strings.Join(names, ","), "what to measure")
	flag.IntVar(&o.rounds, "rounds", 15, "how often to load each program")
	flag.DurationVar(&o.block, "block", 150*time.Millisecond, "how long to load a program at a time")
	flag.IntVar(&o.text, "text", 64, "bytes of text in a call")
	flag.BoolVar(&o.pin, "pin", true, "with one call in flight, run client and server on one processor")
	flag.StringVar(&o.peers, "peers", strings.Join(peerNames, ","), "what to compare with the limits")
	flag.IntVar(&o.sessions, "sessions", 0, "how many sessions to open; 0 means 2000, or 100 with fewer than 5 rounds")
	flag.StringVar(&o.markdown, "markdown", "", "also write the tables into sections of this `file`")
	flag.StringVar(&o.vmcp, "vmcp", "", "the `PROGRAM` vmcp of toolhive, to compare gateways with")
	flag.Parse()
	if err := compare(o); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func compare(o options) error {
	if o.rounds < 1 || o.block <= 0 || o.text < 0 || o.sessions < 0 {
		return errors.New("rounds and block must be positive, text and sessions at least 0")
	}
	if o.sessions == 0 {
		o.sessions = 2000
		if o.rounds < 5 {
			o.sessions = 100
		}
	}
	var chosen []suite
	for name := range strings.SplitSeq(o.suites, ",") {
		i := slices.IndexFunc(suites, func(s suite) bool { return s.name == name })
		if i < 0 {
			return fmt.Errorf("unknown suite %q", name)
		}
		chosen = append(chosen, suites[i])
	}
	dir, err := os.MkdirTemp("", "mcpwire-compare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r := &run{options: o, dir: dir, echo: strings.Repeat("x", o.text)}
	if r.busy, err = loadAverage(); err != nil {
		return err
	}
	for _, s := range chosen {
		tables, err := s.measure(r)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		out := bufio.NewWriter(os.Stdout)
		writeText(out, tables)
		if err := out.Flush(); err != nil {
			return err
		}
		if o.markdown == "" {
			continue
		}
		if err := updateMarkdown(r, s.name, tables); err != nil {
			return err
		}
	}
	return nil
}

// interleave loads n programs in turn, once to warm up and then once in each
// round, and returns the samples of each.
func (r *run) interleave(n int, load func(who int) (sample, error)) ([][]sample, error) {
	samples := make([][]sample, n)
	for round := range r.rounds + 1 {
		for i := range n {
			who := turn(round, i, n)
			s, err := load(who)
			if err != nil {
				return nil, err
			}
			if round > 0 {
				samples[who] = append(samples[who], s)
			}
		}
	}
	return samples, nil
}

// turn is which of n peers is the i-th of a round: every second round goes
// backwards, and after two rounds another peer is the first.
func turn(round, i, n int) int {
	if round%2 == 1 {
		i = n - 1 - i
	}
	return (i + round/2) % n
}
