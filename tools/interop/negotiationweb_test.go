package interop

import "testing"

// TestNegotiationHTTP is TestNegotiation over HTTP. There the status and the body of an error show
// the era of a server, and whether it may support only HTTP+SSE.
func TestNegotiationHTTP(t *testing.T) {
	web1 := func(path string) *peer { return typeScriptWeb(typeScript1Peer, path, "web1.mjs", legacyRevisions, nil) }
	web2 := func(legacy string) *peer {
		return typeScriptWeb(typeScript2Peer, webPath, "web2.mjs", allRevisions, map[string]any{"legacy": legacy})
	}
	our := ourWeb(webPath, allRevisions)
	for _, tt := range []negotiation{
		{"ours", our, nil, nil, modern, []string{probed}},
		{"ours, legacy server", our, legacyRevisions, nil, latestLegacy, []string{probed, handshake}},
		{"ours, modern server, legacy client", our, []string{modern}, legacyRevisions, "", []string{handshake}},
		{"ours, old client", our, nil, []string{"2024-11-05"}, "2024-11-05", []string{handshake}},
		{"ours, HTTP+SSE", ourWeb(ssePath, legacyRevisions), nil, nil, latestLegacy, []string{probed, handshake, handshake}},
		{"go-sdk", goSDKWeb(webPath, legacyRevisions), nil, nil, latestLegacy, []string{probed, handshake}},
		{"go-sdk, stateless", goSDKWeb(webPath, allRevisions, statelessArg), nil, nil, modern, []string{probed}},
		{"go-sdk, stateless, old client", goSDKWeb(webPath, allRevisions, statelessArg), nil, []string{"2025-03-26"}, "2025-03-26", []string{handshake}},
		{"go-sdk, HTTP+SSE", goSDKWeb(ssePath, legacyRevisions), nil, nil, latestLegacy, []string{probed, handshake, handshake}},
		{"mcp-go", mcpGoWeb(webPath, allRevisions), nil, nil, modern, []string{probed}},
		{"mcp-go, stateless, old client", mcpGoWeb(webPath, allRevisions, statelessArg), nil, []string{"2025-03-26"}, "2025-03-26", []string{handshake}},
		{"TypeScript 1", web1(webPath), nil, nil, latestLegacy, []string{probed, handshake}},
		{"TypeScript 1, modern client", web1(webPath), nil, []string{modern}, "", []string{probed}},
		{"TypeScript 1, HTTP+SSE", web1(ssePath), nil, nil, latestLegacy, []string{probed, handshake, handshake}},
		{"TypeScript 2", web2("sessions"), nil, nil, modern, []string{probed}},
		{"TypeScript 2, stateless, legacy client", web2("stateless"), nil, legacyRevisions, latestLegacy, []string{handshake}},
		{"TypeScript 2, modern server, legacy client", web2("reject"), nil, legacyRevisions, "", []string{handshake}},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestUndeclaredHTTP is TestUndeclared over HTTP, where modern errors have their own status.
func TestUndeclaredHTTP(t *testing.T) {
	sends := deviation{rule: serverRequest, has: "has not declared", why: "the SDK leaves the check of capabilities to servers"}
	for _, tt := range []undeclaredCase{
		{ourWeb(webPath, allRevisions), latestLegacy, nil},
		{ourWeb(webPath, allRevisions), modern, nil},
		{goSDKWeb(webPath, allRevisions, statelessArg), modern, []deviation{sends, buffered}},
		{typeScriptWeb(typeScript2Peer, webPath, "web2.mjs", allRevisions, nil), modern, nil},
	} {
		t.Run(tt.peer.name+" "+tt.revision, tt.run)
	}
}
