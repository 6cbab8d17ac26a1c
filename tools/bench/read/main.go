//go:build linux

// Command read measures the commands that read a capture: their time and their peak memory. See the
// section read of ../README.md.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	exchanges := flag.Int("exchanges", 2_000_000, "requests in the capture, with their responses")
	web := flag.Bool("http", false, "a capture of Streamable HTTP in the modern era instead of stdio in the legacy era")
	rounds := flag.Int("rounds", 1, "runs of each command; the fastest counts")
	only := flag.String("only", "", "measure only these commands, such as stats,show")
	file := flag.String("o", "", "write the capture to this file, and measure nothing")
	flag.Parse()
	if err := run(*exchanges, *web, *rounds, *only, *file, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "read:", err)
		os.Exit(1)
	}
}

func run(exchanges int, web bool, rounds int, only, file string, binaries []string) error {
	if file != "" {
		return generate(file, exchanges, web)
	}
	dir, err := os.MkdirTemp("", "readbench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if len(binaries) == 0 {
		binaries = []string{filepath.Join(dir, "mcpwire")}
		build := exec.Command("go", "build", "-o", binaries[0], "./cmd/mcpwire")
		build.Dir = filepath.Join("..", "..")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err := os.Setenv("MCPWIRE_HOME", filepath.Join(dir, "home")); err != nil {
		return err
	}
	path := filepath.Join(dir, "bench.mcpcap.ndjson")
	if err := generate(path, exchanges, web); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	fmt.Printf("%d exchanges, %d MB\n\n| command |", exchanges, info.Size()/1e6)
	for _, b := range binaries {
		fmt.Printf(" %s: time | CPU | peak memory |", filepath.Base(b))
	}
	fmt.Print("\n|---|", strings.Repeat("--:|--:|--:|", len(binaries)), "\n")
	for _, c := range commands(path) {
		if only != "" && !slices.Contains(strings.Split(only, ","), c.name) {
			continue
		}
		best := make([]figures, len(binaries))
		for round := range rounds {
			for i := range binaries { // another one begins each time
				i = (i + round) % len(binaries)
				f, err := c.measure(binaries[i], c.args)
				if err != nil {
					return fmt.Errorf("%s: %w", c.label, err)
				}
				if best[i].time == 0 || f.time < best[i].time {
					best[i] = f
				}
			}
		}
		fmt.Printf("| %s |", c.label)
		for _, f := range best {
			fmt.Printf(" %.2f s | %.2f s | %d MB |", f.time.Seconds(), f.cpu.Seconds(), f.peak/1e6)
		}
		fmt.Println()
	}
	return nil
}

// A command is one row of the table.
type command struct {
	name, label string
	args        []string
	measure     func(binary string, args []string) (figures, error)
}

type figures struct {
	time, cpu time.Duration
	peak      int64 // bytes
}

func commands(path string) []command {
	return []command{
		{"stats", "stats", []string{"stats", path}, toEnd},
		{"check", "check", []string{"check", "--fail-on", "never", path}, toEnd},
		{"grep", "grep WORD", []string{"grep", "-c", "nowhere", path}, toEnd},
		{"has", "grep has:…", []string{"grep", "-c", "has:arguments.limit", path}, toEnd},
		{"number", "show -n 1", []string{"show", "-n", "1", path}, toEnd},
		{"show", "show, first line", []string{"show", path}, toFirstLine},
		{"list", "show, all lines", []string{"show", path}, toEnd},
		{"watch", "watch --web, first rows", []string{"watch", "--web", path}, toRows},
		{"loaded", "watch --web, all read", []string{"watch", "--web", path}, toLoaded},
		{"norules", "watch --web --no-rules, all read", []string{"watch", "--web", "--no-rules", path}, toLoaded},
	}
}

// toEnd runs a command to its end.
func toEnd(binary string, args []string) (figures, error) {
	c := exec.Command(binary, args...)
	c.Stderr = os.Stderr
	began := time.Now()
	if err := c.Run(); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 { // 1 is no match
			return figures{}, err
		}
	}
	return usage(c, time.Since(began)), nil
}

// toFirstLine runs a command until it prints something.
func toFirstLine(binary string, args []string) (figures, error) {
	c := exec.Command(binary, args...)
	out, err := c.StdoutPipe()
	if err != nil {
		return figures{}, err
	}
	began := time.Now()
	if err := c.Start(); err != nil {
		return figures{}, err
	}
	_, err = io.ReadFull(out, make([]byte, 1))
	took := time.Since(began)
	err = cmp.Or(err, c.Process.Kill())
	_ = c.Wait() // the signal
	return usage(c, took), err
}

func usage(c *exec.Cmd, took time.Duration) figures {
	s := c.ProcessState
	return figures{took, s.UserTime() + s.SystemTime(), s.SysUsage().(*syscall.Rusage).Maxrss << 10}
}
