package capture

import (
	"bytes"
	"strings"
)

// cleanTexts remembers short texts and headers in which nothing was hidden, because traffic repeats
// most of them. It does not remember the strings of messages, most of which differ. A new known
// secret empties it. The zero value is ready to use.
type cleanTexts struct {
	// changes is that of the known secrets.
	changes uint64
	texts   [cleanKinds]map[string]struct{}
	// bytes counts those of texts.
	bytes int
	// headers has each header as headers of an [Encoder] writes it.
	headers map[Header]string
}

// The kinds of cleanTexts, which are redacted differently.
const (
	cleanText = iota
	cleanURL
	cleanKinds
)

// Limits of cleanTexts, which is emptied when it is full.
const (
	// maxCleanText is the length of the longest text, in bytes.
	maxCleanText = 256
	// maxCleanBytes limits all texts, each of which counts for some bytes more.
	maxCleanBytes   = 256 << 10
	cleanOverhead   = 64
	maxCleanHeaders = 512
	// maxCleanValue is the length of the longest name and value of a header, in bytes.
	maxCleanValue = 512
)

// has reports whether a text is known to be clean.
func (ct *cleanTexts) has(kind int, text string, ks *knownSecrets) bool {
	if ct.changes != ks.changes {
		*ct = cleanTexts{changes: ks.changes}
	}
	_, ok := ct.texts[kind][text]
	return ok
}

// add remembers a clean text, after has.
func (ct *cleanTexts) add(kind int, text string, ks *knownSecrets) {
	if len(text) > maxCleanText || ct.changes != ks.changes {
		return
	}
	if ct.bytes += len(text) + cleanOverhead; ct.bytes > maxCleanBytes {
		ct.texts, ct.bytes = [cleanKinds]map[string]struct{}{}, len(text)+cleanOverhead
	}
	if ct.texts[kind] == nil {
		ct.texts[kind] = map[string]struct{}{}
	}
	ct.texts[kind][strings.Clone(text)] = struct{}{}
}

// header returns how a header is written, or "" unless it is known to be clean.
func (ct *cleanTexts) header(h Header, ks *knownSecrets) string {
	if ct.changes != ks.changes {
		*ct = cleanTexts{changes: ks.changes}
	}
	return ct.headers[h]
}

// addHeader remembers how a clean header is written, after header.
func (ct *cleanTexts) addHeader(h Header, written []byte, ks *knownSecrets) {
	if len(h.Name)+len(h.Value) > maxCleanValue || ct.changes != ks.changes {
		return
	}
	if ct.headers == nil || len(ct.headers) >= maxCleanHeaders {
		ct.headers = map[Header]string{}
	}
	ct.headers[Header{strings.Clone(h.Name), strings.Clone(h.Value)}] = string(written)
}

// cleanMembers remembers objects and arrays in which nothing was hidden, in the members of params
// and result, because a proxy records them on both sides, and clients and servers repeat them. A
// new known secret empties it. The zero value is ready to use.
type cleanMembers struct {
	// changes is that of the known secrets.
	changes uint64
	members map[memberPath]*cleanValues
}

// A memberPath has the raw names of a member of a message and of a member in it, such as params and
// _meta. The value of a member and its path determine how it is redacted.
type memberPath struct{ outer, inner string }

// Limits of cleanMembers, which is emptied when it has too many members.
const (
	maxCleanMembers = 32
	// maxCleanMember is the length of the longest value, in bytes.
	maxCleanMember = 8 << 10
	// cleanMemberValues is the number of values for a member. There are several because the
	// messages of concurrent requests alternate.
	cleanMemberValues = 8
)

// cleanValues has the last values of a member.
type cleanValues struct {
	values [cleanMemberValues][]byte
	// next is the index of the oldest.
	next int
}

// at returns the values of the member, or nil.
func (cm *cleanMembers) at(outer, inner []byte, ks *knownSecrets) *cleanValues {
	if cm.changes != ks.changes {
		*cm = cleanMembers{changes: ks.changes}
	}
	return cm.members[memberPath{string(outer), string(inner)}]
}

// prefix returns the value that text begins with, or nil. Since the value is an object or an array,
// its end is also the end of the value in text.
func (cv *cleanValues) prefix(text []byte) []byte {
	if cv == nil {
		return nil
	}
	for _, value := range cv.values {
		if len(value) > 0 && bytes.HasPrefix(text, value) {
			return value
		}
	}
	return nil
}

// add remembers a clean value of the member, after at.
func (cm *cleanMembers) add(outer, inner, value []byte) {
	if len(value) > maxCleanMember || len(outer)+len(inner) > maxCleanValue {
		return
	}
	cv := cm.members[memberPath{string(outer), string(inner)}]
	if cv == nil {
		if cm.members == nil || len(cm.members) >= maxCleanMembers {
			cm.members = map[memberPath]*cleanValues{}
		}
		cv = new(cleanValues)
		cm.members[memberPath{string(outer), string(inner)}] = cv
	}
	cv.values[cv.next] = append(cv.values[cv.next][:0], value...)
	cv.next = (cv.next + 1) % cleanMemberValues
}

// repeated walks an object or array that is the value of a member with mode m. It compares it with
// clean values of the same member first.
func (w *walker) repeated(m mode) error {
	path := w.path
	outer, inner := path[0].key, path[1].key
	start := w.s.Pos()
	if value := w.r.members.at(outer, inner, &w.r.known).prefix(w.data[start:]); value != nil {
		w.s.SkipBytes(len(value))
		return nil
	}
	edits, dup := len(w.e.list), w.dup
	w.dup = false
	err := w.value(m)
	if err == nil && !w.dup && len(w.e.list) == edits {
		w.r.members.add(outer, inner, w.data[start:w.s.Pos()])
	}
	w.dup = w.dup || dup
	return err
}

// isRepeatable reports whether the value at the path is examined by repeated: an object or array in
// params or result.
func (w *walker) isRepeatable() bool {
	if w.r == nil || w.depth > 0 || len(w.path) != 2 || w.path[0].index >= 0 || w.path[1].index >= 0 {
		return false
	}
	next := w.s.Peek()
	return next == '{' || next == '['
}
