package probe_test

import (
	"context"
	"fmt"
	"log"
	"net/http/httptest"

	"mcpwire/cmd/internal/inspect/probe"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

func ExampleRun() {
	h := streamable.MustHandler(server.MustNew("example", "1.0.0", nil), nil)
	srv := httptest.NewServer(h)
	defer srv.Close()
	defer h.Shutdown(context.Background())

	report, err := probe.Run(context.Background(), &probe.Target{URL: srv.URL, Transport: srv.Client().Transport}, &probe.Options{
		Revisions: []mcp.Revision{mcp.LatestRevision},
		Disabled:  []string{"probe/http-lenient"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(report.Findings), "findings")
	// Output: 0 findings
}

func ExampleLookup() {
	r, _ := probe.Lookup("probe/eof")
	fmt.Println(r.Severity, r.Title)
	// Output: warning The server does not exit when its standard input ends
}
