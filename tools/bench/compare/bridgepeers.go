//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A bridge is a program that connects clients to a server on another transport.
type bridge struct {
	name   string
	script string // of a package of npm; "" is ours
	// args returns the arguments for a way and a crossing, or nil if the bridge does not support
	// them. addr is the address that clients connect to; far is the URL or the command of the
	// upstream server.
	args func(w way, c crossing, upstream []string) []string
}

const (
	addrMark = "{addr}"
	portMark = "{port}"
)

// bridges are the bridges to compare, ours first. All are configured to log as little as possible.
var bridges = []bridge{
	{name: ours, args: func(w way, _ crossing, upstream []string) []string {
		switch {
		case w.downstream == onHTTP:
			return append([]string{"bridge", "--listen", addrMark, "--"}, upstream...)
		case w.downstream == onOld:
			return append([]string{"bridge", "--listen", addrMark, "--sse", "--"}, upstream...)
		case w.upstream == onOld:
			return []string{"bridge", "--transport", "sse", upstream[0]}
		}
		return []string{"bridge", upstream[0]}
	}},
	{name: "mcp-remote", script: "mcp-remote", args: func(w way, c crossing, upstream []string) []string {
		args := []string{upstream[0], "--silent"}
		switch {
		case w.downstream != onStdio || c.client.modern() && !c.server.modern():
			return nil
		case c.server.modern():
			return append(args, "--protocol", "auto")
		case w.upstream == onOld:
			return append(args, "--transport", "sse-only")
		}
		return args
	}},
	{name: "supergateway", script: "supergateway", args: func(w way, c crossing, upstream []string) []string {
		quiet := []string{"--logLevel", "none"}
		switch {
		case c.client.name != c.server.name || w.downstream == onStdio && c.server.modern():
			return nil
		case w.upstream == onOld:
			return append(quiet, "--sse", upstream[0])
		case w.downstream == onStdio:
			return append(quiet, "--streamableHttp", upstream[0])
		}
		quiet = append(quiet, "--stdio", strings.Join(upstream, " "), "--port", portMark, "--outputTransport")
		if w.downstream == onOld {
			return append(quiet, "sse")
		}
		return append(quiet, "streamableHttp", "--stateful")
	}},
	{name: "mcp-proxy", script: "mcp-proxy", args: func(w way, c crossing, upstream []string) []string {
		kind := map[transport]string{onHTTP: "stream", onOld: "sse"}[w.downstream]
		if kind == "" {
			return nil
		}
		return append([]string{"--host", "127.0.0.1", "--port", portMark, "--server", kind, "--gracefulShutdownTimeout", "100",
			"--upstreamProtocol", c.server.name, "--"}, upstream...)
	}},
}

// command is the command line of a bridge, nil if it does not do that.
func (b bridge) command(p *bridgeEnd, w way, c crossing, upstream []string) []string {
	args := b.args(w, c, upstream)
	switch {
	case args == nil, b.script != "" && p.packages == "":
		return nil
	case b.script == "":
		return append([]string{p.bridge}, args...)
	}
	return append([]string{"node", filepath.Join(p.packages, b.script)}, args...)
}

// npmFolder returns where the programs of the packages are that were installed in a folder.
func npmFolder(dir string) (string, error) {
	if _, err := exec.LookPath("node"); err != nil {
		return "", errors.New("node is missing")
	}
	path, err := filepath.Abs(filepath.Join(dir, "node_modules", ".bin"))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("the others are installed by: npm ci --prefix %s --ignore-scripts", dir)
	}
	return path, nil
}

// npmVersions says which versions of Node.js and of its packages are in a folder; nothing if there
// are none.
func npmVersions(dir string) string {
	if _, err := npmFolder(dir); err != nil {
		return ""
	}
	node, err := exec.Command("node", "--version").Output()
	if err != nil {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(dir, "package.json"))
	var list struct {
		Dependencies map[string]string `json:"dependencies"`
	}
	if err != nil || json.Unmarshal(text, &list) != nil {
		return ""
	}
	versions := "; Node.js " + strings.TrimSpace(string(node))
	for _, name := range slices.Sorted(maps.Keys(list.Dependencies)) {
		versions += ", " + name + " " + list.Dependencies[name]
	}
	return versions
}

// at returns a command line with an address in it.
func at(command []string, addr string) []string {
	_, port, _ := net.SplitHostPort(addr)
	command = slices.Clone(command)
	for i := range command {
		command[i] = strings.NewReplacer(addrMark, addr, portMark, port).Replace(command[i])
	}
	return command
}
