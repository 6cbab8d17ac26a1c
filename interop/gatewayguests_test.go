package interop

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mcpwire/capture"
)

// A gatewayVisit is a row of [TestGatewayGuests]: a foreign client, how it reaches the gateway, and
// the era and transport of the server that it visits there. A second server, of the other era, is
// behind the same gateway.
type gatewayVisit struct {
	guest    *bridgeGuest
	revision string
	// front is where clients find the gateway over HTTP; empty has them start it.
	front string
	// speaks are the revisions of the server.
	speaks []string
	// web is set if the server is reached over HTTP.
	web bool
}

// gatewayVisits returns the rows: each client in each of its eras before servers of both eras. The
// transports alternate, so that each pair of eras has each pair of transports.
func gatewayVisits() (rows []gatewayVisit) {
	for _, revision := range []string{latestLegacy, modern} {
		i := 0
		for n := range bridgeGuests {
			g := &bridgeGuests[n]
			if !slices.Contains(g.revisions, revision) {
				continue
			}
			for j, speaks := range [][]string{legacyRevisions, {modern}} {
				row := gatewayVisit{guest: g, revision: revision, speaks: speaks, web: (i/2+j)%2 == 0}
				if (i+j)%2 == 0 {
					row.front = webPath
				}
				rows = append(rows, row)
			}
			i++
		}
	}
	return rows
}

func (r *gatewayVisit) modern() bool { return r.speaks[0] == modern }

func (r *gatewayVisit) name() string {
	transport := func(web bool) string {
		if web {
			return "HTTP"
		}
		return "stdio"
	}
	era := "legacy"
	if r.modern() {
		era = modern
	}
	return strings.Join([]string{r.guest.name, r.revision, transport(r.front != ""), "to", era, transport(r.web)}, " ")
}

// TestGatewayGuests has foreign clients visit our server behind a gateway that has two, and renames
// the tools and prompts of the one that is visited.
func TestGatewayGuests(t *testing.T) {
	skipWithoutBridge(t)
	for _, row := range gatewayVisits() {
		t.Run(row.name(), func(t *testing.T) {
			t.Parallel()
			row.run(t)
		})
	}
}

// run makes the visit.
func (r *gatewayVisit) run(t *testing.T) {
	visited := newEverythingServer(t, r.web, r.speaks)
	others := []string{modern}
	if r.modern() {
		others = legacyRevisions
	}
	other := newEverythingServer(t, !r.web, others)
	p := newGatewayPassage(t, r.front, visited, other, r.modern())
	able := allOf(r.revision)
	for _, l := range bridgeLacks {
		if l.guest == r.guest.name && l.where(r.front, r.revision) {
			l.what(&able)
		}
	}
	if !r.modern() && !r.web {
		// The gateway reads the lists of such a server from a process of its own, and the tool
		// extend extends that of the client.
		able.Subscribe = false
	}
	want := expected(r.revision, able)
	if r.guest.adapt != nil {
		r.guest.adapt(&want)
	}
	want.Server = "mcpwire-gateway"
	want.Instructions = "## everything\n\n" + instructions + "\n\n## other\n\n" + instructions
	for list, prefix := range map[*[]string]string{&want.Tools: "other__", &want.Prompts: "other__", &want.Resources: "mcpw+other:", &want.Templates: "mcpw+other:"} {
		for _, name := range *list {
			*list = append(*list, prefix+name)
		}
		*list = sorted(*list)
	}
	checkVisit(t, r.guest.send(t, p.downstream, r.revision, able), want)
	known := crossings(r.front, r.revision)
	if r.guest.known != nil {
		known = append(known, r.guest.known(r.front, r.revision)...)
	}
	gateways := 1
	if r.guest.twice && r.revision == modern && r.front == "" {
		gateways = 2
	}
	p.auditGateways(gateways, other, known)
}

// newEverythingServer returns our server with everything, for some revisions.
func newEverythingServer(t *testing.T, web bool, speaks []string) *witnessed {
	t.Helper()
	if web {
		return newWebProgram(t, webPath, everythingWebVerb, speaks...)
	}
	return newProgram(t, everythingVerb, speaks...)
}

// newGatewayPassage puts a gateway before two servers. The names of tools and prompts of the first
// one are its own. path is where clients find the gateway over HTTP; empty has them start it.
func newGatewayPassage(t *testing.T, path string, visited, other *witnessed, modern bool) *passage {
	t.Helper()
	type upstream struct {
		Command []string          `json:"command,omitempty"`
		URL     string            `json:"url,omitempty"`
		Era     string            `json:"era"`
		Rename  map[string]string `json:"rename,omitempty"`
	}
	entry := func(s *witnessed, modern bool) upstream {
		u := upstream{Era: "legacy"}
		if modern {
			u.Era = "modern"
		}
		if s.web != nil {
			u.URL = s.web.url()
			return u
		}
		program, args := s.command()
		u.Command = append([]string{program}, args...)
		return u
	}
	first := entry(visited, modern)
	first.Rename = map[string]string{}
	for _, names := range [][]string{surfaceTools, surfacePrompts, {"interview", "work", "extra", "asked"}} {
		for _, name := range names {
			first.Rename[name] = name
		}
	}
	text, err := json.Marshal(map[string]any{ // JSON is YAML
		"listWait":  "30s",
		"upstreams": map[string]upstream{"everything": first, "other": entry(other, !modern)},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	p := &passage{bridged: bridged{upstream: visited}, home: t.TempDir()}
	command := []string{"env", "MCPWIRE_HOME=" + p.home, serverCommand[0], "gateway", "--record", "--redact", "off"}
	if path == "" {
		p.downstream = newCommand(t, append(command, "--stdio", file)...)
	} else {
		p.downstream = newWebProgram(t, path, keeperVerb, append(command, "--listen", "127.0.0.1:0", file)...)
	}
	return p
}

// auditGateways is audit for gateways. How many processes of its servers a gateway starts depends
// on their era: the catalog of a legacy server has a session of its own.
func (p *passage) auditGateways(gateways int, other *witnessed, known []deviation) {
	t := p.upstream.t
	t.Helper()
	p.checkGone()
	other.checkGone()
	if t.Failed() {
		return
	}
	p.downstream.audit(gateways, known...)
	for _, s := range []*witnessed{p.upstream, other} {
		processes := 1
		if s.web == nil {
			if processes = len(s.transcripts()); processes == 0 {
				t.Error("a server was never started")
			}
		}
		s.audit(processes)
	}
	files, err := filepath.Glob(filepath.Join(p.home, "captures", "*"+capture.Suffix))
	if err != nil || len(files) != gateways {
		t.Errorf("captures: got %q, %v, want %d", files, err, gateways)
	}
	for _, file := range files {
		p.checkCapture(file)
	}
}
