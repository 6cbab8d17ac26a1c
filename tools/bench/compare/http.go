//go:build linux

package main

import "fmt"

// A reply is a way for a server to answer, and the servers that can, the limit
// first.
type reply struct {
	name    string
	servers func(e era) []peer
}

var replies = []reply{
	{"JSON", func(e era) []peer {
		return []peer{
			{name: "rawhttp", pkg: "./peers/rawhttp"},
			{name: ours, pkg: "./httpserver"},
			{name: "go-sdk", pkg: "./peers/gosdk", args: e.stateless()},
			{name: "mcp-go", pkg: "./peers/mcpgo", args: e.stateless()},
		}
	}},
	{"SSE", func(e era) []peer {
		return []peer{
			{name: "rawhttp", pkg: "./peers/rawhttp", args: []string{"-sse"}},
			{name: ours, pkg: "./httpserver", args: []string{"-sse"}},
			{name: "go-sdk", pkg: "./peers/gosdk", args: append(e.stateless(), "-sse")},
		}
	}},
}

// stateless returns the arguments that disable sessions in the SDKs: none of them serves both eras
// with one handler.
func (e era) stateless() []string {
	if e.modern() {
		return []string{"-stateless"}
	}
	return nil
}

// measureHTTP loads the servers with one call in flight and, from separate processes that may use
// all processors, with many.
func measureHTTP(r *run) ([]table, error) {
	var tables []table
	for _, e := range eras {
		for _, how := range replies {
			peers, err := r.build(how.servers(e))
			if err != nil {
				return nil, err
			}
			for _, windows := range [][]int{{1}, {16, 64}} {
				err := place(r.pin && windows[0] == 1, func() error {
					measured, err := r.measureSites(e, how.name, peers, windows)
					tables = append(tables, measured...)
					return err
				})
				if err != nil {
					return nil, fmt.Errorf("%s, %s: %w", e.name, how.name, err)
				}
			}
		}
	}
	return tables, nil
}

func (r *run) measureSites(e era, reply string, peers []peer, windows []int) ([]table, error) {
	var sites []*site
	defer func() {
		for _, s := range sites {
			s.close()
		}
	}()
	for _, p := range peers {
		s, err := startSite(p)
		if err != nil {
			return nil, err
		}
		sites = append(sites, s)
	}
	var tables []table
	for _, window := range windows {
		for _, s := range sites {
			if err := s.connect(window, e, r.echo); err != nil {
				return nil, err
			}
		}
		samples, err := r.interleave(len(sites), func(who int) (sample, error) { return sites[who].load(window, r.block) })
		if err != nil {
			return nil, err
		}
		c := comparison{
			title: fmt.Sprintf("HTTP servers, %s era, %s replies, %d connections", e.name, reply, window),
			time:  "time per call", peers: peers, samples: samples,
		}
		if window == 1 {
			c.time = "p50"
			c.title = fmt.Sprintf("HTTP servers, %s era, %s replies, 1 connection", e.name, reply)
		}
		tables = append(tables, c.table())
	}
	return tables, nil
}
