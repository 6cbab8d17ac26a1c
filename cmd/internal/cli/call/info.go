package call

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/client"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/era"
	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
)

const infoLong = `Connect to a server and print its description of itself: era and revision,
capabilities, instructions, the number of items it offers, and the time it took.

--probe connects once for each known revision, to a new process for a stdio
server, and reports which revisions the server speaks.

--json prints the result of server/discover, or of initialize, exactly as
received; with --probe, it prints a line for each revision.`

const infoExample = `  mcpwire info -- mcpwire serve
  mcpwire info https://mcp.example.com/mcp --probe
  mcpwire info claude-desktop:files --json`

// NewInfoCommand returns the command info.
func NewInfoCommand(e *kit.Env) *cobra.Command {
	v := &infoVerb{}
	c := &cobra.Command{
		Use:     "info TARGET [FLAGS]",
		Short:   "show the identity and capabilities of a server",
		Long:    infoLong,
		Example: infoExample,
	}
	c.Flags().BoolVar(&v.probe, "probe", false, "try each revision on a separate connection")
	return newVerbCommand(e, c, v)
}

// An infoVerb shows how a server describes itself.
type infoVerb struct {
	json, probe bool
}

func (v *infoVerb) register(fs *pflag.FlagSet) {
	fs.BoolVar(&v.json, "json", false, "print the server's description of itself exactly as received")
}

func (v *infoVerb) parse(args []string) error {
	if len(args) > 0 {
		return exit.Usagef("info: unexpected argument %q", clip.Characters(args[0], 60))
	}
	return nil
}

func (v *infoVerb) run(ctx context.Context, s *session) error {
	description, describeTime := s.d.Description, s.d.DescribeTime
	if v.json {
		if description == nil {
			return exit.Fail(exit.Unexpected, "failed", "", errors.New("the server did not describe itself"))
		}
		return s.writeValue(description)
	}
	info := s.Profile().Server
	rows := [][2]string{
		{"server", strings.TrimSpace(safe.Line(info.Name) + " " + safe.Line(info.Version))},
	}
	add := func(name, text string) {
		if text != "" {
			rows = append(rows, [2]string{name, text})
		}
	}
	add("title", safe.Clip(info.Title, 200))
	add("about", safe.Clip(info.Description, 500))
	add("website", safe.Clip(info.WebsiteURL, 300))
	add("target", targetText(s.d))
	add("era", targets.EraName(s.Revision()))
	add("revision", s.Revision().String())
	add("versions", versionsText(description))
	add("capabilities", capabilitiesText(s.Profile().Capabilities))
	offers, listed, listErr := s.count(ctx)
	add("offers", offers)
	add("times", fmt.Sprintf("connected in %s, %s %s, lists %s", kit.ShortTime(s.d.Took), targets.HandshakeMethod(s.Revision()), kit.ShortTime(describeTime), kit.ShortTime(listed)))
	if text := s.Profile().Instructions; text != "" {
		add("instructions", clip.Characters(strings.ReplaceAll(safe.Text(strings.TrimSpace(text)), "\n", "\n              "), 8000))
	}
	for _, row := range rows {
		if err := s.write(fmt.Sprintf("%-13s %s\n", row[0], row[1])); err != nil {
			return err
		}
	}
	return listErr
}

// targetText says how the server was reached.
func targetText(d *targets.Dialer) string {
	switch {
	case d.Target.IsStdio():
		return "stdio, " + d.Target.Name
	case d.Target.Transport == targets.TransportSSE:
		return "HTTP+SSE, " + d.Target.Name
	}
	return "HTTP, " + d.Target.Name
}

// versionsText returns the revisions that a DiscoverResult lists.
func versionsText(description json.RawMessage) string {
	var r struct {
		SupportedVersions []string `json:"supportedVersions"`
	}
	if json.Unmarshal(description, &r) != nil {
		return ""
	}
	return safe.Clip(strings.Join(r.SupportedVersions, ", "), 500)
}

// capabilitiesText returns the capabilities, each with its members.
func capabilitiesText(c mcp.ServerCapabilities) string {
	var all map[string]json.RawMessage
	if json.Unmarshal(mcp.Append(nil, &c, mcp.RevisionNone), &all) != nil || len(all) == 0 {
		return "none"
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		text := safe.Line(name)
		var inner map[string]json.RawMessage
		if json.Unmarshal(all[name], &inner) == nil {
			var set []string
			for _, member := range slices.Sorted(maps.Keys(inner)) {
				if string(inner[member]) != "false" {
					set = append(set, safe.Line(member))
				}
			}
			if set != nil {
				text += " (" + strings.Join(set, ", ") + ")"
			}
		}
		list = append(list, text)
	}
	return clip.Characters(strings.Join(list, ", "), 2000)
}

// count returns how much the server offers. It continues after a list that fails.
func (s *session) count(ctx context.Context) (text string, took time.Duration, err error) {
	start := time.Now()
	var parts []string
	for _, kind := range DeclaredKinds(s.Profile().Capabilities) {
		n := 0
		failed := EachPage(s.notes, nil, func(cursor *string, pages *era.Pages) (*string, error) {
			_, entries, next, err := FetchPage(ctx, s.Client, kind, cursor, pages)
			n += len(entries)
			return next, err
		})
		if IsNone(kind, failed) {
			failed = nil
		}
		name := kind
		if n == 1 {
			name = strings.TrimSuffix(kind, "s")
		}
		part := fmt.Sprintf("%d %s", n, name)
		if failed != nil {
			part = kind + " cannot be listed"
			err = failed
		}
		parts = append(parts, part)
	}
	if parts == nil {
		return "nothing to list", 0, nil
	}
	return strings.Join(parts, ", "), time.Since(start), err
}

// A probeLine is the outcome of one revision.
type probeLine struct {
	Revision mcp.Revision    `json:"revision"`
	Era      string          `json:"era"`
	OK       bool            `json:"ok"`
	MS       float64         `json:"ms"`
	Code     string          `json:"code,omitempty"`
	Message  string          `json:"message,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
}

// alone runs the verb's part that needs no session. It reports whether nothing else is to be done.
func (v *infoVerb) alone(ctx context.Context, d *targets.Dialer) (done bool, err error) {
	if !v.probe {
		return false, nil
	}
	if d.Flags.Given("protocol") {
		return true, exit.Usagef("info: --probe tries all revisions: it cannot be combined with --protocol")
	}
	s := &session{e: d.Env, d: d, notes: d.Notes}
	works := 0
	var last error
	for _, r := range mcp.Revisions() {
		line, err := probeRevision(ctx, d, r)
		if ctx.Err() != nil {
			return true, ctx.Err()
		}
		if err != nil {
			last = err
		} else {
			works++
		}
		if err := v.printProbe(s, &line); err != nil {
			return true, err
		}
		if f, ok := errors.AsType[*exit.Failure](err); ok && (f.Status == exit.Auth || f.Code == "cannot_start") {
			// Other revisions would fail in the same way.
			return true, err
		}
	}
	if works == 0 {
		return true, last
	}
	return true, nil
}

// probeRevision connects with one revision only.
func probeRevision(ctx context.Context, d *targets.Dialer, r mcp.Revision) (probeLine, error) {
	d.Trace.Forget()
	line := probeLine{Revision: r, Era: targets.EraName(r)}
	start := time.Now()
	c, err := d.Dial(ctx, func(o *client.Options) { o.Revisions = []mcp.Revision{r} })
	line.MS = trace.TruncatedMillis(time.Since(start))
	if err != nil {
		line.Code, line.Message = "failed", err.Error()
		if f, ok := errors.AsType[*exit.Failure](err); ok {
			line.Code = f.Code
		}
		return line, err
	}
	defer c.Close()
	line.OK = true
	line.Result, _ = d.Trace.Result(targets.HandshakeMethod(r))
	return line, nil
}

func (v *infoVerb) printProbe(s *session, line *probeLine) error {
	if v.json {
		return s.writeObject(line)
	}
	if line.OK {
		return s.write(fmt.Sprintf("%v  %-6s  yes  %s\n", line.Revision, line.Era, kit.ShortTime(time.Duration(line.MS*float64(time.Millisecond)))))
	}
	return s.write(fmt.Sprintf("%v  %-6s  no   %s\n", line.Revision, line.Era, safe.Clip(line.Message, 300)))
}
