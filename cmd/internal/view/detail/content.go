package detail

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"mcpwire/cmd/internal/json/jsondiff"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/printable"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A Content is what a message asks for or returns, without the protocol around it.
type Content struct {
	// Of names the payload with the blobs of the blocks: "request", "response" or "last".
	Of string `json:"of"`
	// Failed reports an error, or a result with isError.
	Failed bool    `json:"failed,omitempty"`
	Blocks []Block `json:"blocks"`
	// OmittedBlocks counts blocks beyond the limit.
	OmittedBlocks int `json:"left,omitempty"`
}

// A Block is one part of a content. Its texts are safe to show.
type Block struct {
	Kind BlockKind `json:"kind"`
	// Title says what the block is, such as "arguments". It may be empty.
	Title string `json:"title,omitempty"`
	// Role is the role of a message of a prompt or a model.
	Role string `json:"role,omitempty"`
	// URI and Name are those of a resource.
	URI       string `json:"uri,omitempty"`
	Name      string `json:"name,omitempty"`
	MediaType string `json:"media,omitempty"`
	// Description is that of a link.
	Description string `json:"about,omitempty"`
	// Blob is an index into the blobs of the payload, counted from 1. Zero means that the payload
	// does not show the data.
	Blob int `json:"blob,omitempty"`
	// Lines have the text, or JSON that is no table.
	Lines []Line `json:"lines,omitempty"`
	// Markdown has the text as a document, if it looks like one.
	Markdown []Node `json:"md,omitempty"`
	Table    *Table `json:"table,omitempty"`
	// OmittedBytes counts bytes that are not shown.
	OmittedBytes int64 `json:"cut,omitempty"`
}

// A BlockKind is the kind of a block.
type BlockKind string

// The kinds of block.
const (
	TextBlock  BlockKind = "text"
	JSONBlock  BlockKind = "json"
	TableBlock BlockKind = "table"
	MediaBlock BlockKind = "media" // an image, audio, or other data in Base64
	LinkBlock  BlockKind = "link"  // to a resource
	ErrorBlock BlockKind = "error"
	NoteBlock  BlockKind = "note" // a remark of this program
)

// A Table shows an object, or an array of objects.
type Table struct {
	// Columns has the headings. It is nil for the members of an object.
	Columns []string   `json:"columns,omitempty"`
	Rows    [][][]Line `json:"rows"`
	// OmittedRows counts rows beyond the limit.
	OmittedRows int `json:"left,omitempty"`
}

const (
	maxContent      = 64 << 10 // bytes of text of a content
	maxBlocks       = 64
	maxTableRows    = 200
	maxTableColumns = 12
	maxCell         = 4 << 10 // bytes of a cell
	maxFlat         = 60      // bytes of JSON on one line of a cell
	maxRoot         = 2 << 20 // bytes of a message that contents are made of
)

// newContent returns the content of a message, or nil if it has none to show.
func newContent(of string, p *Payload, data []byte, method string) *Content {
	var m jsonrpc.Message
	if p == nil || p.Form != JSON || len(data) > maxRoot || jsonrpc.Parse(data, &m, 0) != nil {
		return nil
	}
	w := &contentWriter{content: &Content{Of: of, Blocks: []Block{}}, payload: p, left: maxContent}
	switch {
	case len(m.Method) > 0:
		w.params(string(m.Method), m.Params)
	case m.Error != nil:
		w.error(m.Err())
	default:
		w.result(method, m.Result)
	}
	p.blobStarts = nil // they keep the whole message
	if len(w.content.Blocks) == 0 {
		return nil
	}
	return w.content
}

// A contentWriter builds a content.
type contentWriter struct {
	content *Content
	payload *Payload
	// left is how many bytes of text may still be shown.
	left int
}

// add adds a block, up to the limit.
func (w *contentWriter) add(b Block) {
	if len(w.content.Blocks) == maxBlocks {
		w.content.OmittedBlocks++
		return
	}
	w.content.Blocks = append(w.content.Blocks, b)
}

func (w *contentWriter) params(method string, params []byte) {
	if !isObject(params) {
		if len(params) > 0 {
			w.json(Block{}, params)
		}
		return
	}
	switch method {
	case mcp.MethodToolsCall, mcp.MethodPromptsGet:
		if args := jsonwire.Lookup(params, "arguments"); args != nil && !isEmpty(args) {
			w.value(Block{Title: "arguments"}, args)
		} else {
			w.add(Block{Kind: NoteBlock, Title: "No arguments."})
		}
		for _, name := range []string{"inputResponses", "task"} {
			if v := jsonwire.Lookup(params, name); v != nil {
				w.value(Block{Title: name}, v)
			}
		}
	case mcp.MethodCreateMessage, mcp.MethodElicit:
		w.input(params)
	default:
		w.members(params, "_meta")
	}
}

// input adds what a server requests from the user or a model.
func (w *contentWriter) input(params []byte) {
	for _, name := range []string{"message", "systemPrompt"} {
		if v := jsonwire.Lookup(params, name); isString(v) {
			w.text(Block{Title: words(name)}, jsonwire.UnquoteString(v[1:len(v)-1]))
		}
	}
	w.messages(jsonwire.Lookup(params, "messages"))
	if props := jsonwire.Lookup(params, "requestedSchema", "properties"); isObject(props) {
		w.fields(Block{Title: "fields"}, props, jsonwire.Lookup(params, "requestedSchema", "required"))
	}
	w.members(params, "_meta", "message", "systemPrompt", "messages", "requestedSchema")
}

func (w *contentWriter) result(method string, result []byte) {
	if !isObject(result) {
		w.json(Block{}, result)
		return
	}
	w.content.Failed = string(jsonwire.Lookup(result, "isError")) == "true"
	shown := []string{"_meta", "resultType", "ttlMs", "cacheScope", "isError"}
	structured := jsonwire.Lookup(result, "structuredContent")
	for m := jsonwire.ObjectMembers(result); m.Next(); {
		name, v := m.KeyString(), m.Value()
		switch name {
		case "content":
			w.blocks(v, "", structured)
		case "structuredContent":
			w.value(Block{Title: "structured content"}, v)
		case "messages":
			w.messages(v)
		case "contents":
			w.resources(v)
		case "tools", "resources", "resourceTemplates", "prompts":
			w.list(name, v)
		case "inputRequests":
			w.inputRequests(v)
		default:
			continue
		}
		shown = append(shown, name)
	}
	if role := jsonwire.Text(jsonwire.Lookup(result, "role")); role != "" && method == mcp.MethodCreateMessage && len(w.content.Blocks) > 0 {
		w.content.Blocks[0].Role = safeText(role)
		shown = append(shown, "role")
	}
	w.members(result, shown...)
	if len(w.content.Blocks) == 0 {
		w.add(Block{Kind: NoteBlock, Title: "An empty result."})
	}
}

func (w *contentWriter) error(e *jsonrpc.Error) {
	w.content.Failed = true
	code := "error " + strconv.Itoa(int(e.Code))
	if meaning := codeMeaning(e.Code); meaning != "" {
		code += ": " + meaning
	}
	b := Block{Kind: ErrorBlock, Title: code}
	b.Lines, b.OmittedBytes = w.textLines([]byte(e.Message))
	w.add(b)
	if len(e.Data) > 0 {
		w.value(Block{Title: "data"}, e.Data)
	}
}

// blocks adds a list of content blocks, or a single one.
func (w *contentWriter) blocks(v []byte, role string, structured []byte) {
	if isObject(v) {
		w.block(v, role, structured)
		return
	}
	if !isArray(v) {
		return
	}
	n := 0
	for el := jsonwire.ArrayElements(v); el.Next(); n++ {
		w.block(el.Value(), role, structured)
	}
	if n == 0 {
		w.add(Block{Kind: NoteBlock, Title: "No content.", Role: role})
	}
}

// block adds one content block of MCP.
func (w *contentWriter) block(v []byte, role string, structured []byte) {
	if len(w.content.Blocks) == maxBlocks {
		w.content.OmittedBlocks++
		return
	}
	text := func(name string) string { return safeText(jsonwire.Text(jsonwire.Lookup(v, name))) }
	b := Block{Role: role}
	switch jsonwire.Text(jsonwire.Lookup(v, "type")) {
	case "text":
		s := jsonwire.Text(jsonwire.Lookup(v, "text"))
		if sameJSON(s, structured) {
			w.add(Block{Kind: NoteBlock, Title: "The text has the same JSON as the structured content.", Role: role})
			return
		}
		w.text(b, s)
	case "image", "audio":
		b.Title, b.MediaType = text("type"), text("mimeType")
		w.media(b, jsonwire.Lookup(v, "data"))
	case "resource":
		w.resource(b, jsonwire.Lookup(v, "resource"))
	case "resource_link":
		b.Kind, b.URI, b.MediaType, b.Description = LinkBlock, text("uri"), text("mimeType"), text("description")
		b.Name = cmp.Or(text("title"), text("name"))
		w.add(b)
	default:
		b.Title = text("type")
		w.value(b, v)
	}
}

func (w *contentWriter) messages(v []byte) {
	for m := range elements(v) {
		w.blocks(jsonwire.Lookup(m, "content"), safeText(jsonwire.Text(jsonwire.Lookup(m, "role"))), nil)
	}
}

func (w *contentWriter) resources(v []byte) {
	for r := range elements(v) {
		w.resource(Block{}, r)
	}
}

func (w *contentWriter) resource(b Block, v []byte) {
	b.URI, b.MediaType = safeText(jsonwire.Text(jsonwire.Lookup(v, "uri"))), safeText(jsonwire.Text(jsonwire.Lookup(v, "mimeType")))
	b.Title = "resource"
	if blob := jsonwire.Lookup(v, "blob"); isString(blob) {
		w.media(b, blob)
		return
	}
	w.text(b, jsonwire.Text(jsonwire.Lookup(v, "text")))
}

// media adds data in Base64. The payload has the data itself.
func (w *contentWriter) media(b Block, data []byte) {
	b.Kind = MediaBlock
	if isString(data) {
		b.Blob = slices.Index(w.payload.blobStarts, &data[1]) + 1
	}
	if b.Blob == 0 && isString(data) {
		b.OmittedBytes = int64(len(data)-2) / 4 * 3
	}
	w.add(b)
}

func (w *contentWriter) list(name string, v []byte) {
	if !isArray(v) {
		return
	}
	t := &Table{Columns: []string{"Name", "Arguments", "Description"}}
	id := "name"
	if name == "resources" || name == "resourceTemplates" {
		t.Columns[1], id = "URI", "uri"
		if name == "resourceTemplates" {
			id = "uriTemplate"
		}
	}
	for item := range elements(v) {
		if len(t.Rows) == maxTableRows || w.left <= 0 {
			t.OmittedRows++
			continue
		}
		second := strings.Join(argumentNames(item), ", ")
		if id != "name" {
			second = jsonwire.Text(jsonwire.Lookup(item, id))
		}
		t.Rows = append(t.Rows, [][]Line{w.cellText(jsonwire.Text(jsonwire.Lookup(item, "name"))), w.cellText(second), w.cellText(jsonwire.Text(jsonwire.Lookup(item, "description")))})
	}
	if len(t.Rows) == 0 {
		w.add(Block{Kind: NoteBlock, Title: "The list is empty."})
		return
	}
	w.add(Block{Kind: TableBlock, Title: words(name), Table: t})
}

// argumentNames returns the names of the arguments of a tool or a prompt. Optional ones end in a
// question mark.
func argumentNames(item []byte) []string {
	var list []string
	add := func(name string, required bool) {
		if !required {
			name += "?"
		}
		if len(list) < 40 {
			list = append(list, name)
		}
	}
	for arg := range elements(jsonwire.Lookup(item, "arguments")) {
		add(jsonwire.Text(jsonwire.Lookup(arg, "name")), string(jsonwire.Lookup(arg, "required")) == "true")
	}
	required := stringsOf(jsonwire.Lookup(item, "inputSchema", "required"))
	for name := range members(jsonwire.Lookup(item, "inputSchema", "properties")) {
		add(name, slices.Contains(required, name))
	}
	return list
}

// inputRequests adds what a server needs before it can complete a call.
func (w *contentWriter) inputRequests(v []byte) {
	for name, v := range members(v) {
		w.add(Block{Kind: NoteBlock, Title: "The server needs input: " + safeText(jsonwire.Text(jsonwire.Lookup(v, "method"))), Name: safeText(name)})
		if params := jsonwire.Lookup(v, "params"); isObject(params) {
			w.input(params)
		}
	}
}

func (w *contentWriter) fields(b Block, props, required []byte) {
	names := stringsOf(required)
	t := &Table{Columns: []string{"Name", "Type", "Description"}}
	for name, v := range members(props) {
		if len(t.Rows) == maxTableRows {
			t.OmittedRows++
			continue
		}
		about := cmp.Or(jsonwire.Text(jsonwire.Lookup(v, "description")), jsonwire.Text(jsonwire.Lookup(v, "title")))
		if !slices.Contains(names, name) {
			name += "?"
		}
		t.Rows = append(t.Rows, [][]Line{w.cellText(name), w.cellText(jsonwire.Text(jsonwire.Lookup(v, "type"))), w.cellText(about)})
	}
	if len(t.Rows) > 0 {
		b.Kind, b.Table = TableBlock, t
		w.add(b)
	}
}

// members adds the members of an object as a table, except some.
func (w *contentWriter) members(object []byte, except ...string) {
	if t := w.objectTable(object, except...); len(t.Rows) > 0 {
		w.add(Block{Kind: TableBlock, Table: t})
	}
}

// value adds a JSON value: as a table if it is an object or an array of objects.
func (w *contentWriter) value(b Block, v []byte) {
	switch {
	case isObject(v):
		w.object(b, v)
	case isString(v):
		w.text(b, jsonwire.Text(v))
	default:
		t := w.arrayTable(v)
		if t == nil || len(t.Rows) == 0 {
			w.json(b, v)
			return
		}
		b.Kind, b.Table = TableBlock, t
		w.add(b)
	}
}

// object adds an object as a table of its members. Arrays of objects in it become tables of their
// own.
func (w *contentWriter) object(b Block, v []byte) {
	var names []string
	for m := jsonwire.ObjectMembers(v); m.Next() && len(names) < maxInnerTables; {
		if isRecords(m.Value()) {
			names = append(names, m.KeyString())
		}
	}
	switch t := w.objectTable(v, names...); {
	case len(t.Rows) > 0:
		own := b
		own.Kind, own.Table = TableBlock, t
		w.add(own)
	case len(names) == 0:
		w.json(b, v)
		return
	}
	for _, name := range names {
		inner := b
		inner.Title = safeText(strings.TrimPrefix(b.Title+": "+name, ": "))
		w.value(inner, jsonwire.Lookup(v, name))
	}
}

// maxInnerTables limits the tables of one object.
const maxInnerTables = 8

// isRecords reports whether a value is an array of objects.
func isRecords(v []byte) bool {
	n := 0
	for el := range elements(v) {
		if !isObject(el) {
			return false
		}
		n++
	}
	return n > 0
}

func (w *contentWriter) objectTable(v []byte, except ...string) *Table {
	t := &Table{}
	for name, v := range members(v) {
		if slices.Contains(except, name) {
			continue
		}
		if len(t.Rows) == maxTableRows || w.left <= 0 {
			t.OmittedRows++
			continue
		}
		t.Rows = append(t.Rows, [][]Line{w.cellText(name), w.cell(v)})
	}
	return t
}

// arrayTable returns a table of an array of objects. It returns nil for other arrays, and an empty
// table for other values.
func (w *contentWriter) arrayTable(v []byte) *Table {
	t := &Table{}
	for el := range elements(v) {
		if !isObject(el) {
			return nil
		}
		for name := range members(el) {
			if !slices.Contains(t.Columns, name) {
				t.Columns = append(t.Columns, name)
			}
			if len(t.Columns) > maxTableColumns {
				return nil
			}
		}
	}
	for el := range elements(v) {
		if len(t.Rows) == maxTableRows || w.left <= 0 {
			t.OmittedRows++
			continue
		}
		row := make([][]Line, len(t.Columns))
		for i := range row {
			row[i] = []Line{}
		}
		for name, v := range members(el) {
			row[slices.Index(t.Columns, name)] = w.cell(v)
		}
		t.Rows = append(t.Rows, row)
	}
	for i, name := range t.Columns {
		t.Columns[i] = safeText(name)
	}
	return t
}

// cell returns a value in a table: a string without quotes, anything else as JSON.
func (w *contentWriter) cell(v []byte) []Line {
	if isString(v) {
		return w.cellText(jsonwire.Text(v))
	}
	s := newLineWriter(max(1, min(w.left, maxCell)))
	s.flat = len(v) <= maxFlat
	omitted := printJSON(s, v)
	return w.finishCell(s, omitted)
}

func (w *contentWriter) cellText(text string) []Line {
	s := newLineWriter(max(1, min(w.left, maxCell)))
	return w.finishCell(s, int64(len(text)-s.writeProse([]byte(text))))
}

func (w *contentWriter) finishCell(s *lineWriter, omitted int64) []Line {
	w.left -= s.size
	if omitted > 0 {
		writeText(s, " …", Annotation)
	}
	return s.finish()
}

// text adds a text: as JSON or Markdown if it looks like that.
func (w *contentWriter) text(b Block, text string) {
	if trimmed := strings.TrimSpace(text); len(trimmed) > 1 && (trimmed[0] == '{' || trimmed[0] == '[') && jsonwire.Valid([]byte(trimmed), maxNesting) == nil {
		w.json(b, []byte(trimmed))
		return
	}
	b.Kind = TextBlock
	b.Lines, b.OmittedBytes = w.textLines([]byte(text))
	if b.OmittedBytes == 0 && isMarkdown(text, b.MediaType) {
		b.Markdown = parseMarkdown([]byte(text))
	}
	w.add(b)
}

// json adds JSON that is not a table.
func (w *contentWriter) json(b Block, v []byte) {
	b.Kind = JSONBlock
	s := newLineWriter(max(1, w.left))
	b.OmittedBytes = printJSON(s, v)
	w.left -= s.size
	b.Lines = s.finish()
	w.add(b)
}

// textLines returns the lines of a text, and how many bytes they omit.
func (w *contentWriter) textLines(text []byte) ([]Line, int64) {
	if !utf8.Valid(text) {
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
	}
	s := newLineWriter(max(1, w.left))
	omitted := int64(len(text) - s.writeProse(text))
	w.left -= s.size
	return s.finish(), omitted
}

// printJSON writes valid JSON to s and returns how many bytes it omits.
func printJSON(s *lineWriter, data []byte) int64 {
	p := &jsonPrinter{lineWriter: s, data: data, lineOf: map[string]int{"": 0}}
	p.run()
	p.flush()
	return p.omittedBytes
}

// sameJSON reports whether a text is JSON with the value of v.
func sameJSON(text string, v []byte) bool {
	text = strings.TrimSpace(text)
	if len(v) == 0 || len(text) == 0 || len(text) > 4*len(v)+1024 || jsonwire.Valid([]byte(text), maxNesting) != nil {
		return false
	}
	return len(jsondiff.Diff([]byte(text), v, nil)) == 0
}

// safeText returns the beginning of a peer's text on one line.
func safeText(s string) string { return printable.Line(clip.String(s, 2000)) }

// words returns the name of a member in words.
func words(name string) string {
	var b strings.Builder
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			b.WriteByte(' ')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

func stringsOf(v []byte) []string {
	var list []string
	for el := range elements(v) {
		list = append(list, jsonwire.Text(el))
	}
	return list
}

// elements returns the elements of an array, and none of other values.
func elements(v []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for el := jsonwire.ArrayElements(v); el.Next() && yield(el.Value()); {
		}
	}
}

// members returns the members of an object, and none of other values.
func members(v []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for m := jsonwire.ObjectMembers(v); m.Next() && yield(m.KeyString(), m.Value()); {
		}
	}
}

func isObject(v []byte) bool { return len(v) > 0 && v[0] == '{' }
func isArray(v []byte) bool  { return len(v) > 0 && v[0] == '[' }
func isString(v []byte) bool { return len(v) > 1 && v[0] == '"' }

func isEmpty(v []byte) bool {
	return len(v) > 1 && len(bytes.TrimSpace(v[1:len(v)-1])) == 0
}
