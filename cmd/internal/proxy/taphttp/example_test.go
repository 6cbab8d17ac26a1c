package taphttp_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"

	"mcpwire/capture"
	"mcpwire/cmd/internal/proxy/taphttp"
)

// A client is given the tap's URL in place of the server's.
func Example() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "id: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n")
	}))
	defer server.Close()
	u, _ := url.Parse(server.URL + "/mcp")

	var file bytes.Buffer
	rec := capture.NewWriter(&file, nil)
	h, err := taphttp.New(u, rec, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	tap := httptest.NewServer(h)
	resp, err := http.Post(tap.URL+"/mcp", "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	fmt.Printf("%s", text)
	tap.Close()
	rec.Close()

	for e, err := range capture.NewReader(&file, nil).Events() {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(strings.TrimSpace(string(e.Kind) + " " + string(e.Data)))
	}
	// Output:
	// id: 1
	// data: {"jsonrpc":"2.0","id":1,"result":{}}
	//
	// head
	// req
	// msg {"jsonrpc":"2.0","id":1,"method":"ping"}
	// res
	// msg {"jsonrpc":"2.0","id":1,"result":{}}
	// end
	// tail
}
