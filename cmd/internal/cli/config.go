package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/captures"
)

// A config holds the user's defaults. Flags go before them.
type config struct {
	Web   webConfig   `json:"web,omitzero"`
	Watch watchConfig `json:"watch,omitzero"`
	// Redact is the default of --redact of tap, bridge, check and replay: "default" or "off".
	Redact string `json:"redact,omitempty"`
	// Headers are sent to servers, by the origin of their URL and by name. Variables are replaced
	// as in --header.
	Headers map[string]map[string]string `json:"headers,omitempty"`
}

type webConfig struct {
	// Address is the address of watch --web without a value.
	Address string `json:"address,omitempty"`
}

type watchConfig struct {
	// Past is the default of watch --past. Nil means that of the program.
	Past *int `json:"past,omitempty"`
}

// configNames lists the names in the file.
func configNames() []string { return []string{"web", "address", "watch", "past", "redact", "headers"} }

const configHelp = `The file is JSON, for example:

  {
    "web": {"address": "127.0.0.1:7777"},
    "watch": {"past": 500},
    "redact": "default",
    "headers": {
      "https://example.com": {"Authorization": "Bearer ${TOKEN}"}
    }
  }

  web.address  where watch --web serves its page
  watch.past   the default of watch --past
  redact       the default of --redact of tap, bridge, check and replay
  headers      sent with each request to a server of this origin; ${VARIABLE} is
               replaced from the environment`

func newConfigCommand(e *env) *cobra.Command {
	c := &cobra.Command{
		Use:     "config path | show",
		Short:   "show the file with your defaults",
		Long:    "Show the file with your defaults, or its path. Flags go before the file. Every\nname in it must be known.\n\n" + configHelp,
		Example: "  mcpwire config show\n  ${EDITOR:-vi} \"$(mcpwire config path)\"",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usagef("config: unknown command %q (want path or show)%s", args[0], didYouMean(args[0], []string{"path", "show"}))
			}
			return exit.Usagef("config: missing the command: path or show")
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	c.AddCommand(&cobra.Command{
		Use:     "path",
		Short:   "print the path of the file",
		Long:    "Print the path of the file. The file may not exist yet.",
		Example: "  mcpwire config path",
		Args:    flagsOnly,
		RunE: func(*cobra.Command, []string) error {
			path, err := configPath()
			if err == nil {
				_, err = fmt.Fprintln(e.stdout, path)
			}
			return err
		},
	}, &cobra.Command{
		Use:     "show",
		Short:   "print the defaults in the file",
		Long:    "Check the file, and print the defaults in it as JSON. Values of headers are not\nshown, except references to variables.",
		Example: "  mcpwire config show",
		Args:    flagsOnly,
		RunE: func(*cobra.Command, []string) error {
			conf, err := readConfig()
			if err != nil {
				return err
			}
			path, _ := configPath()
			if _, err := os.Stat(path); err != nil {
				fmt.Fprintf(e.stderr, "there is no %s\n", safe.Line(path))
			}
			for _, headers := range conf.Headers {
				for name, value := range headers {
					headers[name] = hideLiterals(value)
				}
			}
			enc := json.NewEncoder(e.stdout)
			enc.SetEscapeHTML(false)
			enc.SetIndent("", "  ")
			return enc.Encode(conf)
		},
	})
	return c
}

// hideLiterals replaces the words of a header's value that are not references to variables, except
// the first of several, which is the scheme.
func hideLiterals(value string) string {
	words := strings.Fields(value)
	for i, w := range words {
		if !variable().MatchString(w) && (i > 0 || len(words) == 1) {
			words[i] = "~hidden~"
		}
	}
	return strings.Join(words, " ")
}

// configPath returns the path of the file: config.json in MCPWIRE_HOME, or in the folder mcpwire of
// the user's configuration.
func configPath() (string, error) {
	if home := os.Getenv(captures.HomeVariable); home != "" {
		return filepath.Abs(filepath.Join(home, "config.json"))
	}
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "mcpwire", "config.json"), err
}

// readConfig reads the file. A file that does not exist is empty.
func readConfig() (*config, error) {
	conf := new(config)
	path, err := configPath()
	if err != nil {
		return conf, nil // without a home there is no file
	}
	bad := func(err error) error {
		return exit.Fail(exit.Usage, "bad_config", "mcpwire config --help describes the file", fmt.Errorf("%s: %w", safe.Line(path), err))
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return conf, nil
	}
	if err != nil {
		return nil, bad(innermost(err))
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(conf); err != nil {
		return nil, bad(configError(text, err))
	}
	if dec.More() {
		return nil, bad(errors.New("something follows the object"))
	}
	if err := conf.check(); err != nil {
		return nil, bad(err)
	}
	return conf, nil
}

// configError describes an error of the decoder, with the line or similar names.
func configError(text []byte, err error) error {
	if at, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("line %d: %w", 1+bytes.Count(text[:min(int(at.Offset), len(text))], []byte("\n")), err)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("line %d: the object has no end", 1+bytes.Count(text, []byte("\n")))
	}
	if at, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("line %d: %s: want %v, not %s", 1+bytes.Count(text[:min(int(at.Offset), len(text))], []byte("\n")), at.Field, at.Type, at.Value)
	}
	if _, name, ok := strings.Cut(err.Error(), "unknown field "); ok {
		name = strings.Trim(name, `"`)
		return fmt.Errorf("unknown name %q%s", name, didYouMean(name, configNames()))
	}
	return err
}

func (c *config) check() error {
	if _, _, err := net.SplitHostPort(c.Web.Address); c.Web.Address != "" && err != nil {
		return fmt.Errorf("web.address: want HOST:PORT, not %q", c.Web.Address)
	}
	if c.Watch.Past != nil && *c.Watch.Past < allPast {
		return fmt.Errorf("watch.past: want a number of captures, or %d for all, not %d", allPast, *c.Watch.Past)
	}
	if !slices.Contains([]string{"", "default", "off"}, c.Redact) {
		return fmt.Errorf("redact: want default or off, not %q", c.Redact)
	}
	for origin := range c.Headers {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.Path != "" || u.RawQuery != "" || u.User != nil {
			return fmt.Errorf("headers: %q: want the origin of a URL, such as https://example.com", origin)
		}
	}
	return nil
}

// headerLines returns the headers for a server's URL, as lines.
func (c *config) headerLines(address string) []string {
	u, err := url.Parse(address)
	if err != nil {
		return nil
	}
	var lines []string
	for origin, headers := range c.Headers {
		o, err := url.Parse(origin)
		if err != nil || o.Scheme != u.Scheme || !strings.EqualFold(o.Host, u.Host) {
			continue
		}
		for name, value := range headers {
			lines = append(lines, name+": "+value)
		}
	}
	slices.Sort(lines)
	return lines
}

// applyRedact sets --redact of a command to the user's default, unless it is given.
func applyRedact(cmd *cobra.Command) error {
	flag := cmd.Flags().Lookup("redact")
	if flag == nil || flag.Changed || !slices.Contains([]string{"tap", "bridge", "check", "replay"}, cmd.Name()) {
		return nil
	}
	conf, err := readConfig()
	if err != nil && (cmd.Name() == "tap" || cmd.Name() == "bridge") {
		// A mistake in the file must not keep a host from its server.
		fmt.Fprintf(cmd.ErrOrStderr(), "mcpwire: warning: %s\n", safe.Line(err.Error()))
		return nil
	}
	if err != nil || conf.Redact == "" {
		return err
	}
	return flag.Value.Set(conf.Redact)
}
