package show

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/captures"
)

// NewCapturesCommand returns the command captures.
func NewCapturesCommand(e *kit.Env) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "captures [list] [--json] | path | prune [--older AGE] [--max-bytes SIZE] [--dry-run]",
		Short: "list and remove captures",
		Long: `List the captures in this user's folder, the newest first. mcpwire tap writes
captures there, unless you name another file. Other commands accept the name of
the server or of the file instead of the path. MCPWIRE_HOME changes the folder's
location. On Windows, choose one that others cannot read, because the files have
no permissions of their own.

mcpwire removes no captures on its own, except that it keeps only the newest five
of the probes of mcpwire check. Use prune to remove others.`,
		Example: `  mcpwire captures
  mcpwire captures --json | jq -r '.[0].path'
  mcpwire captures prune --older 30d --max-bytes 1G
  ls "$(mcpwire captures path)"`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && !(len(args) == 1 && (args[0] == "list" || args[0] == "ls")) {
				return exit.Usagef("captures: unknown command %q (want list, path or prune; mcpwire show reads a capture)", args[0])
			}
			return nil
		},
		RunE: func(*cobra.Command, []string) error { return listCaptures(e, asJSON) },
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print an array of objects")
	c.AddCommand(&cobra.Command{
		Use:     "path",
		Short:   "print the folder where captures are stored",
		Long:    "Print the folder where captures are stored. The folder may not exist yet.",
		Example: "  mcpwire captures path\n  MCPWIRE_HOME=/tmp/x mcpwire captures path",
		Args:    kit.FlagsOnly,
		RunE: func(*cobra.Command, []string) error {
			dir, err := captures.Dir()
			if err == nil {
				_, err = fmt.Fprintln(e.Stdout, dir)
			}
			return err
		},
	}, newPruneCommand(e))
	return c
}

func newPruneCommand(e *kit.Env) *cobra.Command {
	var older, maxBytes string
	var dry bool
	c := &cobra.Command{
		Use:   "prune [--older AGE] [--max-bytes SIZE] [--dry-run]",
		Short: "remove old captures",
		Long: `Remove captures that were not written to for longer than AGE, and then the
oldest ones until the total size is at most SIZE. Captures that are still being
written are kept. The paths of the removed captures are printed.`,
		Example: `  mcpwire captures prune --older 30d
  mcpwire captures prune --max-bytes 500MB --dry-run`,
		Args: kit.FlagsOnly,
		RunE: func(*cobra.Command, []string) error {
			p := captures.Pruner{DryRun: dry}
			var ok bool
			if p.MaxAge, ok = sources.ParseAge(older); older != "" && !ok {
				return exit.Usagef("prune: --older needs an age such as 30d, 2w or 12h, not %q", older)
			}
			if p.MaxBytes, ok = parseBytes(maxBytes); maxBytes != "" && !ok {
				return exit.Usagef("prune: --max-bytes needs a size such as 1G, 500MB or 64MiB, not %q", maxBytes)
			}
			if older == "" && maxBytes == "" {
				return exit.Usagef("prune: give --older 30d, --max-bytes 1G, or both")
			}
			return pruneCaptures(e, p)
		},
	}
	c.Flags().StringVar(&older, "older", "", "remove captures not written to for longer than this: 30d, 2w, 12h")
	c.Flags().StringVar(&maxBytes, "max-bytes", "", "remove the oldest captures above this total size: 1G, 500MB")
	c.Flags().BoolVarP(&dry, "dry-run", "n", false, "only print what would be removed")
	return c
}

func pruneCaptures(e *kit.Env, p captures.Pruner) error {
	dir, err := captures.Dir()
	if err != nil {
		return err
	}
	removed, err := p.Run(dir)
	var size int64
	for _, i := range removed {
		size += i.Size
		if _, werr := fmt.Fprintln(e.Stdout, trace.Escape(i.Path)); werr != nil {
			return werr
		}
	}
	verb := "removed"
	if p.DryRun {
		verb = "would remove"
	}
	fmt.Fprintf(e.Stderr, "%s %d captures, %s\n", verb, len(removed), trace.FormatSize(size))
	return err
}

// parseBytes parses a number of bytes with an optional unit.
func parseBytes(s string) (int64, bool) {
	unit := strings.TrimLeft(s, "0123456789.")
	n, err := strconv.ParseFloat(strings.TrimSuffix(s, unit), 64)
	if err != nil {
		return 0, false
	}
	factor := map[string]float64{
		"": 1, "b": 1, "k": 1e3, "kb": 1e3, "m": 1e6, "mb": 1e6, "g": 1e9, "gb": 1e9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30,
	}[strings.ToLower(unit)]
	n *= factor
	return int64(n), n >= 1 && n < 1<<62
}

// A captureRecord describes a capture in the output of captures --json.
type captureRecord struct {
	Path      string         `json:"path"`
	Name      string         `json:"name"`
	Transport string         `json:"transport"`
	Begun     time.Time      `json:"begun"`
	Changed   time.Time      `json:"changed"`
	Bytes     int64          `json:"bytes"`
	State     captures.State `json:"state"`
	Events    *uint64        `json:"events,omitempty"`
	Lost      uint64         `json:"lost,omitempty"`
	ID        string         `json:"id"`
	Tool      string         `json:"tool"`
	Redact    string         `json:"redact"`
}

func listCaptures(e *kit.Env, asJSON bool) error {
	dir, err := captures.Dir()
	if err != nil {
		return err
	}
	list, err := captures.List(dir)
	if err != nil {
		return err
	}
	if asJSON {
		records := []captureRecord{}
		for _, i := range list {
			r := captureRecord{i.Path, i.Name, string(i.Transport), i.Started, i.Modified, i.Size, i.State, nil, i.Lost, i.ID, i.Tool, string(i.Redact)}
			if i.State == captures.Complete {
				r.Events = &i.Events
			}
			records = append(records, r)
		}
		return kit.WriteJSON(e.Stdout, records)
	}
	if len(list) == 0 {
		fmt.Fprintf(e.Stderr, "no captures in %s; mcpwire tap -- CMD… records one\n", trace.Escape(dir))
		return nil
	}
	t := &kit.Table{Heads: []string{"BEGUN", "SERVER", "TRANSPORT", "STATE", "EVENTS", "SIZE", "FILE"}, Spare: []string{"TRANSPORT", "EVENTS", "SERVER"}}
	for _, i := range list {
		events := "-"
		if i.State == captures.Complete {
			events = strconv.FormatUint(i.Events, 10)
		}
		t.Add(i.Started.Local().Format("2006-01-02 15:04:05"), column(i.Name, 24), column(string(i.Transport), 12), string(i.State), events,
			trace.FormatSize(i.Size), trace.Escape(filepath.Base(i.Path)))
	}
	return t.Print(e)
}

// column returns a peer's text for a table: escaped, truncated to width, and never empty.
func column(s string, width int) string {
	if s == "" {
		return "-"
	}
	return trace.Truncate(trace.Escape(s), width)
}
