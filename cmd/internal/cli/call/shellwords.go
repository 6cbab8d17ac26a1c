package call

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/mcp"
)

// A vocabulary completes words by what the shell knows of a server. It is safe for concurrent use.
type vocabulary struct {
	s *session

	mu        sync.Mutex
	stale     bool
	tools     map[string][]targets.Property
	prompts   map[string][]string
	resources []string
	templates []string
}

const (
	wordsTimeout = 3 * time.Second
	maxWords     = 2000 // of each kind
)

func newVocabulary(s *session) *vocabulary { return &vocabulary{s: s, stale: true} }

// changed records that the server's lists may have changed.
func (w *vocabulary) changed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stale = true
}

// refresh lists what the server offers if that may have changed. It ignores errors: such words are
// not completed.
func (w *vocabulary) refresh(ctx context.Context) {
	w.mu.Lock()
	stale := w.stale
	w.stale = false
	w.mu.Unlock()
	if !stale {
		return
	}
	c := w.s.Profile().Capabilities
	tools, prompts := map[string][]targets.Property{}, map[string][]string{}
	var resources, templates []string
	ctx, cancel := context.WithTimeout(ctx, wordsTimeout)
	defer cancel()
	if c.Tools != nil {
		for t, err := range w.s.Tools(ctx) {
			if err != nil || len(tools) == maxWords {
				break
			}
			tools[t.Name], _ = targets.Properties(t.InputSchema)
		}
	}
	if c.Prompts != nil {
		for p, err := range w.s.Prompts(ctx) {
			if err != nil || len(prompts) == maxWords {
				break
			}
			prompts[p.Name] = argumentNames(p)
		}
	}
	if c.Resources != nil {
		for r, err := range w.s.Resources(ctx) {
			if err != nil || len(resources) == maxWords {
				break
			}
			resources = append(resources, r.URI)
		}
		for t, err := range w.s.ResourceTemplates(ctx) {
			if err != nil || len(templates) == maxWords {
				break
			}
			templates = append(templates, t.URITemplate)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tools, w.prompts, w.resources, w.templates = tools, prompts, resources, templates
}

func argumentNames(p mcp.Prompt) []string {
	names := []string{}
	for _, a := range p.Arguments {
		names = append(names, a.Name)
	}
	return names
}

// candidates returns the words that could replace the last of words, sorted. It omits those that
// are unsafe to show.
func (w *vocabulary) candidates(words []string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := len(words) - 1
	last := words[at]
	var list []string
	if at == 0 {
		list = shellVerbs()
	} else if strings.HasPrefix(last, "-") {
		list = flagNames(words[0])
	} else {
		list = w.arguments(words, at)
	}
	var fits []string
	for _, c := range list {
		if strings.HasPrefix(c, last) && safe.Line(c) == c && !strings.ContainsAny(c, " '\"\\") {
			fits = append(fits, c)
		}
	}
	slices.Sort(fits)
	return slices.Compact(fits)
}

// arguments returns the possible arguments of the command words[0].
func (w *vocabulary) arguments(words []string, at int) []string {
	switch words[0] {
	case "call":
		if at == 1 {
			return slices.Collect(maps.Keys(w.tools))
		}
		return toolArguments(w.tools[words[1]], words[2:at], words[at])
	case "prompt":
		if at == 1 {
			return slices.Collect(maps.Keys(w.prompts))
		}
		return unused(w.prompts[words[1]], words[2:at])
	case "read":
		if at == 1 {
			return w.resources
		}
	case "list":
		return listKinds()
	case "log":
		return levelNames()
	case "help":
		return shellVerbs()
	case "send":
		if at == 1 {
			return []string{mcp.MethodToolsList, mcp.MethodToolsCall, mcp.MethodResourcesList, mcp.MethodResourceTemplatesList, mcp.MethodResourcesRead, mcp.MethodPromptsList, mcp.MethodPromptsGet, mcp.MethodComplete}
		}
	case "complete":
		return w.completeArguments(words, at)
	}
	return nil
}

func (w *vocabulary) completeArguments(words []string, at int) []string {
	switch {
	case at == 1:
		return []string{"prompt", "resource"}
	case at == 2 && words[1] == "prompt":
		return slices.Collect(maps.Keys(w.prompts))
	case at == 2:
		return w.templates
	case at == 3 && words[1] == "prompt":
		return w.prompts[words[2]]
	}
	return nil
}

// toolArguments returns the arguments without a value yet, or the possible values of the argument
// that is being typed.
func toolArguments(props []targets.Property, given []string, last string) []string {
	var names []string
	for _, p := range props {
		if before := p.Name + "="; strings.HasPrefix(last, before) {
			var values []string
			for _, value := range p.Values() {
				values = append(values, before+value)
			}
			return values
		}
		switch p.Kind {
		case "array", "object":
			names = append(names, p.Name+":")
		default:
			names = append(names, p.Name)
		}
	}
	return unused(names, given)
}

// unused returns names as arguments, except those in given.
func unused(names, given []string) (list []string) {
	for _, name := range names {
		taken := slices.ContainsFunc(given, func(word string) bool {
			return strings.HasPrefix(word, strings.TrimSuffix(name, ":")+"=") || strings.HasPrefix(word, strings.TrimSuffix(name, ":")+":=")
		})
		if !taken {
			list = append(list, name+"=")
		}
	}
	return list
}

// flagNames returns the flags of a command of the shell.
func flagNames(name string) []string {
	v := (&shell{s: &session{}}).verb(name)
	if v == nil {
		return nil
	}
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	v.register(fs)
	var list []string
	fs.VisitAll(func(f *pflag.Flag) { list = append(list, "--"+f.Name) })
	return list
}

// complete completes the word before pos in a line. If it can't add anything, choices are the
// possible words.
func (w *vocabulary) complete(line string, pos int) (newLine string, newPos int, choices []string) {
	before, after := line[:pos], line[pos:]
	words, err := splitLine(before)
	if err != nil {
		return line, pos, nil // within quotes
	}
	if before == "" || strings.HasSuffix(before, " ") {
		words = append(words, "")
	}
	last := words[len(words)-1]
	if !strings.HasSuffix(before, last) {
		return line, pos, nil // it has quotes
	}
	fits := w.candidates(words)
	if len(fits) == 0 {
		return line, pos, nil
	}
	common := fits[0]
	for _, c := range fits[1:] {
		for !strings.HasPrefix(c, common) {
			common = common[:len(common)-1]
		}
	}
	common = strings.ToValidUTF8(common, "")
	if len(fits) == 1 {
		if !strings.HasSuffix(common, "=") && !strings.HasPrefix(after, " ") {
			common += " "
		}
	} else if common == last {
		return line, pos, fits
	}
	done := before[:len(before)-len(last)] + common
	return done + after, len(done), nil
}
