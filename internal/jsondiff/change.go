package jsondiff

// An Op says what a [Change] does.
type Op string

// The operations.
const (
	Add     Op = "add"
	Remove  Op = "remove"
	Replace Op = "replace"
	More    Op = "more" // there are more changes than Options.MaxChanges; always the last
)

// A Change is a difference.
type Change struct {
	Op Op `json:"op"`
	// Pointer is the place, "" for the whole text. It holds once the changes before this one are made: indexes of elements are those of the second text, and that of an element
	// that is removed is the one at which it stands by then.
	Pointer string `json:"pointer"`
	// OldPointer is the place in the first text, if it has one there and that is another than Pointer.
	OldPointer string `json:"first,omitempty"`
	// Old and New are the values as JSON text, as they are written in the texts; "" where there is none. What is no JSON stands for itself.
	Old string `json:"old,omitempty"`
	New string `json:"new,omitempty"`
	// Cut tells that Old or New is only the beginning, see Options.MaxValue.
	Cut bool `json:"cut,omitempty"`
}

// Options are the options of [Diff]. nil means defaults, and so does 0 for each number.
type Options struct {
	// Ignore are JSON pointers of what is not compared, with all that it holds. A "*" in them stands for any text within a name or an index: /result/_meta, /result/content/*/text,
	// /params/trace*. They are heeded in texts that are compared part by part.
	Ignore []string
	// MaxChanges is how many changes are returned at most; 0 is 1000.
	MaxChanges int
	// MaxDepth is how deep parts are compared: what is below is one part, and compared by its text without white space. 0 is 100, and more than 1000 is 1000.
	MaxDepth int
	// MaxSize is how long a text may be, in bytes, to be compared part by part; 0 is 16 MiB.
	MaxSize int
	// MaxNodes is how many values a text may have to be compared part by part; 0 is 500,000.
	MaxNodes int
	// MaxValue is how long Old and New may be, in bytes; 0 is 4 KiB, below 0 is without limit.
	MaxValue int
}

// withDefaults returns the options with what is not set filled in. o may be nil.
func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	for _, f := range []struct {
		field *int
		value int
	}{{&c.MaxChanges, 1000}, {&c.MaxDepth, 100}, {&c.MaxSize, 16 << 20}, {&c.MaxNodes, 500_000}, {&c.MaxValue, 4 << 10}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	c.MaxDepth, c.MaxChanges = min(c.MaxDepth, 1000), max(c.MaxChanges, 1)
	return c
}
