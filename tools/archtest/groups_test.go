package archtest

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "draw the picture in doc/architecture.md")

// A group is a set of packages with one role. Packages of a group may import
// each other, and packages of the groups that it names.
type group struct {
	name string
	// packages are import paths inside the module. A path that ends with a slash means all packages
	// below it and the folder itself.
	packages []string
	// imports are the names of other groups, each of which comes before this one in the table.
	imports []string
}

// groups is the architecture, from the bottom up. Every package belongs to the
// first group that names it.
var groups = []group{
	// Packages that know nothing of MCP.
	{"base", []string{"health", "internal/json/", "internal/net/", "internal/text/", "internal/proc/", "internal/base/", "cmd/internal/json/", "cmd/internal/text/", "cmd/internal/exit"}, nil},
	{"jsonrpc, mcp", []string{"jsonrpc", "internal/rpc/", "mcp", "cmd/internal/build"}, []string{"base"}},
	{"schema", []string{"schema", "schema/fullschema"}, []string{"base"}},
	{"auth", []string{"auth", "oauth", "internal/auth/"}, []string{"base"}},
	// How the revisions differ.
	{"era", []string{"internal/era/"}, []string{"base", "jsonrpc, mcp"}},
	{"stdio, streamable", []string{"stdio", "streamable"}, []string{"base", "jsonrpc, mcp", "auth", "era"}},
	{"server, client", []string{"server", "client", "middleware"}, []string{"base", "jsonrpc, mcp", "schema", "era"}},
	// What several processes share.
	{"cluster", []string{"cluster", "cluster/clustertest"}, []string{"base", "jsonrpc, mcp", "auth", "stdio, streamable", "server, client"}},
	{"mcptest, mcpotel", []string{"mcptest", "mcpotel"}, []string{"base", "jsonrpc, mcp", "server, client"}},
	// Extensions of the protocol that need more than the standard library.
	{"skills", []string{"skills"}, []string{"base", "jsonrpc, mcp", "server, client"}},
	{"capture", []string{"capture"}, []string{"base", "jsonrpc, mcp"}},
	{"check", []string{"check"}, []string{"base", "jsonrpc, mcp", "schema", "era", "capture"}},
	// Recorded traffic as exchanges, and where it comes from.
	{"trace", []string{"internal/trace/", "cmd/internal/trace/"}, []string{"base", "jsonrpc, mcp", "era", "stdio, streamable", "capture"}},
	// Programs between a client and a server.
	{"proxy", []string{
		"internal/proxy/bridge", "cmd/internal/proxy/gateway", "cmd/internal/proxy/gateway/config", "cmd/internal/proxy/gateway/login", "cmd/internal/proxy/gateway/policy", "cmd/internal/proxy/gateway/traces",
		"cmd/internal/gatewayd", "cmd/internal/proxy/endpoint", "cmd/internal/proxy/intercept", "cmd/internal/proxy/recording", "internal/proxy/resume",
		"cmd/internal/proxy/tap", "cmd/internal/proxy/taphttp", "internal/proxy/translate",
	}, []string{"base", "jsonrpc, mcp", "auth", "era", "stdio, streamable", "capture", "trace"}},
	// The bridge as a library.
	{"bridge", []string{"bridge"}, []string{"jsonrpc, mcp", "stdio, streamable", "server, client", "proxy"}},
	// Gateways in a cluster. Only programs that have one import it, see TestNotLinked.
	{"gateway nodes", []string{"cmd/internal/proxy/gateway/nodes"}, []string{"base", "jsonrpc, mcp", "server, client", "cluster", "proxy"}},
	// Recorded traffic sent again.
	{"playback", []string{"cmd/internal/playback/"}, []string{"base", "jsonrpc, mcp", "era", "stdio, streamable", "capture", "trace", "proxy"}},
	// Tests of live servers.
	{"inspect", []string{"cmd/internal/inspect/"}, []string{"base", "jsonrpc, mcp", "era", "stdio, streamable", "capture", "check", "trace"}},
	// Traffic shown.
	{"view", []string{"cmd/internal/view/"}, []string{"base", "jsonrpc, mcp", "schema", "era", "stdio, streamable", "capture", "check", "trace", "playback"}},
	{"cli", []string{"cmd/internal/cli/", "cmd/internal/demo", "cmd/mcpwire"}, []string{"base", "jsonrpc, mcp", "schema", "auth", "era", "stdio, streamable", "server, client", "skills", "capture", "check", "trace", "proxy", "playback", "inspect", "view"}},
	// Programs for users to copy. No group may import them, and they import public packages only,
	// see TestExamples.
	{"examples", []string{"examples/", "mcpotel/example"}, []string{"base", "jsonrpc, mcp", "auth", "stdio, streamable", "server, client", "mcptest, mcpotel", "skills", "bridge"}},
	// Tests of everything, and the programs that the official conformance suite visits.
	{"test", []string{"internal/test/"}, []string{"base", "jsonrpc, mcp", "schema", "auth", "era", "stdio, streamable", "server, client", "cluster", "skills"}},
}

// undrawn are the groups that the picture omits.
var undrawn = []string{"cluster", "bridge", "gateway nodes", "skills", "examples", "test"}

// modules are the other modules that a package may import, in doc/adr/0001-modules.md
// and the decisions that it refers to. Packages without a row may import none.
var modules = map[string][]string{
	"auth":                              {"github.com/go-jose/go-jose/v4"},
	"capture":                           {"github.com/klauspost/compress"},
	"mcpotel/example":                   {"go.opentelemetry.io/otel"},
	"cmd/internal/cli":                  {"github.com/spf13/cobra", "github.com/spf13/pflag"},
	"cmd/internal/cli/call":             {"github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/sys", "golang.org/x/term"},
	"cmd/internal/cli/check":            {"github.com/spf13/cobra", "github.com/spf13/pflag"},
	"cmd/internal/cli/connect":          {"github.com/spf13/cobra", "github.com/spf13/pflag"},
	"cmd/internal/cli/doctor":           {"github.com/spf13/cobra", "github.com/spf13/pflag"},
	"cmd/internal/cli/kit":              {"github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/term"},
	"cmd/internal/cli/record":           {"github.com/spf13/cobra", "github.com/spf13/pflag"},
	"cmd/internal/cli/servers":          {"github.com/spf13/cobra"},
	"cmd/internal/cli/show":             {"github.com/spf13/cobra"},
	"cmd/internal/cli/sources":          {"github.com/spf13/cobra", "github.com/spf13/pflag"},
	"cmd/internal/cli/targets":          {"github.com/spf13/cobra", "github.com/spf13/pflag"},
	"cmd/internal/exit":                 {"golang.org/x/sys"},
	"cmd/internal/inspect/hosts":        {"github.com/rogpeppe/go-internal/diff", "github.com/tailscale/hujson", "github.com/pelletier/go-toml/v2", "go.yaml.in/yaml/v4"},
	"internal/proc/batchfile":           {"golang.org/x/sys"},
	"internal/proc/filelock":            {"golang.org/x/sys"},
	"internal/proc/inuse":               {"golang.org/x/sys"},
	"internal/proc/procgroup":           {"golang.org/x/sys"},
	"internal/test/issuer":              {"github.com/go-jose/go-jose/v4"},
	"internal/test/specschema":          {"github.com/santhosh-tekuri/jsonschema/v6"},
	"cmd/internal/proxy/endpoint":       {"golang.org/x/sys"},
	"cmd/internal/proxy/gateway/config": {"go.yaml.in/yaml/v4"},
	"cmd/internal/proxy/gateway/policy": {"golang.org/x/time/rate"},
	"cmd/internal/proxy/tap":            {"golang.org/x/sys"},
	"cmd/internal/text/tokens":          {"github.com/klauspost/compress"},
	"cmd/internal/trace/captures":       {"golang.org/x/sys"},
	"cmd/internal/trace/filter":         {"github.com/itchyny/gojq"},
	"cmd/internal/trace/jq":             {"github.com/itchyny/gojq"},
	"cmd/internal/trace/splitter":       {"golang.org/x/sys"},
	"cmd/internal/view/detail":          {"github.com/gomarkdown/markdown"},
	"cmd/internal/view/tui":             {"charm.land/bubbletea/v2", "charm.land/bubbles/v2", "github.com/charmbracelet/x/ansi"},
	"mcptest":                           {"github.com/rogpeppe/go-internal/txtar", "go.uber.org/goleak"},
	"mcpotel":                           {"go.opentelemetry.io/otel"},
	"oauth":                             {"github.com/go-jose/go-jose/v4", "golang.org/x/sys"},
	"server":                            {"golang.org/x/time/rate"},
	"skills":                            {"go.yaml.in/yaml/v4"},
	"stdio":                             {"golang.org/x/sys"},
}

// leaves are groups and packages that import no other package of their group
// except internal/base/defaults, so that a program that imports one of them gets no other.
var leaves = []string{"internal/json/jsonwire", "internal/net/", "internal/text/", "internal/proc/", "internal/base/"}

// groupOf returns the group of a package, or nil.
func groupOf(name string) *group {
	i := slices.IndexFunc(groups, func(g group) bool { return contains(g.packages, name) })
	if i < 0 {
		return nil
	}
	return &groups[i]
}

// contains reports whether a list of packages of a group contains the package.
func contains(list []string, name string) bool {
	return slices.ContainsFunc(list, func(p string) bool {
		folder, all := strings.CutSuffix(p, "/")
		return name == folder || all && strings.HasPrefix(name, p)
	})
}

// checkImports complains of each import of p that its group does not allow.
func checkImports(p pkg) []string {
	g := groupOf(p.rel())
	if g == nil {
		return []string{fmt.Sprintf("%s: the package has no group in groups_test.go", p.rel())}
	}
	var complaints []string
	for _, path := range p.Imports {
		first, _, _ := strings.Cut(path, "/")
		switch name, ours := strings.CutPrefix(path, p.top()+"/"); {
		case ours:
			other := groupOf(name)
			if other == nil {
				complaints = append(complaints, fmt.Sprintf("%s imports %s, which has no group", p.rel(), name))
			} else if other != g && !slices.Contains(g.imports, other.name) {
				complaints = append(complaints, fmt.Sprintf("%s may not import %s: group %q may not import group %q", p.rel(), name, g.name, other.name))
			} else if other == g && contains(leaves, p.rel()) && name != "internal/base/defaults" {
				complaints = append(complaints, fmt.Sprintf("%s may not import %s: it is to import nothing of its group", p.rel(), name))
			}
		case strings.Contains(first, "."): // not of the standard library
			if !slices.ContainsFunc(modules[p.rel()], func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") }) {
				complaints = append(complaints, fmt.Sprintf("%s may not import %s: its modules are %q", p.rel(), path, modules[p.rel()]))
			}
		}
	}
	return complaints
}

func TestGroups(t *testing.T) {
	for _, goos := range platforms {
		t.Run(goos, func(t *testing.T) {
			for _, p := range goList(t, goos, product...) {
				report(t, checkImports(p))
			}
		})
	}
}

// TestTable checks the tables themselves: each group imports groups above it, and
// each package and module that they name exists.
func TestTable(t *testing.T) {
	var names []string
	for _, g := range groups {
		for _, name := range g.imports {
			if !slices.Contains(names, name) {
				t.Errorf("group %q imports %q, which is not above it in the table", g.name, name)
			}
		}
		names = append(names, g.name)
	}
	used := map[string]bool{} // packages, and "package module"
	for _, goos := range platforms {
		for _, p := range goList(t, goos, product...) {
			used[p.rel()] = true
			for _, path := range p.Imports {
				for _, m := range modules[p.rel()] {
					if path == m || strings.HasPrefix(path, m+"/") {
						used[p.rel()+" "+m] = true
					}
				}
			}
		}
	}
	for _, g := range groups {
		for _, name := range append(slices.Clone(g.packages), leaves...) {
			if !slices.ContainsFunc(slices.Collect(maps.Keys(used)), func(p string) bool { return contains([]string{name}, p) }) {
				t.Errorf("%s: no such package", name)
			}
		}
	}
	for name, list := range modules {
		for _, m := range list {
			if !used[name+" "+m] {
				t.Errorf("%s does not import %s", name, m)
			}
		}
	}
}

// TestPicture checks that the picture at the top of doc/architecture.md shows the imports between
// groups. An arrow that other arrows imply is not drawn.
func TestPicture(t *testing.T) {
	const begin, end = "```mermaid\n", "```\n"
	name := filepath.Join(root, "doc", "architecture.md")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(text), begin)
	had, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no mermaid block", name)
	}
	want := picture(imports(goList(t, "linux", product...)))
	if boxes := strings.Count(want, "["); boxes > 16 {
		t.Errorf("the picture has %d boxes, want at most 16", boxes)
	}
	if had == want {
		return
	}
	if !*update {
		t.Fatalf("go test ./tools/archtest -update draws it (-%s +go list):\n%s", name, cmp.Diff(had, want))
	}
	if err := os.WriteFile(name, []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// imports returns the groups that the packages of each group import.
func imports(list []pkg) map[string]map[string]bool {
	arrows := map[string]map[string]bool{}
	for _, p := range list {
		from := groupOf(p.rel())
		if from == nil {
			continue
		}
		if arrows[from.name] == nil {
			arrows[from.name] = map[string]bool{}
		}
		for _, path := range p.Imports {
			name, ours := strings.CutPrefix(path, p.top()+"/")
			if to := groupOf(name); ours && to != nil && to != from {
				arrows[from.name][to.name] = true
			}
		}
	}
	return arrows
}

// picture draws the groups from the top down, with the arrows that no others imply.
func picture(all map[string]map[string]bool) string {
	arrows := map[string]map[string]bool{}
	for from, to := range all {
		arrows[from] = maps.Clone(to)
		for _, name := range undrawn {
			delete(arrows[from], name)
		}
	}
	var reaches func(from, to string) bool
	reaches = func(from, to string) bool {
		if arrows[from][to] {
			return true
		}
		for next := range arrows[from] {
			if reaches(next, to) {
				return true
			}
		}
		return false
	}
	implied := func(from, to string) bool {
		for next := range arrows[from] {
			if next != to && reaches(next, to) {
				return true
			}
		}
		return false
	}
	node := func(name string) string { return strings.ReplaceAll(name, ", ", "_") }
	var b strings.Builder
	b.WriteString("graph TD\n")
	for _, g := range slices.Backward(groups) {
		if !slices.Contains(undrawn, g.name) {
			fmt.Fprintf(&b, "  %s[%s]\n", node(g.name), g.name)
		}
	}
	for _, g := range slices.Backward(groups) {
		if slices.Contains(undrawn, g.name) {
			continue
		}
		for _, to := range slices.Sorted(maps.Keys(arrows[g.name])) {
			if !implied(g.name, to) {
				fmt.Fprintf(&b, "  %s --> %s\n", node(g.name), node(to))
			}
		}
	}
	return b.String()
}

// TestExamples checks that each example is one program that users can copy: it imports neither
// internal packages, not even in its tests, nor another example.
func TestExamples(t *testing.T) {
	n := 0
	for _, s := range sources(t) {
		if !strings.HasPrefix(s.path, "examples/") {
			continue
		}
		n++
		if name := s.file.Name.Name; name != "main" {
			t.Errorf("%s: package %s, want main", s.path, name)
		}
		for _, spec := range s.file.Imports {
			path := strings.Trim(spec.Path.Value, `"`)
			if strings.Contains(path, "/internal/") || strings.Contains(path, "/examples/") {
				t.Errorf("%s: imports %s, which users can't", s.path, path)
			}
		}
	}
	if n == 0 {
		t.Error("no examples found")
	}
}

// noHTTP are the packages that a stdio server or client consists of: net/http
// would cost it megabytes of idle memory and milliseconds of start.
var noHTTP = []string{"jsonrpc", "mcp", "schema", "server", "client", "middleware", "stdio"}

func TestNoHTTP(t *testing.T) {
	for _, goos := range platforms {
		t.Run(goos, func(t *testing.T) {
			for _, p := range goList(t, goos, product...) {
				if slices.Contains(noHTTP, p.rel()) && slices.Contains(p.Deps, "net/http") {
					t.Errorf("%s reaches net/http; 'go list -deps ./%[1]s' shows what it links", p.rel())
				}
			}
		})
	}
}

// TestNotLinked checks what the program and the library do not link: package cluster, and what only
// their users choose, NATS and OpenTelemetry.
func TestNotLinked(t *testing.T) {
	for _, p := range goList(t, platforms[0], product...) {
		if contains([]string{"cluster/", "mcpotel/", "cmd/internal/proxy/gateway/nodes", "internal/test/"}, p.rel()) {
			continue
		}
		for _, path := range p.Deps {
			if path == p.top()+"/cluster" || path == p.top()+"/mcpotel" || strings.HasPrefix(path, "github.com/nats-io/") || strings.HasPrefix(path, "go.opentelemetry.io/") {
				t.Errorf("%s reaches %s; 'go list -deps ./%[1]s' shows how", p.rel(), path)
			}
		}
	}
}

// TestCommandLine checks that no package of the command line has more than 30 files.
func TestCommandLine(t *testing.T) {
	for _, p := range goList(t, platforms[0], "./cmd/internal/cli/...") {
		if n := len(p.GoFiles); n > 30 {
			t.Errorf("%s has %d files: move a part of it to another package", p.rel(), n)
		}
	}
}

// TestNode checks that a node of a cluster runs a gateway without the command line.
func TestNode(t *testing.T) {
	for _, p := range goList(t, platforms[0], "./cmd/mcpwire-node") {
		for _, path := range p.Deps {
			if strings.Contains(path+"/", "/cmd/internal/cli/") || strings.HasPrefix(path, "github.com/spf13/") {
				t.Errorf("%s reaches %s; 'go list -deps ./%[1]s' shows how", p.rel(), path)
			}
		}
	}
}

// TestCheckImports tests checkImports.
func TestCheckImports(t *testing.T) {
	of := func(path string, imports ...string) pkg {
		p := pkg{ImportPath: "example.com/wire/" + path, Imports: imports}
		p.Module = &struct {
			Path string
			Main bool
		}{"example.com/wire", true}
		return p
	}
	for _, tt := range []struct {
		name string
		pkg  pkg
		want []string
	}{
		{"allowed", of("server", "context", "example.com/wire/mcp", "example.com/wire/internal/era"), nil},
		{"module", of("stdio", "golang.org/x/sys/unix"), nil},
		{"own group", of("internal/proxy/bridge", "example.com/wire/internal/proxy/translate"), nil},
		{"upward", of("jsonrpc", "example.com/wire/server"),
			[]string{`jsonrpc may not import server: group "jsonrpc, mcp" may not import group "server, client"`}},
		{"sideways", of("cmd/internal/proxy/tap", "example.com/wire/cmd/internal/view/detail"),
			[]string{`cmd/internal/proxy/tap may not import cmd/internal/view/detail: group "proxy" may not import group "view"`}},
		{"leaf", of("internal/net/sse", "example.com/wire/internal/json/jsonwire"),
			[]string{"internal/net/sse may not import internal/json/jsonwire: it is to import nothing of its group"}},
		{"foreign module", of("auth", "golang.org/x/oauth2"),
			[]string{`auth may not import golang.org/x/oauth2: its modules are ["github.com/go-jose/go-jose/v4"]`}},
		{"no group", of("util"), []string{"util: the package has no group in groups_test.go"}},
		{"import without a group", of("auth", "example.com/wire/util"), []string{"auth imports util, which has no group"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, checkImports(tt.pkg)); diff != "" {
				t.Errorf("complaints (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDrawing checks that picture omits the arrows that others imply.
func TestDrawing(t *testing.T) {
	got := picture(map[string]map[string]bool{
		"capture":      {"jsonrpc, mcp": true, "base": true, "skills": true}, // skills is not drawn
		"jsonrpc, mcp": {"base": true},
	})
	_, got, _ = strings.Cut(got, "  base[base]\n")
	want := "  capture --> jsonrpc_mcp\n  jsonrpc_mcp --> base\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("arrows (-want +got):\n%s", diff)
	}
}
