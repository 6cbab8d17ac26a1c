package specref_test

import (
	"fmt"
	"os"

	"mcpwire/cmd/internal/inspect/specref"
	"mcpwire/mcp"
)

func ExampleWrite() {
	entries := specref.Open().Lookup("Mcp-Method", nil)
	if err := specref.Write(os.Stdout, entries, specref.Style{}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// Mcp-Method (header)
	//   the method of the request
	//
	// Revisions  2026-07-28
	// From       client
	// When       with every POST of a request, best with notifications too; a server
	//            does not refuse a notification that lacks it
	// Page       https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#standard-request-headers
	//
	// Notes
	//   - names of headers ignore case, values do not: TOOLS/CALL is a mismatch. White
	//     space around the value does not count.
	//
	// Rules
	//   server:
	//     S90  A request is refused if a header says something else than the body that
	//          it mirrors.
	//     S91  Such a request has the status 400.
	//     S92  Such a request has the error -32020.
	//     S99  Case does not matter in the names of headers.
	//   client:
	//     C55  No request lacks `Mcp-Method`.
	//
	// Example: header
	//   Mcp-Method: tools/call
}

func ExampleBook_Lookup() {
	for _, e := range specref.Open().Lookup("elicitation/create", []mcp.Revision{mcp.Revision20260728}) {
		fmt.Println(e.Kind, e.Name, e.Directions[0].Text)
	}
	// Output: method elicitation/create server to client, within an input_required result
}
