package hosts

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"mcpwire/cmd/internal/text/spelling"
	"mcpwire/internal/text/printable"
)

// maxSimilar limits the names that an error proposes, maxChoices the entries that it lists.
const (
	maxSimilar = 5
	maxChoices = 12
)

// A NotFoundError reports that no host has a server with that name.
type NotFoundError struct {
	Target string
	// Similar lists similar names, as targets.
	Similar []string
	// Broken lists the errors of unreadable files, which may contain the server.
	Broken []error
}

func (e *NotFoundError) Error() string {
	text := "no server " + quoteName(e.Target) + " is configured"
	if len(e.Similar) > 0 {
		text += ": did you mean " + strings.Join(e.Similar, ", ") + "?"
	}
	var broken []string
	for _, err := range e.Broken {
		broken = append(broken, err.Error())
	}
	if broken != nil {
		text += " (could not read " + strings.Join(broken, ", ") + ")"
	}
	return text
}

// An AmbiguousError reports that a name matches several entries.
type AmbiguousError struct {
	Target  string
	Choices []Server
}

func (e *AmbiguousError) Error() string {
	text := quoteName(e.Target) + " is in " + strconv.Itoa(len(e.Choices)) + " places: "
	targets := e.Targets()
	if len(targets) > maxChoices {
		targets = append(targets[:maxChoices], "…")
	}
	return text + strings.Join(targets, ", ")
}

// Targets returns a unique target for each choice: HOST:NAME where that is enough. The slice
// belongs to the caller.
func (e *AmbiguousError) Targets() []string {
	hosts := map[string]int{}
	for _, s := range e.Choices {
		hosts[s.Host+":"+s.Name]++
	}
	var list []string
	for _, s := range e.Choices {
		if target := s.Host + ":" + s.Name; s.Host != "" && hosts[target] == 1 {
			list = append(list, printable.Line(target))
		} else {
			list = append(list, s.Target())
		}
	}
	return list
}

// Target returns the target FILE:POINTER, which is unique to this entry.
func (s Server) Target() string { return printable.Line(s.File + ":" + s.Pointer) }

// Resolve returns the server that target names: NAME, HOST:NAME, FILE:NAME or FILE:POINTER. Entries
// of projects that do not contain Dir count only if there are no others. Equal entries are one
// server, preferably from a file of the user; different ones lead to an *AmbiguousError. A target
// without a match leads to a *NotFoundError, and an unreadable FILE to a *ParseError or a file
// system error.
func Resolve(e *Env, target string) (Server, error) {
	list, err := Candidates(e, target)
	if err != nil {
		return Server{}, err
	}
	for _, s := range list[1:] {
		if !s.sameAs(list[0]) {
			return Server{}, &AmbiguousError{Target: target, Choices: withoutDuplicates(list)}
		}
	}
	for _, s := range list {
		if s.Scope != ScopeProject {
			return s, nil
		}
	}
	return list[0], nil
}

func withoutDuplicates(list []Server) []Server {
	var out []Server
	for _, s := range list {
		if !slices.ContainsFunc(out, s.sameAs) {
			out = append(out, s)
		}
	}
	return out
}

// Candidates returns all entries that target names, at least one. Resolve chooses from these; the
// errors are the same.
func Candidates(e *Env, target string) ([]Server, error) {
	files, err := Find(e)
	if err != nil {
		return nil, err
	}
	var list, elsewhere []Server
	host, rest, _ := strings.Cut(target, ":")
	isHost := slices.Contains(Names(), host)
	for _, f := range files {
		for _, s := range f.Servers {
			switch {
			case s.Name != target && !(isHost && s.Host == host && s.Name == rest):
			case s.Scope == ScopeLocal && !isWithin(e.Dir, s.Project):
				elsewhere = append(elsewhere, s)
			default:
				list = append(list, s)
			}
		}
	}
	if len(list) == 0 {
		list = elsewhere
	}
	if len(list) > 0 {
		return list, nil
	}
	if path, name, ok := splitFile(e, target, isHost); ok {
		return inFile(e, files, path, name, target)
	}
	return nil, notFound(files, target, host, rest, isHost)
}

// isWithin reports whether dir is folder or below it.
func isWithin(dir, folder string) bool {
	rel, err := filepath.Rel(folder, dir)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// splitFile splits FILE:NAME. Both may contain colons, so it chooses the longest FILE that exists.
// If none exists but the target looks like a file, it splits at the last colon.
func splitFile(e *Env, target string, isHost bool) (path, name string, ok bool) {
	for i := len(target) - 1; i > 0; i-- {
		if target[i] != ':' {
			continue
		}
		p := target[:i]
		if !filepath.IsAbs(p) {
			p = filepath.Join(e.Dir, p)
		}
		if info, err := os.Stat(p); err == nil && !info.IsDir() {
			return p, target[i+1:], true
		}
	}
	if i := strings.LastIndexByte(target, ':'); i > 1 && !isHost {
		lower := strings.ToLower(target[:i])
		if strings.ContainsAny(lower, `/\`) || strings.HasSuffix(lower, ".json") || strings.HasSuffix(lower, ".jsonc") || strings.HasSuffix(lower, ".toml") {
			return target[:i], target[i+1:], true
		}
	}
	return "", "", false
}

// inFile returns the entries with a name or pointer in a file. If the file belongs to a host, it is
// read as that host does.
func inFile(e *Env, files []File, path, name, target string) ([]Server, error) {
	i := slices.IndexFunc(files, func(f File) bool { return sameFile(f.Path, path) })
	var f File
	if i >= 0 && files[i].Err == nil {
		f = files[i]
	} else {
		var err error
		if f, err = ReadFile(e, path); err != nil {
			return nil, err
		}
	}
	var list []Server
	for _, s := range f.Servers {
		if s.Name == name || strings.HasPrefix(name, "/") && s.Pointer == name {
			list = append(list, s)
		}
	}
	if len(list) > 0 {
		return list, nil
	}
	err := &NotFoundError{Target: target, Similar: similarNames(name, f.Servers, func(s Server) string { return target[:len(target)-len(name)] + s.Name })}
	for _, p := range f.Errors {
		err.Broken = append(err.Broken, p)
	}
	return nil, err
}

func sameFile(a, b string) bool {
	if filepath.Clean(a) == filepath.Clean(b) {
		return true
	}
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

func notFound(files []File, target, host, rest string, isHost bool) error {
	e := &NotFoundError{Target: target}
	var all []Server
	name := target
	if isHost {
		name = rest
	}
	for _, f := range files {
		if isHost && f.Host != host {
			continue
		}
		if f.Err != nil {
			e.Broken = append(e.Broken, f.Err)
		}
		for _, p := range f.Errors {
			e.Broken = append(e.Broken, p)
		}
		all = append(all, f.Servers...)
	}
	e.Broken = e.Broken[:min(len(e.Broken), maxSimilar)]
	e.Similar = similarNames(name, all, func(s Server) string {
		if isHost {
			return host + ":" + s.Name
		}
		return s.Name
	})
	return e
}

// similarNames returns the names of servers similar to name, the nearest first, formatted by show.
func similarNames(name string, list []Server, show func(Server) string) []string {
	var similar spelling.Ranking
	for _, s := range list {
		a, b := strings.ToLower(name), strings.ToLower(s.Name)
		d := spelling.Distance(a, b)
		if a != "" && (strings.Contains(b, a) || b != "" && strings.Contains(a, b)) {
			d = min(d, 1)
		}
		if d <= max(1, len(a)/3) {
			similar.Add(printable.Line(show(s)), d)
		}
	}
	return similar.Nearest(maxSimilar)
}
