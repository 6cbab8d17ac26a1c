// Package cli is the mcpwire command: one file per subcommand, with its flags and what it prints. Data goes to stdout, all else to stderr.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// An env is where a command runs.
type env struct {
	stdin          *os.File
	stdout, stderr io.Writer
}

// A command is one subcommand.
type command struct {
	name  string
	brief string
	run   func(ctx context.Context, e *env, args []string) error
}

// commands in the order in which the help lists them.
var commands = []command{
	{"demo", "watch a real session cross the pipe, explained line by line", runDemo},
	{"serve", "run the demo server on standard input and output, or over HTTP", runServe},
	{"version", "print the version", runVersion},
}

// Exit statuses.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// A usageError is a command line that cannot be meant.
type usageError struct{ msg string }

func (e *usageError) Error() string { return e.msg }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// Run runs the command line, without the program's name, and returns the exit status: 0, 1 for what failed, 2 for a command line that is wrong.
func Run(ctx context.Context, args []string, stdin *os.File, stdout, stderr io.Writer) int {
	err := dispatch(ctx, &env{stdin, stdout, stderr}, args)
	var usage *usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "mcpwire: %v\n", err)
		return exitUsage
	}
	fmt.Fprintf(stderr, "mcpwire: %v\n", err)
	return exitError
}

func dispatch(ctx context.Context, e *env, args []string) error {
	if len(args) == 0 {
		if err := printHelp(e.stderr); err != nil {
			return err
		}
		return usagef("which command? see above, or start with: mcpwire demo")
	}
	switch name := args[0]; name {
	case "help", "-h", "-help", "--help":
		return runHelp(ctx, e, args[1:])
	case "-version", "--version":
		return runVersion(ctx, e, args[1:])
	default:
		c, err := commandNamed(name)
		if err != nil {
			return err
		}
		return c.run(ctx, e, args[1:])
	}
}

// runHelp prints the help of the named command, or of them all.
func runHelp(ctx context.Context, e *env, args []string) error {
	switch {
	case len(args) == 0, args[0] == "help", args[0] == "--help", args[0] == "-h":
		return printHelp(e.stdout)
	case len(args) > 1:
		return usagef("help: unexpected argument %q (help takes one command)", args[1])
	}
	c, err := commandNamed(args[0])
	if err != nil {
		return err
	}
	return c.run(ctx, e, []string{"--help"})
}

func commandNamed(name string) (*command, error) {
	i := slices.IndexFunc(commands, func(c command) bool { return c.name == name })
	if i < 0 {
		return nil, usagef("unknown command %q (there are: %s; mcpwire help tells about them)", name, strings.Join(commandNames(), ", "))
	}
	return &commands[i], nil
}

func commandNames() []string {
	var names []string
	for _, c := range commands {
		names = append(names, c.name)
	}
	return names
}

func printHelp(w io.Writer) error {
	var b strings.Builder
	b.WriteString("mcpwire speaks the Model Context Protocol on the bare wire.\n\nUsage: mcpwire COMMAND [FLAGS]\n\n")
	for _, c := range commands {
		fmt.Fprintf(&b, "  %-10s %s\n", c.name, c.brief)
	}
	b.WriteString("\nmcpwire COMMAND --help tells about a command.\nExit status: 0 done, 1 failed, 2 wrong command line.\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// A flagSet is a command's flags with its help.
type flagSet struct {
	*flag.FlagSet
	usage, footer string // what the help says above and below the flags
	out           io.Writer
	help          bool // it was asked for
}

// newFlags returns the flag set of the named command.
func newFlags(e *env, name, usage, footer string) *flagSet {
	fs := &flagSet{FlagSet: flag.NewFlagSet(name, flag.ContinueOnError), usage: usage, footer: footer, out: e.stdout}
	fs.SetOutput(io.Discard)
	fs.Usage = func() {} // a mistake gets one line on stderr, and no help on stdout, which is for data
	fs.BoolVar(&fs.help, "help", false, "print this help")
	fs.BoolVar(&fs.help, "h", false, "")
	return fs
}

// parse parses the flags of a command that takes no other arguments. It returns flag.ErrHelp when the help was asked for, and printed.
func (fs *flagSet) parse(args []string) error {
	err := fs.Parse(args)
	switch {
	case err == nil && fs.help:
		if err := fs.printHelp(); err != nil {
			return err
		}
		return flag.ErrHelp
	case err != nil:
		return usagef("%s: %s", fs.Name(), fs.explain(err))
	case fs.NArg() > 0:
		return usagef("%s: unexpected argument %q (mcpwire %[1]s takes flags only; --help lists them)", fs.Name(), fs.Arg(0))
	}
	return nil
}

// flagIndent is where the texts of flags stand in the help.
const flagIndent = "                     "

func (fs *flagSet) printHelp() error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\nFlags:\n", strings.TrimSpace(fs.usage))
	fs.VisitAll(func(f *flag.Flag) {
		if f.Usage != "" {
			arg, text := flag.UnquoteUsage(f)
			fmt.Fprintf(&b, "  --%-*s%s\n", len(flagIndent)-4, strings.TrimSpace(f.Name+" "+arg), text)
		}
	})
	if fs.footer != "" {
		fmt.Fprintf(&b, "\n%s\n", strings.TrimSpace(fs.footer))
	}
	_, err := io.WriteString(fs.out, b.String())
	return err
}

// explain says what package flag found wrong, with the two dashes of the help, and how to mend it.
func (fs *flagSet) explain(err error) string {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		return fmt.Sprintf("unknown flag --%s (mcpwire %s --help lists the flags)", name, fs.Name())
	}
	if name, ok := strings.CutPrefix(text, "flag needs an argument: -"); ok {
		return fmt.Sprintf("flag --%s needs a value (mcpwire %s --help tells which)", name, fs.Name())
	}
	if strings.HasPrefix(text, "invalid boolean value ") {
		text = strings.Replace(text, " for -", " for flag -", 1)
		text = strings.TrimSuffix(text, "parse error") + "want true or false, or the flag alone"
	}
	if strings.HasPrefix(text, "invalid ") {
		return strings.Replace(text, " for flag -", " for flag --", 1) // and it says what is wanted
	}
	return fmt.Sprintf("%s (mcpwire %s --help lists the flags)", text, fs.Name())
}
