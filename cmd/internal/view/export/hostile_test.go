package export_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/view/export"
)

// sequence returns events with the numbers of one capture.
func sequence(list ...*capture.Event) export.Events {
	return func(yield func(*capture.Event, error) bool) {
		at := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
		head := &capture.Head{Version: 1, ID: "A", At: at, Name: "x\x1b[31m\u202e", Transport: "http", URL: "http://a.example/mcp"}
		if !yield(&capture.Event{Kind: capture.KindHead, Head: head, Capture: "A", At: at}, nil) {
			return
		}
		for i, e := range list {
			e.N, e.T, e.Capture = uint64(i+1), time.Duration(i)*time.Millisecond, "A"
			e.At = at.Add(e.T)
			if !yield(e, nil) {
				return
			}
		}
	}
}

// checkBlocks reads the blocks of a pcapng file and their options, and returns the number of
// packets.
func checkBlocks(t *testing.T, data []byte) (packets int) {
	t.Helper()
	fixed := map[uint32]int{0x0A0D0D0A: 16, 1: 8, 6: 20} // of a section, an interface and a packet
	for len(data) > 0 {
		kind, n := binary.LittleEndian.Uint32(data), int(binary.LittleEndian.Uint32(data[4:]))
		if n < 12 || n%4 != 0 || n > len(data) || int(binary.LittleEndian.Uint32(data[n-4:])) != n {
			t.Fatalf("a block of type %d with %d bytes, of %d", kind, n, len(data))
		}
		body := data[8 : n-4]
		data = data[n:]
		options := body[fixed[kind]:]
		if kind == 6 {
			packets++
			caught, was := binary.LittleEndian.Uint32(body[12:]), binary.LittleEndian.Uint32(body[16:])
			if was < caught {
				t.Errorf("a packet of %d bytes that had %d", caught, was)
			}
			options = options[(caught+3)&^3:]
		}
		for {
			code, size := binary.LittleEndian.Uint16(options), int(binary.LittleEndian.Uint16(options[2:]))
			options = options[4+(size+3)&^3:]
			if code == 0 {
				break
			}
		}
		if len(options) != 0 {
			t.Fatalf("%d bytes after the options of a block of type %d", len(options), kind)
		}
	}
	return packets
}

// TestPCAPNGHostile exports captures with contents that could break a file.
func TestPCAPNGHostile(t *testing.T) {
	var requests, answers []string
	for i := range 5000 {
		requests = append(requests, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, i))
		answers = append(answers, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, i))
	}
	batch := func(list []string) []byte { return []byte("[" + strings.Join(list, ",") + "]") }
	events := sequence(
		&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: batch(requests), Len: math.MaxInt64},
		&capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Data: batch(answers), Len: -1},
		&capture.Event{Kind: capture.KindInvalid, Dir: capture.ToClient},
	)
	var out bytes.Buffer
	if _, err := export.PCAPNG(&out, events, nil); err != nil {
		t.Fatal(err)
	}
	if got, want := checkBlocks(t, out.Bytes()), 2; got != want {
		t.Errorf("%d packets, want %d", got, want)
	}
}

func TestHARLimits(t *testing.T) {
	list := []*capture.Event{
		{Kind: capture.KindRequest, Dir: capture.ToServer, Exchange: 1, Session: 3, Request: &capture.Request{Method: "POST", URL: "/mcp", Proto: "HTTP/1.1"}},
		{Kind: capture.KindResponse, Dir: capture.ToClient, Exchange: 1, Session: 3, Response: &capture.Response{Status: 200, Proto: "HTTP/1.1"}},
	}
	for range 5 {
		list = append(list, &capture.Event{Kind: capture.KindBody, Dir: capture.ToClient, Exchange: 1, Data: bytes.Repeat([]byte{'x'}, 30)})
	}
	list = append(list, &capture.Event{Kind: capture.KindEnd, Exchange: 1})
	var out bytes.Buffer
	left, err := export.HAR(&out, sequence(list...), &export.Options{MaxBody: 100})
	if err != nil {
		t.Fatal(err)
	}
	if left.Cut != 1 || left.Events != 0 {
		t.Errorf("left out %+v", left)
	}
	var har struct {
		Log struct {
			Entries []struct {
				Request  map[string]any
				Response struct {
					Content struct {
						Size          int
						Text, Comment string
					}
				}
				MCP struct{ Session int } `json:"_mcp"`
			}
		}
	}
	if err := json.Unmarshal(out.Bytes(), &har); err != nil {
		t.Fatal(err)
	}
	e := har.Log.Entries[0]
	if c := e.Response.Content; c.Size != 150 || c.Text != strings.Repeat("x", 100) || c.Comment != "only the beginning: 150 bytes in all" {
		t.Errorf("the content is %+v", c)
	}
	if e.Request["url"] != "http://a.example/mcp" || e.MCP.Session != 3 {
		t.Errorf("the request is %v, of session %d", e.Request, e.MCP.Session)
	}
	if _, ok := e.Request["postData"]; ok {
		t.Error("there is postData without a body")
	}
}

// TestCurlSession shows that the script takes a redacted session id from the response that begins
// the session.
func TestCurlSession(t *testing.T) {
	const hidden = "~redacted:session:0123456789ab:16~"
	head := func(n uint64, headers ...capture.Header) *capture.Event {
		return &capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Exchange: n, Request: &capture.Request{Method: "POST", URL: "/mcp", Proto: "HTTP/1.1", Headers: headers}}
	}
	answer := func(n uint64) *capture.Event {
		return &capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Exchange: n, Response: &capture.Response{
			Status: 200, Proto: "HTTP/1.1", Headers: []capture.Header{{Name: "mcp-session-id", Value: hidden}},
		}}
	}
	var out bytes.Buffer
	events := sequence(
		head(1), answer(1), &capture.Event{Kind: capture.KindEnd, Exchange: 1},
		head(2, capture.Header{Name: "Mcp-Session-Id", Value: hidden}), answer(2), &capture.Event{Kind: capture.KindEnd, Exchange: 2},
	)
	if _, err := export.Curl(&out, events, nil); err != nil {
		t.Fatal(err)
	}
	set, used := strings.Index(out.String(), "MCPWIRE_MCP_SESSION_ID=$("), strings.Index(out.String(), `'Mcp-Session-Id: '"$MCPWIRE_MCP_SESSION_ID"`)
	if set < 0 || used < set || strings.Count(out.String(), "answer=$(curl ") != 1 {
		t.Errorf("the script does not take the session from the first answer alone:\n%s", out.String())
	}
}

// TestOTLPConventions compares spans with those of package mcpotel.
func TestOTLPConventions(t *testing.T) {
	c2s := func(text string) *capture.Event {
		return &capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: []byte(text)}
	}
	s2c := func(text string) *capture.Event {
		return &capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Data: []byte(text)}
	}
	var out bytes.Buffer
	_, err := export.OTLP(&out, sequence(
		c2s(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"file:///a"}}`), s2c(`{"jsonrpc":"2.0","id":1,"result":{}}`),
		c2s(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}}`), s2c(`{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"sorry"}],"isError":true}}`),
		c2s(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"t"}}`), c2s(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`),
	), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"key":"mcp.resource.uri","value":{"stringValue":"file:///a"}}`,
		`{"key":"error.type","value":{"stringValue":"tool_error"}}`,
		`{"key":"error.type","value":{"stringValue":"cancelled"}}`,
		`"status":{"code":2,"message":"cancelled"}`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s is missing in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "sorry") {
		t.Error("a result is in it")
	}
}
