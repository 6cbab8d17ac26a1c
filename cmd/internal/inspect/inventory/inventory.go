package inventory

import (
	"bytes"
	"hash/fnv"
	"iter"
	"strconv"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Limits of an inventory.
const (
	maxDefinitions = 16 << 10  // of one kind
	maxAnswers     = 16 << 10  // different requests
	maxBytes       = 128 << 20 // of responses, and of each kind
)

// The kinds of definitions that a server offers.
const (
	Tools     = "tools"
	Prompts   = "prompts"
	Resources = "resources"
	Templates = "resourceTemplates"
)

// Kinds returns all kinds in the order of reports.
func Kinds() []string { return []string{Tools, Prompts, Resources, Templates} }

// An Inventory is what is known of a server.
type Inventory struct {
	// Source names the origin, for people.
	Source string
	// Name is the name in the server's information.
	Name string
	// Version is the version in the server's information.
	Version string
	// Revision is the negotiated revision.
	Revision string
	// Capabilities is JSON text, or nil if unknown.
	Capabilities []byte
	// Instructions are the server's instructions for models.
	Instructions string
	// Definitions holds definitions as JSON text by kind, and by name or URI.
	Definitions map[string]map[string][]byte
	// Listed holds the completely listed kinds. In other kinds, an absent definition may exist.
	Listed  map[string]bool
	Answers map[Key]*Answer
	// Order lists the keys of Answers in the order of the requests.
	Order []Key
	// Dropped counts the definitions and responses above the limits.
	Dropped int

	// listings holds the latest listing of each kind.
	listings    map[string]*listing
	answerBytes int
}

// A Key identifies equal requests by method, target and params. Metadata does not count.
type Key struct {
	Method string
	// Target is the tool, prompt or URI.
	Target string
	// Params is a hash of the params that does not depend on their order.
	Params uint64
}

// An Answer is the response to a request. Of equal requests, it is the first response, with the
// latencies of all.
type Answer struct {
	// Result is JSON text, or nil for an error.
	Result []byte
	// Error is JSON text, or nil for a result.
	Error   []byte
	Latency trace.Histogram
}

// New returns an empty inventory.
func New(source string) *Inventory {
	v := &Inventory{Source: source, Definitions: map[string]map[string][]byte{}, Listed: map[string]bool{}, Answers: map[Key]*Answer{}, listings: map[string]*listing{}}
	for _, k := range Kinds() {
		v.Definitions[k] = map[string][]byte{}
	}
	return v
}

// FromCapture returns the inventory of the server in a capture. If there are several servers, the
// last one counts.
func FromCapture(source string, events iter.Seq2[*capture.Event, error]) (*Inventory, error) {
	v := New(source)
	for x, err := range capture.Pairs(events) {
		if err != nil {
			return nil, err
		}
		if x.Call.Dir != capture.ToServer || x.Response == nil || x.Request == nil {
			continue
		}
		q, qok := messageAt(x.Request.Data, x.Call.Index)
		r, rok := messageAt(x.Response.Data, x.Index)
		if qok && rok {
			v.Add(x.Call.Method, q.Params, r.Result, r.Error, x.Call.Latency)
		}
	}
	return v, nil
}

// messageAt returns the message at an index of an event, which may be a batch.
func messageAt(data []byte, index int) (m jsonrpc.Message, ok bool) {
	list := wireclient.Messages(data)
	if index >= len(list) {
		return m, false
	}
	return list[index], true
}

// Add adds a response, a result or an error as JSON text. It keeps only copies.
func (iv *Inventory) Add(method string, params, result, failure []byte, latency time.Duration) {
	switch method {
	case mcp.MethodInitialize, mcp.MethodDiscover:
		iv.addHandshake(params, result)
		return
	case mcp.MethodToolsList:
		iv.page(Tools, "name", params, result)
	case mcp.MethodPromptsList:
		iv.page(Prompts, "name", params, result)
	case mcp.MethodResourcesList:
		iv.page(Resources, "uri", params, result)
	case mcp.MethodResourceTemplatesList:
		iv.page(Templates, "uriTemplate", params, result)
	case mcp.MethodToolsCall, mcp.MethodPromptsGet, mcp.MethodResourcesRead, mcp.MethodComplete:
	default:
		return
	}
	iv.answer(method, params, result, failure, latency)
}

// addHandshake adds a server's information from a handshake.
func (iv *Inventory) addHandshake(params, result []byte) {
	if len(result) == 0 {
		return
	}
	info := jsonwire.Lookup(result, "serverInfo")
	if info == nil {
		info = jsonwire.Lookup(jsonwire.Lookup(result, "_meta"), mcp.MetaServerInfo)
	}
	if name := jsonwire.Text(jsonwire.Lookup(info, "name")); name != "" {
		iv.Name, iv.Version = name, jsonwire.Text(jsonwire.Lookup(info, "version"))
	}
	iv.Capabilities = bytes.Clone(jsonwire.Lookup(result, "capabilities"))
	iv.Instructions = jsonwire.Text(jsonwire.Lookup(result, "instructions"))
	if iv.Revision = jsonwire.Text(jsonwire.Lookup(result, "protocolVersion")); iv.Revision == "" {
		iv.Revision = jsonwire.Text(jsonwire.Lookup(jsonwire.Lookup(params, "_meta"), mcp.MetaProtocolVersion))
	}
}

// A listing is a list of definitions whose pages are being read.
type listing struct {
	definitions map[string][]byte
	bytes       int
	// cursor is that of the latest page, quoted, nil for the first one; next is that of the
	// page after it, nil for the last one. An empty cursor is one.
	cursor, next []byte
	// incomplete means that a page or a definition is missing.
	incomplete bool
}

// page adds a page of a list. The first page restarts the list. A list is complete if each page has
// the cursor of the page before it.
func (iv *Inventory) page(kind, key string, params, result []byte) {
	list := jsonwire.Lookup(result, kind)
	if len(list) == 0 || list[0] != '[' {
		return
	}
	cursor, next := cursorIn(params, "cursor"), cursorIn(result, "nextCursor")
	l := iv.listings[kind]
	switch {
	case cursor == nil:
		l = &listing{definitions: map[string][]byte{}}
	case l == nil:
		l = &listing{definitions: map[string][]byte{}, incomplete: true}
	case !bytes.Equal(cursor, l.next) && !bytes.Equal(cursor, l.cursor): // a page may be read again
		l.incomplete = true
	}
	l.cursor, l.next = cursor, next
	iv.listings[kind] = l
	for el := jsonwire.ArrayElements(list); el.Next(); {
		name := jsonwire.Text(jsonwire.Lookup(el.Value(), key))
		if name == "" {
			continue
		}
		old, ok := l.definitions[name]
		size := l.bytes + len(el.Value()) - len(old)
		if !ok && len(l.definitions) >= maxDefinitions || size > maxBytes {
			iv.Dropped++
			l.incomplete = true
			continue
		}
		l.definitions[name], l.bytes = bytes.Clone(el.Value()), size
	}
	iv.Definitions[kind] = l.definitions
	iv.Listed[kind] = next == nil && !l.incomplete
}

// cursorIn returns a copy of the cursor in a member, or nil if there is none.
func cursorIn(object []byte, member string) []byte {
	v := jsonwire.Lookup(object, member)
	if len(v) == 0 || v[0] != '"' {
		return nil
	}
	return []byte(strconv.Quote(jsonwire.Text(v)))
}

func (iv *Inventory) answer(method string, params, result, failure []byte, latency time.Duration) {
	k := keyOf(method, params)
	a := iv.Answers[k]
	if a == nil {
		if len(iv.Answers) >= maxAnswers || iv.answerBytes+len(result)+len(failure) > maxBytes {
			iv.Dropped++
			return
		}
		a = &Answer{Result: bytes.Clone(result), Error: bytes.Clone(failure)}
		iv.answerBytes += len(result) + len(failure)
		iv.Answers[k] = a
		iv.Order = append(iv.Order, k)
	}
	a.Latency.Add(latency)
}

func keyOf(method string, params []byte) Key {
	k := Key{Method: method}
	for p := jsonwire.ObjectMembers(params); p.Next(); {
		if p.KeyIs("_meta") {
			continue
		}
		if p.KeyIs("name") || p.KeyIs("uri") {
			k.Target = jsonwire.Text(p.Value())
		}
		h := fnv.New64a()
		h.Write(p.RawKey())
		h.Write([]byte{0})
		h.Write(p.Value())
		k.Params += h.Sum64()
	}
	return k
}
