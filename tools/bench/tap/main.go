//go:build linux

// Command tap compares what taps on standard input and output cost: none, mcpwire tap with and
// without recording, and a stand-in for the usual design, which forwards a line before it records
// it. See the section tap of ../README.md.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 15, "rounds, each with all of them")
	calls := flag.Int("calls", 3000, "calls in a row in a round")
	binary := flag.String("mcpwire", "", "the mcpwire to use instead of building it")
	role := flag.String("role", "", "be a part of the benchmark")
	file := flag.String("file", "", "of the stand-in")
	flag.Parse()
	switch *role {
	case "echo":
		os.Exit(echo())
	case "standin":
		os.Exit(standin(*file, flag.Args()))
	}
	if err := run(*rounds, *calls, *binary); err != nil {
		fmt.Fprintln(os.Stderr, "tap:", err)
		os.Exit(1)
	}
}

func run(rounds, calls int, binary string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "tapbench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if binary == "" {
		binary = filepath.Join(dir, "mcpwire")
		build := exec.Command("go", "build", "-o", binary, "./cmd/mcpwire")
		build.Dir = filepath.Join("..", "..")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err := os.Setenv("MCPWIRE_HOME", filepath.Join(dir, "home")); err != nil {
		return err
	}
	server := []string{self, "-role", "echo"}
	taps := []*subject{
		{name: "no tap", command: server},
		{name: "cat on either side", command: []string{"/bin/sh", "-c", `cat | "$0" -role echo | cat`, self}},
		{name: "mcpwire tap", command: append([]string{binary, "tap", "--"}, server...)},
		{name: "mcpwire tap --no-record", command: append([]string{binary, "tap", "--no-record", "--"}, server...)},
		{name: "forward, then record", command: append([]string{self, "-role", "standin", "-file", filepath.Join(dir, "standin.jsonl"), "--"}, server...)},
	}
	for round := range rounds {
		order := slices.Clone(taps)
		for i := range order { // another one begins each time
			order[i] = taps[(i+round)%len(taps)]
		}
		for _, s := range order {
			if err := s.measure(calls); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	report(taps)
	return nil
}

// A subject is what is measured.
type subject struct {
	name    string
	command []string

	median  []time.Duration // of a round trip, by round
	bulk    []time.Duration // for bulkCalls messages of 64 KiB each way
	large   []time.Duration // for one of 32 MiB each way
	peak    []int64         // bytes that were resident at most, when only small and when the large message had passed
	atStart []int64
}

func median[T int64 | time.Duration | float64](list []T) T {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// added returns the medians of the differences, and of the ratios, to another within the rounds.
func added(of, to []time.Duration) (difference time.Duration, ratio float64) {
	var differences []time.Duration
	var ratios []float64
	for i := range of {
		differences = append(differences, of[i]-to[i])
		ratios = append(ratios, float64(of[i])/float64(to[i]))
	}
	return median(differences), median(ratios)
}

func report(taps []*subject) {
	us := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	fmt.Println("| | p50 | added | p50 / no tap | 64 KiB messages | / no tap | 32 MiB line | / no tap | peak memory before it | after |")
	fmt.Println("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
	none := taps[0]
	for _, s := range taps {
		more, ratio := added(s.median, none.median)
		_, bulk := added(s.bulk, none.bulk)
		_, large := added(s.large, none.large)
		rate := float64(2*bulkCalls*bulkSize) / 1e6 / median(s.bulk).Seconds()
		fmt.Printf("| %s | %.1f µs | %+.1f µs | %.2f | %.0f MB/s | %.2f | %.0f ms | %.2f | %.0f MB | %.0f MB |\n",
			s.name, us(median(s.median)), us(more), ratio, rate, bulk, us(median(s.large))/1000, large, float64(median(s.atStart))/1e6, float64(median(s.peak))/1e6)
	}
}
