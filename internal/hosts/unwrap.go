package hosts

import (
	"bytes"
	"strings"
)

// Unwrap makes the entry at pointer what it was before Wrap or WrapURL. Edits that were made since, to this entry or others, stay.
// It returns [ErrNotWrapped] for an entry without a tap, and for one with a URL that there is no record of, [ErrNoEntry], or a *ParseError.
func (d *Document) Unwrap(pointer string) error {
	n, s, err := d.locate(pointer)
	if err != nil {
		return err
	}
	if d.wrappedURL(pointer, n) {
		v := urlOf(n).value
		d.splice(v.start, v.end, d.record.entry(pointer).Before)
		s.URL = d.record.entry(pointer).URL
		d.edits = append(d.edits, edit{pointer: pointer, before: s, remote: true})
		return nil
	}
	if !s.Wrapped {
		return ErrNotWrapped
	}
	f := fieldsOf(n)
	if f.argv {
		elems := f.command.value.elems
		inner := innerCommand(elems[1:]) + 1
		d.splice(elems[0].start, elems[inner].start, "")
	} else {
		d.unwrapArgs(f, d.record.entry(pointer))
	}
	d.edits = append(d.edits, edit{pointer: pointer, before: s})
	return nil
}

// innerCommand returns which element of the arguments of a tap is the command behind it.
func innerCommand(args []*node) int {
	texts := make([]string, len(args))
	for i, n := range args {
		texts[i] = n.text
	}
	return wrappedCommandIndex(texts)
}

// unwrapArgs is the reverse of wrapArgs. kept may be nil.
func (d *Document) unwrapArgs(f fields, undo *undoEntry) {
	elems := f.args.value.elems
	inner := innerCommand(elems)
	command := elems[inner]
	d.splice(f.command.value.start, f.command.value.end, string(d.data[command.start:command.end]))
	switch {
	case inner+1 < len(elems):
		d.splice(elems[0].start, elems[inner+1].start, "")
	case undo != nil && undo.ArgsAdded && d.removeArgs(f):
	case undo != nil && undo.ArgsText != "":
		d.splice(f.args.value.start, f.args.value.end, undo.ArgsText)
	default:
		end := command.end
		if rest := d.data[end : f.args.value.end-1]; len(bytes.TrimSpace(rest)) > 0 && bytes.TrimSpace(rest)[0] == ',' {
			end += bytes.IndexByte(rest, ',') + 1
		}
		d.splice(elems[0].start, end, "")
	}
}

// removeArgs takes args out again, if it still stands where insertArgs has put it.
func (d *Document) removeArgs(f fields) bool {
	from, to := f.command.value.end, f.args.value.end
	if !f.args.block {
		if gap := strings.TrimSpace(string(d.data[min(from, f.args.lineKey):f.args.lineKey])); gap != "," {
			return false
		}
		d.splice(from, to, "")
		return true
	}
	start := lineStart(d.data, f.args.lineKey)
	rest := d.data[to:]
	end := len(d.data)
	if i := bytes.IndexByte(rest, '\n'); i >= 0 {
		rest, end = rest[:i], to+i+1
	}
	if start < from || strings.TrimSpace(string(d.data[start:f.args.lineKey])) != "" || len(bytes.TrimSpace(rest)) > 0 {
		return false
	}
	if end == len(d.data) && !bytes.HasSuffix(d.data, []byte("\n")) { // the line end before it came with it
		start = len(bytes.TrimSuffix(bytes.TrimSuffix(d.data[:start], []byte("\n")), []byte("\r")))
	}
	d.splice(start, end, "")
	return true
}
