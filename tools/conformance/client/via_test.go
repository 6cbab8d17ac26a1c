package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/stdio"
)

const viaURL = "http://localhost:1/mcp"

// TestMain runs this program as the command that a client connects through if the last argument is
// the address of the server.
func TestMain(m *testing.M) {
	if os.Args[len(os.Args)-1] != viaURL {
		os.Exit(m.Run())
	}
	if err := serveVia(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveVia serves one tool, and requires the options of a login if the first argument says so.
func serveVia(args []string) error {
	if args[0] == "login" {
		if got, want := args[1:len(args)-1], []string{"--client-id", "me", "--issuer", "it", "--client-secret-env", secretVariable}; !slices.Equal(got, want) {
			return fmt.Errorf("got %q, want %q", got, want)
		}
		if os.Getenv(secretVariable) != "hush" {
			return errors.New("no secret in the environment")
		}
		if _, err := os.Stat(os.Getenv("MCPWIRE_HOME")); err != nil {
			return err
		}
	}
	srv := server.MustNew("via", "1", nil)
	err := srv.AddRawTool(mcp.Tool{Name: "add_numbers", InputSchema: []byte(`{"type":"object"}`)}, func(*server.Call, json.RawMessage) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.TextContent{Text: "8"}}}, nil
	})
	return errors.Join(err, (&stdio.Config{}).Serve(context.Background(), srv))
}

// TestVia checks that the arguments before the URL are a command, which the client starts and
// connects to, and that a command that must log in gets the scenario's credentials.
func TestVia(t *testing.T) {
	const login = `{"client_id":"me","client_secret":"hush","issuer":"it"}`
	for _, tt := range []struct {
		scenario, text string
		via            []string
		want           string
	}{
		{"tools_call", "", []string{os.Args[0], "plain"}, ""},
		{"tools_call", "", nil, "refused"}, // no server listens at the address
		{"auth/pre-registration", login, []string{os.Args[0], "login"}, ""},
		{"auth/pre-registration", "{}", []string{os.Args[0], "login"}, "want"},
	} {
		env := map[string]string{"MCP_CONFORMANCE_SCENARIO": tt.scenario, "MCP_CONFORMANCE_CONTEXT": tt.text}
		err := run(t.Context(), append(tt.via, viaURL), func(name string) string { return env[name] })
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s through %q: got %v, want %q", tt.scenario, tt.text, tt.via, err, tt.want)
		}
	}
}

// TestBrowse checks that the browser follows redirects, and returns an error if the last page does
// not exist.
func TestBrowse(t *testing.T) {
	var arrived bool
	mux := http.NewServeMux()
	mux.Handle("/authorize", http.RedirectHandler("/callback", http.StatusFound))
	mux.HandleFunc("/callback", func(http.ResponseWriter, *http.Request) { arrived = true })
	ts := httptest.NewServer(mux)
	defer ts.Close()
	if err := browse(t.Context(), []string{ts.URL + "/authorize"}, nil); err != nil || !arrived {
		t.Errorf("browse = %v, arrived: %t", err, arrived)
	}
	for _, args := range [][]string{nil, {ts.URL + "/elsewhere"}, {ts.URL, ts.URL}, {"%"}} {
		if err := browse(t.Context(), args, nil); err == nil {
			t.Errorf("browse(%q) = nil", args)
		}
	}
}
