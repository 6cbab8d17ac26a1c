package interop

import (
	"context"
	"errors"
	"log/slog"
	"os/exec"
	"slices"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// An mcpGo is a client of github.com/mark3labs/mcp-go.
type mcpGo struct {
	client   *client.Client
	started  *mcp.InitializeResult
	progress progressHandlers
}

// connectMCPGo connects to s. If the revision is empty, the SDK chooses one.
func connectMCPGo(ctx context.Context, t *testing.T, s *recordedServer, revision string) *mcpGo {
	t.Helper()
	var options []client.ClientOption
	if revision != "" {
		options = append(options, client.WithProtocolVersion(revision))
	}
	h := &mcpGo{client: client.NewClient(mcpGoTransport(t, s, revision), options...)}
	h.client.OnNotification(h.notified)
	if err := h.client.Start(ctx); err != nil {
		t.Fatalf("start: %v", err)
	}
	var request mcp.InitializeRequest
	request.Params.ClientInfo = mcp.Implementation{Name: "interop", Version: "1"}
	var err error
	if h.started, err = h.client.Initialize(ctx, request); err != nil {
		h.client.Close()
		t.Fatalf("initialize: %v", err)
	}
	return h
}

// mcpGoTransport returns a transport that connects the SDK to s, or starts s. It enables the stream
// of GET only if the revision is a legacy one.
func mcpGoTransport(t *testing.T, s *recordedServer, revision string) transport.Interface {
	t.Helper()
	if s.web == nil {
		name, args := s.command()
		factory := func(context.Context, string, []string, []string) (*exec.Cmd, error) { return s.cmd(), nil }
		return transport.NewStdioWithOptions(name, nil, args, transport.WithCommandFunc(factory))
	}
	if s.web.path == ssePath {
		sse, err := transport.NewSSE(s.web.url())
		if err != nil {
			t.Fatal(err)
		}
		return sse
	}
	options := []transport.StreamableHTTPCOption{transport.WithHTTPLogger(slog.New(slog.DiscardHandler))}
	if revision != "" && revision != modern {
		//lint:ignore SA1019 the legacy era has it
		options = append(options, transport.WithContinuousListening())
	}
	web, err := transport.NewStreamableHTTP(s.web.url(), options...)
	if err != nil {
		t.Fatal(err)
	}
	return web
}

func (h *mcpGo) notified(n mcp.JSONRPCNotification) {
	if n.Method == "notifications/progress" {
		value, _ := n.Params.AdditionalFields["progress"].(float64)
		h.progress.notify(n.Params.AdditionalFields["progressToken"], value)
	}
}

func (h *mcpGo) revision() string { return h.started.ProtocolVersion }

func (h *mcpGo) name() string { return h.started.ServerInfo.Name }

func (h *mcpGo) tools(ctx context.Context) ([]string, error) {
	result, err := h.client.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, tool := range result.Tools {
		names = append(names, tool.Name)
	}
	return names, nil
}

func (h *mcpGo) call(ctx context.Context, tool string, args map[string]any, progress func(float64)) outcome {
	var request mcp.CallToolRequest
	request.Params.Name, request.Params.Arguments = tool, args
	if progress != nil {
		request.Params.Meta = &mcp.Meta{ProgressToken: h.progress.add(progress)}
	}
	result, err := h.client.CallTool(ctx, request)
	if err != nil {
		return outcome{Message: err.Error(), Cancelled: cancelled(ctx, err), Code: mcpGoCode(err)}
	}
	o := outcome{IsError: result.IsError, Structured: structured(result.StructuredContent)}
	if len(result.Content) > 0 {
		if text, ok := result.Content[0].(mcp.TextContent); ok {
			o.Text = text.Text
		}
	}
	return o
}

// mcpGoCode returns the code of a JSON-RPC error, for which the SDK has only sentinels.
func mcpGoCode(err error) int {
	switch {
	case errors.Is(err, mcp.ErrInvalidParams):
		return mcp.INVALID_PARAMS
	case errors.Is(err, mcp.ErrInternalError):
		return mcp.INTERNAL_ERROR
	}
	return 0
}

func (h *mcpGo) ping(ctx context.Context) error {
	//lint:ignore SA1019 the legacy era has it
	return h.client.Ping(ctx)
}

// close ends the session. It fails unless the server exits with status 0.
func (h *mcpGo) close() error { return h.client.Close() }

// TestMCPGo runs the client of the SDK against our server, in each revision that it supports.
//
// Spec: S2 S6 S9 S14 S58 S59 S64 S65
func TestMCPGo(t *testing.T) {
	for _, revision := range append(slices.Clone(legacyRevisions), modern) {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			checkReport(t, walk(t.Context(), connectMCPGo(t.Context(), t, s, revision)), revision)
			s.audit(1)
		})
	}
}

// TestMCPGoNegotiation lets the SDK choose the revision. The SDK prefers the modern era.
func TestMCPGoNegotiation(t *testing.T) {
	for _, tt := range negotiations {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, tt.serverRevisions...)
			checkReport(t, walk(t.Context(), connectMCPGo(t.Context(), t, s, "")), tt.want)
			s.audit(1)
		})
	}
}
