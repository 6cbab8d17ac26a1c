package interop

import "testing"

// TestAgreementHTTP is TestAgreement over HTTP, where the status and the body of
// a refusal say which era a server is of, and whether it may know HTTP+SSE only.
func TestAgreementHTTP(t *testing.T) {
	web1 := func(path string) *peer { return typeScriptWeb(typeScript1Peer, path, "web1.mjs", legacyRevisions, nil) }
	web2 := func(legacy string) *peer {
		return typeScriptWeb(typeScript2Peer, webPath, "web2.mjs", allRevisions, map[string]any{"legacy": legacy})
	}
	our := ourWeb(webPath, allRevisions)
	for _, tt := range []agreement{
		{"ours", our, nil, nil, modern, []string{probed}},
		{"ours, legacy server", our, legacyRevisions, nil, latestLegacy, []string{probed, handshake}},
		{"ours, modern server, legacy client", our, []string{modern}, legacyRevisions, "", []string{handshake}},
		{"ours, old client", our, nil, []string{"2024-11-05"}, "2024-11-05", []string{handshake}},
		{"ours, HTTP+SSE", ourWeb(oldPath, legacyRevisions), nil, nil, latestLegacy, []string{probed, handshake, handshake}},
		{"go-sdk", goSDKWeb(webPath, legacyRevisions), nil, nil, latestLegacy, []string{probed, handshake}},
		{"go-sdk, stateless", goSDKWeb(webPath, allRevisions, statelessWord), nil, nil, modern, []string{probed}},
		{"go-sdk, stateless, old client", goSDKWeb(webPath, allRevisions, statelessWord), nil, []string{"2025-03-26"}, "2025-03-26", []string{handshake}},
		{"go-sdk, HTTP+SSE", goSDKWeb(oldPath, legacyRevisions), nil, nil, latestLegacy, []string{probed, handshake, handshake}},
		{"mcp-go", mcpGoWeb(webPath, allRevisions), nil, nil, modern, []string{probed}},
		{"mcp-go, stateless, old client", mcpGoWeb(webPath, allRevisions, statelessWord), nil, []string{"2025-03-26"}, "2025-03-26", []string{handshake}},
		{"TypeScript 1", web1(webPath), nil, nil, latestLegacy, []string{probed, handshake}},
		{"TypeScript 1, modern client", web1(webPath), nil, []string{modern}, "", []string{probed}},
		{"TypeScript 1, HTTP+SSE", web1(oldPath), nil, nil, latestLegacy, []string{probed, handshake, handshake}},
		{"TypeScript 2", web2("sessions"), nil, nil, modern, []string{probed}},
		{"TypeScript 2, stateless, legacy client", web2("stateless"), nil, legacyRevisions, latestLegacy, []string{handshake}},
		{"TypeScript 2, modern server, legacy client", web2("reject"), nil, legacyRevisions, "", []string{handshake}},
	} {
		t.Run(tt.name, tt.run)
	}
}

// TestUndeclaredHTTP is TestUndeclared over HTTP, where modern refusals have their own status.
func TestUndeclaredHTTP(t *testing.T) {
	asks := deviation{rule: serverRequest, has: "has not declared", why: "capabilities are left for servers to look at"}
	for _, tt := range []undeclared{
		{ourWeb(webPath, allRevisions), latestLegacy, nil},
		{ourWeb(webPath, allRevisions), modern, nil},
		{goSDKWeb(webPath, allRevisions, statelessWord), modern, []deviation{asks, unbuffered}},
		{typeScriptWeb(typeScript2Peer, webPath, "web2.mjs", allRevisions, nil), modern, nil},
	} {
		t.Run(tt.peer.name+" "+tt.revision, tt.run)
	}
}
