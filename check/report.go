package check

import (
	"cmp"
	"slices"
	"strings"

	"mcpwire/mcp"
)

// A Result is a finding with the name of where the capture came from.
type Result struct {
	Finding
	Source string // the name of a file, say
}

// A Report is what the Write functions write. They read it only.
type Report struct {
	Results []Result
	Sources []string // all that was checked, also what nothing was found in
	Events  uint64   // how many were looked at
	Rules   []*Rule  // that were checked; nil is all
	Tool    string   // that checked, such as "mcpwire"
	Version string   // of the tool
}

// Enabled returns the rules that the options leave, sorted by their ids. They belong to the caller; o may be nil.
func (o *Options) Enabled() []*Rule {
	all := Rules()
	if o == nil {
		return all
	}
	return slices.DeleteFunc(all, func(r *Rule) bool { return !o.enabled(r.ID) })
}

// Count returns how many results there are of each severity.
func (r *Report) Count() (errors, warnings, infos int) {
	for _, f := range r.Results {
		switch f.Rule.Severity {
		case Error:
			errors++
		case Warning:
			warnings++
		default:
			infos++
		}
	}
	return errors, warnings, infos
}

// Worst returns the greatest severity of the results; ok is false if there are none.
func (r *Report) Worst() (s Severity, ok bool) {
	for _, f := range r.Results {
		s, ok = max(s, f.Rule.Severity), true
	}
	return s, ok
}

// A group is the results of one rule.
type group struct {
	rule    *Rule
	newest  int // index of its revision
	results []Result
}

// groups returns the results by rule and severity, the worst first. The rule of a group is that of
// its newest revision.
func (r *Report) groups() []group {
	type key struct {
		id       string
		severity Severity
	}
	byID := map[key]*group{}
	for _, res := range r.Results {
		k := key{res.Rule.ID, res.Rule.Severity}
		g := byID[k]
		if g == nil {
			g = &group{rule: res.Rule, newest: -1}
			byID[k] = g
		}
		if n := slices.Index(mcp.Revisions(), res.Revision); n > g.newest {
			g.rule, g.newest = res.Rule, n
		}
		g.results = append(g.results, res)
	}
	var all []group
	for _, g := range byID {
		all = append(all, *g)
	}
	slices.SortFunc(all, func(a, b group) int {
		return cmp.Or(cmp.Compare(b.rule.Severity, a.rule.Severity), cmp.Compare(a.rule.ID, b.rule.ID))
	})
	return all
}

// sdk is the library that all results are about, "" if there is none.
func (g *group) sdk() string {
	for _, f := range g.results {
		if f.SDK == "" || f.SDK != g.results[0].SDK {
			return ""
		}
	}
	return g.results[0].SDK
}

func (r *Report) rules() []*Rule {
	if r.Rules != nil {
		return r.Rules
	}
	return Rules()
}

// location says in words where a finding is.
func (f *Finding) location() string {
	parts := []string{"event " + utoa(f.Event)}
	if f.Session != 0 {
		parts = append(parts, "session "+utoa(f.Session))
	}
	if f.Exchange != 0 {
		parts = append(parts, "exchange "+utoa(f.Exchange))
	}
	switch f.Dir {
	case "c2s":
		parts = append(parts, "to the server")
	case "s2c":
		parts = append(parts, "to the client")
	}
	if f.Method != "" {
		parts = append(parts, f.Method)
	}
	if f.ID != "" {
		parts = append(parts, "id "+f.ID)
	}
	if f.Revision != mcp.RevisionNone {
		parts = append(parts, f.Revision.String())
	}
	if f.Pointer != "" {
		parts = append(parts, f.Pointer)
	}
	return strings.Join(parts, ", ")
}

// related names the other events of a finding.
func (f *Finding) related() string {
	if len(f.Related) == 0 {
		return ""
	}
	var list []string
	for _, n := range f.Related {
		list = append(list, utoa(n))
	}
	return "see event " + strings.Join(list, ", ")
}
