package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"mcpwire/client"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

// serverTransport returns the transport to the scenario's server.
func (s *stage) serverTransport() client.Transport {
	switch {
	case s.transport != nil:
		return s.transport
	case len(s.via) == 0:
		return streamable.NewTransport(s.url, &streamable.TransportOptions{HTTPClient: s.http})
	}
	cmd := stdio.Command(s.via[0], append(s.via[1:], s.url)...)
	cmd.Env, cmd.Stderr = s.env, os.Stderr
	return cmd
}

// secretVariable is the environment variable that passes the client's secret to the command.
const secretVariable = "MCPWIRE_CONFORMANCE_SECRET"

// playVia plays an authorization scenario with a command that logs in, such as mcpwire bridge. The
// command gets as flags what its user would pass. Its tokens are deleted afterward.
func (s *stage) playVia(ctx context.Context, l *login) (err error) {
	home, err := os.MkdirTemp("", "mcpwire-conformance")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	s.env = []string{"MCPWIRE_HOME=" + home}
	if l.ClientID != "" {
		s.via = append(s.via, "--client-id", l.ClientID)
	}
	if l.Issuer != "" {
		s.via = append(s.via, "--issuer", l.Issuer)
	}
	if l.ClientSecret != "" {
		s.via = append(s.via, "--client-secret-env", secretVariable)
		s.env = append(s.env, secretVariable+"="+l.ClientSecret)
	}
	return s.with(ctx, func(c *client.Client) error { return callAll(ctx, c) })
}

// browserName is the program that opens pages for the user. Started under this name, this program
// acts as a user who agrees to everything.
const browserName = "xdg-open"

// browse visits a page and follows its redirects.
func browse(ctx context.Context, args []string, _ func(string) string) error {
	if len(args) != 1 {
		return errors.New("there is one address to go to")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0], nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s responds with status %d", filepath.Base(resp.Request.URL.Path), resp.StatusCode)
	}
	return nil
}
