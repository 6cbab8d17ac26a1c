package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// A script that needs a server with the habits of real ones runs this program with a variable:
// mcpwire list -e MCPWIRE_TEST_SERVER=rough -- mcpwire
func init() {
	if os.Getenv("MCPWIRE_TEST_SERVER") != "rough" {
		return
	}
	serveRough(os.Getenv("MCPWIRE_TEST_CAPABILITIES"))
	os.Exit(0)
}

// serveRough is a legacy server that writes text to standard output that is not a message, sends
// log messages without a request, has resources but no templates, cannot list its prompts, and
// returns a hostile cursor. MCPWIRE_TEST_RESULTS has other results, by method, and MCPWIRE_TEST_ID the
// id of responses to calls of tools.
func serveRough(capabilities string) {
	var results map[string]json.RawMessage
	if text := os.Getenv("MCPWIRE_TEST_RESULTS"); text != "" {
		if err := json.Unmarshal([]byte(text), &results); err != nil {
			panic(err)
		}
	}
	if capabilities == "" {
		capabilities = `{"tools":{},"resources":{},"prompts":{},"logging":{}}`
	}
	fmt.Print("Rough server 1.0\nready\n")
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Cursor string }
		}
		if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		result, failure := "", `{"code":-32601,"message":"Method not found"}`
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-06-18","serverInfo":{"name":"rough","version":"1"},"capabilities":` + capabilities + `}`
		case "tools/list":
			for _, level := range []string{"debug", "info", "warning"} {
				fmt.Printf(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":%q,"data":"listing tools"}}`+"\n", level)
			}
			result = `{"tools":[{"name":"shoot","description":"Takes a picture.\nOf anything.","annotations":{"readOnlyHint":true},"inputSchema":{"type":"object","required":["of"],"properties":` +
				`{"of":{"type":"string","description":"What to take it of."},"width":{"type":"integer","description":"In pixels.","default":640,"minimum":1}}}},{"name":"develop","inputSchema":{}}]}`
		case "resources/list":
			if result = `{"resources":[],"nextCursor":"'; touch ran; '"}`; m.Params.Cursor != "" {
				result = `{"resources":[]}`
			}
		case "prompts/list":
			failure = `{"code":-32603,"message":"fetch failed"}`
		case "tools/call":
			picture := strings.Repeat("AAAA", 1000)
			result = `{"content":[{"type":"image","mimeType":"image/png","data":"` + picture + `"}],"structuredContent":{"width":640,"data":"` + picture + `"}}`
		}
		if own := results[m.Method]; own != nil {
			result = string(own)
		}
		if id := os.Getenv("MCPWIRE_TEST_ID"); id != "" && m.Method == "tools/call" {
			m.ID = json.RawMessage(id)
		}
		if result != "" {
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
		} else {
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":%s}`+"\n", m.ID, failure)
		}
	}
}
