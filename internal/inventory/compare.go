package inventory

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"mcpwire/internal/jsondiff"
	"mcpwire/internal/jsonwire"
	"mcpwire/internal/schemadiff"
	"mcpwire/mcp"
)

// A Verdict says what a difference means, as for schemas.
type Verdict = schemadiff.Verdict

// A Difference is something that is not the same in two inventories.
type Difference struct {
	What    string  `json:"what"`              // "server", "capabilities", "tool", "prompt", "resource", "template", "answer", "latency"
	Name    string  `json:"name,omitempty"`    // of the thing, or what was asked
	Pointer string  `json:"pointer,omitempty"` // into its definition or answer, a JSON pointer
	Verdict Verdict `json:"verdict"`
	Why     string  `json:"why"`
	Old     string  `json:"old,omitempty"` // JSON text, or words
	New     string  `json:"new,omitempty"`
}

// Options are the options of [Compare]. nil means defaults.
type Options struct {
	Ignore []string // JSON pointers into answers that are not compared, see jsondiff.Options.Ignore
	// Same reports of two values in answers, JSON texts, that their difference is none, such as that of two times; pointer says where they are. nil is none of them.
	Same func(pointer string, old, now []byte) bool
	// Slower is how many times as long the median of a request may take before that is a difference; 0 does not compare times.
	Slower float64
	// Least is the difference of medians below which times are not compared, whatever the ratio.
	Least time.Duration
}

// maxPerAnswer is how many differences of one answer are told.
const maxPerAnswer = 20

// Compare tells what is different in a server, or between two: what breaks who relies on the first is [schemadiff.Breaking]. opts may be nil.
func Compare(a, b *Inventory, opts *Options) []Difference {
	c := &comparison{}
	if opts != nil {
		c.opts = *opts
	}
	c.server(a, b)
	c.capabilities(a, b)
	for _, kind := range Kinds() {
		c.things(kind, a, b)
	}
	c.answers(a, b)
	slices.SortStableFunc(c.list, func(x, y Difference) int { return rank(y.Verdict) - rank(x.Verdict) })
	return c.list
}

// Worst returns the worst verdict; "" if there is none.
func Worst(list []Difference) Verdict {
	worst := Verdict("")
	for _, d := range list {
		if rank(d.Verdict) > rank(worst) {
			worst = d.Verdict
		}
	}
	return worst
}

func rank(v Verdict) int {
	return slices.Index([]Verdict{"", schemadiff.Words, schemadiff.Compatible, schemadiff.Unclear, schemadiff.Breaking}, v)
}

type comparison struct {
	opts Options
	list []Difference
}

func (c *comparison) add(d Difference) { c.list = append(c.list, d) }

func (c *comparison) server(a, b *Inventory) {
	for _, x := range []struct {
		pointer, old, new string
		verdict           Verdict
		why               string
	}{
		{"/serverInfo/name", a.Name, b.Name, schemadiff.Words, "the server has another name"},
		{"/serverInfo/version", a.Version, b.Version, schemadiff.Words, "the server has another version"},
		{"/protocolVersion", a.Revision, b.Revision, schemadiff.Unclear, "it was talked to in another revision"},
		{"/instructions", a.Instructions, b.Instructions, schemadiff.Words, "models get other instructions"},
	} {
		if x.old != x.new {
			c.add(Difference{What: "server", Pointer: x.pointer, Verdict: x.verdict, Why: x.why, Old: clip(x.old), New: clip(x.new)})
		}
	}
}

func (c *comparison) capabilities(a, b *Inventory) {
	if a.Capabilities == nil || b.Capabilities == nil {
		return
	}
	for _, d := range jsondiff.Diff(a.Capabilities, b.Capabilities, nil) {
		x := Difference{What: "capabilities", Pointer: d.Pointer, Verdict: schemadiff.Unclear, Why: "the capability is another one", Old: clip(d.Old), New: clip(d.New)}
		switch {
		case d.Op == jsondiff.Add:
			x.Verdict, x.Why = schemadiff.Compatible, "there is a capability more"
		case d.Op == jsondiff.Remove || d.New == "false" && d.Old == "true":
			x.Verdict, x.Why = schemadiff.Breaking, "the capability is gone"
		case d.New == "true" && d.Old == "false":
			x.Verdict, x.Why = schemadiff.Compatible, "there is a capability more"
		}
		c.add(x)
	}
}

// whatOf is the word for a thing of a kind.
func whatOf(kind string) string {
	if kind == Templates {
		return "template"
	}
	return strings.TrimSuffix(kind, "s")
}

// things compares what is offered.
func (c *comparison) things(kind string, a, b *Inventory) {
	what := whatOf(kind)
	before, after := a.Things[kind], b.Things[kind]
	for _, name := range slices.Sorted(maps.Keys(before)) {
		def, ok := after[name]
		switch {
		case ok:
			c.thing(what, name, before[name], def)
		case b.Listed[kind]:
			c.add(Difference{What: what, Name: name, Verdict: schemadiff.Breaking, Why: "it is gone"})
		}
	}
	if !a.Listed[kind] {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if _, ok := before[name]; !ok {
			c.add(Difference{What: what, Name: name, Verdict: schemadiff.Compatible, Why: "it is new"})
		}
	}
}

// thing compares two definitions.
func (c *comparison) thing(what, name string, before, after []byte) {
	ignore := []string{"/inputSchema", "/outputSchema", "/_meta"}
	for _, d := range jsondiff.Diff(before, after, &jsondiff.Options{Ignore: ignore}) {
		c.add(Difference{What: what, Name: name, Pointer: d.Pointer, Verdict: meaning(d), Why: changed(d), Old: clip(d.Old), New: clip(d.New)})
	}
	for _, side := range []schemadiff.Side{schemadiff.Input, schemadiff.Output} {
		pointer := "inputSchema"
		if side == schemadiff.Output {
			pointer = "outputSchema"
		}
		x, y := jsonwire.Lookup(before, pointer), jsonwire.Lookup(after, pointer)
		switch {
		case x == nil && y == nil:
		case x == nil:
			c.add(Difference{What: what, Name: name, Pointer: "/" + pointer, Verdict: schemadiff.Compatible, Why: "there is a schema now"})
		case y == nil:
			c.add(Difference{What: what, Name: name, Pointer: "/" + pointer, Verdict: schemadiff.Breaking, Why: "the schema is gone"})
		default:
			for _, d := range schemadiff.Compare(x, y, side) {
				c.add(Difference{What: what, Name: name, Pointer: "/" + pointer + d.Pointer, Verdict: d.Verdict, Why: d.Why})
			}
		}
	}
}

// meaning is what a change of a definition means, outside its schemas.
func meaning(d jsondiff.Change) Verdict {
	switch first, _, _ := strings.Cut(strings.TrimPrefix(d.Pointer, "/"), "/"); first {
	case "title", "description", "icons", "annotations", "size":
		return schemadiff.Words
	case "arguments": // of a prompt
		if strings.HasSuffix(d.Pointer, "/required") && d.New == "true" || d.Op == jsondiff.Add && bytes.Contains([]byte(d.New), []byte(`"required":true`)) || d.Op == jsondiff.Remove {
			return schemadiff.Breaking
		}
		return schemadiff.Words
	}
	return schemadiff.Unclear
}

func changed(d jsondiff.Change) string {
	switch d.Op {
	case jsondiff.Add:
		return "it is there now"
	case jsondiff.Remove:
		return "it is gone"
	case jsondiff.More:
		return "there are more differences"
	}
	return "it is another one"
}

// answers compares what was answered to the same requests.
func (c *comparison) answers(a, b *Inventory) {
	for _, k := range a.Order {
		x, y := a.Answers[k], b.Answers[k]
		if y == nil {
			continue
		}
		c.latency(k, x, y)
		if k.Method != mcp.MethodToolsList && k.Method != mcp.MethodPromptsList && k.Method != mcp.MethodResourcesList && k.Method != mcp.MethodResourceTemplatesList { // compared above
			c.answer(k, x, y)
		}
	}
}

func (c *comparison) answer(k Key, x, y *Answer) {
	d := Difference{What: "answer", Name: k.String(), Verdict: schemadiff.Unclear}
	switch {
	case x.Error == nil && y.Error != nil:
		d.Verdict, d.Why, d.New = schemadiff.Breaking, "it fails now", clip(string(y.Error))
		c.add(d)
		return
	case x.Error != nil && y.Error == nil:
		d.Verdict, d.Why, d.Old = schemadiff.Compatible, "it no longer fails", clip(string(x.Error))
		c.add(d)
		return
	}
	before, after := cmp.Or(string(x.Result), string(x.Error)), cmp.Or(string(y.Result), string(y.Error))
	ignore := append([]string{"/_meta", "/ttlMs", "/cacheScope", "/resultType"}, c.opts.Ignore...)
	told := 0
	for _, v := range jsondiff.Diff([]byte(before), []byte(after), &jsondiff.Options{Ignore: ignore}) {
		if v.Op == jsondiff.Replace && c.opts.Same != nil && c.opts.Same(v.Pointer, []byte(v.Old), []byte(v.New)) {
			continue
		}
		if told++; told > maxPerAnswer {
			d.Pointer, d.Why, d.Old, d.New = "", "there are more differences", "", ""
			c.add(d)
			return
		}
		d.Pointer, d.Why, d.Old, d.New = v.Pointer, changed(v), clip(v.Old), clip(v.New)
		if v.Pointer == "/isError" && v.New == "true" {
			d.Verdict, d.Why = schemadiff.Breaking, "the tool fails now"
		}
		c.add(d)
		d.Verdict = schemadiff.Unclear
	}
}

func (c *comparison) latency(k Key, x, y *Answer) {
	before, after := x.Latency.Quantile(0.5), y.Latency.Quantile(0.5)
	if c.opts.Slower <= 0 || after-before < c.opts.Least || float64(after) < c.opts.Slower*float64(before) {
		return
	}
	c.add(Difference{What: "latency", Name: k.String(), Verdict: schemadiff.Unclear, Why: fmt.Sprintf("the median is %.1f times as long", float64(after)/float64(max(before, 1))), Old: before.String(), New: after.String()})
}

// String names what was asked.
func (k Key) String() string { return strings.TrimSpace(k.Method + " " + clip(k.Target)) }

func clip(s string) string {
	const most = 300
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
