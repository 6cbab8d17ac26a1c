package detail

import (
	"context"
	"slices"
	"strings"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/text/printable"
)

// A Translation has a message on one side of a bridge and its translation on the other side.
type Translation struct {
	Rule string `json:"rule"`
	// N is the number of the event that records the translation.
	N   uint64      `json:"n"`
	Dir capture.Dir `json:"dir,omitempty"`

	Before *TranslatedMessage `json:"before,omitempty"`
	After  *TranslatedMessage `json:"after,omitempty"`
	// Lines pairs the lines of Before and After. It is nil unless both are JSON.
	Lines []LinePair `json:"lines,omitempty"`
	// Changed counts the differing lines.
	Changed int `json:"changed,omitempty"`
}

// A TranslatedMessage is one of the messages of a Translation.
type TranslatedMessage struct {
	*Payload
	Side capture.Side `json:"side,omitempty"`
	// Row is the Seq of the message's row on the other side. It is 0 if the message belongs to the
	// detail's row or its row was evicted.
	Row uint64 `json:"row,omitempty"`
}

// A Counterpart is a row on a bridge's other side.
type Counterpart struct {
	Seq     uint64       `json:"seq"`
	N       uint64       `json:"n"`
	Side    capture.Side `json:"side"`
	Glyph   string       `json:"glyph"`
	Summary string       `json:"summary"`
}

// Limits of the translations in a detail.
const (
	maxTranslations    = 24
	maxTranslatedBytes = 64 << 10 // bytes of a message
	maxCounterparts    = 16
	maxTranslateTo     = 8 // results of one translation
)

// addLinks adds the translations and linked rows of a row. The caller must hold the lock of the
// model.
func (s *Snapshot) addLinks(r *trace.Row) {
	s.rowByEvent = map[uint64]uint64{}
	links := r.AllLinks()
	for _, l := range links {
		if !slices.Contains(s.translations, l.N) && len(s.translations) < maxTranslations {
			s.translations = append(s.translations, l.N)
		}
		if o := r.Capture.Row(l.Counterpart); o != nil && o.Session != r.Session {
			s.rowByEvent[l.Counterpart] = o.Seq
		}
	}
	others := r.Counterparts()
	for _, o := range others[:min(len(others), maxCounterparts)] {
		s.Counterparts = append(s.Counterparts, Counterpart{Seq: o.Seq, N: o.N, Side: o.Session.Side, Glyph: trace.Glyph(o), Summary: trace.Summary(o)})
	}
}

// addTranslations adds the translations from and to the row's messages.
func (b *builder) addTranslations(ctx context.Context) error {
	shown := b.opts.MaxShown
	b.opts.MaxShown = min(shown, maxTranslatedBytes)
	defer func() { b.opts.MaxShown = shown }()
	for _, n := range b.snapshot.translations {
		e, err := b.readEvent(ctx, n)
		if err != nil {
			return err
		}
		if e == nil || e.Translation == nil {
			continue
		}
		x := *e.Translation
		before, dir, err := b.translatedMessage(ctx, x.Of)
		if err != nil {
			return err
		}
		for _, n := range x.To[:min(len(x.To), maxTranslateTo)] {
			after, _, err := b.translatedMessage(ctx, n)
			if err != nil {
				return err
			}
			if len(b.detail.Translations) < 2*maxTranslations {
				t := Translation{Rule: printable.Line(x.Rule), N: e.N, Dir: dir, Before: before, After: after}
				t.alignLines()
				b.detail.Translations = append(b.detail.Translations, t)
			}
		}
	}
	return nil
}

// translatedMessage reads one of the messages. It returns nil if the message cannot be read.
func (b *builder) translatedMessage(ctx context.Context, n uint64) (*TranslatedMessage, capture.Dir, error) {
	e, err := b.readEvent(ctx, n)
	if e == nil {
		return nil, "", err
	}
	b.wantPointers = true
	defer func() { b.wantPointers = false }()
	return &TranslatedMessage{Payload: b.payload(e, e.Data, false), Side: e.Side, Row: b.snapshot.rowByEvent[n]}, e.Dir, nil
}

// A LinePair has two line numbers, of Before.Lines and After.Lines, counted from 1; zero means no
// line. The third number is 1 if the lines differ, or if the line has no partner anywhere in the
// other message. If both line numbers are 0, the third is the number of equal pairs that are
// omitted.
type LinePair [3]int

// Longer runs of equal pairs are folded, except for some at both ends.
const (
	maxUnchanged  = 12
	keptUnchanged = 3
)

// alignLines pairs the lines of the two messages that have the same JSON pointer, as far as the
// order of the lines allows.
func (t *Translation) alignLines() {
	if t.Before == nil || t.After == nil || t.Before.Form != JSON || t.After.Form != JSON || t.Before.pointers == nil || t.After.pointers == nil {
		return
	}
	a, b := pointerLines(t.Before.Payload), pointerLines(t.After.Payload)
	at := map[string]int{}
	for j, k := range b {
		if _, twice := at[k.key]; k.key != "" && !twice {
			at[k.key] = j
		}
	}
	// The indexes in the other message, or -1.
	match, matchOfB := slices.Repeat([]int{-1}, len(a)), slices.Repeat([]int{-1}, len(b))
	for i, k := range a {
		if j, ok := at[k.key]; ok {
			match[i], matchOfB[j] = j, i
			delete(at, k.key)
		}
	}
	pairMoved(a, b, match, matchOfB)
	differ := func(i, j int) int {
		if i >= 0 && j >= 0 && a[i].text == b[j].text {
			return 0
		}
		t.Changed++
		return 1
	}
	var pairs []LinePair
	i, j := 0, 0
	for _, m := range append(longestIncreasing(match), [2]int{len(a), len(b)}) {
		for ; i < m[0]; i++ {
			pairs = append(pairs, LinePair{i + 1, 0, differ(i, match[i])})
		}
		for ; j < m[1]; j++ {
			pairs = append(pairs, LinePair{0, j + 1, differ(matchOfB[j], j)})
		}
		if i < len(a) && j < len(b) {
			pairs = append(pairs, LinePair{i + 1, j + 1, differ(i, j)})
			i, j = i+1, j+1
		}
	}
	t.Lines = foldUnchanged(pairs)
}

// maxMoved limits the number of comparisons in pairMoved.
const maxMoved = 1 << 18

// pairMoved pairs equal lines that have different pointers but the same order, such as those of an
// input request that a bridge made a request.
func pairMoved(a, b []pointerLine, match, matchOfB []int) {
	unpaired := func(lines []pointerLine, partners []int) (list []int) {
		for i, k := range lines {
			if partners[i] < 0 && !k.isEnd && len(k.text) > 1 {
				list = append(list, i)
			}
		}
		return list
	}
	left, right := unpaired(a, match), unpaired(b, matchOfB)
	if len(left)*len(right) > maxMoved {
		return
	}
	width := len(right) + 1
	longest := make([]int32, (len(left)+1)*width) // length of the common rest
	for i := len(left) - 1; i >= 0; i-- {
		for j := len(right) - 1; j >= 0; j-- {
			if a[left[i]].text == b[right[j]].text {
				longest[i*width+j] = longest[(i+1)*width+j+1] + 1
			} else {
				longest[i*width+j] = max(longest[(i+1)*width+j], longest[i*width+j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(left) && j < len(right); {
		switch {
		case a[left[i]].text == b[right[j]].text:
			match[left[i]], matchOfB[right[j]] = right[j], left[i]
			i, j = i+1, j+1
		case longest[(i+1)*width+j] >= longest[i*width+j+1]:
			i++
		default:
			j++
		}
	}
	ends := map[int]int{} // by the opening line
	for j, k := range b {
		if k.isEnd && matchOfB[j] < 0 {
			ends[k.opener] = j
		}
	}
	for i, k := range a {
		if !k.isEnd || match[i] >= 0 || k.opener < 0 || match[k.opener] < 0 {
			continue
		}
		if j, ok := ends[match[k.opener]]; ok {
			match[i], matchOfB[j] = j, i
		}
	}
}

// A pointerLine is a line with the pointer of its value, or "" if that is unknown.
type pointerLine struct {
	key, text string
	// isEnd means that the line closes what the line opener opens. An opener of -1 is unknown.
	isEnd  bool
	opener int
}

func pointerLines(p *Payload) []pointerLine {
	list := make([]pointerLine, len(p.Lines))
	var open []int // opening lines, by depth
	for i, l := range p.Lines {
		var text strings.Builder
		for _, s := range l.Spans {
			text.WriteString(s.Text)
		}
		k := pointerLine{text: strings.TrimSuffix(text.String(), ","), opener: -1}
		k.isEnd = k.text == "}" || k.text == "]"
		if key, ok := p.pointers[i]; ok && !k.isEnd {
			k.key = "v" + key
		} else if k.isEnd && l.Depth < len(open) {
			k.opener = open[l.Depth]
			k.key = "e" + list[k.opener].key
		}
		for len(open) <= l.Depth {
			open = append(open, i)
		}
		open = append(open[:l.Depth], i)
		list[i] = k
	}
	return list
}

// longestIncreasing returns the longest list of pairs in which both numbers increase.
func longestIncreasing(match []int) [][2]int {
	var ends []int // ends[n] is the index of the smallest last partner of a list of n+1
	before := make([]int, len(match))
	for i, j := range match {
		if j < 0 {
			continue
		}
		n, _ := slices.BinarySearchFunc(ends, j, func(i, j int) int { return match[i] - j })
		before[i] = -1
		if n > 0 {
			before[i] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, i)
		} else {
			ends[n] = i
		}
	}
	if len(ends) == 0 {
		return nil
	}
	list := make([][2]int, len(ends))
	for i, n := ends[len(ends)-1], len(ends)-1; n >= 0; n-- {
		list[n] = [2]int{i, match[i]}
		i = before[i]
	}
	return list
}

// foldUnchanged folds long runs of equal pairs.
func foldUnchanged(pairs []LinePair) []LinePair {
	var out []LinePair
	for i := 0; i < len(pairs); {
		end := i
		for end < len(pairs) && pairs[end][2] == 0 {
			end++
		}
		if end-i > maxUnchanged {
			out = append(out, pairs[i:i+keptUnchanged]...)
			out = append(out, LinePair{0, 0, end - i - 2*keptUnchanged})
			i = end - keptUnchanged
		}
		out = append(out, pairs[i:end]...)
		for i = end; i < len(pairs) && pairs[i][2] != 0; i++ {
			out = append(out, pairs[i])
		}
	}
	return out
}
