//go:build linux

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
)

// An era is how a session starts and what a call of echo looks like in it.
// Requests are templates: the id goes where the template has idMark.
type era struct {
	name      string
	revision  string
	handshake []string // requests, and notifications without an id
	meta      string   // of each call, as a member of params, with its comma
	tool      string   // the name of the tool to call; empty means echo
}

func (e era) toolName() string { return cmp.Or(e.tool, "echo") }

const idMark = "$ID"

var eras = []era{
	{
		name:     "legacy",
		revision: "2025-06-18",
		handshake: []string{
			`{"jsonrpc":"2.0","id":$ID,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"compare","version":"1.0.0"}}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		},
	},
	{
		name:     "modern",
		revision: "2026-07-28",
		meta:     `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"compare","version":"1.0.0"},"io.modelcontextprotocol/clientCapabilities":{}},`,
	},
}

// A request is a template that was taken apart.
type request struct {
	head, tail string
}

func parseRequest(template string) request {
	head, tail, _ := bytes.Cut([]byte(template+"\n"), []byte(idMark))
	return request{string(head), string(tail)}
}

// append appends the request with an id.
func (r request) append(dst []byte, id int) []byte {
	dst = append(dst, r.head...)
	if r.tail != "" {
		dst = strconv.AppendInt(dst, int64(id), 10)
	}
	return append(dst, r.tail...)
}

// call is a call of echo, whose text must need no escapes.
func (e era) call(text string) request {
	return parseRequest(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{%s"name":"%s","arguments":{"text":"%s"}}}`, idMark, e.meta, e.toolName(), text))
}

// listen subscribes to something, in the modern era.
func (e era) listen() request {
	return parseRequest(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"subscriptions/listen","params":{%s"notifications":{"toolsListChanged":true}}}`, idMark, e.meta))
}

func (e era) modern() bool { return e.handshake == nil }

// responseID returns the id of a response, or -1 if line is not a response. It relies on the
// benchmark's own texts: nothing in them looks like an id.
func responseID(line []byte) int {
	_, rest, found := bytes.Cut(line, []byte(`"id":`))
	if !found {
		return -1
	}
	id, digits := 0, 0
	for _, c := range bytes.TrimLeft(rest, " ") {
		if c < '0' || c > '9' {
			break
		}
		id, digits = 10*id+int(c-'0'), digits+1
	}
	if digits == 0 {
		return -1
	}
	return id
}
