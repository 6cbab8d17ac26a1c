//go:build linux

// Command harness runs three nodes of a cluster, each in its own process, behind a proxy that does
// not know MCP, while clients of all kinds make calls and faults happen. It checks that nothing is
// lost, duplicated or confused, and measures.
//
//	go run ./harness        # the short run, about three minutes
//	go run ./harness -long  # all scenarios, about an hour
//	go run ./harness -run 'kill|pause' -v
//	go run ./harness -run no-fault -long -peers interop # with clients on the SDKs of others
//
// Each scenario ends with a line: what was measured, and the load average. A broken invariant, and
// in the long run a missed bar too, make the exit status 1. It needs Linux and the Go command.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"mcpwire/internal/test/upstream"
)

// engineToken is the secret with which clients of the engine log in. Only this machine reaches it.
var engineToken = rand.Text()

// options are the flags.
type options struct {
	long, verbose, serve bool
	// plain is set if the nodes have no tools for tests.
	plain    bool
	run      *regexp.Regexp
	seed     uint64
	seeds    int
	duration time.Duration
	// peers is the directory interop, or empty.
	peers string
	// dir has the files of the run, module the module of the program of a node.
	dir, module string
	// program is the program of a node, token the file with engineToken.
	program, token string
}

func main() {
	upstream.ServeIfSet()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "harness:", err)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o := &options{}
	fs := flag.NewFlagSet("harness", flag.ContinueOnError)
	fs.SetOutput(stderr)
	pattern := fs.String("run", "", "run the scenarios that match `REGEXP`, as long as the short run would without -long")
	fs.BoolVar(&o.long, "long", false, "run all scenarios, as long as it takes")
	fs.BoolVar(&o.verbose, "v", false, "show the calls of each scenario")
	fs.BoolVar(&o.serve, "serve", false, "start the nodes and the proxy, say where, and wait until standard input ends or a signal comes")
	fs.BoolVar(&o.plain, "plain", false, "with -serve, start the nodes without tools for tests")
	fs.Uint64Var(&o.seed, "seed", 1, "`SEED` of what is random")
	fs.IntVar(&o.seeds, "kills", 50, "kill a node `N` times in the long run")
	fs.DurationVar(&o.duration, "duration", 10*time.Minute, "`TIME` of the long run without a fault")
	fs.StringVar(&o.dir, "dir", "", "keep the logs and files of the nodes in `DIR`; without this flag they are removed")
	fs.StringVar(&o.peers, "peers", "", "in the scenario no-fault, also run clients on the SDKs of others; `DIR` is the directory tools/interop of the repository after npm ci in DIR/ts")
	fs.StringVar(&o.program, "program", "", "run `FILE` as node instead of mcpwire-node")
	if err := fs.Parse(args); err != nil {
		return err
	}
	var err error
	if *pattern != "" {
		if o.run, err = regexp.Compile(*pattern); err != nil {
			return fmt.Errorf("-run: %w", err)
		}
	}
	if o.dir == "" {
		if o.dir, err = os.MkdirTemp("", "mcpwire-harness-"); err != nil {
			return err
		}
		defer os.RemoveAll(o.dir)
	}
	if err := o.prepare(ctx); err != nil {
		return err
	}
	if o.serve {
		return o.serveUntil(ctx, stderr)
	}
	return o.runAll(ctx, stdout, stderr)
}

// prepare builds the node and writes its token.
func (o *options) prepare(ctx context.Context) (err error) {
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	o.token = filepath.Join(o.dir, "token")
	if err := os.WriteFile(o.token, []byte(engineToken), 0o600); err != nil {
		return err
	}
	build := o.program == ""
	if o.module, err = command(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", "mcpwire/cmd/mcpwire-node"); err != nil && build {
		return fmt.Errorf("find the program of a node: %w: run this in a checkout of mcpwire", err)
	}
	if !build {
		return nil // the scenario clock needs the module
	}
	o.program = filepath.Join(o.dir, "mcpwire-node")
	_, err = command(ctx, o.module, "go", "build", "-o", o.program, ".")
	return err
}

// command runs a command and returns its standard output without the last line end.
func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// serveUntil runs the nodes for tests of others.
func (o *options) serveUntil(ctx context.Context, stderr io.Writer) error {
	r := &result{opts: o, dir: o.dir}
	b, err := r.testbed(ctx)
	if err != nil {
		return err
	}
	defer b.close()
	ended := make(chan struct{})
	if in, err := os.Stdin.Stat(); err == nil && in.Mode()&os.ModeNamedPipe != 0 {
		go func() {
			defer close(ended)
			_, _ = io.Copy(io.Discard, os.Stdin) // only its end counts
		}()
	}
	fmt.Fprintf(stderr, "url=%s\n", b.balancer.url)
	select {
	case <-ctx.Done():
	case <-ended:
	}
	return nil
}

// runAll runs the scenarios and writes a line for each.
func (o *options) runAll(ctx context.Context, stdout, stderr io.Writer) error {
	fmt.Fprintf(stdout, "mcpwire cluster harness, %s, %s, %d processors, seed %d, load average %s\n", time.Now().UTC().Format("2006-01-02 15:04"), runtime.Version(), runtime.NumCPU(), o.seed, loadAverage())
	ran, failed := 0, 0
	for _, s := range scenarios {
		if !s.short && !o.long && o.run == nil || o.run != nil && !o.run.MatchString(s.name) || ctx.Err() != nil {
			continue
		}
		ran++
		r, err := o.runScenario(ctx, s)
		state := "pass"
		switch {
		case err != nil || r.led.violated > 0:
			state = "FAIL"
			failed++
		case len(r.missed) > 0 && o.long:
			state = "MISSED"
			failed++
		case len(r.missed) > 0:
			state = "slow"
		}
		fmt.Fprintf(stdout, "\n%-6s %s (load average %s)\n  bar: %s\n", state, s.name, r.load, s.bar)
		for _, f := range r.figures {
			fmt.Fprintf(stdout, "  %s\n", f)
		}
		for _, m := range r.missed {
			fmt.Fprintf(stdout, "  missed: %s\n", m)
		}
		for _, v := range r.led.violations {
			fmt.Fprintf(stdout, "  violation: %s\n", v)
		}
		if err != nil {
			fmt.Fprintf(stdout, "  error: %v\n", err)
		}
		if o.verbose || err != nil || r.led.violated > 0 {
			fmt.Fprint(stderr, r.led)
		}
	}
	fmt.Fprintf(stdout, "\n%d scenarios, %d failed, load average %s\n", ran, failed, loadAverage())
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d scenarios failed", failed, ran)
	}
	if ran == 0 {
		return errors.New("no scenario matches -run")
	}
	return nil
}

// scenarioTimeout limits a scenario, so that a run ends.
const scenarioTimeout = 10 * time.Minute

// runScenario runs a scenario in its own directory.
func (o *options) runScenario(ctx context.Context, s scenario) (*result, error) {
	r := &result{opts: o, dir: filepath.Join(o.dir, s.name), led: newLedger()}
	limit := scenarioTimeout
	if o.long {
		limit += o.duration + time.Duration(o.seeds)*40*time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := os.RemoveAll(r.dir); err != nil {
		return r, err
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return r, err
	}
	err := s.run(ctx, r)
	if r.load == "" {
		r.load = loadAverage()
	}
	return r, err
}
