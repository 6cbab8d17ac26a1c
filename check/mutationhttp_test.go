package check_test

// mutationsOfHTTP break what HTTP has besides the messages.
var mutationsOfHTTP = []mutation{
	{"http/accept", "http-*", `(Accept: application/json), text/event-stream`, `$1`, ""},
	{"http/get-accept", "http-r2 http-r4", `^(> req x\d+\nGET .*Accept: )text/event-stream`, `${1}application/json`, ""},
	{"http/version-header-missing", "http-r3 http-r4 http-r5", `Mcp-Protocol-Version: [^\n]*\n`, ``, "http/header-not-checked"},
	{"http/version-header-mismatch", "http-r5", `(Mcp-Protocol-Version: )[^\n]*`, `${1}2025-11-25`, "http/header-not-checked"},
	{"http/version-header-other", "http-r3 http-r4", `(Mcp-Protocol-Version: )[^\n]*`, `${1}2025-03-26`, ""},
	{"http/version-accepted", "web-r3 web-r4", `^(> req x6\nPOST .*Mcp-Protocol-Version: )[^\n]*`, `${1}tomorrow`, "http/version-header-other"},
	{"http/token-in-query", "http-* web-*", `^(> req [^\n]*\nPOST [^\n]*)`, `$1?access_token=x`, ""},
	{"http/content-type", "http-* web-*", `^(> req [^\n]*\nPOST .*Content-Type: )[^\n]*`, `${1}text/plain`, ""},

	{"http/method-header", "http-r5", `Mcp-Method: prompts/list`, `Mcp-Method: Prompts/list`, "http/header-not-checked"},
	{"http/name-header", "http-r5", `Mcp-Name: review`, `Mcp-Name: x`, "http/header-not-checked"},
	{"http/param-header", "http-r5", `Mcp-Param-Region: eu`, `Mcp-Param-Region: us`, "http/header-not-checked"},
	{"http/param-header-missing", "http-r5", `Mcp-Param-Region: eu\n`, ``, "http/header-not-checked"},
	{"http/header-not-checked", "http-r5", `Mcp-Method: prompts/list\n`, ``, "http/method-header"},

	{"http/accepted-status", "http-r2 http-r4", `^(< res x\d+\n)202`, `${1}200`, ""},
	{"http/accepted-body", "web-r2 web-r4", `"id":2,"method":"ping"`, `"method":"vendor/x"`, "http/accepted-status jsonrpc/unknown-id"},
	{"http/reply-type", "http-*", `^(< res x\d+\n200.*Content-Type: )application/json`, `${1}text/html`, ""},
	{"http/get-reply", "http-r2 http-r4", `^(< res «^> req (x\d+)\nGET».*Content-Type: )text/event-stream`, `${1}text/html`, ""},
	{"http/status", "web-r5", `^(< res x\d+\n)404`, `${1}200`, ""},
	{"http/challenge-missing", "web-*", `Www-Authenticate: [^\n]*\n`, ``, ""},

	{"http/session-missing", "web-r2 web-r3 web-r4", `^(> req x6\nPOST .*)Mcp-Session-Id: [^\n]*\n`, `$1`, ""},
	{"http/session-kept", "web-r2 web-r3 web-r4", `^(< res x6\n)200`, `${1}404`, ""},
	{"http/session-after-delete", "web-r2 web-r3 web-r4", `^(< res x9\n)404`, `${1}200`, ""},
	{"http/session-id-characters", "web-r2 web-r3 web-r4", `^(< res .*Mcp-Session-Id: )`, `${1}é`, "http/session-missing"},
	{"http/event-id-twice", "http-r4", `^(< msg x\d+\nevent: \nid: )[^\n]+`, `${1}«^< sse x\d+\nevent: \nid: (\S+)»`, ""},
	{"http/response-on-get", "http-r3 http-r4", `^< msg x\d+(.*"contents":\[)`, `< msg «^> req (x\d+)\nGET»$1`, "http/"},
	{"http/retry", "web-r4", `retry: 1\n`, "retry: 60000\n", ""},
	{"http/stream-unfinished", "http-r5", `^< msg .*"text":"done"`, "DROP", "lifecycle/unanswered"},
	{"http/event-name", "http-*", `^< msg (x\d+\nevent: )\n`, "< sse ${1}update\n", ""},
}
