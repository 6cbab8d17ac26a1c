package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
)

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

func newConfigCommand(e *kit.Env) *cobra.Command {
	c := &cobra.Command{
		Use:     "config path | show",
		Short:   "show the file with your defaults",
		Long:    "Show the file with your defaults, or its path. Flags go before the file. Every\nname in it must be known.\n\n" + configHelp,
		Example: "  mcpwire config show\n  ${EDITOR:-vi} \"$(mcpwire config path)\"",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usagef("config: unknown command %q (want path or show)%s", args[0], kit.DidYouMean(args[0], []string{"path", "show"}))
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
		Args:    kit.FlagsOnly,
		RunE: func(*cobra.Command, []string) error {
			path, err := targets.ConfigPath()
			if err == nil {
				_, err = fmt.Fprintln(e.Stdout, path)
			}
			return err
		},
	}, &cobra.Command{
		Use:     "show",
		Short:   "print the defaults in the file",
		Long:    "Check the file, and print the defaults in it as JSON. Values of headers are not\nshown, except references to variables.",
		Example: "  mcpwire config show",
		Args:    kit.FlagsOnly,
		RunE: func(*cobra.Command, []string) error {
			conf, err := targets.ReadConfig()
			if err != nil {
				return err
			}
			path, _ := targets.ConfigPath()
			if _, err := os.Stat(path); err != nil {
				fmt.Fprintf(e.Stderr, "there is no %s\n", safe.Line(path))
			}
			for _, headers := range conf.Headers {
				for name, value := range headers {
					headers[name] = hideLiterals(value)
				}
			}
			return kit.WriteIndentedJSON(e.Stdout, conf)
		},
	})
	return c
}

// hideLiterals replaces the words of a header's value that are not references to variables, except
// the first of several, which is the scheme.
func hideLiterals(value string) string {
	words := strings.Fields(value)
	for i, w := range words {
		if !targets.Variable().MatchString(w) && (i > 0 || len(words) == 1) {
			words[i] = "~hidden~"
		}
	}
	return strings.Join(words, " ")
}

// applyRedact checks --redact of a command, or sets it to the user's default if it is not given.
func applyRedact(cmd *cobra.Command) error {
	flag := cmd.Flags().Lookup("redact")
	switch value := flag.Value.String(); {
	case value != "default" && value != "off":
		return exit.Usagef("%s: invalid value %q for flag --redact: want default or off", cmd.Name(), value)
	case flag.Changed, !slices.Contains([]string{"tap", "bridge", "check", "replay"}, cmd.Name()):
		return nil
	}
	conf, err := targets.ReadConfig()
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
