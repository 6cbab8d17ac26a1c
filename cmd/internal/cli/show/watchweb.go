package show

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/cmd/internal/view/watch"
	"mcpwire/cmd/internal/view/web"
	"mcpwire/internal/net/httpserve"
)

// watchWeb serves the page until ctx ends. It prints only the address, with the token, on standard
// output.
func watchWeb(ctx context.Context, e *kit.Env, hub *watch.Hub, f *watchFlags, dir string) error {
	last, err := openWebAccess(dir, f.newToken)
	if err != nil {
		fmt.Fprintf(e.Stderr, "this address is for this time only: %v\n", err)
	}
	s := web.New(hub, &web.Options{AllowRemote: f.allowRemote, Token: last.Token, Tool: "mcpwire " + build.Version(), Resend: &resend.Options{Dir: dir, Tool: "mcpwire " + build.Version()}})
	l, err := last.listen(ctx, f.web)
	if err != nil {
		return exit.Fail(exit.Unexpected, "listen", "use another ADDR, or --web alone for any free port", fmt.Errorf("serve the page: %w", err))
	}
	if err := last.save(); err != nil {
		fmt.Fprintf(e.Stderr, "this address is for this time only: %v\n", err)
	}
	address := s.URL(l.Addr())
	if f.parsed != nil {
		address += "#" + url.Values{"f": {f.filter}}.Encode()
	}
	if _, err := fmt.Fprintln(e.Stdout, address); err != nil {
		return errors.Join(err, l.Close())
	}
	fmt.Fprintln(e.Stderr, "Open this address in a browser on this machine. Anyone who has it can read everything. Ctrl+C stops the server.")
	if f.open {
		if err := targets.OpenBrowser(ctx, address); err != nil {
			fmt.Fprintf(e.Stderr, "the browser could not be opened: %v\n", err)
		}
	}
	err = s.Serve(ctx, l)
	if errors.Is(err, httpserve.ErrRemoteAddress) {
		return exit.Fail(exit.Unexpected, "remote_address", "give --allow-remote, or listen at 127.0.0.1", fmt.Errorf("other machines can reach %s, and the page shows private data", l.Addr()))
	}
	return err
}

// A webAccess is the access to the page that stays the same from one watch --web to the next. It is
// kept in a file that only the user can read.
type webAccess struct {
	Port  int    `json:"port"`
	Token string `json:"token"`

	// path is the file. It is empty if nothing is to be saved.
	path string
}

const (
	webAccessName  = "web.json"
	minTokenLength = 32      // characters; shorter ones are replaced
	maxWebAccess   = 4 << 10 // bytes of the file
)

// openWebAccess reads the file beside the folder of captures. The result has a token even if there
// is no file, or an error. fresh replaces what the file has.
func openWebAccess(captures string, fresh bool) (*webAccess, error) {
	a := &webAccess{Token: web.NewToken()}
	if captures == "" {
		return a, nil
	}
	a.path = filepath.Join(filepath.Dir(captures), webAccessName)
	if fresh {
		return a, nil
	}
	info, err := os.Lstat(a.path)
	if errors.Is(err, fs.ErrNotExist) {
		return a, nil
	}
	if err != nil {
		return a, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxWebAccess || runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return a, nil // replaced: others could have read the token
	}
	text, err := os.ReadFile(a.path)
	if err != nil {
		return a, err
	}
	var last webAccess
	if json.Unmarshal(text, &last) == nil && len(last.Token) >= minTokenLength {
		a.Port, a.Token = last.Port, last.Token
	}
	return a, nil
}

// listen listens at an address. targets.WebHere means the port of the last time, or if that is in
// use, any free port.
func (a *webAccess) listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	if address != targets.WebHere {
		return lc.Listen(ctx, "tcp", address)
	}
	if a.Port > 0 && a.Port < 1<<16 {
		if l, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(a.Port))); err == nil {
			return l, nil
		}
		// Another watch has the port, and keeps it.
		return lc.Listen(ctx, "tcp", address)
	}
	l, err := lc.Listen(ctx, "tcp", address)
	if t, ok := addrOf(l).(*net.TCPAddr); ok {
		a.Port = t.Port
	}
	return l, err
}

func addrOf(l net.Listener) net.Addr {
	if l == nil {
		return nil
	}
	return l.Addr()
}

// save writes the file.
func (a *webAccess) save() error {
	if a.path == "" {
		return nil
	}
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	dir := filepath.Dir(a.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, webAccessName+"-") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), a.path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
