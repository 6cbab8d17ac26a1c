package show

import (
	"cmp"
	"context"
	"errors"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/cmd/internal/trace/filter"
	livesock "mcpwire/cmd/internal/trace/live"
	"mcpwire/cmd/internal/view/tui"
	"mcpwire/cmd/internal/view/watch"
)

type watchFlags struct {
	filter      string
	plain, json bool
	// web is an address, or targets.WebHere if the user gave none.
	web         string
	open        bool
	newToken    bool
	allowRemote bool
	past        int
	noRules     bool
	parsed      *filter.Filter
}

const watchLong = `Show live traffic of every running tap on this machine and of every growing
capture: exchanges and what they cause, timers for pending requests, a
waterfall, findings of the rules, and all details of the selected exchange.
Press ? for the keys.

FILE is a capture, and NAME is a server that has one (mcpwire captures lists
them): watch then shows only these. Without any, it also shows the three newest
past captures (--past N: more of them; L in the terminal opens older ones), but
not those of checks and of requests that were sent again.

--web serves the same view as a page to browsers on this machine. ADDR is its
address, such as 127.0.0.1:8123. The URL to open, which contains a token, is
printed. Port and token stay the same the next time, so that open pages and
bookmarks continue to work; --new-token replaces both.

Without a terminal, or with --plain, watch prints a line for each exchange when
it is complete; with --json, an object. Both end when all captures that you
named are complete.

The filters are those of mcpwire show.`

const watchExample = `  mcpwire watch
  mcpwire watch fs --filter 'tool:search dur>500ms'
  mcpwire watch --web --open
  mcpwire watch --json | jq -r 'select(.status != "ok") | .summary'
  mcpwire watch session.mcpcap.ndjson`

// NewWatchCommand returns the command watch.
func NewWatchCommand(e *kit.Env) *cobra.Command {
	var f watchFlags
	c := &cobra.Command{
		Use:               "watch [FILE | NAME]... [--filter F] [--plain | --json | --web[=ADDR]]",
		Short:             "show live traffic in the terminal or the browser",
		Long:              watchLong,
		Example:           watchExample,
		ValidArgsFunction: sources.CompleteCaptures,
		RunE:              func(cmd *cobra.Command, args []string) error { return runWatch(cmd, e, &f, args) },
	}
	fs := c.Flags()
	fs.StringVarP(&f.filter, "filter", "f", "", "show only exchanges that match `FILTER`")
	fs.BoolVar(&f.plain, "plain", false, "print a line for each exchange, even on a terminal")
	fs.BoolVar(&f.json, "json", false, "print an object for each complete exchange")
	fs.StringVar(&f.web, "web", "", "serve a page at `ADDR` on this machine")
	fs.Lookup("web").NoOptDefVal = targets.WebHere
	fs.BoolVar(&f.open, "open", false, "with --web, open the page in the browser")
	fs.BoolVar(&f.newToken, "new-token", false, "with --web, replace the token and the port of the last time")
	fs.BoolVar(&f.allowRemote, "allow-remote", false, "with --web, allow an address that other machines can reach; their traffic is not encrypted")
	fs.IntVar(&f.past, "past", targets.FewPast, "also show the newest `N` past captures; -1 is all (default 3, and 0 with --plain and --json)")
	fs.Lookup("past").DefValue = "0" // the text says it
	fs.BoolVar(&f.noRules, "no-rules", false, "do not check the traffic against the rules of mcpwire check")
	return c
}

// check returns an error if flags don't go together, and sets defaults that depend on others.
func (f *watchFlags) check(cmd *cobra.Command, e *kit.Env) error {
	faces := 0
	for _, set := range []bool{f.plain, f.json, f.web != ""} {
		if set {
			faces++
		}
	}
	switch {
	case faces > 1:
		return exit.Usagef("watch: --plain, --json and --web exclude each other")
	case f.web == "" && (f.open || f.allowRemote || f.newToken):
		return exit.Usagef("watch: --open, --allow-remote and --new-token need --web")
	case f.past < targets.AllPast:
		return exit.Usagef("watch: --past needs a number of captures, or -1 for all, not %d", f.past)
	}
	conf, err := targets.ReadConfig()
	if err != nil {
		return err
	}
	if conf.Watch.Past != nil && !cmd.Flags().Changed("past") {
		f.past = *conf.Watch.Past
	}
	if f.parsed, err = sources.ParseFilter("watch", f.filter); err != nil {
		return err
	}
	if faces == 0 && !(kit.WriterIsTerminal(e.Stdout) && kit.IsTerminal(e.Stdin)) {
		f.plain = true
	}
	if (f.plain || f.json) && !cmd.Flags().Changed("past") {
		f.past = 0
	}
	return nil
}

// takeAddress takes the address of --web ADDR from the arguments, because the flag's value is
// optional and pflag doesn't take the next word.
func (f *watchFlags) takeAddress(args []string) []string {
	if f.web != targets.WebHere || len(args) == 0 {
		return args
	}
	_, port, err := net.SplitHostPort(args[0])
	if n, perr := strconv.Atoi(port); err != nil || perr != nil || n < 0 || n > 65535 {
		return args
	}
	if _, err := os.Stat(args[0]); err == nil {
		return args
	}
	f.web = args[0]
	return args[1:]
}

func runWatch(cmd *cobra.Command, e *kit.Env, f *watchFlags, args []string) error {
	if err := f.check(cmd, e); err != nil {
		return err
	}
	args = f.takeAddress(args)
	if f.web == targets.WebHere {
		conf, err := targets.ReadConfig()
		if err != nil {
			return err
		}
		f.web = cmp.Or(conf.Web.Address, targets.WebHere)
	}
	opts := &watch.Options{MaxFinished: f.past, NoRules: f.noRules}
	dir, err := captures.Dir()
	if len(args) == 0 {
		if err != nil {
			return err
		}
		opts.Dir = dir
		if opts.SocketDir, err = livesock.Dir(); err != nil {
			return err
		}
	} else {
		if opts.Files, err = sources.Args(e, "watch", args); err != nil {
			return err
		}
		for _, p := range opts.Files {
			if p == "-" {
				return exit.Usagef("watch: standard input cannot be watched; mcpwire show - reads it")
			}
		}
	}
	hub := watch.New(opts)
	return withHub(cmd.Context(), hub, func(ctx context.Context) error {
		switch {
		case f.web != "":
			return watchWeb(ctx, e, hub, f, dir)
		case f.plain || f.json:
			return watchPlain(ctx, e, hub, f, len(args) > 0)
		}
		return watchTerminal(ctx, e, hub, f, dir)
	})
}

// withHub runs a hub while face shows it, and waits for both.
func withHub(ctx context.Context, hub *watch.Hub, face func(ctx context.Context) error) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var failed error
	wg.Go(func() {
		if failed = hub.Run(inner); failed != nil {
			cancel()
		}
	})
	err := face(inner)
	cancel()
	wg.Wait()
	if failed != nil && !errors.Is(failed, context.Canceled) {
		return errors.Join(failed, err)
	}
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// watchTerminal shows the hub on the terminal.
func watchTerminal(ctx context.Context, e *kit.Env, hub *watch.Hub, f *watchFlags, dir string) error {
	if os.Getenv("TERM") == "dumb" {
		return exit.Fail(exit.Unexpected, "dumb_terminal", "mcpwire watch --plain prints lines", errors.New("this terminal cannot show the view (TERM=dumb)"))
	}
	o := &tui.Options{Filter: f.filter, Input: e.Stdin, Output: e.Stdout, Captures: dir, Tool: "mcpwire " + build.Version()}
	if os.Getenv("NO_COLOR") != "" {
		o.Colors = tui.NoColor
	}
	// Closing the terminal ends the program like the other signals, with an orderly cleanup.
	inner, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	err := tui.Run(inner, hub, o)
	if inner.Err() != nil && ctx.Err() == nil {
		return &exit.Status{Code: exit.HungUp}
	}
	return err
}
