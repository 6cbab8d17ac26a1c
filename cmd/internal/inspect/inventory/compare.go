package inventory

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"mcpwire/cmd/internal/json/jsondiff"
	"mcpwire/cmd/internal/json/schemadiff"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
)

// An Impact is that of a difference, as for schemas.
type Impact = schemadiff.Impact

// A Difference is one difference between two inventories.
type Difference struct {
	// What is the kind of subject: "server", "capabilities", "tool", "prompt", "resource",
	// "template", "response" or "latency".
	What string `json:"what"`
	// Name is the name of the subject, or the request.
	Name string `json:"name,omitempty"`
	// Pointer is a JSON pointer into the definition or response.
	Pointer string `json:"pointer,omitempty"`
	Impact  Impact `json:"impact"`
	Why     string `json:"why"`
	// Old and New are JSON text or words.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
}

// Options configure [Compare]. A nil *Options means defaults.
type Options struct {
	// Ignore lists JSON pointers into responses that are not compared; see jsondiff.Options.Ignore.
	Ignore []string
	// Same reports whether to ignore the difference between two values in responses, as JSON text,
	// such as two times. pointer is their location. A nil Same ignores no difference.
	Same func(pointer string, old, now []byte) bool
	// MatchesRedacted reports whether a text may be the original of a redacted one. Such texts
	// count as equal, in definitions and in responses. A nil MatchesRedacted matches no text.
	MatchesRedacted func(redacted, text string) bool
	// LatencyRatio is the ratio of median latencies from which on they differ. With zero, latencies
	// are not compared.
	LatencyRatio float64
	// MinLatencyDiff is the difference of medians below which latencies are equal, whatever the
	// ratio.
	MinLatencyDiff time.Duration
}

// maxPerAnswer limits the reported differences of one response.
const maxPerAnswer = 20

// Compare returns the differences between two states of a server, or between two servers. A
// difference that breaks users of the first is [schemadiff.Breaking]. opts may be nil.
func Compare(a, b *Inventory, opts *Options) []Difference {
	c := &comparison{}
	if opts != nil {
		c.opts = *opts
	}
	c.server(a, b)
	c.capabilities(a, b)
	for _, kind := range Kinds() {
		c.definitions(kind, a, b)
	}
	c.answers(a, b)
	slices.SortStableFunc(c.list, func(x, y Difference) int { return y.Impact.Rank() - x.Impact.Rank() })
	return c.list
}

// Worst returns the worst impact, or "" for an empty list.
func Worst(list []Difference) Impact {
	worst := Impact("")
	for _, d := range list {
		if d.Impact.Rank() > worst.Rank() {
			worst = d.Impact
		}
	}
	return worst
}

type comparison struct {
	opts Options
	list []Difference
}

func (c *comparison) add(d Difference) { c.list = append(c.list, d) }

// addChange adds a difference of two values, which it shortens.
func (c *comparison) addChange(d Difference, old, now string) {
	d.Old, d.New = clipPair(old, now)
	c.add(d)
}

func (c *comparison) server(a, b *Inventory) {
	for _, x := range []struct {
		pointer, old, new string
		impact            Impact
		why               string
	}{
		{"/serverInfo/name", a.Name, b.Name, schemadiff.Annotations, "the server's name changed"},
		{"/serverInfo/version", a.Version, b.Version, schemadiff.Annotations, "the server's version changed"},
		{"/protocolVersion", a.Revision, b.Revision, schemadiff.Unclear, "the negotiated revision changed"},
		{"/instructions", a.Instructions, b.Instructions, schemadiff.Annotations, "the instructions for models changed"},
	} {
		if x.old != x.new && !c.matchesRedacted(x.old, x.new) {
			c.addChange(Difference{What: "server", Pointer: x.pointer, Impact: x.impact, Why: x.why}, x.old, x.new)
		}
	}
}

func (c *comparison) capabilities(a, b *Inventory) {
	if a.Capabilities == nil || b.Capabilities == nil {
		return
	}
	before, after := c.fillBoth(a.Capabilities, b.Capabilities)
	for _, d := range jsondiff.Diff(before, after, uncutOptions()) {
		x := Difference{What: "capabilities", Pointer: d.Pointer, Impact: schemadiff.Unclear, Why: "the capability changed"}
		switch {
		case d.Op == jsondiff.Add && d.New == "false", d.Op == jsondiff.Remove && d.Old == "false":
			// An absent flag is false.
			continue
		case d.Op == jsondiff.Add:
			x.Impact, x.Why = schemadiff.Compatible, "new capability"
		case d.Op == jsondiff.Remove || d.New == "false" && d.Old == "true":
			x.Impact, x.Why = schemadiff.Breaking, "the capability was removed"
		case d.New == "true" && d.Old == "false":
			x.Impact, x.Why = schemadiff.Compatible, "new capability"
		}
		c.addChange(x, d.Old, d.New)
	}
}

// kindWord returns the singular of a kind.
func kindWord(kind string) string {
	if kind == Templates {
		return "template"
	}
	return strings.TrimSuffix(kind, "s")
}

func (c *comparison) definitions(kind string, a, b *Inventory) {
	what := kindWord(kind)
	before, after := c.matchNames(a.Definitions[kind], b.Definitions[kind]), b.Definitions[kind]
	for _, name := range slices.Sorted(maps.Keys(before)) {
		def, ok := after[name]
		switch {
		case ok:
			c.definition(what, name, before[name], def)
		case b.Listed[kind]:
			c.add(Difference{What: what, Name: name, Impact: schemadiff.Breaking, Why: "removed"})
		}
	}
	if !a.Listed[kind] {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if _, ok := before[name]; !ok {
			c.add(Difference{What: what, Name: name, Impact: schemadiff.Compatible, Why: "added"})
		}
	}
}

// matchNames renames definitions with partly redacted names, such as URIs, to the matching names in
// the second inventory.
func (c *comparison) matchNames(before, after map[string][]byte) map[string][]byte {
	if c.opts.MatchesRedacted == nil {
		return before
	}
	out := maps.Clone(before)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, ok := after[name]; ok {
			continue
		}
		for _, other := range slices.Sorted(maps.Keys(after)) {
			if _, taken := out[other]; !taken && c.matchesRedacted(name, other) {
				out[other] = out[name]
				delete(out, name)
				break
			}
		}
	}
	return out
}

// uncutOptions returns options that do not truncate values, so that clipPair can find their first
// difference.
func uncutOptions(ignore ...string) *jsondiff.Options {
	return &jsondiff.Options{Ignore: ignore, MaxValue: -1}
}

func (c *comparison) definition(what, name string, before, after []byte) {
	before, after = c.fillBoth(before, after)
	for _, v := range jsondiff.Diff(before, after, uncutOptions("/inputSchema", "/outputSchema", "/_meta")) {
		if isDefault(v) {
			continue
		}
		c.addChange(Difference{What: what, Name: name, Pointer: v.Pointer, Impact: changeImpact(v), Why: changeText(v)}, v.Old, v.New)
	}
	for _, side := range []schemadiff.Direction{schemadiff.Input, schemadiff.Output} {
		pointer := "inputSchema"
		if side == schemadiff.Output {
			pointer = "outputSchema"
		}
		x, y := jsonwire.Lookup(before, pointer), jsonwire.Lookup(after, pointer)
		switch {
		case x == nil && y == nil:
		case x == nil:
			c.add(Difference{What: what, Name: name, Pointer: "/" + pointer, Impact: schemadiff.Compatible, Why: "a schema was added"})
		case y == nil:
			c.add(Difference{What: what, Name: name, Pointer: "/" + pointer, Impact: schemadiff.Breaking, Why: "the schema was removed"})
		default:
			changes := schemadiff.Compare(x, y, side)
			if side == schemadiff.Input {
				changes = rootType(x, y, changes)
			}
			for _, d := range changes {
				c.add(Difference{What: what, Name: name, Pointer: "/" + pointer + d.Pointer, Impact: d.Impact, Why: d.Why})
			}
		}
	}
}

// rootType corrects the changes of the type of an inputSchema. Arguments are objects, and the
// protocol requires the schema to say so: clients reject a tool, or all of them, if it does not.
func rootType(before, after []byte, changes []schemadiff.Change) []schemadiff.Change {
	was, is := isObjectSchema(before), isObjectSchema(after)
	changes = slices.DeleteFunc(changes, func(d schemadiff.Change) bool { return d.Pointer == "/type" })
	switch {
	case was && !is:
		d := schemadiff.Change{Pointer: "/type", Impact: schemadiff.Breaking, Why: `"type": "object" was removed, which the protocol requires here: clients reject the tool`}
		changes = append([]schemadiff.Change{d}, changes...)
	case !was && is:
		changes = append(changes, schemadiff.Change{Pointer: "/type", Impact: schemadiff.Compatible, Why: `"type": "object" was added, which the protocol requires`})
	}
	return changes
}

func isObjectSchema(schema []byte) bool {
	return jsonwire.Text(jsonwire.Lookup(schema, "type")) == "object"
}

// isDefault reports whether a change adds or removes a member with the value that its absence
// means.
func isDefault(d jsondiff.Change) bool {
	value := d.New
	switch d.Op {
	case jsondiff.Add:
	case jsondiff.Remove:
		value = d.Old
	default:
		return false
	}
	parts := strings.Split(strings.TrimPrefix(d.Pointer, "/"), "/")
	switch {
	case d.Pointer == "/execution":
		support := jsonwire.Lookup([]byte(value), "taskSupport")
		return isObjectOf([]byte(value), "taskSupport") && (support == nil || string(support) == `"forbidden"`)
	case d.Pointer == "/execution/taskSupport":
		return value == `"forbidden"`
	case parts[0] == "arguments" && len(parts) == 3 && parts[2] == "required":
		return value == "false"
	case d.Pointer == "/arguments":
		return strings.Trim(value, "[] \t\r\n") == ""
	}
	return false
}

// isObjectOf reports whether a JSON text is an object with no other member than name.
func isObjectOf(value []byte, name string) bool {
	if len(value) == 0 || value[0] != '{' {
		return false
	}
	for p := jsonwire.ObjectMembers(value); p.Next(); {
		if !p.KeyIs(name) {
			return false
		}
	}
	return true
}

// changeImpact returns the impact of a change of a definition outside its schemas.
func changeImpact(d jsondiff.Change) Impact {
	parts := strings.Split(strings.TrimPrefix(d.Pointer, "/"), "/")
	switch parts[0] {
	case "title", "description", "icons", "annotations", "size":
		return schemadiff.Annotations
	case "arguments":
		return argumentImpact(d, parts[1:])
	}
	return schemadiff.Unclear
}

// argumentImpact returns the impact of a change of a prompt's arguments. at is the path to the
// change below arguments.
func argumentImpact(d jsondiff.Change, at []string) Impact {
	member := ""
	if len(at) > 1 {
		member = at[1]
	}
	switch {
	case member == "" && d.Op == jsondiff.Remove, member == "name":
		return schemadiff.Breaking
	case member == "" && requires([]byte(d.New)), member == "required" && d.New == "true":
		return schemadiff.Breaking
	case member == "", member == "required":
		return schemadiff.Compatible
	}
	return schemadiff.Annotations
}

// requires reports whether an argument, or one of an array of them, is required.
func requires(value []byte) bool {
	for el := jsonwire.ArrayElements(value); el.Next(); {
		if requires(el.Value()) {
			return true
		}
	}
	return string(jsonwire.Lookup(value, "required")) == "true"
}

func changeText(d jsondiff.Change) string {
	switch d.Op {
	case jsondiff.Add:
		return "added"
	case jsondiff.Remove:
		return "removed"
	case jsondiff.More:
		return "more differences exist"
	}
	return "changed"
}

func (c *comparison) answers(a, b *Inventory) {
	for _, k := range a.Order {
		x, y := a.Answers[k], b.Answers[k]
		if y == nil {
			continue
		}
		c.latency(k, x, y)
		// Definitions are compared above.
		if k.Method != mcp.MethodToolsList && k.Method != mcp.MethodPromptsList && k.Method != mcp.MethodResourcesList && k.Method != mcp.MethodResourceTemplatesList {
			c.answer(k, x, y)
		}
	}
}

func (c *comparison) answer(k Key, x, y *Answer) {
	d := Difference{What: "response", Name: k.String(), Impact: schemadiff.Unclear}
	switch {
	case x.Error == nil && y.Error != nil:
		d.Impact, d.Why, d.New = schemadiff.Breaking, "it fails now", clip.String(string(y.Error), maxShown)
		c.add(d)
		return
	case x.Error != nil && y.Error == nil:
		d.Impact, d.Why, d.Old = schemadiff.Compatible, "it no longer fails", clip.String(string(x.Error), maxShown)
		c.add(d)
		return
	}
	before, after := c.fillBoth([]byte(cmp.Or(string(x.Result), string(x.Error))), []byte(cmp.Or(string(y.Result), string(y.Error))))
	ignore := append([]string{"/_meta", "/ttlMs", "/cacheScope", "/resultType"}, c.opts.Ignore...)
	shown := 0
	for _, v := range jsondiff.Diff(before, after, uncutOptions(ignore...)) {
		if v.Op == jsondiff.Replace && c.opts.Same != nil && c.opts.Same(v.Pointer, []byte(v.Old), []byte(v.New)) {
			continue
		}
		if shown++; shown > maxPerAnswer {
			d.Pointer, d.Why = "", "more differences exist"
			c.add(d)
			return
		}
		d.Pointer, d.Why = v.Pointer, changeText(v)
		if v.Pointer == "/isError" && v.New == "true" {
			d.Impact, d.Why = schemadiff.Breaking, "the tool fails now"
		}
		c.addChange(d, v.Old, v.New)
		d.Impact = schemadiff.Unclear
	}
}

func (c *comparison) latency(k Key, x, y *Answer) {
	before, after := x.Latency.Quantile(0.5), y.Latency.Quantile(0.5)
	if c.opts.LatencyRatio <= 0 || after-before < c.opts.MinLatencyDiff || float64(after) < c.opts.LatencyRatio*float64(before) {
		return
	}
	c.add(Difference{What: "latency", Name: k.String(), Impact: schemadiff.Unclear, Why: fmt.Sprintf("the median time is %.1f times as long", float64(after)/float64(max(before, 1))), Old: before.String(), New: after.String()})
}

// String returns the method and target.
func (k Key) String() string {
	return strings.TrimSpace(k.Method + " " + clip.String(k.Target, maxShown))
}

// maxShown limits a shown value, in bytes.
const maxShown = 300

// clipPair truncates two texts so that their first difference stays visible.
func clipPair(a, b string) (x, y string) {
	x, y = jsondiff.TrimCommonPrefix(a, b)
	return clip.String(x, maxShown), clip.String(y, maxShown)
}

// redacted is the prefix of placeholders for redacted text; see doc/capture-format.md.
const redacted = "~redacted:"

// matchesRedacted reports whether one of two texts may be the original of the other.
func (c *comparison) matchesRedacted(a, b string) bool {
	return c.opts.MatchesRedacted != nil && (c.opts.MatchesRedacted(a, b) || c.opts.MatchesRedacted(b, a))
}

// fillBoth fills redacted texts of each JSON text with the matching ones of the other, because a
// difference is uncertain there.
func (c *comparison) fillBoth(a, b []byte) (x, y []byte) {
	return c.fill(a, b), c.fill(b, a)
}

// fill is fillBoth for the first text.
func (c *comparison) fill(a, b []byte) []byte {
	a, b = bytes.TrimSpace(a), bytes.TrimSpace(b)
	if c.opts.MatchesRedacted == nil || !bytes.Contains(a, []byte(redacted)) || jsonwire.Valid(a, maxNested) != nil || jsonwire.Valid(b, maxNested) != nil {
		return a
	}
	return c.appendFilled(make([]byte, 0, len(a)), a, b)
}

// maxNested limits the nesting of texts to fill.
const maxNested = 512

// appendFilled appends a, filled from b. Both must be valid JSON.
func (c *comparison) appendFilled(dst, a, b []byte) []byte {
	switch {
	case a[0] == '{' && b[0] == '{':
		theirs := map[string][]byte{}
		for p := jsonwire.ObjectMembers(b); p.Next(); {
			theirs[p.KeyString()] = p.Value()
		}
		dst = append(dst, '{')
		members := jsonwire.ObjectMembers(a)
		for i := 0; members.Next(); i++ {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(append(append(dst, '"'), members.RawKey()...), '"', ':')
			if other, ok := theirs[members.KeyString()]; ok {
				dst = c.appendFilled(dst, members.Value(), other)
			} else {
				dst = append(dst, members.Value()...)
			}
		}
		return append(dst, '}')
	case a[0] == '[' && b[0] == '[':
		dst = append(dst, '[')
		elements, others := jsonwire.ArrayElements(a), jsonwire.ArrayElements(b)
		for i := 0; elements.Next(); i++ {
			if i > 0 {
				dst = append(dst, ',')
			}
			if others.Next() {
				dst = c.appendFilled(dst, elements.Value(), others.Value())
			} else {
				dst = append(dst, elements.Value()...)
			}
		}
		return append(dst, ']')
	case a[0] == '"' && bytes.Contains(a, []byte(redacted)):
		// If the placeholder is the whole value, the original may have had any type. It then
		// matches even texts that are never redacted.
		text := jsonwire.Text(a)
		if b[0] == '"' && c.opts.MatchesRedacted(text, jsonwire.Text(b)) || b[0] != '"' && c.opts.MatchesRedacted(text, "\x00") {
			return append(dst, b...)
		}
	}
	return append(dst, a...)
}

// An Omission is a kind that cannot be compared, because one of the inventories did not ask for it.
type Omission struct {
	// Kind is one of Kinds, or "capabilities".
	Kind string `json:"kind"`
	// Missing is the inventory that lacks it: "a" or "b".
	Missing string `json:"missing"`
}

// Omitted returns the kinds that [Compare] skips although one inventory has them: the other server
// may have them too, but they were not listed completely.
func Omitted(a, b *Inventory) []Omission {
	var list []Omission
	add := func(kind string, inA, inB bool) {
		switch {
		case inA && !inB:
			list = append(list, Omission{kind, "b"})
		case inB && !inA:
			list = append(list, Omission{kind, "a"})
		}
	}
	add("capabilities", a.Capabilities != nil, b.Capabilities != nil)
	for _, kind := range Kinds() {
		add(kind, a.Listed[kind] || a.lacks(kind), b.Listed[kind] || b.lacks(kind))
	}
	return list
}

// lacks reports whether the server has declared that it does not offer a kind.
func (iv *Inventory) lacks(kind string) bool {
	if kind == Templates {
		kind = Resources
	}
	return iv.Capabilities != nil && jsonwire.Lookup(iv.Capabilities, kind) == nil
}
