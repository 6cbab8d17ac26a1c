package interop

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// goSDK is a client of github.com/modelcontextprotocol/go-sdk.
type goSDK struct {
	session  *mcp.ClientSession
	progress progressHandlers
}

// connectGoSDK connects to s. If the revision is empty, the SDK chooses one.
func connectGoSDK(ctx context.Context, t *testing.T, s *recordedServer, revision string) *goSDK {
	t.Helper()
	h := &goSDK{}
	client := mcp.NewClient(&mcp.Implementation{Name: "interop", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) {
			h.progress.notify(req.Params.ProgressToken, req.Params.Progress)
		},
	})
	session, err := client.Connect(ctx, goSDKTransport(s), &mcp.ClientSessionOptions{ProtocolVersion: revision})
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	h.session = session
	return h
}

// goSDKTransport returns a transport that connects the SDK to s, or starts s.
func goSDKTransport(s *recordedServer) mcp.Transport {
	switch {
	case s.web == nil:
		return &mcp.CommandTransport{Command: s.cmd(), TerminateDuration: 20 * time.Second}
	case s.web.path == ssePath:
		return &mcp.SSEClientTransport{Endpoint: s.web.url()}
	}
	return &mcp.StreamableClientTransport{Endpoint: s.web.url()}
}

func (h *goSDK) revision() string { return h.session.InitializeResult().ProtocolVersion }

func (h *goSDK) name() string {
	if info := h.session.InitializeResult().ServerInfo; info != nil {
		return info.Name
	}
	return ""
}

func (h *goSDK) tools(ctx context.Context) ([]string, error) {
	var names []string
	for tool, err := range h.session.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		names = append(names, tool.Name)
	}
	return names, nil
}

func (h *goSDK) call(ctx context.Context, tool string, args map[string]any, progress func(float64)) outcome {
	params := &mcp.CallToolParams{Name: tool, Arguments: args}
	if progress != nil {
		params.SetProgressToken(h.progress.add(progress))
	}
	result, err := h.session.CallTool(ctx, params)
	if err != nil {
		o := outcome{Message: err.Error(), Cancelled: cancelled(ctx, err)}
		if wire := (*jsonrpc.Error)(nil); errors.As(err, &wire) {
			o.Code = int(wire.Code)
		}
		return o
	}
	o := outcome{IsError: result.IsError, Structured: structured(result.StructuredContent)}
	if len(result.Content) > 0 {
		if text, ok := result.Content[0].(*mcp.TextContent); ok {
			o.Text = text.Text
		}
	}
	return o
}

func (h *goSDK) ping(ctx context.Context) error { return h.session.Ping(ctx, nil) }

// close ends the session. It fails unless the server exits by itself with status 0.
func (h *goSDK) close() error { return h.session.Close() }

// TestGoSDK runs the client of the SDK against our server, in each revision that it supports.
//
// Spec: S2 S6 S9 S14 S58 S59 S64 S65
func TestGoSDK(t *testing.T) {
	for _, revision := range append(slices.Clone(legacyRevisions), modern) {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			checkReport(t, walk(t.Context(), connectGoSDK(t.Context(), t, s, revision)), revision)
			s.audit(1)
		})
	}
}

// TestGoSDKNegotiation lets the SDK choose the revision, with servers that support some revisions.
// The SDK prefers the modern era.
//
// Spec: S40 S41
func TestGoSDKNegotiation(t *testing.T) {
	for _, tt := range negotiations {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, tt.serverRevisions...)
			checkReport(t, walk(t.Context(), connectGoSDK(t.Context(), t, s, "")), tt.want)
			s.audit(1)
		})
	}
}

// negotiations are servers and the revisions that a host that supports all negotiates with them.
var negotiations = []struct {
	name            string
	serverRevisions []string // nil means all
	want            string
}{
	{name: "dual-era server", want: modern},
	{name: "modern server", serverRevisions: []string{modern}, want: modern},
	{name: "legacy server", serverRevisions: legacyRevisions, want: latestLegacy},
	{name: "old server", serverRevisions: []string{"2024-11-05"}, want: "2024-11-05"},
}
