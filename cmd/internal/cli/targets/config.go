package targets

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

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/captures"
)

// A Config holds the user's defaults. Flags go before them.
type Config struct {
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

// ConfigPath returns the path of the file: config.json in MCPWIRE_HOME, or in the folder mcpwire of
// the user's configuration.
func ConfigPath() (string, error) {
	if home := os.Getenv(captures.HomeVariable); home != "" {
		return filepath.Abs(filepath.Join(home, "config.json"))
	}
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "mcpwire", "config.json"), err
}

// ReadConfig reads the file. A file that does not exist is empty.
func ReadConfig() (*Config, error) {
	conf := new(Config)
	path, err := ConfigPath()
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
		return nil, bad(kit.Innermost(err))
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
		return fmt.Errorf("unknown name %q%s", name, kit.DidYouMean(name, configNames()))
	}
	return err
}

func (c *Config) check() error {
	if _, _, err := net.SplitHostPort(c.Web.Address); c.Web.Address != "" && err != nil {
		return fmt.Errorf("web.address: want HOST:PORT, not %q", c.Web.Address)
	}
	if c.Watch.Past != nil && *c.Watch.Past < AllPast {
		return fmt.Errorf("watch.past: want a number of captures, or %d for all, not %d", AllPast, *c.Watch.Past)
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
func (c *Config) headerLines(address string) []string {
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

const (
	// WebHere serves the page on the port of the last time, or any free port.
	WebHere = "127.0.0.1:0"
	AllPast = -1
	// FewPast is the default number of complete captures to show.
	FewPast = 3
)
