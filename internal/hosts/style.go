package hosts

import (
	"bytes"
	"encoding/json"
	"strings"
)

// quote writes a string in the syntax of the document. What is a string of JSON is one of TOML, too, but for DEL.
func (d *Document) quote(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string into memory
	out := strings.TrimSuffix(b.String(), "\n")
	if d.syntax == syntaxTOML {
		out = strings.ReplaceAll(out, "\x7f", `\u007F`)
	}
	return out
}

// list writes strings, without brackets.
func (d *Document) list(items []string) string {
	quoted := make([]string, len(items))
	for i, s := range items {
		quoted[i] = d.quote(s)
	}
	return strings.Join(quoted, d.comma())
}

// comma is what stands between the elements of a list: a document that is written without spaces stays so.
func (d *Document) comma() string {
	if d.isCompact() {
		return ","
	}
	return ", "
}

// isCompact tells whether the document has no white space at its first colon.
func (d *Document) isCompact() bool {
	if d.syntax != syntaxJSON || len(d.root.members) == 0 {
		return false
	}
	m := d.root.members[0]
	return m.value.start == m.keyEnd+1
}

// separator is what stands between two elements of a list: if the first one has a line of its own, the next one has, too.
func (d *Document) separator(list, first *node) string {
	space := string(d.data[list.start+1 : first.start])
	if i := strings.LastIndexByte(space, '\n'); i >= 0 && strings.TrimSpace(space) == "" {
		if i > 0 && space[i-1] == '\r' {
			i--
		}
		return "," + space[i:]
	}
	return d.comma()
}

// memberSpace is what stands before a member that follows m.
func (d *Document) memberSpace(m *member) string {
	from := lineStart(d.data, m.lineKey)
	if from > 0 && strings.TrimSpace(string(d.data[from:m.lineKey])) == "" {
		return d.eol() + string(d.data[from:m.lineKey])
	}
	if d.isCompact() {
		return ""
	}
	return " "
}

// eol is the line end of the document.
func (d *Document) eol() string {
	if i := bytes.IndexByte(d.data, '\n'); i > 0 && d.data[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// lineStart returns where the line begins that an offset is in.
func lineStart(data []byte, offset int) int {
	return bytes.LastIndexByte(data[:offset], '\n') + 1
}
