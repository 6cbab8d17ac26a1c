package gateway

import (
	"context"
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"mcpwire/auth"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proxy/bridge"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Limits of one page of a list. Many clients read only the first page, so it is large.
const (
	maxPageItems = 10_000
	maxPageBytes = 4 << 20
)

// MetaStale is the key in the _meta of a list for the names of the upstreams whose part is missing
// or may be out of date.
const MetaStale = "mcpwire.gateway/stale"

// kindOfList returns the kind that a method lists.
func kindOfList(method string) (Kind, bool) {
	for k := range kindTexts {
		if kindTexts[k].method == method {
			return Kind(k), true
		}
	}
	return 0, false
}

// answerList appends the response to a request for a list.
func (g *Gateway) answerList(ctx context.Context, clientEra bridge.Era, kind Kind, m *jsonrpc.Message, dst []byte) ([]byte, error) {
	ix := g.fresh(ctx, clientEra, nil, false)
	view := ix.st.view(ctx)
	list := ix.list(kind, view)
	first, err := g.pageStart(ctx, clientEra, kind, ix, list, m)
	if err != nil {
		return dst, err
	}
	dst = append(append(append(dst, `{"jsonrpc":"2.0","id":`...), m.ID...), `,"result":{"`...)
	dst = append(append(dst, kindTexts[kind].member...), `":[`...)
	start, next := len(dst), first
	for ; next < len(list.items); next++ {
		raw := list.items[next].raw
		if next > first {
			if next-first >= maxPageItems || len(dst)-start+len(raw) > maxPageBytes {
				break
			}
			dst = append(dst, ',')
		}
		dst = append(dst, raw...)
	}
	dst = append(dst, ']')
	if next < len(list.items) {
		last := &list.items[next-1]
		dst = append(dst, `,"nextCursor":"`...)
		plain := binary.AppendUvarint(nil, uint64(next))
		plain = append(append(append(plain, ix.st.upstreams[last.upstream].name...), 0), last.own...)
		if dst, _, err = g.ring.Seal(dst, purposeCursor, plain, cursorData(ctx, clientEra, kind)); err != nil {
			return dst, err
		}
		dst = append(dst, '"')
	}
	stale := ix.staleNames(view)
	if clientEra == bridge.EraModern {
		dst = append(dst, `,"resultType":"complete","ttlMs":`...)
		dst = append(strconv.AppendInt(dst, list.ttl, 10), `,"cacheScope":"private","_meta":{"`+mcp.MetaServerInfo+`":`...)
		dst = ix.st.identity.AppendShortInfo(dst)
		if stale != nil {
			dst = append(append(dst, `,"`+MetaStale+`":`...), stale...)
		}
		dst = append(dst, '}')
	} else if stale != nil {
		dst = append(append(append(dst, `,"_meta":{"`+MetaStale+`":`...), stale...), '}')
	}
	return append(dst, "}}"...), nil
}

// staleNames returns the JSON array of the upstreams whose catalogs are missing or may be out of
// date, or nil if there are none. It does not name those to which the caller must log in first,
// whose tool to log in is listed, and with a view, those of which the caller sees nothing.
func (ix *index) staleNames(view View) []byte {
	var names []byte
	for i, snap := range ix.snaps {
		if snap != nil && !ix.stale[i] || snap == nil && ix.mustLogIn[i] {
			continue
		}
		u := ix.st.upstreams[i].name
		if view != nil && !ix.shows(i, view) && (snap != nil || !allowsSome(view, u)) {
			continue
		}
		names = jsonwire.AppendQuote(append(names, ','), u)
	}
	if names == nil {
		return nil
	}
	names[0] = '['
	return append(names, ']')
}

// shows reports if a view shows an item of an upstream.
func (ix *index) shows(upstream int, view View) bool {
	if ix.snaps[upstream] == nil {
		return false
	}
	for kind := range numKinds {
		for i := range ix.snaps[upstream].lists[kind].items {
			if view.Allows(kind, ix.st.upstreams[upstream].name, ix.snaps[upstream].lists[kind].items[i].own) {
				return true
			}
		}
	}
	return false
}

// Purposes of sealed texts.
const (
	purposeCursor = "gateway cursor 1"
	purposeState  = "gateway request state 1"
)

// cursorData returns what a cursor is valid for.
func cursorData(ctx context.Context, clientEra bridge.Era, kind Kind) []byte {
	data := []byte{byte(kind), 0}
	if clientEra == bridge.EraModern {
		data[1] = 1
	}
	return append(data, auth.PrincipalOf(ctx).ID()...)
}

// maxCursor limits the length of a cursor.
const maxCursor = 16 << 10

// errCursor is the error of a cursor that the gateway has not given to the caller for this list.
var errCursor = &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the cursor is invalid or has expired: begin again without one"}

// openCursor returns the text in the cursor of a request, or nil without one.
func (g *Gateway) openCursor(ctx context.Context, clientEra bridge.Era, kind Kind, m *jsonrpc.Message) ([]byte, error) {
	text, ok := m.Param("cursor")
	if !ok || string(text) == "null" {
		return nil, nil
	}
	cursor, _ := jsonrpc.ID(text).Text()
	plain, _, err := g.ring.Open(cursor, maxCursor, purposeCursor, cursorData(ctx, clientEra, kind))
	if err != nil {
		return nil, errCursor
	}
	return plain, nil
}

// pageStart returns the index of the first item of the page that a request is for: after the item
// that its cursor names, or at the index in the cursor if that item is gone.
func (g *Gateway) pageStart(ctx context.Context, clientEra bridge.Era, kind Kind, ix *index, list *visibleList, m *jsonrpc.Message) (int, error) {
	plain, err := g.openCursor(ctx, clientEra, kind, m)
	if plain == nil {
		return 0, err
	}
	index, n := binary.Uvarint(plain)
	if n <= 0 {
		return 0, errCursor
	}
	name, own, _ := strings.Cut(string(plain[n:]), "\x00")
	at := min(int(index), len(list.items)) // Seal protects it
	if at > 0 && list.items[at-1].own == own && ix.st.upstreams[list.items[at-1].upstream].name == name {
		return at, nil
	}
	for i := range list.items {
		if it := &list.items[i]; it.own == own && ix.st.upstreams[it.upstream].name == name {
			return i + 1, nil
		}
	}
	return at, nil
}

// maxInstructions limits the instructions of the gateway and all upstreams.
const maxInstructions = 16 << 10

// instructions returns the instructions of the gateway and of the upstreams that the caller sees.
func (ix *index) instructions(view View) string {
	text := ix.st.opts.Instructions
	for i, snap := range ix.snaps {
		if snap == nil || snap.profile.Instructions == "" || view != nil && !ix.shows(i, view) {
			continue
		}
		if text != "" {
			text += "\n\n"
		}
		text += "## " + ix.st.upstreams[i].name + "\n\n" + snap.profile.Instructions
		if len(text) > maxInstructions {
			break
		}
	}
	return clip.String(text, maxInstructions)
}

// appendCapabilities appends the ServerCapabilities for a revision. Lists, completion and logging
// are always declared, because catalogs may be missing.
func (ix *index) appendCapabilities(dst []byte, f *era.Features, view View) []byte {
	dst = append(dst, `{"tools":{"listChanged":true},"prompts":{"listChanged":true},"resources":{"subscribe":true,"listChanged":true},"logging":{}`...)
	if f.Completions {
		dst = append(dst, `,"completions":{}`...)
	}
	tasks, listed := false, ""
	var extensions []byte
	seen := map[string]bool{}
	for i, snap := range ix.snaps {
		if snap == nil || view != nil && !ix.shows(i, view) {
			continue
		}
		tasks = tasks || era.Lookup(snap.profile.Capabilities, "tasks", "requests", "tools", "call") != nil
		if ix.listsTasks(i) {
			listed = `"list":{},`
		}
		for members := jsonwire.ObjectMembers(era.Lookup(snap.profile.Capabilities, "extensions")); members.Next(); {
			if key := members.KeyString(); !seen[key] {
				seen[key] = true
				extensions = append(jsonwire.AppendQuote(append(extensions, ','), key), ':')
				extensions = append(extensions, members.Value()...)
			}
		}
	}
	if f.CoreTasks && tasks {
		dst = append(dst, `,"tasks":{`+listed+`"cancel":{},"requests":{"tools":{"call":{}}}}`...)
	}
	if extensions != nil {
		dst = append(append(append(dst, `,"extensions":{`...), extensions[1:]...), '}')
	}
	return append(dst, '}')
}

// maxHandshakeWait limits the wait of a handshake for catalogs, from which it needs only the
// instructions, tasks and extensions. Many hosts give up after 30 s, also if lists may take longer.
const maxHandshakeWait = 10 * time.Second

// handshakeIndex returns the index for a handshake.
func (g *Gateway) handshakeIndex(ctx context.Context, clientEra bridge.Era) *index {
	ctx, cancel := context.WithTimeout(ctx, maxHandshakeWait)
	defer cancel()
	return g.fresh(ctx, clientEra, nil, false)
}

// answerDiscover appends the response to server/discover.
func (g *Gateway) answerDiscover(ctx context.Context, m *jsonrpc.Message, dst []byte) []byte {
	ix := g.handshakeIndex(ctx, bridge.EraModern)
	view := ix.st.view(ctx)
	f := era.Of(mcp.LatestRevision)
	dst = append(append(append(dst, `{"jsonrpc":"2.0","id":`...), m.ID...), `,"result":{"supportedVersions":`...)
	dst = era.AppendRevisions(dst, g.Revisions())
	dst = ix.appendCapabilities(append(dst, `,"capabilities":`...), f, view)
	if text := ix.instructions(view); text != "" {
		dst = jsonwire.AppendQuote(append(dst, `,"instructions":`...), text)
	}
	dst = append(dst, `,"ttlMs":0,"cacheScope":"private"`...)
	// Other results have the short form of the identity.
	meta := ix.st.identity.AppendInfo([]byte(`{"`+mcp.MetaServerInfo+`":`), f)
	return append(ix.st.identity.EndWithMeta(dst, f, append(meta, '}')), '}')
}

// answerInitialize appends the response to initialize, and returns the negotiated revision.
func (g *Gateway) answerInitialize(ctx context.Context, m *jsonrpc.Message, dst []byte) ([]byte, mcp.Revision) {
	ix := g.handshakeIndex(ctx, bridge.EraLegacy)
	view := ix.st.view(ctx)
	version, _ := m.Param("protocolVersion")
	name, _ := jsonrpc.ID(version).Text()
	revision, ok := mcp.ParseRevision(name)
	if !ok || revision.Modern() {
		revision = mcp.LatestLegacyRevision
	}
	f := era.Of(revision)
	dst = append(append(append(dst, `{"jsonrpc":"2.0","id":`...), m.ID...), `,"result":{"protocolVersion":`...)
	dst = jsonwire.AppendQuote(dst, revision.String())
	dst = ix.appendCapabilities(append(dst, `,"capabilities":`...), f, view)
	dst = ix.st.identity.AppendInfo(append(dst, `,"serverInfo":`...), f)
	if text := ix.instructions(view); text != "" {
		dst = jsonwire.AppendQuote(append(dst, `,"instructions":`...), text)
	}
	return append(dst, "}}"...), revision
}
