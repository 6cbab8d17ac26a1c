package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/mcptest"
	"mcpwire/server"
)

func TestAcceptDefaults(t *testing.T) {
	got, err := acceptDefaults(t.Context(), &mcp.ElicitRequestParams{RequestedSchema: json.RawMessage(`{"type":"object","properties":{
		"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},
		"verified":{"type":"boolean","default":false},"confirmed":{"type":"boolean"},"note":{"type":"string"}}}`)})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"age":30,"confirmed":true,"name":"John Doe","score":95.5,"verified":false}`
	if got.Action != mcp.ElicitActionAccept || string(got.Content) != want {
		t.Errorf("got %s %s, want accept %s", got.Action, got.Content, want)
	}
}

// A recorder is a server that records the calls of its tools.
type recorder struct {
	*server.Server
	calls []string
}

func newRecorder(t *testing.T, revision mcp.Revision, tools map[string]string) *recorder {
	t.Helper()
	r := &recorder{Server: server.MustNew("recorder", "1", &server.Options{
		Revisions:      []mcp.Revision{revision},
		AdvertiseKinds: []server.Kind{server.KindTool, server.KindResource, server.KindPrompt},
	})}
	for name, schema := range tools {
		err := r.AddRawTool(mcp.Tool{Name: name, InputSchema: json.RawMessage(schema)}, func(c *server.Call, args json.RawMessage) (*mcp.CallToolResult, error) {
			if strings.HasSuffix(name, "_defaults") {
				res, err := c.Elicit(c, "form", &mcp.ElicitRequestParams{Message: "m", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","default":7}}}`)})
				if err != nil {
					return nil, err
				}
				args = res.Content
			}
			r.calls = append(r.calls, name+" "+string(args))
			return &mcp.CallToolResult{}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func TestParts(t *testing.T) {
	const object = `{"type":"object"}`
	for _, tt := range []struct {
		scenario, text string
		tools          map[string]string
		want           []string
	}{
		{"initialize", "", nil, nil},
		{"request-metadata", "", map[string]string{"x": object}, nil},
		{"tools_call", "", map[string]string{"add_numbers": object}, []string{`add_numbers {"a":5,"b":3}`}},
		{"elicitation-sep1034-client-defaults", "", map[string]string{"test_client_elicitation_defaults": object}, []string{`test_client_elicitation_defaults {"n":7}`}},
		{"sse-retry", "", map[string]string{"test_reconnection": object}, []string{"test_reconnection {}"}},
		{"json-schema-2020-12-preservation", "", map[string]string{"json_schema_2020_12_tool": `{"type":"object","$defs":{"x":{"$anchor":"a"}}}`, "json_schema_echo": object},
			[]string{`json_schema_echo {"schema":{"type":"object","$defs":{"x":{"$anchor":"a"}}}}`}},
		{"http-custom-headers", `{"toolCalls":[{"name":"x","arguments":{"v":" padded "}},{"name":"x","arguments":{"v":null}}]}`,
			map[string]string{"x": object}, []string{`x {"v":" padded "}`, `x {"v":null}`}},
		{"http-invalid-tool-headers", "", map[string]string{"valid_tool": object}, []string{`valid_tool {"region":"us-west1"}`}},
		{"http-standard-headers", "", map[string]string{"x": object}, []string{"x {}"}},
	} {
		for _, r := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
			rec := newRecorder(t, r, tt.tools)
			s := &stage{text: json.RawMessage(tt.text), transport: client.FramerTransport(mcptest.Serve(t, rec))}
			if err := partOf(tt.scenario)(t.Context(), s); err != nil {
				t.Errorf("%s, %v: %v", tt.scenario, r, err)
			}
			if !slices.Equal(rec.calls, tt.want) {
				t.Errorf("%s, %v: calls %q, want %q", tt.scenario, r, rec.calls, tt.want)
			}
		}
	}
}

func TestRunRejects(t *testing.T) {
	for _, tt := range []struct {
		args           []string
		scenario, text string
		want           string
	}{
		{nil, "initialize", "", "the suite passes a URL"},
		{[]string{"http://localhost"}, "", "", "the suite passes a URL"},
		{[]string{"http://localhost"}, "no-such", "", `unknown scenario "no-such"`},
		{[]string{"http://localhost"}, "http-custom-headers", "", "MCP_CONFORMANCE_CONTEXT is missing"},
		{[]string{"http://localhost"}, "auth/pre-registration", "{", "MCP_CONFORMANCE_CONTEXT: "},
		{[]string{"http://localhost"}, "auth/client-credentials-jwt", "{}", "private_key_pem is not PEM"},
	} {
		env := map[string]string{"MCP_CONFORMANCE_SCENARIO": tt.scenario, "MCP_CONFORMANCE_CONTEXT": tt.text}
		err := run(t.Context(), tt.args, func(name string) string { return env[name] })
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q %q: got %v, want %q", tt.scenario, tt.text, err, tt.want)
		}
	}
}

// TestLogins checks that package oauth accepts the options of each login.
func TestLogins(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	l := login{
		ClientID: "id", ClientSecret: "secret", WorkloadJWT: "a.b.c", IDPClientID: "i", IDPIDToken: "t", IDPTokenEndpoint: "http://localhost:1/token",
		PrivateKey: string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), Algorithm: "ES256",
	}
	keyLogin := l
	keyLogin.ClientSecret = ""
	for name, tt := range map[string]struct {
		options loginOptions
		login   *login
	}{
		"user": {userOptions, &l}, "pre-registered": {preregistered, &l}, "machine": {machineOptions, &l}, "key": {keyOptions, &keyLogin},
		"enterprise": {enterpriseOptions, &l}, "workload": {workloadOptions, &l}, "bound": {boundOptions, &l},
	} {
		opts, err := tt.options(tt.login)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _, err := authorized("http://localhost:1/mcp", opts); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
