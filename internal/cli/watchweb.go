package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"

	"mcpwire/internal/net/httpserve"
	"mcpwire/internal/playback/resend"
	"mcpwire/internal/view/watch"
	"mcpwire/internal/view/web"
)

// watchWeb serves the page until ctx ends. It prints only the address, with the token, on standard
// output.
func watchWeb(ctx context.Context, e *env, hub *watch.Hub, f *watchFlags, dir string) error {
	s := web.New(hub, &web.Options{AllowRemote: f.allowRemote, Tool: "mcpwire " + Version, Resend: &resend.Options{Dir: dir, Tool: "mcpwire " + Version}})
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", f.web)
	if err != nil {
		return fail(exitUnexpected, "listen", "use another ADDR, or --web alone for any free port", fmt.Errorf("serve the page: %w", err))
	}
	address := s.URL(l.Addr())
	if f.parsed != nil {
		address += "#" + url.Values{"f": {f.filter}}.Encode()
	}
	if _, err := fmt.Fprintln(e.stdout, address); err != nil {
		return errors.Join(err, l.Close())
	}
	fmt.Fprintln(e.stderr, "Open this address in a browser on this machine. Anyone who has it can read everything. Ctrl+C stops the server.")
	if f.open {
		if err := openBrowser(ctx, address); err != nil {
			fmt.Fprintf(e.stderr, "the browser could not be opened: %v\n", err)
		}
	}
	err = s.Serve(ctx, l)
	if errors.Is(err, httpserve.ErrRemoteAddress) {
		return fail(exitUnexpected, "remote_address", "give --allow-remote, or listen at 127.0.0.1", fmt.Errorf("other machines can reach %s, and the page shows private data", l.Addr()))
	}
	return err
}
