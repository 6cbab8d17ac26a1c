package capture

import "bytes"

// A table names its values once, in its first line. Those of CSV, with a comma, a semicolon or a tab
// between the cells, are told from prose by lines of the same number of cells below the first one;
// those of Markdown and of database shells by the line of dashes.

const (
	maxTableHead = 2 << 10 // bytes of a first line
	maxTableRow  = 64 << 10
	maxColumns   = 128
)

// separators are the bytes between the cells of tables.
const separators = ",;\t|"

// cellEndByte are the bytes that may stand behind the name in a cell of the first line.
var cellEndByte = func() (t [256]bool) {
	for _, c := range []byte(separators + "\"' \r\n") {
		t[c] = true
	}
	return t
}()

// scanTable hides the columns of a table with names of secrets, if the word text[start:end] ends such
// a name in its first line. It returns the index before which no other word can be of that line.
func (r *Redactor) scanTable(e *edits, text []byte, start, end int) int {
	from, to, delim := cellAround(text, start, end)
	if delim == 0 {
		return end
	}
	if _, ok := r.classify(text[from:to], false); !ok {
		return end
	}
	head := bytes.LastIndexByte(text[max(0, start-maxTableHead):start], '\n') + 1 + max(0, start-maxTableHead)
	if start-head >= maxTableHead {
		return end
	}
	names, at := tableRow(text, head, delim)
	if len(names) < 2 || at == len(text) {
		return max(at, end)
	}
	secrets := make([]secretName, len(names))
	for i, cell := range names {
		if cell.from == cell.to || cell.to-cell.from > 64 {
			return at
		}
		if name, ok := r.classify(text[cell.from:cell.to], false); ok {
			secrets[i] = name
		}
	}
	first := at
	if delim == '|' {
		if first = skipDashes(text, at); first == at {
			return at
		}
	} else if before, _ := tableRow(text, prevLineStart(text, head), delim); head > 0 && len(before) == len(names) {
		return at // it is a row itself
	}
	for next := first; next < len(text); {
		cells, behind := tableRow(text, next, delim)
		if len(cells) != len(names) {
			break
		}
		for i, cell := range cells {
			if value := text[cell.from:cell.to]; secrets[i].kind != "" && !harmless(value, secrets[i]) && secrets[i].hides(value) {
				r.hide(e, cell.from, cell.to, secrets[i].kind, value)
			}
		}
		next = behind
	}
	return at
}

// cellAround returns the cell of a table that ends with the word text[start:end], and the byte
// between cells; 0 if there is none.
func cellAround(text []byte, start, end int) (from, to int, delim byte) {
	const maxName = 40
	i := end
	if i < len(text) && (text[i] == '"' || text[i] == '\'') {
		i++
	}
	for i < len(text) && i < end+maxName && text[i] == ' ' {
		i++
	}
	if i == len(text) || bytes.IndexByte([]byte(separators+"\r\n"), text[i]) < 0 {
		return 0, 0, 0
	}
	if bytes.IndexByte([]byte(separators), text[i]) >= 0 {
		delim = text[i]
	}
	from = start
	for from > 0 && from > start-maxName && (wordByte[text[from-1]] || text[from-1] == ' ') {
		from--
	}
	k := from
	if k > 0 && (text[k-1] == '"' || text[k-1] == '\'') {
		k--
	}
	if k > 0 && text[k-1] != '\n' {
		before := text[k-1]
		if bytes.IndexByte([]byte(separators), before) < 0 || delim != 0 && delim != before {
			return 0, 0, 0
		}
		delim = before
	}
	for from < start && text[from] == ' ' {
		from++
	}
	return from, end, delim
}

// A tableCell is where the text of a cell begins and ends, without its quotes.
type tableCell struct{ from, to int }

// tableRow returns the cells of the line that begins at i, and where the next line begins. There are
// none if the line, or one of its quoted cells, is too long.
func tableRow(text []byte, i int, delim byte) (cells []tableCell, next int) {
	limit := min(len(text), i+maxTableRow)
	if delim == '|' {
		for i < limit && (text[i] == ' ' || text[i] == '|') {
			if i++; text[i-1] == '|' {
				break
			}
		}
	}
	for {
		for i < limit && text[i] == ' ' {
			i++
		}
		cell := tableCell{i, i}
		if delim != '|' && i < limit && text[i] == '"' {
			cell.from = i + 1
			for i++; i < limit && text[i] != '"' || i+1 < limit && text[i+1] == '"'; i++ {
				if text[i] == '"' {
					i++ // two stand for one
				}
			}
			cell.to = min(i, limit)
			if i < limit {
				i++
			}
			for i < limit && (text[i] == ' ' || text[i] == '\r') {
				i++
			}
			if i < limit && text[i] != delim && text[i] != '\n' {
				return nil, nextLineStart(text, i)
			}
		} else {
			for i < limit && text[i] != delim && text[i] != '\n' {
				if delim == '|' && text[i] == '\\' && i+1 < limit && text[i+1] == '|' {
					i++
				}
				i++
			}
			cell.to = cell.from + len(bytes.TrimRight(text[cell.from:i], " \t\r"))
		}
		if i >= limit && limit < len(text) {
			return nil, nextLineStart(text, limit)
		}
		over := i >= limit || text[i] == '\n'
		if !over || delim != '|' || cell.from < cell.to { // Markdown may close the line by a bar
			if cells = append(cells, cell); len(cells) > maxColumns {
				return nil, nextLineStart(text, i)
			}
		}
		if over {
			return cells, min(i+1, len(text))
		}
		i++
	}
}

// nextLineStart returns where the line behind the one with text[i] begins.
func nextLineStart(text []byte, i int) int {
	if k := bytes.IndexByte(text[i:], '\n'); k >= 0 {
		return i + k + 1
	}
	return len(text)
}

// prevLineStart returns where the line before the one at i begins, or i if it is too long.
func prevLineStart(text []byte, i int) int {
	if i == 0 {
		return 0
	}
	from := max(0, i-1-maxTableHead)
	k := bytes.LastIndexByte(text[from:i-1], '\n')
	if k < 0 && from > 0 {
		return i
	}
	return from + k + 1
}

// skipDashes returns where the line behind one of dashes at i begins, or i if that is none.
func skipDashes(text []byte, i int) int {
	next := nextLineStart(text, i)
	line := bytes.TrimSpace(text[i:next])
	if next-i > maxTableRow || !bytes.Contains(line, []byte("--")) && !bytes.Contains(line, []byte("-|")) || len(bytes.Trim(line, "-+|: \t")) > 0 {
		return i
	}
	return next
}
