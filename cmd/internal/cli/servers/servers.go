// Package servers has the commands that list and change the servers in the configurations of hosts.
package servers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/inspect/hosts"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/lazyregexp"
	"mcpwire/internal/text/printable"
)

// NewCommand returns the command servers.
func NewCommand(e *kit.Env) *cobra.Command {
	var host string
	var asJSON bool
	c := &cobra.Command{
		Use:   "servers [FLAGS]",
		Short: "list the servers that hosts on this machine have configured",
		Long: `List the servers that the MCP hosts on this machine have configured, for you and
for the current project, and which of them run through mcpwire tap. Nothing is
started. Values of variables and headers, and arguments that look like secrets,
are not shown. Files that cannot be read are named on standard error.

Hosts: ` + strings.Join(hosts.Names()[:7], ", ") + `,
` + strings.Join(hosts.Names()[7:18], ", ") + `,
` + strings.Join(hosts.Names()[18:], ", ") + `.`,
		Example: `  mcpwire servers
  mcpwire servers --host cursor
  mcpwire servers --json | jq -r '.servers[] | select(.wrapped) | .name'`,
		Args: kit.FlagsOnly,
		RunE: func(*cobra.Command, []string) error { return runServers(e, host, asJSON) },
	}
	c.Flags().StringVar(&host, "host", "", "list only the servers of this `HOST`")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object: servers and problems")
	_ = c.RegisterFlagCompletionFunc("host", CompleteHosts) // the flag exists
	return c
}

// CompleteHosts completes the names of hosts.
func CompleteHosts(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return hosts.Names(), cobra.ShellCompDirectiveNoFileComp
}

// CheckHost returns an error if host is unknown.
func CheckHost(command, host string) error {
	if host != "" && !slices.Contains(hosts.Names(), host) {
		return exit.Usagef("%s: unknown host %q (known: %s)", command, host, strings.Join(hosts.Names(), ", "))
	}
	return nil
}

func runServers(e *kit.Env, host string, asJSON bool) error {
	if err := CheckHost("servers", host); err != nil {
		return err
	}
	here, files, err := Find(host)
	if err != nil {
		return err
	}
	problems := warnAbout(e.Stderr, files)
	if asJSON {
		return printServersJSON(e.Stdout, files, problems)
	}
	return printServers(e, here, files)
}

// Find returns this machine and the configurations of its hosts, or only those of some hosts. Empty
// names count as none.
func Find(only ...string) (*hosts.Env, []hosts.File, error) {
	here, err := hosts.Current()
	if err != nil {
		return nil, nil, err
	}
	files, err := hosts.Find(here)
	only = slices.DeleteFunc(only, func(host string) bool { return host == "" })
	return here, slices.DeleteFunc(files, func(f hosts.File) bool { return len(only) > 0 && !slices.Contains(only, f.Host) }), err
}

// A fileProblem is the JSON form of a file or entry that could not be read.
type fileProblem struct {
	Host    string `json:"host"`
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
}

// WarnAbout prints the problems of files to stderr.
func WarnAbout(stderr io.Writer, files []hosts.File) { warnAbout(stderr, files) }

// warnAbout is [WarnAbout], and also returns the problems.
func warnAbout(stderr io.Writer, files []hosts.File) []fileProblem {
	problems := []fileProblem{}
	for _, f := range files {
		list := make([]error, 0, len(f.Errors)+1)
		if f.Err != nil {
			list = append(list, f.Err)
		}
		for _, p := range f.Errors {
			list = append(list, p)
		}
		for _, err := range list {
			fmt.Fprintf(stderr, "mcpwire: %s\n", printable.Line(err.Error()))
			p := fileProblem{Host: f.Host, File: f.Path, Message: err.Error()}
			if at, ok := errors.AsType[*hosts.ParseError](err); ok {
				p.Line, p.Column, p.Message = at.Line, at.Column, at.Reason
			}
			problems = append(problems, p)
		}
	}
	return problems
}

func printServers(e *kit.Env, here *hosts.Env, files []hosts.File) error {
	var b bytes.Buffer
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "HOST\tSCOPE\tNAME\tTRANSPORT\tRUNS\tWRAPPED\tSTATE\tFILE")
	n := 0
	for _, f := range files {
		for _, s := range f.Servers {
			n++
			cells := []string{s.Host, string(s.Scope), clip.Characters(printable.Line(s.Name), targets.MaxNameColumns), kit.OrDash(string(s.Transport)),
				clip.Characters(targets.ServerRuns(s), targets.MaxRunsColumns), wrappedCell(s), serverState(s), printable.Line(Tilde(here, s.File))}
			fmt.Fprintln(w, strings.Join(cells, "\t"))
		}
	}
	if n == 0 {
		_, err := fmt.Fprintln(e.Stderr, "mcpwire: no servers found in the configuration of known hosts")
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := e.Stdout.Write(b.Bytes())
	return err
}

// wrappedCell says whether an entry goes through a tap, and through which program if it isn't this
// one: a project's file may choose that program.
func wrappedCell(s hosts.Server) string {
	if !s.Wrapped {
		return "no"
	}
	return "yes" + clip.Characters(otherTap(s), targets.MaxRunsColumns)
}

func serverState(s hosts.Server) string {
	if s.Disabled {
		return "disabled"
	}
	return "-"
}

// Tilde abbreviates the home folder in a path.
func Tilde(here *hosts.Env, path string) string {
	if rest, ok := strings.CutPrefix(path, here.Home+"/"); ok && here.Home != "" {
		return "~/" + rest
	}
	return path
}

func printServersJSON(w io.Writer, files []hosts.File, problems []fileProblem) error {
	out := struct {
		Servers  []hosts.Server `json:"servers"`
		Problems []fileProblem  `json:"problems"`
	}{Servers: []hosts.Server{}, Problems: problems}
	for _, f := range files {
		for _, s := range f.Servers {
			s = s.Redacted()
			s.URL = targets.MaskText(s.URL)
			parts := targets.MaskCommand(append([]string{s.Command}, s.Args...))
			s.Command, s.Args = parts[0], parts[1:]
			out.Servers = append(out.Servers, s)
		}
	}
	var b bytes.Buffer
	if err := kit.WriteJSON(&b, out); err != nil {
		return err
	}
	_, err := w.Write(safe.JSON(b.Bytes()))
	return err
}

// plainWords matches a short text without digits, which a key would have.
var plainWords = lazyregexp.New(`^[A-Za-z][A-Za-z +_./-]{0,31}$`)

// harmlessMember reports whether a member of a host's configuration other than the servers can be
// shown: it consists of words, and the rules for captures would not redact it.
func harmlessMember(name, value string) bool {
	if !plainWords().MatchString(value) {
		return false
	}
	text, err := json.Marshal(map[string]string{name: value})
	if err != nil {
		return false
	}
	shown, _ := capture.NewRedactor(nil).Message(nil, text)
	return bytes.Equal(shown, text)
}
