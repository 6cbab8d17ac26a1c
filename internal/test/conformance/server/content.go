package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"mcpwire/mcp"
	"mcpwire/server"
)

// png is a red dot.
var png = []byte("\x89PNG\r\n\x1a\n" +
	"\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00\x90wS\xde" +
	"\x00\x00\x00\x0cIDATx\x9cc\xf8\xcf\xc0\x00\x00\x03\x01\x01\x00\xc9\xfe\x92\xef" +
	"\x00\x00\x00\x00IEND\xaeB`\x82")

// wav returns a millisecond of silence: 8 samples of 8 bits at 8 kHz.
func wav() []byte {
	const samples = 8
	b := binary.LittleEndian.AppendUint32([]byte("RIFF"), 36+samples)
	b = binary.LittleEndian.AppendUint32(append(b, "WAVEfmt "...), 16)
	b = binary.LittleEndian.AppendUint16(b, 1) // PCM
	b = binary.LittleEndian.AppendUint16(b, 1) // channel
	b = binary.LittleEndian.AppendUint32(b, 8000)
	b = binary.LittleEndian.AppendUint32(b, 8000)
	b = binary.LittleEndian.AppendUint16(b, 1)
	b = binary.LittleEndian.AppendUint16(b, 8)
	b = binary.LittleEndian.AppendUint32(append(b, "data"...), samples)
	return append(b, "\x80\x80\x80\x80\x80\x80\x80\x80"...)
}

func embedded(uri, mimeType, text string) mcp.EmbeddedResource {
	return mcp.EmbeddedResource{Resource: mcp.ResourceContents{URI: uri, MIMEType: mimeType, Text: text}}
}

// addContent registers tools that return each kind of content. The first tool must take no
// arguments, because the suite calls it without any.
func addContent(srv *server.Server) error {
	image := mcp.ImageContent{Data: png, MIMEType: "image/png"}
	return errors.Join(
		server.AddTool(srv, "test_simple_text", "Return a text.", text("This is a simple text response for testing.")),
		server.AddTool(srv, "test_image_content", "Return an image.", blocks(image)),
		server.AddTool(srv, "test_audio_content", "Return a sound.", blocks(mcp.AudioContent{Data: wav(), MIMEType: "audio/wav"})),
		server.AddTool(srv, "test_embedded_resource", "Return a resource.",
			blocks(embedded("test://embedded-resource", "text/plain", "This is an embedded resource content."))),
		server.AddTool(srv, "test_multiple_content_types", "Return a text, an image and a resource.",
			blocks(mcp.TextContent{Text: "Multiple content types test:"}, image,
				embedded("test://mixed-content-resource", "application/json", `{"test":"data","value":123}`))),
		server.AddTool(srv, "test_error_handling", "Fail as a tool does.", func(context.Context, none) (string, error) {
			//lint:ignore ST1005 the model reads this text
			return "", errors.New("This tool intentionally returns an error for testing")
		}),
	)
}

// addSignals registers tools that send notifications to the client before they answer.
func addSignals(srv *server.Server) error {
	return errors.Join(
		server.AddTool(srv, "test_tool_with_logging", "Send three log messages, then answer.", withLogging),
		server.AddTool(srv, "test_tool_with_progress", "Send three progress notifications, then answer.", withProgress),
		server.AddTool(srv, "test_logging_tool", "Log, for those only who asked for it.", logOnce),
		server.AddTool(srv, "test_missing_capability", "Refuse clients that have no model to ask.", func(ctx context.Context, _ none) (string, error) {
			return "The client can be asked for sampling.", server.CallOf(ctx).Require(server.Sampling)
		}),
	)
}

const signalEvery = 50 * time.Millisecond

func withLogging(ctx context.Context, _ none) (string, error) {
	call := server.CallOf(ctx)
	for i, line := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
		if i > 0 {
			if err := pause(ctx, signalEvery); err != nil {
				return "", err
			}
		}
		if err := call.Log(mcp.LevelInfo, "conformance", line); err != nil {
			return "", err
		}
	}
	return "Three messages were logged.", nil
}

func withProgress(ctx context.Context, _ none) (string, error) {
	call := server.CallOf(ctx)
	for done := 0; done <= 100; done += 50 {
		if done > 0 {
			if err := pause(ctx, signalEvery); err != nil {
				return "", err
			}
		}
		if err := call.Progress(float64(done), 100, fmt.Sprintf("Completed step %d of %d", done, 100)); err != nil {
			return "", err
		}
	}
	return "Three steps were taken.", nil
}

func logOnce(ctx context.Context, _ none) (string, error) {
	return "A message was logged.", server.CallOf(ctx).Log(mcp.LevelInfo, "conformance", "This is for those who asked.")
}
