package archtest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A row says what one package may import besides the standard library. It is
// also the table of doc/architecture.md.
type row struct {
	layer int
	pkg   string
	// imports are packages of this module, each of a lower layer or below
	// pkg itself. The word anyLower stands for all of lower layers.
	imports []string
	// modules are the other modules that the package may use.
	modules []string
}

// anyLower allows the import of every package of a lower layer.
const anyLower = "anything lower"

var table = []row{
	{0, "internal/jsonwire", nil, nil},
	{0, "internal/sse", nil, nil},
	{0, "internal/printable", nil, nil},
	// Job objects of Windows.
	{0, "internal/winjob", nil, []string{"golang.org/x/sys"}},
	{0, "internal/neterror", nil, nil},
	// Quoting for cmd.exe of Windows.
	{0, "internal/batchfile", nil, []string{"golang.org/x/sys"}},
	// Windows says by numbers of its own that a file is in use.
	{0, "internal/inuse", nil, []string{"golang.org/x/sys"}},
	{0, "internal/spelling", nil, nil},
	// Ends what a process has started that was killed.
	{0, "internal/guardian", nil, nil},
	// A program that is run by go generate.
	{0, "internal/gen", nil, nil},
	{0, "internal/uritemplate", nil, nil},
	{0, "internal/seal", nil, nil},
	{1, "jsonrpc", []string{"internal/jsonwire"}, nil},
	{2, "mcp", []string{"jsonrpc", "internal/jsonwire"}, nil},
	// Serving on real descriptors and supervising processes needs system
	// calls that package syscall does not have for all platforms.
	{2, "stdio", []string{"jsonrpc", "internal/guardian", "internal/winjob", "internal/batchfile"}, []string{"golang.org/x/sys"}},
	// Captures may be compressed with zstd, see doc/adr/0010-dependencies.md.
	{2, "capture", []string{"jsonrpc", "internal/jsonwire"}, []string{"github.com/klauspost/compress"}},
	{3, "internal/httphead", []string{"capture"}, nil},
	{3, "internal/frames", []string{"capture"}, nil},
	{3, "internal/era", []string{"mcp", "jsonrpc", "internal/jsonwire"}, nil},
	{3, "schema", []string{"mcp", "internal/jsonwire"}, nil},
	// The full validator is apart from schema so that only those who ask for
	// it link it.
	{4, "schema/fullschema", []string{"schema", "internal/jsonwire"}, []string{"github.com/santhosh-tekuri/jsonschema/v6"}},
	// Signatures and keys, and locks on the file of a token store, see doc/adr/0020-oauth-client.md.
	{3, "auth", []string{"internal/inuse"}, []string{"github.com/go-jose/go-jose/v4", "golang.org/x/sys"}},
	// The token bucket of the limits on callers.
	{4, "server", []string{"internal/era", "schema", "mcp", "jsonrpc", "internal/jsonwire", "internal/seal", "internal/uritemplate"}, []string{"golang.org/x/time/rate"}},
	{4, "client", []string{"internal/era", "schema", "mcp", "jsonrpc", "internal/jsonwire"}, nil},
	{4, "streamable", []string{"internal/era", "internal/sse", "internal/jsonwire", "internal/neterror", "auth", "mcp", "jsonrpc"}, nil},
	// What messages look like, revision by revision.
	{3, "internal/shape", []string{"mcp", "jsonrpc", "internal/jsonwire"}, nil},
	{5, "check", []string{"internal/printable", "internal/spelling", "internal/era", "internal/shape", "internal/sse", "schema", "schema/fullschema", "capture", "mcp", "jsonrpc", "internal/jsonwire"}, nil},
	// What hosts have configured. Their files are JSON with comments, and TOML.
	{3, "internal/hosts", []string{"internal/inuse", "internal/printable", "internal/spelling"}, []string{"github.com/tailscale/hujson", "github.com/pelletier/go-toml/v2"}},
	// jq's language is part of the language of filters.
	{2, "internal/jq", []string{"internal/winjob"}, []string{"github.com/itchyny/gojq"}},
	{3, "internal/filter", []string{"internal/jq", "jsonrpc", "internal/jsonwire"}, []string{"github.com/itchyny/gojq"}},
	{4, "internal/specref", []string{"internal/spelling", "internal/shape", "internal/era", "mcp", "jsonrpc", "internal/jsonwire"}, nil},
	{4, "internal/captures", []string{"capture"}, []string{"golang.org/x/sys"}},
	{4, "internal/translate", []string{"internal/era", "mcp", "jsonrpc", "internal/jsonwire", "internal/seal", "internal/uritemplate"}, nil},
	{5, "internal/wireview", []string{anyLower}, nil},
	{6, "internal/probe", []string{anyLower}, nil},
	// Both modules are there for our own tests already, see doc/adr/0014-mcptest.md.
	{5, "mcptest", []string{"client", "mcp", "jsonrpc", "internal/jsonwire"}, []string{"github.com/rogpeppe/go-internal/txtar", "go.uber.org/goleak"}},
	// Telemetry is apart from server and client so that only those who ask
	// for it link it, see doc/adr/0017-opentelemetry.md.
	{5, "mcpotel", []string{"server", "client", "mcp", "jsonrpc", "internal/jsonwire"}, []string{"go.opentelemetry.io/otel"}},
	{5, "internal/tap", []string{anyLower}, []string{"golang.org/x/sys"}},
	{5, "internal/taphttp", []string{anyLower}, nil},
	{5, "internal/bridge", []string{anyLower}, nil},
	{5, "internal/gateway", []string{anyLower}, nil},
	{5, "internal/cluster", []string{anyLower}, nil},
	// The sockets on which running taps can be watched.
	{5, "internal/live", []string{anyLower}, []string{"golang.org/x/sys"}},
	{3, "internal/schemadiff", []string{"internal/jsonwire"}, nil},
	{3, "internal/jsondiff", []string{"internal/jsonwire"}, nil},
	{6, "internal/detail", []string{anyLower}, nil},
	{7, "internal/export", []string{anyLower}, nil},
	{6, "internal/importer", []string{anyLower}, nil},
	{6, "internal/inventory", []string{anyLower}, nil},
	{6, "internal/mock", []string{anyLower}, nil},
	{7, "internal/replay", []string{anyLower}, nil},
	{6, "internal/resend", []string{anyLower}, nil},
	{6, "internal/watch", []string{anyLower}, nil},
	{7, "internal/ui", []string{anyLower}, nil},
	// The terminal, see doc/adr/0026-watch.md.
	{7, "internal/tui", []string{anyLower}, []string{"charm.land/bubbletea/v2", "charm.land/bubbles/v2", "github.com/charmbracelet/x/ansi"}},
	{8, "internal/cli", []string{anyLower}, []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "golang.org/x/term", "golang.org/x/sys"}},
	{9, "cmd/mcpwire", []string{"internal/cli"}, nil},
	{8, "internal/conformance/server", []string{anyLower}, nil},
	{8, "internal/conformance/client", []string{anyLower}, nil},
	{10, "internal/archtest", nil, nil},
	{10, "internal/compliance", nil, nil},
	// Its tests import everything; it has no other code.
	{10, "internal/matrix", nil, nil},
}

// rowOf returns the row of a package, or nil.
func rowOf(name string) *row {
	i := slices.IndexFunc(table, func(r row) bool { return r.pkg == name })
	if i < 0 {
		return nil
	}
	return &table[i]
}

// allows reports whether r's package may import the package of another row.
func (r row) allows(other *row) bool {
	if slices.Contains(r.imports, anyLower) {
		return other.layer < r.layer
	}
	return slices.Contains(r.imports, other.pkg)
}

// checkImports complains of each import of p that its row does not allow.
func checkImports(p pkg) []string {
	r := rowOf(p.rel())
	if r == nil {
		return []string{fmt.Sprintf("%s: the package has no row in the table of layers_test.go and doc/architecture.md", p.rel())}
	}
	var complaints []string
	for _, path := range p.Imports {
		first, _, _ := strings.Cut(path, "/")
		switch {
		case path == p.Module.Path || strings.HasPrefix(path, p.Module.Path+"/"):
			name := strings.TrimPrefix(path, p.Module.Path+"/")
			other := rowOf(name)
			if other == nil {
				complaints = append(complaints, fmt.Sprintf("%s imports %s, which has no row", r, name))
			} else if !r.allows(other) {
				complaints = append(complaints, fmt.Sprintf("%s may not import %s", r, other))
			}
		case strings.Contains(first, "."): // not of the standard library
			if !slices.ContainsFunc(r.modules, func(m string) bool { return path == m || strings.HasPrefix(path, m+"/") }) {
				complaints = append(complaints, fmt.Sprintf("%s may not use %s", r, path))
			}
		}
	}
	return complaints
}

// String names a row and what it allows, for messages.
func (r row) String() string {
	allowed := append(slices.Clone(r.imports), r.modules...)
	return fmt.Sprintf("%s (row: layer %d, may import [%s])", r.pkg, r.layer, strings.Join(allowed, ", "))
}

func TestLayers(t *testing.T) {
	for _, goos := range platforms {
		t.Run(goos, func(t *testing.T) {
			for _, p := range goList(t, goos, "./...") {
				report(t, checkImports(p))
			}
		})
	}
}

// TestTable checks the table itself: each package once, arrows only downward,
// except to a package's own parent folder.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range table {
		if seen[r.pkg] {
			t.Errorf("%s has two rows", r.pkg)
		}
		seen[r.pkg] = true
		for _, name := range r.imports {
			if name == anyLower {
				continue
			}
			if other := rowOf(name); other == nil || other.layer >= r.layer {
				t.Errorf("%s: the arrow to %s does not point down", r, name)
			}
		}
	}
}

// noHTTP are the packages that a stdio server or client consists of: carrying
// net/http would cost it megabytes of idle memory and milliseconds of start.
var noHTTP = []string{"jsonrpc", "mcp", "schema", "server", "client", "stdio"}

func TestNoHTTP(t *testing.T) {
	for _, goos := range platforms {
		t.Run(goos, func(t *testing.T) {
			for _, p := range goList(t, goos, "./...") {
				if slices.Contains(noHTTP, p.rel()) && slices.Contains(p.Deps, "net/http") {
					t.Errorf("%s reaches net/http; 'go list -deps ./%[1]s' shows what it links", p.rel())
				}
			}
		})
	}
}

// TestNoTelemetry: what costs nothing when unused is not linked.
func TestNoTelemetry(t *testing.T) {
	for _, p := range goList(t, platforms[0], "./...") {
		linked := func(path string) bool {
			return strings.HasPrefix(path, "go.opentelemetry.io/") || path == p.Module.Path+"/mcpotel"
		}
		if p.rel() != "mcpotel" && slices.ContainsFunc(p.Deps, linked) {
			t.Errorf("%s reaches OpenTelemetry; 'go list -deps ./%[1]s' shows how", p.rel())
		}
	}
}

// TestCheckImports shows that the check sees what it is there for.
func TestCheckImports(t *testing.T) {
	of := func(path string, imports ...string) pkg {
		p := pkg{ImportPath: "mcpwire/" + path, Imports: imports}
		p.Module = &struct {
			Path string
			Main bool
		}{"mcpwire", true}
		return p
	}
	for _, tt := range []struct {
		name string
		pkg  pkg
		want []string
	}{
		{"allowed", of("server", "context", "mcpwire/mcp", "mcpwire/internal/era"), nil},
		{"module", of("stdio", "golang.org/x/sys/unix"), nil},
		{"anything lower", of("internal/cli", "mcpwire/server", "mcpwire/internal/tap"), nil},
		{"upward", of("jsonrpc", "mcpwire/mcp"),
			[]string{"jsonrpc (row: layer 1, may import [internal/jsonwire]) may not import mcp (row: layer 2, may import [jsonrpc, internal/jsonwire])"}},
		{"sibling", of("internal/tap", "mcpwire/internal/bridge"),
			[]string{"internal/tap (row: layer 5, may import [anything lower, golang.org/x/sys]) may not import internal/bridge (row: layer 5, may import [anything lower])"}},
		{"foreign module", of("auth", "golang.org/x/oauth2"),
			[]string{"auth (row: layer 3, may import [internal/inuse, github.com/go-jose/go-jose/v4, golang.org/x/sys]) may not use golang.org/x/oauth2"}},
		{"no row", of("util"),
			[]string{"util: the package has no row in the table of layers_test.go and doc/architecture.md"}},
		{"import without a row", of("auth", "mcpwire/util"),
			[]string{"auth (row: layer 3, may import [internal/inuse, github.com/go-jose/go-jose/v4, golang.org/x/sys]) imports util, which has no row"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, checkImports(tt.pkg)); diff != "" {
				t.Errorf("complaints (-want +got):\n%s", diff)
			}
		})
	}
}
