//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A gateway is a program that serves several servers at one endpoint, or stands in for one.
type gateway struct {
	name string
	tool string // the name of echo there
	// path is where the stream of HTTP+SSE begins. Empty means that clients use Streamable HTTP.
	path string
	// modern says that clients and servers of the modern era can use it.
	modern bool
	// config is the text of the configuration file, with urlMark for the URL of the server.
	config string
	// command is the command line, with fileMark for the configuration file. It is nil if the
	// program is not there.
	command func(p *bridgeEnd) []string
	slow    bool
}

const (
	urlMark  = "{url}"
	fileMark = "{file}"
)

// gatewayServers is the number of other servers behind each gateway, whose tools are not called.
const gatewayServers = 3

// gatewayText is the length of the text of a call.
const gatewayText = 1 << 10

// gatewayWindows are the numbers of calls in flight, each on its own connection.
var gatewayWindows = []int{1, 16, 64}

func mcpwireGateway(name, more string) gateway {
	return gateway{name: name, tool: "bench__echo", modern: true,
		config: "listen: {address: \"{addr}\"}\n" + more + "upstreams:\n  bench: {url: \"{url}\"}\n  a: {url: \"{url}\"}\n  b: {url: \"{url}\"}\n  c: {url: \"{url}\"}\n",
		command: func(p *bridgeEnd) []string {
			return []string{p.bridge, "gateway", fileMark}
		}}
}

// standIn returns a program that forwards requests without reading them.
func standIn(name string, args ...string) gateway {
	return gateway{name: name, tool: "echo", modern: true, command: func(p *bridgeEnd) []string {
		return append([]string{p.proxy, "-http", addrMark, "-to", urlMark}, args...)
	}}
}

// gateways are the programs to compare, ours first.
var gateways = []gateway{
	mcpwireGateway(ours, ""),
	mcpwireGateway("mcpwire, with view, limits and audit", "views: [{allow: [\"bench__*\"]}]\nlimits: {perCaller: {rate: 1000000, burst: 1000000, concurrent: 1000}}\naudit: {dir}/audit.jsonl\n"),
	mcpwireGateway("mcpwire, recording", "capture: {dir}/captures\n"),
	standIn("net/http ReverseProxy"),
	standIn("handler with net/http's client", "-post"),
	{name: "vmcp", tool: "bench_echo", config: vmcpConfig, command: func(p *bridgeEnd) []string {
		if p.vmcp == "" {
			return nil
		}
		return []string{p.vmcp, "serve", "--config", fileMark, "--port", portMark}
	}},
	{name: "mcp-hub, HTTP+SSE", tool: "bench__echo", path: "/mcp", slow: true,
		config: `{"mcpServers":{"bench":{"url":"{url}"},"a":{"url":"{url}"},"b":{"url":"{url}"},"c":{"url":"{url}"}}}`,
		command: func(p *bridgeEnd) []string {
			if p.packages == "" {
				return nil
			}
			return []string{"node", filepath.Join(p.packages, "mcp-hub"), "--config", fileMark, "--port", portMark}
		}},
}

const vmcpConfig = `name: bench
groupRef: bench
incomingAuth: {type: anonymous}
outgoingAuth: {source: inline, default: {type: unauthenticated}}
aggregation: {conflictResolution: prefix, conflictResolutionConfig: {prefixFormat: "{workload}_"}}
backends:
  - {name: bench, url: "{url}", transport: streamable-http}
  - {name: a, url: "{url}", transport: streamable-http}
  - {name: b, url: "{url}", transport: streamable-http}
  - {name: c, url: "{url}", transport: streamable-http}
`

// measureGateways has a client call a server over HTTP through gateways, and without one.
func measureGateways(r *run) ([]table, error) {
	p, err := r.prepareBridges()
	if err != nil {
		return nil, err
	}
	if p.proxy, err = r.compile("./peers/rawproxy"); err != nil {
		return nil, err
	}
	t := table{title: fmt.Sprintf("client and server on HTTP, texts of %d bytes, %d servers behind each gateway", gatewayText, 1+gatewayServers), columns: []string{"eras", ""}}
	for _, window := range gatewayWindows {
		if window == 1 {
			t.columns = append(t.columns, "p50 of 1 in flight", "added", "/ no gateway", "CPU")
		} else {
			t.columns = append(t.columns, fmt.Sprintf("time per call, %d in flight", window), "/ mcpwire", "CPU", "/ mcpwire", "calls/s and core")
		}
	}
	for _, c := range crossings(way{onHTTP, onHTTP}) {
		rows, err := p.measureGatewaysIn(c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c, err)
		}
		t.rows = append(t.rows, rows...)
	}
	return []table{t}, nil
}

func (p *bridgeEnd) measureGatewaysIn(c crossing) (rows [][]string, err error) {
	web, err := startSite(peer{name: "the server", path: p.web, args: []string{"-era", c.server.name}})
	if err != nil {
		return nil, err
	}
	defer web.close()
	var subjects []*subject
	defer func() {
		for _, s := range subjects {
			err = errors.Join(err, s.close())
		}
	}()
	direct, err := p.connect(unbridged, way{onHTTP, onHTTP}, c.server, []string{web.url()})
	if direct != nil {
		subjects = append(subjects, direct)
	}
	if err != nil {
		return nil, err
	}
	for i, g := range gateways {
		command, err := g.start(p, c, web.url(), fmt.Sprintf("gateway-%s-%s-%d", c.client.name, c.server.name, i))
		if err != nil {
			return nil, err
		}
		if command == nil {
			continue
		}
		w, e := way{onHTTP, onHTTP}, c.client
		if g.path != "" {
			w.downstream, p.oldPath = onOld, g.path
		}
		e.tool = g.tool
		s, err := p.connect(g.name, w, e, command)
		p.oldPath, p.configure = "", nil
		if s == nil {
			return nil, err
		}
		s.slow = g.slow
		subjects = append(subjects, s)
		if err := s.check(err); err != nil {
			return nil, err
		}
	}
	for _, s := range subjects {
		rows = append(rows, []string{c.String(), strings.Replace(s.name, unbridged, "no gateway", 1)})
	}
	for _, window := range gatewayWindows {
		err := place(p.pin && window == 1, func() error { return p.loadGateways(subjects, window, rows) })
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// start writes the configuration and returns the command line, or nil if the gateway does not do
// that.
func (g gateway) start(p *bridgeEnd, c crossing, url, name string) ([]string, error) {
	command := g.command(p)
	if command == nil || !g.modern && (c.client.modern() || c.server.modern()) || g.tool == "echo" && c.client.name != c.server.name {
		return nil, nil
	}
	dir := filepath.Join(p.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "config.yaml")
	for i := range command {
		command[i] = strings.NewReplacer(urlMark, url, fileMark, file).Replace(command[i])
	}
	p.configure = func(addr string) error {
		text := strings.NewReplacer(urlMark, url, "{dir}", dir, addrMark, addr).Replace(g.config)
		return os.WriteFile(file, []byte(text), 0o600)
	}
	return command, nil
}

// loadGateways loads the subjects in turn and appends the columns to their rows.
func (p *bridgeEnd) loadGateways(subjects []*subject, window int, rows [][]string) error {
	text := strings.Repeat("x", gatewayText)
	for _, s := range subjects {
		if err := s.check(s.prepare(window, text, p.block)); err != nil {
			return err
		}
	}
	samples, err := p.interleave(len(subjects), func(who int) (sample, error) {
		s := subjects[who]
		if s.failed != nil {
			return sample{}, nil
		}
		taken, err := s.load(window, p.block)
		return taken, s.check(err)
	})
	if err != nil {
		return err
	}
	all := comparison{samples: samples}
	for _, s := range subjects {
		all.peers = append(all.peers, peer{name: s.name})
	}
	for who, s := range subjects {
		rows[who] = append(rows[who], gatewayCells(all, who, s, window)...)
	}
	return nil
}

// gatewayCells are the columns about a subject with so many calls in flight.
func gatewayCells(all comparison, who int, s *subject, window int) []string {
	took, cpu := all.median(who, timeOf), all.median(who, cpuOf)
	switch {
	case s.failed != nil && window == 1:
		return []string{"failed", "", "", ""}
	case s.failed != nil:
		return []string{"failed", "", "", "", ""}
	case window == 1 && s.pid == 0:
		return []string{micros(took), "", "1.00", ""}
	case window == 1:
		return []string{micros(took), micros(took - all.median(0, timeOf)), times(all.ratios(who, unbridged, timeOf), true), micros(cpu)}
	case s.pid == 0:
		return []string{micros(took), times(all.ratios(who, ours, timeOf), false), "", "", ""}
	}
	return []string{micros(took), times(all.ratios(who, ours, timeOf), false), micros(cpu), times(all.ratios(who, ours, cpuOf), false), fmt.Sprintf("%d", time.Second/max(cpu, 1))}
}
