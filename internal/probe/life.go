package probe

import "mcpwire/check"

// rulesLife are the rules about servers that end.
var rulesLife = []check.Rule{
	{
		ID: "probe/no-handshake", Severity: check.Error,
		Title: "No handshake succeeds",
		Why:   "Nothing else could be tried: this server was not checked, and no client can use it.",
		Fix:   "Look at its standard error; mcpwire doctor looks for the reason. If it is slow, --connect-timeout waits longer.",
		URL:   "basic/versioning",
		Good:  check.Example{Revision: rev20251125, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"$rev\",\"capabilities\":{},\"clientInfo\":{\"name\":\"c\",\"version\":\"1\"}}}\nwait 30s"},
	},
	{
		ID: "probe/died", Severity: check.Error,
		Title: "A request ends the server",
		Why:   "One request of one client takes everything with it that others are waiting for. Whatever is wrong with a request, its answer is an error.",
		Fix:   "Catch what the handling of a request throws, and answer with an error.",
		URL:   "basic",
		Good:  check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{}}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32602,\"message\":\"no name\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{}}\n! TypeError: undefined is not an object\nexit 1"},
	},
	{
		ID: "probe/unanswered", Severity: check.Error,
		Title: "A request is not answered in time",
		Why:   "Every request gets a response, be it an error. Hosts wait until they give up, and then take the server for dead.",
		Fix:   "Answer, also what is not known or not right. Set a longer --timeout if it is only slow.",
		URL:   "basic#responses",
		Good:  check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"vendor/x\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"method not found\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"vendor/x\"}\nwait 10s"},
	},
	{
		ID: "probe/fragile", Severity: check.Warning,
		Title: "Input that is no message, or a very large one, ends the server",
		Why:   "A library that prints a line to the wrong pipe, or a large document, is enough to disconnect the user.",
		Fix:   "Pass over what cannot be read, or answer -32700 or -32600, and read on.",
		URL:   "basic/transports#stdio",
		Good:  check.Example{Revision: rev20251125, Text: "init\n> hello\n< {\"jsonrpc\":\"2.0\",\"error\":{\"code\":-32700,\"message\":\"parse error\"}}\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\n> hello\nexit 1"},
	},
	{
		ID: "probe/error-code", Severity: check.Warning,
		Title: "An error has another code than the one that is meant for it",
		Why:   "Clients tell by the code what went wrong: whether to offer something else, to give up, or to ask for the list again.",
		Fix:   "Answer -32601 to unknown methods, -32602 to parameters, names and cursors that do not exist, -32603 only when something broke.",
		URL:   "basic#responses",
		Good:  check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"vendor/x\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32601,\"message\":\"method not found\"}}"},
		Bad:   check.Example{Revision: rev20251125, Text: "init\n> {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"vendor/x\"}\n< {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32603,\"message\":\"internal error\"}}"},
	},
}
