//go:build linux

package main

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
)

const (
	jsonReply = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{\"id\":1,\"r\":2}"
	sseReply  = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n15\r\ndata: {\"id\":1,\"r\":2}\n\r\n1\r\n\n\r\n0\r\n\r\n"
)

func TestParseResponse(t *testing.T) {
	for _, tt := range []struct{ name, data, body, err string }{
		{"a length", jsonReply, `{"id":1,"r":2}`, ""},
		{"chunks", sseReply, "data: {\"id\":1,\"r\":2}\n\n", ""},
		{"no body", "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", "", ""},
		{"no end", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}", "", "ends the connection"},
		{"closing", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "", "ends the connection"},
		{"two", jsonReply + "H", "", "more than a response"},
	} {
		resp, body, err := parseResponse([]byte(tt.data))
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: error %v, want %q", tt.name, err, tt.err)
			}
		case err != nil || string(body) != tt.body || resp.StatusCode/100 != 2:
			t.Errorf("%s: got %q, %v, want %q", tt.name, body, err, tt.body)
		}
	}
	for _, whole := range []string{jsonReply, sseReply} {
		for n := range len(whole) {
			if _, _, err := parseResponse([]byte(whole[:n])); !errors.Is(err, errIncomplete) {
				t.Errorf("%q: got %v, want an incomplete response", whole[:n], err)
			}
		}
	}
}

// TestAccept checks that a response with the form of the last one is accepted by its id alone, and
// that others are parsed.
func TestAccept(t *testing.T) {
	reply := func(id, text string) string {
		body := `{"jsonrpc":"2.0","id":` + id + `,"result":{"content":[{"type":"text","text":"` + text + `"}]}}`
		return "HTTP/1.1 200 OK\r\nContent-Length: 86\r\n\r\n" + body
	}
	c := &httpConn{want: []byte(`"text":"hello"`)}
	for _, tt := range []struct {
		name, data string
		id         int
		done, ok   bool
	}{
		{"the first", reply("100000001", "hello"), 100000001, true, true},
		{"the next", reply("100000002", "hello"), 100000002, true, true},
		{"part of it", reply("100000003", "hello")[:60], 100000003, false, true},
		{"another id", reply("100000003", "hello"), 100000004, false, false},
		{"longer", strings.Replace(reply("100000005", "hello"), "OK\r\n", "OK\r\nX: y\r\n", 1), 100000005, true, true},
		{"an error", "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 100000006, false, false},
	} {
		c.id, c.read = tt.id, []byte(tt.data)
		done, err := c.accept()
		if done != tt.done || (err == nil) != tt.ok {
			t.Errorf("%s: got %v, %v", tt.name, done, err)
		}
	}
}

func TestPrepare(t *testing.T) {
	for _, tt := range []struct {
		era    era
		header map[string]string
	}{
		{eras[0], map[string]string{"Mcp-Protocol-Version": "2025-06-18", "Mcp-Session-Id": "s", "Mcp-Method": ""}},
		{eras[1], map[string]string{"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "echo", "Mcp-Session-Id": ""}},
	} {
		session := tt.header["Mcp-Session-Id"]
		c := &httpConn{addr: "127.0.0.1:1", id: firstID}
		c.prepare(tt.era, session, "hello")
		head, body, _ := bytes.Cut(c.request, []byte("\r\n\r\n"))
		if got := responseID(c.request[c.idAt-len(`"id":`):]); got != firstID {
			t.Errorf("%s: the place of the id has %d", tt.era.name, got)
		}
		if !strings.Contains(string(body), `"text":"hello"`) || strings.HasSuffix(string(body), "\n") {
			t.Errorf("%s: body %q", tt.era.name, body)
		}
		header := http.Header{}
		for line := range strings.SplitSeq(string(head), "\r\n") {
			if key, value, found := strings.Cut(line, ": "); found {
				header.Set(key, value)
			}
		}
		for key, want := range tt.header {
			if got := header.Get(key); got != want {
				t.Errorf("%s: %s is %q, want %q", tt.era.name, key, got, want)
			}
		}
	}
}

func TestMemoryOf(t *testing.T) {
	m, err := memoryOf(os.Getpid())
	if err != nil || m.resident < 1<<20 || m.anonymous <= 0 || m.anonymous > m.resident {
		t.Errorf("this process has %+v, %v", m, err)
	}
}
