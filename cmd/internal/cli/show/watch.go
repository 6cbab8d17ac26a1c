package show

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/cmd/internal/trace/filter"
	livesock "mcpwire/cmd/internal/trace/live"
	"mcpwire/cmd/internal/view/tui"
	"mcpwire/cmd/internal/view/watch"
	"mcpwire/cmd/internal/view/web"
	"mcpwire/internal/net/httpserve"
	"mcpwire/internal/proc/inuse"
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
	// address is that of the page in the configuration.
	address string
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
	f.address = conf.Web.Address
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
		f.web = cmp.Or(f.address, targets.WebHere)
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

// A plainFace prints the rows of a hub as lines or JSON objects. It prints a row once there is
// something to show, or with JSON once it is complete. Later children of a printed row follow when
// they happen.
type plainFace struct {
	hub  *watch.Hub
	sel  *watch.Selection
	list *lister
	// buf is the lister's output, so that the hub isn't locked while the output blocks.
	buf bytes.Buffer

	// waiting are the rows not printed yet, the oldest first.
	waiting []*trace.Row
	// known holds the Seq of each row in waiting.
	known map[uint64]bool
}

// maxWaiting limits how many rows wait. Beyond it, the oldest are printed incomplete.
const maxWaiting = sources.MaxWindow

// endPoll is the interval of checks for the end of all sources and of a search.
const endPoll = 100 * time.Millisecond

// watchPlain prints until ctx ends or, if captures were named, until all of them are complete.
func watchPlain(ctx context.Context, e *kit.Env, hub *watch.Hub, f *watchFlags, named bool) error {
	p := &plainFace{hub: hub, sel: hub.Select(f.parsed), known: map[uint64]bool{}}
	defer p.sel.Close()
	p.list = newLister(e, nil) // the selection filters
	p.list.w = bufio.NewWriter(&p.buf)
	p.list.json, p.list.live, p.list.server = f.json, true, true
	feed := hub.Subscribe(0)
	defer feed.Close()
	// announced reports that the wait for a first tap was announced, or is not needed.
	announced := named
	for {
		ended := named && p.ended()
		wait, cancel := context.WithTimeout(ctx, endPoll)
		var failed error
		err := feed.Next(wait, func(b *watch.Batch) { failed = p.take(b) })
		cancel()
		quiet := errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil
		if quiet {
			err = nil
			hub.Read(func(*trace.Model) { failed = p.print(ended && !p.searching()) })
			if !announced && len(hub.Sources()) == 0 {
				fmt.Fprintln(e.Stderr, "no tap runs now; waiting for one (mcpwire wrap adds one to a host, Ctrl-C ends this)")
			}
			announced = true
		}
		if werr := p.write(e); werr != nil {
			return werr
		}
		switch {
		case ctx.Err() != nil:
			return nil // withHub reports it
		case err != nil:
			return err
		case failed != nil:
			return failed
		case quiet && ended && !p.searching():
			return p.unreadable()
		}
	}
}

func (p *plainFace) searching() bool {
	_, busy := p.sel.SearchProgress()
	return busy
}

// write flushes the printed text to standard output.
func (p *plainFace) write(e *kit.Env) error {
	if err := p.list.w.Flush(); err != nil {
		return err
	}
	_, err := p.buf.WriteTo(e.Stdout)
	return err
}

// ended reports whether all sources have ended.
func (p *plainFace) ended() bool {
	sources := p.hub.Sources()
	for _, s := range sources {
		if s.Err == "" && s.State != watch.Complete && s.State != watch.Truncated {
			return false
		}
	}
	return len(sources) > 0
}

// unreadable returns an error if a source could not be read.
func (p *plainFace) unreadable() error {
	for _, s := range p.hub.Sources() {
		if s.Err != "" {
			return exit.Fail(exit.Unexpected, "unreadable", "", errors.New(trace.Escape(s.Path+": "+s.Err)))
		}
	}
	return nil
}

// take processes changes. The caller holds the lock of the model.
func (p *plainFace) take(b *watch.Batch) error {
	for _, r := range b.Changed {
		switch {
		case r.Parent == nil && r.Mark == 0 && !p.known[r.Seq]:
			p.known[r.Seq] = true
			p.waiting = append(p.waiting, r)
		case r.Parent != nil && r.Mark == 0 && r.Root().Mark == markPrinted && !p.list.json:
			if err := p.list.late(r); err != nil {
				return err
			}
		}
	}
	return p.print(false)
}

// print prints the rows that are ready, or all of them. The caller holds the lock of the model.
func (p *plainFace) print(all bool) error {
	searching := p.searching()
	rest := p.waiting[:0]
	for i, r := range p.waiting {
		due := all || len(p.waiting)-i > maxWaiting || (p.list.json && r.Complete() || !p.list.json && live(r))
		switch {
		case r.Parent != nil: // printed inside another
			delete(p.known, r.Seq)
		case due && p.sel.Has(r):
			if err := p.list.print(r); err != nil {
				return err
			}
			delete(p.known, r.Seq)
		case due && !searching:
			delete(p.known, r.Seq) // the filter doesn't match
			r.Mark = markTaken
		default:
			rest = append(rest, r)
		}
	}
	clear(p.waiting[len(rest):])
	p.waiting = rest
	return nil
}

// watchWeb serves the page until ctx ends. It prints only the address, with the token, on standard
// output.
func watchWeb(ctx context.Context, e *kit.Env, hub *watch.Hub, f *watchFlags, dir string) error {
	last, err := openWebAccess(dir, f.newToken)
	if err != nil {
		fmt.Fprintf(e.Stderr, "this address is for this time only: %v\n", err)
	}
	s := web.New(hub, &web.Options{AllowRemote: f.allowRemote, Token: last.Token, Tool: "mcpwire " + build.Version(), Resend: &resend.Options{Dir: dir, Tool: "mcpwire " + build.Version()}})
	l, err := last.listen(ctx, f.web)
	if err != nil {
		return exit.Fail(exit.Unexpected, "listen", "use another ADDR, or --web alone for any free port", fmt.Errorf("serve the page: %w", err))
	}
	if err := last.save(); err != nil {
		fmt.Fprintf(e.Stderr, "this address is for this time only: %v\n", err)
	}
	address := s.URL(l.Addr())
	if f.parsed != nil {
		address += "#" + url.Values{"f": {f.filter}}.Encode()
	}
	if _, err := fmt.Fprintln(e.Stdout, address); err != nil {
		return errors.Join(err, l.Close())
	}
	fmt.Fprintln(e.Stderr, "Open this address in a browser on this machine. Anyone who has it can read everything. Ctrl+C stops the server.")
	if f.open {
		if err := targets.OpenBrowser(ctx, address); err != nil {
			fmt.Fprintf(e.Stderr, "the browser could not be opened: %v\n", err)
		}
	}
	err = s.Serve(ctx, l)
	if errors.Is(err, httpserve.ErrRemoteAddress) {
		return exit.Fail(exit.Unexpected, "remote_address", "give --allow-remote, or listen at 127.0.0.1", fmt.Errorf("other machines can reach %s, and the page shows private data", l.Addr()))
	}
	return err
}

// A webAccess is the access to the page that stays the same from one watch --web to the next. It is
// kept in a file that only the user can read.
type webAccess struct {
	Port  int    `json:"port"`
	Token string `json:"token"`

	// path is the file. It is empty if nothing is to be saved.
	path string
}

const (
	webAccessName  = "web.json"
	minTokenLength = 32      // characters; shorter ones are replaced
	maxWebAccess   = 4 << 10 // bytes of the file
)

// openWebAccess reads the file beside the folder of captures. The result has a token even if there
// is no file, or an error. fresh replaces what the file has.
func openWebAccess(captures string, fresh bool) (*webAccess, error) {
	a := &webAccess{Token: web.NewToken()}
	if captures == "" {
		return a, nil
	}
	a.path = filepath.Join(filepath.Dir(captures), webAccessName)
	if fresh {
		return a, nil
	}
	info, err := os.Lstat(a.path)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err != nil {
		return a, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxWebAccess || runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return a, nil // replaced: others could have read the token
	}
	text, err := os.ReadFile(a.path)
	if err != nil {
		return a, err
	}
	var last webAccess
	if json.Unmarshal(text, &last) == nil && len(last.Token) >= minTokenLength {
		a.Port, a.Token = last.Port, last.Token
	}
	return a, nil
}

// listen listens at an address. targets.WebHere means the port of the last time, or if that is in
// use, any free port.
func (a *webAccess) listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	if address != targets.WebHere {
		return lc.Listen(ctx, "tcp", address)
	}
	if a.Port > 0 && a.Port < 1<<16 {
		if l, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(a.Port))); err == nil {
			return l, nil
		}
		// Another watch has the port, and keeps it.
		return lc.Listen(ctx, "tcp", address)
	}
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if t, ok := l.Addr().(*net.TCPAddr); ok {
		a.Port = t.Port
	}
	return l, nil
}

// save writes the file.
func (a *webAccess) save() error {
	if a.path == "" {
		return nil
	}
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(a.path), 0o700); err != nil {
		return err
	}
	_, err = inuse.Replace(a.path, append(text, '\n'))
	return err
}
