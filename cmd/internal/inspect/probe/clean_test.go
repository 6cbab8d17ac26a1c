package probe

import (
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/mcp"
	"mcpwire/streamable"
)

// TestCleanStdio shows that there are no findings for a server that follows the rules.
func TestCleanStdio(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		report, err := probeFake(t, flaw{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Findings) > 0 {
			t.Errorf("findings:%s", verbose(report.Findings))
		}
		if diff := cmp.Diff(mcp.Revisions(), report.Revisions); diff != "" {
			t.Errorf("revisions (-want +got):\n%s", diff)
		}
		if report.Events < 200 || report.Requests < 80 {
			t.Errorf("%d events for %d requests: some requests were not sent", report.Events, report.Requests)
		}
	})
}

// TestCleanHTTP is TestCleanStdio over HTTP. A server that accepts lenient headers gets an info
// finding, since that is not wrong.
func TestCleanHTTP(t *testing.T) {
	for _, always := range []bool{false, true} {
		h := streamable.MustHandler(newServer(t), &streamable.Options{StreamAlways: always})
		srv := httptest.NewServer(h)
		report, err := Run(t.Context(), &Target{URL: srv.URL, Transport: srv.Client().Transport}, nil)
		srv.Close()
		if shutErr := h.Shutdown(t.Context()); shutErr != nil {
			t.Error(shutErr)
		}
		if err != nil {
			t.Fatal(err)
		}
		list := slices.DeleteFunc(brief(report.Findings), func(id string) bool { return id == "probe/http-lenient" })
		if len(list) > 0 {
			t.Errorf("StreamAlways %v: findings:%s", always, verbose(report.Findings))
		}
		if len(report.Revisions) != len(mcp.Revisions()) {
			t.Errorf("StreamAlways %v: got the revisions %v", always, report.Revisions)
		}
	}
}
