package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/inspect/hosts"
	"mcpwire/internal/proc/inuse"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/printable"
)

// A selection selects entries of configuration files.
type selection struct {
	name       string
	all        bool
	host, file string
}

func (s *selection) flags(c *cobra.Command) {
	c.Flags().BoolVar(&s.all, "all", false, "select all servers")
	c.Flags().StringVar(&s.host, "host", "", "select only servers of this `HOST`")
	c.Flags().StringVar(&s.file, "file", "", "select only servers in this `FILE`")
	_ = c.RegisterFlagCompletionFunc("host", CompleteHosts) // the flag exists
}

// A wrapping holds the flags of wrap.
type wrapping struct {
	selection
	dryRun          bool
	command, listen string
}

// NewWrapCommand returns the command wrap.
func NewWrapCommand(e *kit.Env) *cobra.Command {
	w := &wrapping{}
	c := &cobra.Command{
		Use:   "wrap [NAME|--all] [FLAGS]",
		Short: "run a server of a host through the tap",
		Long: `Rewrite the entry of a server in its host's configuration, so that the host runs
the server through mcpwire tap, which records all traffic between them. NAME is
the name of a server, HOST:NAME or FILE:NAME; mcpwire servers lists them.
Comments, order and formatting are kept, and a backup is made. mcpwire unwrap
restores the entry. Restart the host afterwards. Without NAME, wrap lists the
servers on a terminal and asks.

A host does not start a server that it reaches by URL. For such a server,
--listen gives the address of a tap: the entry then points there, and you run
the tap yourself.`,
		Example: `  mcpwire wrap filesystem --dry-run
  mcpwire wrap cursor:filesystem
  mcpwire wrap --all --host claude-desktop
  mcpwire wrap linear --listen 127.0.0.1:9000`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && !w.all && e.CanAsk() {
				return nil // it asks
			}
			return w.arguments("wrap", args)
		},
		ValidArgsFunction: targets.CompleteServers(func(s hosts.Server) bool { return !s.Wrapped }),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && !w.all {
				if err := w.choose(cmd.Context(), e); err != nil || w.name == "" && !w.all {
					return err
				}
			}
			return w.run(e)
		},
	}
	w.flags(c)
	c.Flags().BoolVarP(&w.dryRun, "dry-run", "n", false, "only print what would change")
	c.Flags().StringVar(&w.command, "command", "", "`PROGRAM` to write for mcpwire (default this program's path)")
	c.Flags().StringVar(&w.listen, "listen", "", "`ADDRESS` of the tap for a server with a URL")
	return c
}

// arguments parses NAME.
func (s *selection) arguments(command string, args []string) error {
	switch {
	case s.all && len(args) > 0:
		return exit.Usagef("%s: NAME or --all, not both", command)
	case !s.all && len(args) == 0:
		return exit.UsageHintf("mcpwire servers lists them", "%s: missing the server: NAME, HOST:NAME, FILE:NAME or --all", command)
	case len(args) > 1:
		return exit.Usagef("%s: unexpected argument %q (one NAME, or --all)", command, args[1])
	case s.host != "" && s.file != "":
		return exit.Usagef("%s: --host or --file, not both", command)
	}
	if len(args) > 0 {
		s.name = args[0]
	}
	return CheckHost(command, s.host)
}

// choose asks which server to wrap. It selects none if there are none or the user wants none.
func (w *wrapping) choose(ctx context.Context, e *kit.Env) error {
	here, err := hosts.Current()
	if err != nil {
		return err
	}
	list, err := w.findAll(e, here)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(s hosts.Server) bool { return s.Wrapped || s.IsRemote() || s.Command == "" })
	if len(list) == 0 {
		fmt.Fprintln(e.Stderr, "mcpwire: nothing to wrap: no host has configured a command that is not wrapped")
		return nil
	}
	t := &kit.Table{Heads: []string{"", "SERVER", "RUNS"}}
	for i, s := range list {
		t.Add(strconv.Itoa(i+1), ServerLabel(s), targets.ServerRuns(s))
	}
	if _, err := t.Write(e.Stderr, kit.TerminalWidth(e.Stderr)); err != nil {
		return err
	}
	for {
		answer, err := e.Prompter.Ask(ctx, "Wrap which? A number, all, or Enter for none: ")
		if err != nil {
			return context.Canceled
		}
		switch n, err := strconv.Atoi(strings.TrimSpace(answer)); {
		case strings.TrimSpace(answer) == "":
			return nil
		case strings.EqualFold(strings.TrimSpace(answer), "all"):
			w.all = true
			return nil
		case err == nil && n >= 1 && n <= len(list):
			w.file, w.host, w.name = list[n-1].File, "", list[n-1].Name
			return nil
		}
		fmt.Fprintf(e.Stderr, "want a number up to %d, all, or nothing\n", len(list))
	}
}

func (w *wrapping) run(e *kit.Env) error {
	if w.listen != "" {
		if w.all {
			return exit.Usagef("wrap: --listen is for one server: a tap has one URL")
		}
		host, port, err := net.SplitHostPort(w.listen)
		if err != nil || port == "" {
			return exit.Usagef("wrap: invalid value %q for flag --listen: want HOST:PORT", w.listen)
		}
		w.listen = net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port)
	}
	program := w.command
	if program == "" {
		var err error
		if program, err = kit.OwnPath(); err != nil {
			return fmt.Errorf("find the path of this program: %w (--command PROGRAM sets it)", err)
		}
	}
	r := &rewriting{env: e, selection: w.selection, dryRun: w.dryRun, verb: "wrap", done: "wrapped"}
	r.change = func(d *hosts.Document, s hosts.Server) error {
		if w.listen != "" && s.IsRemote() {
			return d.WrapURL(s.Pointer, w.listen)
		}
		return d.Wrap(s.Pointer, []string{program, "tap", "--name", s.Name, "--"})
	}
	err := r.run(nil)
	said := ""
	for _, s := range r.changed {
		if w.listen != "" && s.IsRemote() {
			fmt.Fprintf(e.Stderr, "mcpwire: the host can reach %s only while this runs: %s\n",
				ServerLabel(s), kit.ShellText(append(kit.PlainArgs("mcpwire", "tap", "--name", s.Name, "--listen", w.listen), kit.NewSecretNames().URL(s.URL))))
		}
		if s.Scope == hosts.ScopeProject && !w.dryRun && s.File != said {
			said = s.File
			fmt.Fprintf(e.Stderr, "mcpwire: %s belongs to the project: unwrap before you commit it\n", printable.Line(s.File))
		}
	}
	return err
}

// A rewriting changes entries in their files.
type rewriting struct {
	env *kit.Env
	selection
	dryRun bool
	// explained means that the placeholders of diffs were explained.
	explained  bool
	verb, done string
	change     func(*hosts.Document, hosts.Server) error
	changed    []hosts.Server
	here       *hosts.Env
}

// run finds the entries and changes them file by file. prefer, if any entry matches, narrows what a
// name selects.
func (r *rewriting) run(prefer func(hosts.Server) bool) error {
	var err error
	if r.here, err = hosts.Current(); err != nil {
		return err
	}
	list, err := r.find(r.env, r.here, r.verb, prefer)
	if err != nil {
		return err
	}
	var failed []error
	for len(list) > 0 {
		path := list[0].File
		var these []hosts.Server
		list = slices.DeleteFunc(list, func(s hosts.Server) bool {
			if s.File != path {
				return false
			}
			these = append(these, s)
			return true
		})
		if err := r.file(path, these); err != nil { // continue with other files
			failed = append(failed, err)
		}
	}
	if len(r.changed) > 0 && !r.dryRun {
		fmt.Fprintf(r.env.Stderr, "mcpwire: restart the host for this to take effect\n")
	}
	if len(failed) == 1 {
		return failed[0]
	}
	return errors.Join(failed...)
}

// file changes entries of one file.
func (r *rewriting) file(path string, list []hosts.Server) error {
	d, err := hosts.Open(r.here, path)
	if errors.Is(err, hosts.ErrYAML) && r.all {
		fmt.Fprintf(r.env.Stderr, "mcpwire: skipped %s\n", printable.Line(err.Error()))
		return nil
	}
	if err != nil {
		return err
	}
	var changed []hosts.Server
	for _, s := range list {
		err := r.change(d, s)
		switch {
		case err == nil:
			changed = append(changed, s)
		case errors.Is(err, hosts.ErrWrapped):
			fmt.Fprintf(r.env.Stderr, "mcpwire: %s is wrapped already%s\n", ServerLabel(s), otherTap(s))
		case errors.Is(err, hosts.ErrNotWrapped):
			fmt.Fprintf(r.env.Stderr, "mcpwire: %s is not wrapped\n", ServerLabel(s))
		case r.all:
			fmt.Fprintf(r.env.Stderr, "mcpwire: skipped %s: %s\n", ServerLabel(s), printable.Line(err.Error()))
		default:
			return r.refusal(s, err)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	if r.dryRun {
		r.changed = append(r.changed, changed...)
		return printDiff(r.env, d, &r.explained)
	}
	if err := saveDocument(d); err != nil {
		return err
	}
	r.changed = append(r.changed, changed...)
	for _, s := range changed {
		if _, err := fmt.Fprintf(r.env.Stdout, "%s %s in %s\n", r.done, ServerLabel(s), printable.Line(s.File)); err != nil {
			return err
		}
	}
	fmt.Fprintf(r.env.Stderr, "mcpwire: the file as it was: %s\n", printable.Line(d.Backup()))
	return nil
}

// printDiff prints what saving a file of a host would change. It explains placeholders, once.
func printDiff(e *kit.Env, d *hosts.Document, explained *bool) error {
	diff := d.Diff(targets.MaskCommand, harmlessMember)
	if strings.Contains(diff, hosts.Placeholder) && !*explained {
		*explained = true
		fmt.Fprintf(e.Stderr, "mcpwire: %s stands for a value that is not shown here; the file keeps it\n", hosts.Placeholder)
	}
	_, err := fmt.Fprint(e.Stdout, diff)
	return err
}

// saveDocument writes the file of a host. Its errors say what to do.
func saveDocument(d *hosts.Document) error {
	switch _, err := d.Save(); {
	case errors.Is(err, hosts.ErrChanged):
		return exit.Fail(exit.Unexpected, "changed", "another program changed the file; try again", err)
	case errors.Is(err, hosts.ErrNoState):
		return exit.Fail(exit.Unexpected, "no_state", "set HOME, or MCPWIRE_HOME to a folder", err)
	case errors.Is(err, inuse.ErrInUse):
		return exit.Fail(exit.Unexpected, "in_use", "close the program that has the file open, most likely the host itself, and try again", err)
	default:
		return err
	}
}

// refusal returns the error for an entry that can't be changed.
func (r *rewriting) refusal(s hosts.Server, err error) error {
	if errors.Is(err, hosts.ErrRemote) {
		const address = "127.0.0.1:9000"
		tap := kit.ShellText(append(kit.PlainArgs("mcpwire", "tap", "--listen", address), kit.NewSecretNames().URL(s.URL)))
		return exit.Fail(exit.Usage, "remote", fmt.Sprintf("a host does not start a server that it reaches by URL. Run a tap yourself: %s; then %s points the entry at it",
			tap, kit.ShellLine("mcpwire", "wrap", r.name, "--listen", address)), fmt.Errorf("%s: %w", ServerLabel(s), err))
	}
	return fmt.Errorf("%s: %w", ServerLabel(s), err)
}

// ServerLabel returns the name of an entry for messages.
func ServerLabel(s hosts.Server) string {
	name := clip.Characters(printable.Line(s.Name), targets.MaxRunsColumns)
	if s.Host == "" {
		return name
	}
	return s.Host + ":" + name
}

// find returns the selected entries: exactly one, unless all are selected. prefer narrows them: all
// to those that match, a name to those that match if any do.
func (s *selection) find(e *kit.Env, here *hosts.Env, verb string, prefer func(hosts.Server) bool) ([]hosts.Server, error) {
	if s.all {
		list, err := s.findAll(e, here)
		if prefer != nil {
			list = slices.DeleteFunc(list, func(c hosts.Server) bool { return !prefer(c) })
		}
		if err == nil && len(list) == 0 {
			fmt.Fprintf(e.Stderr, "mcpwire: nothing to %s\n", verb)
		}
		return list, err
	}
	target := s.name
	switch {
	case s.file != "":
		path, err := filepath.Abs(s.file)
		if err != nil {
			return nil, err
		}
		target = path + ":" + s.name
	case s.host != "" && !strings.HasPrefix(s.name, s.host+":"):
		target = s.host + ":" + s.name
	}
	list, err := hosts.Candidates(here, target)
	if err != nil {
		return nil, noServer(verb, err)
	}
	if s.host != "" {
		list = slices.DeleteFunc(list, func(c hosts.Server) bool { return c.Host != s.host })
	}
	if prefer != nil && slices.ContainsFunc(list, prefer) {
		list = slices.DeleteFunc(list, func(c hosts.Server) bool { return !prefer(c) })
	}
	if len(list) != 1 {
		return nil, noServer(verb, &hosts.AmbiguousError{Target: s.name, Choices: list})
	}
	return list, nil
}

func (s *selection) findAll(e *kit.Env, here *hosts.Env) ([]hosts.Server, error) {
	var files []hosts.File
	if s.file != "" {
		f, err := hosts.ReadFile(here, s.file)
		if err != nil {
			return nil, err
		}
		files = []hosts.File{f}
	} else {
		var err error
		if _, files, err = Find(s.host); err != nil {
			return nil, err
		}
	}
	WarnAbout(e.Stderr, files)
	var list []hosts.Server
	for _, f := range files {
		list = append(list, f.Servers...)
	}
	return list, nil
}

// noServer returns the error for a name that matches no server, or several.
func noServer(verb string, err error) error {
	var ambiguous *hosts.AmbiguousError
	var missing *hosts.NotFoundError
	switch {
	case errors.As(err, &ambiguous):
		const most = 5
		targets := ambiguous.Targets()
		targets = targets[:min(len(targets), most)]
		for i, t := range targets {
			targets[i] = kit.ShellLine("mcpwire", verb, t)
		}
		return exit.Fail(exit.Usage, "ambiguous_server", strings.Join(targets, " or "), err)
	case errors.As(err, &missing):
		return exit.Fail(exit.Usage, "unknown_server", "mcpwire servers lists what is configured", err)
	}
	return err
}

// NewUnwrapCommand returns the command unwrap.
func NewUnwrapCommand(e *kit.Env) *cobra.Command {
	var sel selection
	var dryRun bool
	c := &cobra.Command{
		Use:   "unwrap NAME|--all [FLAGS]",
		Short: "run a server of a host without the tap again",
		Long: `Restore the entry of a server to its state before mcpwire wrap. If nothing else
in the file has changed, the file is restored byte for byte. Otherwise only the
entry changes, and other edits are kept. Restart the host afterwards.`,
		Example: `  mcpwire unwrap filesystem
  mcpwire unwrap --all
  mcpwire unwrap --all --host claude-desktop --dry-run`,
		Args:              func(_ *cobra.Command, args []string) error { return sel.arguments("unwrap", args) },
		ValidArgsFunction: targets.CompleteServers(func(s hosts.Server) bool { return s.Wrapped }),
		RunE: func(*cobra.Command, []string) error {
			r := &rewriting{env: e, selection: sel, dryRun: dryRun, verb: "unwrap", done: "unwrapped"}
			r.change = func(d *hosts.Document, s hosts.Server) error {
				return d.Unwrap(s.Pointer)
			}
			return r.run(func(s hosts.Server) bool { return s.Wrapped })
		},
	}
	sel.flags(c)
	c.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "only print what would change")
	return c
}

// otherTap describes the tap of an entry if it is another program than this one, which may have
// been moved since. It returns "" if it is this one.
func otherTap(s hosts.Server) string {
	if s.Wrapper == "" {
		return ""
	}
	name := clip.Characters(printable.Line(s.Wrapper), targets.MaxRunsColumns)
	found, err := exec.LookPath(s.Wrapper)
	if err != nil {
		return ", by " + name + ", which is not there: unwrap it, and wrap it again"
	}
	if exe, err := os.Executable(); err != nil || !kit.SameFile(found, exe) {
		return ", by " + name
	}
	return ""
}
