package server

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"sort"
	"strings"
	"sync"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
)

// A toolSet is what the tools were between two changes, with what was encoded of them.
type toolSet struct {
	byName map[string]*tool
	list   []*tool // in the order of registration

	mu    sync.Mutex
	first map[*era.Features][]byte // the result that is the list's first page
}

// toolSet returns the current tools.
func (s *Server) toolSet() *toolSet {
	if set := s.set.Load(); set != nil {
		return set
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if set := s.set.Load(); set != nil {
		return set
	}
	set := &toolSet{byName: make(map[string]*tool, len(s.tools)), first: make(map[*era.Features][]byte)}
	for name, t := range s.tools {
		set.byName[name] = t
		set.list = append(set.list, t)
	}
	sort.Slice(set.list, func(i, j int) bool { return set.list[i].seq < set.list[j].seq })
	s.set.Store(set)
	return set
}

// listTools answers tools/list. Pages are cut in the order of registration, so that a change between two of them neither repeats nor skips a tool
// that was there throughout. (https://modelcontextprotocol.io/specification/2026-07-28/server/utilities/pagination)
func (s *Server) listTools(r *jsonrpc.Request, f *era.Features, dst []byte) ([]byte, error) {
	set := s.toolSet()
	cursor, ok := r.Param("cursor")
	if !ok || string(cursor) == "null" {
		set.mu.Lock()
		page := set.first[f]
		if page == nil {
			page = s.appendPage(nil, set.list, f)
			set.first[f] = page
		}
		set.mu.Unlock()
		return append(dst, page...), nil
	}
	if cursor[0] != '"' {
		return dst, invalidParams("params.cursor must be a string")
	}
	after, ok := s.cursors.open(jsonwire.UnquoteString(cursor[1 : len(cursor)-1]))
	if !ok {
		return dst, invalidParams("params.cursor is not one that this server gave out")
	}
	i, _ := slices.BinarySearchFunc(set.list, after+1, func(t *tool, seq uint64) int { return int(int64(t.seq) - int64(seq)) })
	return s.appendPage(dst, set.list[i:], f), nil
}

// appendPage appends the result with the first of the tools.
func (s *Server) appendPage(dst []byte, tools []*tool, f *era.Features) []byte {
	more := len(tools) > s.opts.PageSize
	if more {
		tools = tools[:s.opts.PageSize]
	}
	dst = append(dst, `{"tools":[`...)
	for i, t := range tools {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = era.AppendTool(dst, &t.def, f)
	}
	dst = append(dst, ']')
	if more {
		dst = jsonwire.AppendQuote(append(dst, `,"nextCursor":`...), s.cursors.seal(tools[len(tools)-1].seq))
	}
	dst = era.AppendCacheHints(dst, f, s.cacheHints())
	return s.identity.End(dst, f)
}

// A cursorKey signs cursors, so that a client can only come back with one it was given. It lasts as long as the server.
type cursorKey struct {
	once sync.Once
	key  [32]byte
}

const (
	macLen    = 12
	maxCursor = (binary.MaxVarintLen64+macLen)*4/3 + 1
)

// seal makes the cursor of the page behind the tool with that sequence number.
func (k *cursorKey) seal(after uint64) string {
	b := binary.AppendUvarint(nil, after)
	return base64.RawURLEncoding.EncodeToString(append(b, k.mac(b)...))
}

// open is the reverse of seal.
func (k *cursorKey) open(cursor string) (after uint64, ok bool) {
	if len(cursor) > maxCursor || strings.ContainsAny(cursor, "\r\n") { // line breaks, which base64 would pass over
		return 0, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
	if err != nil || len(b) <= macLen {
		return 0, false
	}
	value, mac := b[:len(b)-macLen], b[len(b)-macLen:]
	after, n := binary.Uvarint(value)
	return after, n == len(value) && hmac.Equal(mac, k.mac(value))
}

func (k *cursorKey) mac(b []byte) []byte {
	k.once.Do(func() { rand.Read(k.key[:]) }) // never fails
	h := hmac.New(sha256.New, k.key[:])
	h.Write([]byte("tools/list cursor "))
	h.Write(b)
	return h.Sum(nil)[:macLen]
}
