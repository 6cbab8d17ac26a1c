package web

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A recording is a capture that a test writes. doc/capture-format.md describes its lines.
type recording struct {
	t   *testing.T
	out *json.Encoder
	n   uint64
	at  time.Duration
}

// An event is a line of a capture.
type event struct {
	Kind     string          `json:"k"`
	N        uint64          `json:"n,omitempty"`
	T        json.Number     `json:"t,omitempty"`
	Dir      string          `json:"dir,omitempty"`
	Session  int             `json:"s,omitempty"`
	Exchange int             `json:"x,omitempty"`
	Framing  string          `json:"frame,omitempty"`
	Len      int             `json:"len,omitempty"`
	Why      string          `json:"why,omitempty"`
	Message  json.RawMessage `json:"msg,omitempty"`
	Raw      string          `json:"raw,omitempty"`
	Base64   []byte          `json:"b64,omitempty"`
	Command  []string        `json:"cmd,omitempty"`
	PID      int             `json:"pid,omitempty"`
	Request  map[string]any  `json:"req,omitempty"`
	Response map[string]any  `json:"res,omitempty"`
	SSE      map[string]any  `json:"sse,omitempty"`
	Of       uint64          `json:"of,omitempty"`
	To       []uint64        `json:"to,omitempty"`
	Rule     string          `json:"rule,omitempty"`
}

// The directions of events.
const toServer, toClient = "c2s", "s2c"

// record makes a capture in dir with the events of write, and returns its path.
func record(t *testing.T, dir, name, transport string, write func(r *recording)) string {
	t.Helper()
	path := filepath.Join(dir, name+".mcpcap.ndjson")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buf := bufio.NewWriterSize(f, 1<<20)
	r := &recording{t: t, out: json.NewEncoder(buf)}
	r.out.SetEscapeHTML(false)
	r.encode(map[string]any{"k": "head", "v": 1, "id": "ID" + strings.ToUpper(name), "at": time.Now().Add(-time.Hour).UTC(), "tool": "test", "transport": transport, "name": name, "redact": "default"})
	write(r)
	r.encode(map[string]any{"k": "tail", "events": r.n})
	if err := buf.Flush(); err != nil {
		t.Fatal(err)
	}
	return path
}

func (r *recording) encode(line any) {
	if err := r.out.Encode(line); err != nil {
		r.t.Fatal(err)
	}
}

// add records an event 1.5 ms after the last one, and returns its number.
func (r *recording) add(e *event) uint64 {
	r.n++
	r.at += 1500 * time.Microsecond
	e.N, e.T, e.Session = r.n, json.Number(strconv.FormatFloat(r.at.Seconds(), 'f', 9, 64)), 1
	r.encode(e)
	return r.n
}

// message records a message.
func (r *recording) message(dir string, exchange int, message string) uint64 {
	e := &event{Kind: "msg", Dir: dir, Exchange: exchange, Len: len(message), Message: json.RawMessage(message)}
	if exchange == 0 {
		e.Framing = "lf"
	}
	return r.add(e)
}

// client records a message of the client.
func (r *recording) client(message string) uint64 { return r.message(toServer, 0, message) }

// server records a message of the server.
func (r *recording) server(message string) uint64 { return r.message(toClient, 0, message) }

// handshake records a handshake. name is the name of the client and the server.
func (r *recording) handshake(name string) {
	r.add(&event{Kind: "start", Command: []string{"node", "server.js"}, PID: 4711})
	r.client(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":` + quote(name) + `,"version":"1"}}}`)
	r.server(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":` + quote(name) + `,"version":` + quote(name) + `}}}`)
	r.client(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// quote returns s as a JSON string.
func quote(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // strings can be marshaled
	}
	return string(text)
}

// translate makes a modern call through a bridge to a legacy server. The bridge records it.
func (m *machine) translate(t *testing.T) {
	t.Helper()
	file := filepath.Join(m.captures(), "bridged.mcpcap.ndjson")
	p, err := m.run("call", "--protocol", "modern", "slow", "steps=2", "delay_ms=1", "--",
		m.exe, "bridge", "--capture", file, "--", m.exe, "serve", "--revision", "2025-11-25")
	if err != nil {
		t.Fatal(err)
	}
	p.stdin.Close()
	io.Copy(io.Discard, p.stdout)
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("call through the bridge: %v\n%s", err, p.log.String())
	}
}

// writeMany makes a capture of many exchanges, some of which fail, and returns its path.
func writeMany(t *testing.T, dir string, count int) string {
	t.Helper()
	tools := []string{"search", "read_file", "write_file", "query", "list_directory", "fetch_page"}
	return record(t, dir, "many", "stdio", func(r *recording) {
		r.handshake("many")
		for i := 1; i <= count; i++ {
			id, tool := strconv.Itoa(i), tools[i%len(tools)]
			r.client(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":{"path":"/src/part-` + id + `.go","limit":20}}}`)
			switch {
			case i%97 == 0:
				r.server(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32603,"message":"the index is being built"}}`)
			case i%31 == 0:
				r.server(`{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":"no such file: part-` + id + `"}],"isError":true}}`)
			default:
				r.server(`{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":"line ` + id + ` of what was found"}]}}`)
			}
		}
	})
}
