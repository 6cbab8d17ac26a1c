package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/call"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/inspect/inventory"
	"mcpwire/cmd/internal/json/schemadiff"
	"mcpwire/cmd/internal/playback/replay"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/era"
	"mcpwire/mcp"
)

const diffLong = `Compare two servers, or two versions of one: identity, capabilities, tools with
their schemas, prompts and resources. For captures, also compare the responses
to the same requests and the response times. Each difference has a level:

  breaking    clients of A may fail: a tool is gone, an argument is now
              required, a result may have a new type, a call fails
  unclear     the effect depends on the server
  compatible  clients of A are not affected: a new tool, an optional argument
  words       text for people and models: descriptions, titles, instructions

A and B are captures (files, capture:NAME for the newest of a server, or - for
standard input) or servers to connect to: a URL, the name of a server in any
host's configuration, HOST:NAME or FILE:NAME. Everything after -- is the command
line of a stdio server, which is B.

Times, UUIDs and ULIDs in responses are compared only with --strict. A redacted
value matches anything. What was requested from one side only is reported, not
compared. The exit status is 6 if a difference is at least as bad as --fail-on.`

const diffExample = `  mcpwire diff before.mcpcap.ndjson after.mcpcap.ndjson
  mcpwire diff released.mcpcap.ndjson -- node build/index.js
  mcpwire diff https://example.com/mcp http://127.0.0.1:8080/mcp --fail-on never`

// diffFlags holds the flags of the diff command.
type diffFlags struct {
	json     bool
	strict   bool
	failOn   string
	recorded sources.SideFlag
	ignore   kit.List
	slower   float64
	target   targets.Flags
}

// impacts returns the values of --fail-on, the mildest first.
func impacts() []string {
	return []string{string(schemadiff.Annotations), string(schemadiff.Compatible), string(schemadiff.Unclear), string(schemadiff.Breaking), "never"}
}

// NewDiffCommand returns the command diff.
func NewDiffCommand(e *kit.Env) *cobra.Command {
	var f diffFlags
	c := &cobra.Command{
		Use:               "diff A B [FLAGS] | diff A [FLAGS] -- COMMAND",
		Short:             "compare two servers or captures, and find breaking changes",
		Long:              diffLong,
		Example:           diffExample,
		ValidArgsFunction: targets.CompleteCapturesAndServers,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(impacts(), f.failOn) {
				return exit.Usagef("diff: invalid value %q for flag --fail-on: want %s", f.failOn, strings.Join(impacts(), ", "))
			}
			return runDiff(cmd, e, &f, args)
		},
	}
	c.Flags().BoolVar(&f.json, "json", false, "print one object: a, b, the differences, and what could not be compared")
	c.Flags().BoolVar(&f.strict, "strict", false, "also compare times and ids in responses")
	c.Flags().StringVar(&f.failOn, "fail-on", string(schemadiff.Breaking), "exit with status 6 if a difference is at least this bad: `LEVEL` is "+strings.Join(impacts(), ", "))
	c.Flags().Var(&f.ignore, "ignore", "do not compare this place in responses: a JSON `POINTER`, with * for any name or index; may be repeated")
	c.Flags().Float64Var(&f.slower, "slower", 0, "report requests whose median time is this many `TIMES` as long, and at least 10 ms longer; 0 does not compare times")
	f.recorded.RegisterOne(c.Flags(), capture.Upstream)
	f.target.Register(c.Flags())
	_ = c.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions(impacts(), cobra.ShellCompDirectiveNoFileComp))
	return c
}

func runDiff(cmd *cobra.Command, e *kit.Env, f *diffFlags, args []string) error {
	sides := [2]*inventory.Inventory{}
	dash := cmd.ArgsLenAtDash()
	switch {
	case dash < 0 && len(args) != 2:
		return exit.Usagef("diff: it takes two captures or servers, not %d", len(args))
	case dash >= 0 && dash != 1:
		return exit.Usagef("diff: want one capture or server before --, and the command of the other after it")
	case dash < 0 && args[0] == "-" && args[1] == "-":
		return exit.Usagef("diff: standard input can only be read once")
	}
	for i := range sides {
		var err error
		if dash >= 0 && i == 1 {
			t := targets.Spec{Name: targets.CommandName(args[dash:]), Command: args[dash:]}
			if len(args) == dash || args[dash] == "" {
				return exit.Usagef("diff: no command after --")
			}
			sides[i], err = f.live(cmd.Context(), e, t)
		} else {
			sides[i], err = f.side(cmd, e, args[i])
		}
		if err != nil {
			return err
		}
	}
	opts := &inventory.Options{Ignore: f.ignore, LatencyRatio: f.slower, MinLatencyDiff: 10 * time.Millisecond, MatchesRedacted: replay.MatchesRedacted}
	if !f.strict {
		opts.Same = func(pointer string, old, now []byte) bool { return replay.Volatile(path.Base(pointer), old, now) }
	}
	found := inventory.Compare(sides[0], sides[1], opts)
	if err := f.print(e, sides, found); err != nil {
		return err
	}
	if worst := slices.Index(impacts(), string(inventory.Worst(found))); worst >= 0 && worst >= slices.Index(impacts(), f.failOn) {
		return &exit.Status{Code: exit.Findings}
	}
	return nil
}

// side returns the inventory of the capture or server that an argument names.
func (f *diffFlags) side(cmd *cobra.Command, e *kit.Env, arg string) (*inventory.Inventory, error) {
	info, err := os.Stat(arg)
	if err != nil && strings.Contains(arg, capture.Suffix) {
		return nil, exit.Fail(exit.Unexpected, "no_capture", "mcpwire captures lists them", err)
	}
	if strings.HasPrefix(arg, sources.OfCapture) {
		if arg, err = sources.Arg(e, "diff", arg); err != nil {
			return nil, err
		}
		info, err = os.Stat(arg)
	}
	if arg == "-" || err == nil && !info.IsDir() {
		s := sources.Source{Env: e, Paths: []string{arg}, Side: f.recorded.Side}
		status := e.StatusLine()
		defer status.Clear()
		status.Step("reading %s", safe.Clip(arg, 200))
		return inventory.FromCapture(arg, s.Events(cmd.Context()))
	}
	var t targets.Spec
	if targets.IsURL(arg) {
		t, err = targets.OfURL(arg)
	} else {
		t, err = targets.Named(cmd, e, arg)
		if bad, ok := errors.AsType[*exit.Failure](err); ok && bad.Code == "unknown_server" {
			err = neither(arg, bad)
		}
		if err == nil && sources.IsRecorded(arg) {
			fmt.Fprintf(e.Stderr, "connecting to the server %s itself; capture:%[1]s is its newest capture\n", safe.Line(arg))
		}
	}
	if err != nil {
		return nil, err
	}
	return f.live(cmd.Context(), e, t)
}

// neither returns the error for an argument that is neither a capture nor a server. unknown is the
// error for the server.
func neither(arg string, unknown *exit.Failure) error {
	info, err := os.Stat(arg)
	switch {
	case err == nil && info.IsDir():
		return exit.Fail(exit.Unexpected, "no_capture", "mcpwire captures lists them", fmt.Errorf("%s is a folder, and a capture is a file", trace.Escape(arg)))
	case sources.IsRecorded(arg):
		unknown.Hint = "capture:" + safe.Line(arg) + " is its newest capture"
	case looksLikeFile(arg):
		return exit.Fail(exit.Unexpected, "no_capture", "mcpwire captures lists them", fmt.Errorf("there is no file %s, and no server of that name", trace.Escape(arg)))
	case unknown.Hint == targets.ServerNamesHint:
		unknown.Err = fmt.Errorf("there is no file %s: %w", trace.Escape(arg), unknown.Err)
		unknown.Hint = "mcpwire captures lists captures, mcpwire servers the names of servers"
	}
	return unknown
}

// looksLikeFile reports whether an argument is a path or the name of a file rather than the name of
// a server.
func looksLikeFile(arg string) bool {
	if strings.LastIndexByte(arg, ':') > 1 { // FILE:NAME, and not the letter of a drive
		return false
	}
	switch filepath.Ext(arg) {
	case ".ndjson", ".json", ".jsonl", ".gz", ".zst", ".har":
		return true
	}
	return strings.ContainsRune(arg, filepath.Separator) || strings.HasPrefix(arg, "./")
}

// live returns the inventory of a running server.
func (f *diffFlags) live(ctx context.Context, e *kit.Env, t targets.Spec) (*inventory.Inventory, error) {
	flags := f.target
	d, err := targets.NewDialer(e, t, &flags)
	if err != nil {
		return nil, err
	}
	c, err := d.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer d.Notes.Clear()
	defer c.Close()
	v := inventory.New(t.Name)
	v.Add("initialize", nil, d.Description, nil, d.DescribeTime)
	if v.Revision == "" {
		v.Revision = c.Revision().String()
	}
	for _, kind := range call.DeclaredKinds(c.Profile().Capabilities) {
		err := call.EachPage(d.Notes, nil, func(cursor *string, pages *era.Pages) (*string, error) {
			d.Trace.Forget()
			method, _, next, err := call.FetchPage(ctx, c, kind, cursor, pages)
			if err != nil {
				return nil, err
			}
			var params []byte
			if cursor != nil {
				params, _ = json.Marshal(map[string]string{"cursor": *cursor})
			}
			result, took := d.Trace.Result(method)
			v.Add(method, params, result, nil, took)
			return next, nil
		})
		switch {
		case call.IsNone(kind, err):
			v.Add(mcp.MethodResourceTemplatesList, nil, []byte(`{"resourceTemplates":[]}`), nil, 0)
		case err != nil && !call.IsOfOneKind(ctx, err):
			return nil, d.Failure(err)
		case err != nil:
			d.Notes.Warnf("%s of %s are not compared: %s", kind, t.Name, safe.Clip(d.Failure(err).Error(), 500))
		}
	}
	return v, nil
}

// print prints the differences as text or JSON.
func (f *diffFlags) print(e *kit.Env, sides [2]*inventory.Inventory, found []inventory.Difference) error {
	type side struct {
		Source   string `json:"source"`
		Name     string `json:"name,omitempty"`
		Version  string `json:"version,omitempty"`
		Revision string `json:"revision,omitempty"`
		// Dropped is the number of definitions and responses that exceed the limits.
		Dropped int `json:"dropped,omitempty"`
	}
	omitted := inventory.Omitted(sides[0], sides[1])
	if f.json {
		of := func(v *inventory.Inventory) side { return side{v.Source, v.Name, v.Version, v.Revision, v.Dropped} }
		if found == nil {
			found = []inventory.Difference{}
		}
		return kit.WriteJSON(e.Stdout, struct {
			A           side                   `json:"a"`
			B           side                   `json:"b"`
			Differences []inventory.Difference `json:"differences"`
			NotCompared []inventory.Omission   `json:"notCompared,omitempty"`
		}{of(sides[0]), of(sides[1]), found, omitted})
	}
	p := kit.NewScreen(e.Stdout).Paint
	var b strings.Builder
	for i, v := range sides {
		fmt.Fprintf(&b, "%c  %s%s\n", 'A'+i, safe.Line(v.Source), safe.Line(strings.TrimRight(fmt.Sprintf("  %s %s  %s", v.Name, v.Version, v.Revision), " ")))
	}
	for i, v := range sides {
		if v.Dropped > 0 {
			fmt.Fprintf(&b, "not compared: %d definitions and responses of %c, which has more of them than the limits allow\n", v.Dropped, 'A'+i)
		}
	}
	for i, missing := range []string{"a", "b"} {
		var kinds []string
		for _, o := range omitted {
			if o.Missing == missing {
				kinds = append(kinds, o.Kind)
			}
		}
		if kinds != nil {
			fmt.Fprintf(&b, "not compared: %s (%c has not listed them)\n", strings.Join(kinds, ", "), 'A'+i)
		}
	}
	last := inventory.Difference{}
	for _, d := range found {
		if d.Impact != last.Impact {
			fmt.Fprintf(&b, "\n%s\n", p.In(impactStyle(d.Impact), string(d.Impact)))
		}
		if head := strings.TrimSpace(d.What + " " + safe.Line(d.Name)); d.What != last.What || d.Name != last.Name || d.Impact != last.Impact {
			fmt.Fprintf(&b, "  %s\n", head)
		}
		last = d
		fmt.Fprintf(&b, "    %s", safe.Line(d.Why))
		if d.Pointer != "" {
			fmt.Fprintf(&b, "  %s", p.In(kit.Dim, safe.Line(d.Pointer)))
		}
		b.WriteString("\n")
		for _, x := range []struct{ sign, text string }{{"-", d.Old}, {"+", d.New}} {
			if x.text != "" {
				fmt.Fprintf(&b, "      %s %s\n", x.sign, trace.Truncate(safe.Line(x.text), 160))
			}
		}
	}
	if len(found) == 0 {
		b.WriteString("\nno differences\n")
	}
	_, err := fmt.Fprint(e.Stdout, b.String())
	return err
}

func impactStyle(v inventory.Impact) string {
	switch v {
	case schemadiff.Breaking:
		return kit.Red
	case schemadiff.Unclear:
		return kit.Yellow
	case schemadiff.Compatible:
		return kit.Green
	}
	return kit.Dim
}
