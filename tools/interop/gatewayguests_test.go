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

// A gatewayVisit is a case of [TestGatewayGuests]: a guest, its transport to the gateway, and the
// era and transport of the server that it visits. A second server, of the other era, is behind the
// same gateway.
type gatewayVisit struct {
	guest    *bridgeGuest
	revision string
	// front is the path of the gateway over HTTP. If it is empty, clients start the gateway.
	front string
	// serverRevisions are the revisions of the server.
	serverRevisions []string
	// web is set if the server's transport is HTTP.
	web bool
}

// gatewayVisits returns the cases: each guest in each of its eras, with servers of both eras. The
// transports alternate, so that each pair of eras has each pair of transports.
func gatewayVisits() (visits []gatewayVisit) {
	for _, revision := range []string{latestLegacy, modern} {
		i := 0
		for n := range bridgeGuests {
			g := &bridgeGuests[n]
			if !slices.Contains(g.revisions, revision) {
				continue
			}
			for j, serverRevisions := range [][]string{legacyRevisions, {modern}} {
				v := gatewayVisit{guest: g, revision: revision, serverRevisions: serverRevisions, web: (i/2+j)%2 == 0}
				if (i+j)%2 == 0 {
					v.front = webPath
				}
				visits = append(visits, v)
			}
			i++
		}
	}
	return visits
}

func (r *gatewayVisit) modern() bool { return r.serverRevisions[0] == modern }

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

// TestGatewayGuests lets guests visit our server through a gateway with two servers. The gateway
// keeps the names of tools and prompts of the visited server.
func TestGatewayGuests(t *testing.T) {
	skipWithoutBridge(t)
	for _, v := range gatewayVisits() {
		t.Run(v.name(), func(t *testing.T) {
			t.Parallel()
			v.run(t)
		})
	}
}

// run makes the visit.
func (r *gatewayVisit) run(t *testing.T) {
	visited := newEverythingServer(t, r.web, r.serverRevisions)
	others := []string{modern}
	if r.modern() {
		others = legacyRevisions
	}
	other := newEverythingServer(t, !r.web, others)
	p := newGuestGateway(t, r.front, visited, other, r.modern())
	able := featuresOf(r.revision)
	for _, l := range bridgeLacks {
		if l.guest == r.guest.name && l.where(r.front, r.revision) {
			l.what(&able)
		}
	}
	if !r.modern() && !r.web {
		// The gateway reads the lists of such a server from a separate process, and the tool extend
		// changes the process of the client.
		able.Subscribe = false
	}
	want := expected(r.revision, able)
	if r.guest.adapt != nil {
		r.guest.adapt(&want)
	}
	want.Server = "mcpwire-gateway"
	want.Instructions = "## everything\n\n" + instructions + "\n\n## other\n\n" + instructions
	for _, list := range []*[]string{&want.Tools, &want.Prompts} {
		for _, name := range *list {
			*list = append(*list, "other__"+name)
		}
		*list = sorted(*list)
	}
	// Guests use the server's own URIs, which the other server is not allowed to offer, too.
	for _, list := range []*[]string{&want.Resources, &want.Templates} {
		for i, uri := range *list {
			(*list)[i] = strings.Replace(uri, "://", "://everything+", 1)
		}
		*list = sorted(*list)
	}
	checkVisit(t, r.guest.send(t, p.downstream, r.revision, able), want)
	known := raceDeviations(r.front, r.revision)
	if r.guest.known != nil {
		known = append(known, r.guest.known(r.front, r.revision)...)
	}
	gateways := 1
	if r.guest.twice && r.revision == modern && r.front == "" {
		gateways = 2
	}
	p.auditGateways(gateways, other, known)
}

// newEverythingServer returns the everything server with some revisions.
func newEverythingServer(t *testing.T, web bool, serverRevisions []string) *recordedServer {
	t.Helper()
	if web {
		return newWebProgram(t, webPath, everythingWebVerb, serverRevisions...)
	}
	return newProgram(t, everythingVerb, serverRevisions...)
}

// newGuestGateway returns a gateway in front of two servers. It keeps the names of tools and
// prompts of the first one. path is the path of the gateway over HTTP; if it is empty, clients
// start the gateway.
func newGuestGateway(t *testing.T, path string, visited, other *recordedServer, modern bool) *guestProxy {
	t.Helper()
	type upstream struct {
		Command   []string            `json:"command,omitempty"`
		URL       string              `json:"url,omitempty"`
		Era       string              `json:"era"`
		Rename    map[string]string   `json:"rename,omitempty"`
		Resources map[string][]string `json:"resources,omitempty"`
	}
	entry := func(s *recordedServer, modern bool) upstream {
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
	second := entry(other, !modern)
	second.Resources = map[string][]string{"deny": {"*"}}
	text, err := json.Marshal(map[string]any{ // JSON is YAML
		"listWait":          "30s",
		"labelElicitations": "never", // guests see the messages of the servers
		"upstreams":         map[string]upstream{"everything": first, "other": second},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	p := &guestProxy{bridged: bridged{upstream: visited}, home: t.TempDir()}
	command := []string{"env", "MCPWIRE_HOME=" + p.home, serverCommand[0], "gateway", "--record", "--redact", "off"}
	if path == "" {
		p.downstream = newCommand(t, append(command, "--stdio", file)...)
	} else {
		p.downstream = newWebProgram(t, path, termVerb, append(command, "--listen", "127.0.0.1:0", file)...)
	}
	return p
}

// auditGateways is audit for gateways. The number of server processes depends on the era: a gateway
// reads the lists of a legacy server in a separate session.
func (p *guestProxy) auditGateways(gateways int, other *recordedServer, known []deviation) {
	t := p.upstream.t
	t.Helper()
	p.checkGone()
	other.checkGone()
	if t.Failed() {
		return
	}
	p.downstream.audit(gateways, known...)
	for _, s := range []*recordedServer{p.upstream, other} {
		processes := 1
		if s.web == nil {
			if processes = len(s.transcripts()); processes == 0 {
				t.Error("started processes of a server = 0, want at least 1")
			}
		}
		s.audit(processes)
	}
	files, err := filepath.Glob(filepath.Join(p.home, "captures", "*"+capture.Suffix))
	if err != nil || len(files) != gateways {
		t.Errorf("captures = %q, %v, want %d", files, err, gateways)
	}
	for _, file := range files {
		p.checkCapture(file)
	}
}
