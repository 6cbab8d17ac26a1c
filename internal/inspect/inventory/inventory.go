package inventory

import (
	"bytes"
	"hash/fnv"
	"iter"
	"time"

	"mcpwire/capture"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/trace"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// Limits of an inventory.
const (
	maxDefinitions = 16 << 10  // of one kind
	maxAnswers     = 16 << 10  // different requests
	maxBytes       = 128 << 20 // bytes of answers, and of the things of one kind
)

// The kinds of things that a server offers.
const (
	Tools     = "tools"
	Prompts   = "prompts"
	Resources = "resources"
	Templates = "resourceTemplates"
)

// Kinds returns all of them, in the order in which they are reported.
func Kinds() []string { return []string{Tools, Prompts, Resources, Templates} }

// An Inventory is what is known of a server.
type Inventory struct {
	Source       string                       // where it is from, for people
	Name         string                       // of the server, as it says itself
	Version      string                       // of the server
	Revision     string                       // in which it was talked to
	Capabilities []byte                       // JSON text; nil if it has not said
	Instructions string                       // that it gives to models
	Definitions  map[string]map[string][]byte // definitions by kind, and by name or URI: JSON text
	Listed       map[string]bool              // kinds of which the last page has come: only then is what is not there missing
	Answers      map[Key]*Answer
	Order        []Key // of Answers, as they were asked for
	Dropped      int   // answers above the limits

	pages       map[string]map[string][]byte // of a list that goes on
	sizes       map[string]int               // of pages, in bytes
	answerBytes int                          // of answers
}

// A Key tells requests apart: what is asked of what, with which parameters. Metadata does not count.
type Key struct {
	Method string
	Target string // the tool, prompt or URI
	Params uint64 // hash of the parameters, in whatever order they come
}

// An Answer is what came to a request. If it was asked several times, the answer is the first, and the times are of all.
type Answer struct {
	Result  []byte // JSON text; nil if it was an error
	Error   []byte // JSON text; nil if it was none
	Latency trace.Histogram
}

// New returns an empty inventory.
func New(source string) *Inventory {
	v := &Inventory{Source: source, Definitions: map[string]map[string][]byte{}, Listed: map[string]bool{}, Answers: map[Key]*Answer{}, pages: map[string]map[string][]byte{}, sizes: map[string]int{}}
	for _, k := range Kinds() {
		v.Definitions[k] = map[string][]byte{}
	}
	return v
}

// FromCapture takes stock of the server in a capture, or of the last one if there are several.
func FromCapture(source string, events iter.Seq2[*capture.Event, error]) (*Inventory, error) {
	v := New(source)
	for x, err := range capture.Pairs(events, nil) {
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

// messageAt returns a message of an event, which may be a batch.
func messageAt(data []byte, index int) (m jsonrpc.Message, ok bool) {
	data = bytes.TrimSpace(data)
	if len(data) > 0 && data[0] == '[' {
		list, err := jsonrpc.ParseBatch(data, 0)
		if err != nil || index >= len(list) {
			return m, false
		}
		return list[index].Message, true
	}
	return m, jsonrpc.Parse(data, &m, 0) == nil
}

// Add takes an answer: a result or an error, JSON text. Nothing of it is kept but copies.
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

// addHandshake takes what a server says of itself.
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

// page takes a page of a list. The first page begins the list anew.
func (iv *Inventory) page(kind, key string, params, result []byte) {
	list := jsonwire.Lookup(result, kind)
	if len(list) == 0 || list[0] != '[' {
		return
	}
	if jsonwire.Lookup(params, "cursor") == nil || iv.pages[kind] == nil {
		iv.pages[kind], iv.sizes[kind] = map[string][]byte{}, 0
	}
	things := iv.pages[kind]
	for el := jsonwire.ArrayElements(list); el.Next(); {
		name := jsonwire.Text(jsonwire.Lookup(el.Value(), key))
		old, ok := things[name]
		size := iv.sizes[kind] + len(el.Value()) - len(old)
		if name != "" && (ok || len(things) < maxDefinitions) && size <= maxBytes {
			things[name], iv.sizes[kind] = bytes.Clone(el.Value()), size
		}
	}
	iv.Definitions[kind] = things
	iv.Listed[kind] = jsonwire.Lookup(result, "nextCursor") == nil
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

// keyOf returns what a request is recognised by.
func keyOf(method string, params []byte) Key {
	k := Key{Method: method}
	if len(params) == 0 || params[0] != '{' {
		return k
	}
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
