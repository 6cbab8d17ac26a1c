package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"mcpwire/client"
	"mcpwire/mcp"
)

// timeout is shorter than the suite's timeout, after which the suite would wait forever for the
// client to exit.
const timeout = 25 * time.Second

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	play := run
	if filepath.Base(os.Args[0]) == browserName {
		play = browse
	}
	if err := play(ctx, os.Args[1:], os.Getenv); err != nil {
		fmt.Fprintln(os.Stderr, "conformance client:", err)
		os.Exit(1)
	}
}

// A stage holds the inputs of one scenario.
type stage struct {
	url string
	// via is the command that connects to url, which is its last argument. Nil connects directly.
	via []string
	// env is added to the environment of via.
	env []string
	// text is the scenario's context, or nil.
	text json.RawMessage
	// http is nil without a login.
	http *http.Client

	// transport replaces the one for url and http in tests.
	transport client.Transport
}

// A part is the client's side of a scenario.
type part func(ctx context.Context, s *stage) error

func run(ctx context.Context, args []string, getenv func(string) string) error {
	scenario := getenv("MCP_CONFORMANCE_SCENARIO")
	if len(args) == 0 || scenario == "" {
		return errors.New("the suite passes a URL as the last argument and MCP_CONFORMANCE_SCENARIO")
	}
	play := partOf(scenario)
	if play == nil {
		return fmt.Errorf("unknown scenario %q", scenario)
	}
	s := &stage{url: args[len(args)-1], via: slices.Clip(args[:len(args)-1])}
	if text := getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		s.text = json.RawMessage(text)
	}
	if err := play(ctx, s); err != nil {
		return fmt.Errorf("%s: %w", scenario, err)
	}
	return nil
}

// partOf returns the part for a scenario, or nil.
func partOf(scenario string) part {
	switch scenario {
	case "initialize", "json-schema-ref-no-deref", "request-metadata":
		return listTools
	case "tools_call":
		return addNumbers
	case "elicitation-sep1034-client-defaults":
		return callEach("test_client_elicitation_defaults")
	case "sse-retry":
		return callEach("test_reconnection")
	case "sep-2322-client-request-state":
		return callEach("test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type")
	case "json-schema-2020-12-preservation":
		return echoSchema
	case "http-standard-headers":
		return useEverything
	case "http-custom-headers":
		return callListedTools
	case "http-invalid-tool-headers":
		return callListed
	case "sep-2640-client-no-prefetch":
		return listSkills
	case "sep-2640-client-verify-digest", "sep-2640-client-verify-size", "sep-2640-client-verify-frontmatter":
		return loadSkills
	}
	if name, ok := strings.CutPrefix(scenario, "auth/"); ok {
		return loginPart(name)
	}
	return nil
}

// dial connects to the scenario's server.
func (s *stage) dial(ctx context.Context) (*client.Client, error) {
	return client.Dial(ctx, s.serverTransport(), &client.Options{
		Info: mcp.Implementation{
			Name:    "mcpwire-conformance",
			Version: "1.0.0",
		},
		Input: client.InputOptions{Elicit: acceptDefaults},
		Tasks: true,
	})
}

// with connects, runs play, and closes the connection.
func (s *stage) with(ctx context.Context, play func(*client.Client) error) error {
	c, err := s.dial(ctx)
	if err != nil {
		return err
	}
	return errors.Join(play(c), c.Close())
}

// context decodes the scenario's context.
func (s *stage) context(v any) error {
	if s.text == nil {
		return errors.New("MCP_CONFORMANCE_CONTEXT is missing")
	}
	if err := json.Unmarshal(s.text, v); err != nil {
		return fmt.Errorf("MCP_CONFORMANCE_CONTEXT: %w", err)
	}
	return nil
}
