package streamable

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// benchServerVariable makes the test binary a server for benchmarks of the client, in a separate
// process, so that the benchmark does not include the server's work.
const benchServerVariable = "MCPWIRE_BENCH_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(benchServerVariable) != "" {
		benchServe()
		return
	}
	goleak.VerifyTestMain(m)
}

// benchServe responds to any request at once until standard input ends.
func benchServe() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(l.Addr())
	go http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		id := body[bytes.Index(body, []byte(`"id":`))+5:]
		id = id[:bytes.IndexByte(id, ',')]
		result := `{"resultType":"complete","content":[{"type":"text","text":"done"}]}`
		if r.Header.Get("Mcp-Method") == "server/discover" {
			result = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":`+string(id)+`,"result":`+result+`}`)
	}))
	io.Copy(io.Discard, os.Stdin)
}
