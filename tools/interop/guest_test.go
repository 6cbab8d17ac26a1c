package interop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A visit is the report of a guest, which is a foreign client that uses all features of the
// everything server. The guests in other languages print it as JSON.
type visit struct {
	Revision      string              `json:"revision"`
	Server        string              `json:"server"`
	Instructions  string              `json:"instructions"`
	Tools         []string            `json:"tools"` // the lists are sorted
	Resources     []string            `json:"resources"`
	Templates     []string            `json:"templates"`
	Prompts       []string            `json:"prompts"`
	Read          map[string]string   `json:"read"`   // MIME type, and text or base64, by URI
	Codes         map[string]int      `json:"codes"`  // of errors
	Prompt        []string            `json:"prompt"` // role and text
	Completion    map[string][]string `json:"completion"`
	Slow          []string            `json:"slow"`    // results and progress of the tool slow
	Answers       map[string]string   `json:"answers"` // results that depend on input responses
	InputRequests []string            `json:"questions"`
	Log           []string            `json:"log"`
	Events        []string            `json:"events"`
	Tasks         map[string]string   `json:"tasks"`
	Failure       string              `json:"failure"` // the error that ended the visit
}

// features has the features that a guest supports.
type features struct {
	Elicit    bool `json:"elicit"`
	Visit     bool `json:"visit"`
	Sample    bool `json:"sample"`
	Roots     bool `json:"roots"`
	Log       bool `json:"log"`
	Subscribe bool `json:"subscribe"`
	Context   bool `json:"context"` // completion with other arguments
	Cancel    bool `json:"cancel"`  // cancellation that the server gets
	Tasks     bool `json:"tasks"`
	Interview bool `json:"interview"` // input requests of a task
}

// featuresOf returns the features of the revision.
func featuresOf(revision string) features {
	return features{
		Elicit: revision >= "2025-06-18", Visit: revision >= latestLegacy, Context: revision >= "2025-06-18",
		Sample: true, Roots: true, Log: true, Subscribe: true, Cancel: true, Tasks: revision >= latestLegacy, Interview: revision >= latestLegacy,
	}
}

// expected returns the report that a guest must make.
func expected(revision string, able features) visit {
	v := visit{
		Revision: revision, Server: "everything", Instructions: instructions,
		Tools:     sorted(append([]string{"interview", "work"}, surfaceTools...)),
		Resources: sorted(append([]string{askedURI}, surfaceResources...)),
		Templates: []string{itemTemplate},
		Prompts:   sorted(append([]string{"asked"}, surfacePrompts...)),
		Read: map[string]string{
			greetingURI: "text/plain " + greetingText, itemURI: "text/plain " + itemText, logoURI: "image/png " + logoText,
		},
		Codes:      map[string]int{"missing resource": -32602, "missing argument": -32602, "unknown prompt": -32602},
		Prompt:     []string{"user: Greet Ada in a formal way.", "assistant: Hello, Ada!"},
		Completion: map[string][]string{"style": {"formal", "friendly"}, "id": {"1", "10", "11"}, "name": names("")},
		Slow:       []string{"done after 3 steps", "progress 1", "progress 2", "given up", "cancelled"},
		Answers:    map[string]string{},
		Tasks:      map[string]string{},
	}
	if revision != modern {
		v.Codes["missing resource"] = -32002
	}
	if able.Context {
		v.Completion["name, formal"] = names("formal")
	}
	if !able.Cancel {
		v.Slow[4] = "nothing was cancelled"
	}
	if able.Elicit {
		v.Answers["ask"], v.Answers["asked prompt"], v.Answers["asked resource"] = "accept Ada 36", "user: accept Ada 36", " accept Ada 36"
		v.InputRequests = append(v.InputRequests, askRecord, askRecord, askRecord)
	}
	if able.Visit {
		v.Answers["visit"] = "accept"
		v.InputRequests = append(v.InputRequests, "visit "+visitURL+": "+visitMessage)
	}
	if able.Sample {
		v.Answers["sample"] = "hello by test-model"
		v.InputRequests = append(v.InputRequests, "sample user up to 50: "+sampleText)
	}
	if able.Roots {
		v.Answers["roots"] = "file:///projects/a Project A, file:///projects/b"
	}
	if able.Log {
		v.Log = []string{"info surface notice", "error surface trouble"}
	}
	if able.Subscribe {
		v.Events = []string{"updated " + greetingURI, "tools changed"}
	}
	if able.Tasks {
		v.Tasks = map[string]string{"work": "worked on a task", "cancel": "cancelled"}
	}
	if able.Interview {
		v.Tasks["interview"] = "accept Ada 36"
		v.InputRequests = append(v.InputRequests, askRecord)
	}
	return v
}

// A guest is a connected client of a Go SDK.
type guest interface {
	revision() string
	about() (name, instructions string)
	tools(context.Context) ([]string, error)
	resources(context.Context) ([]string, error)
	templates(context.Context) ([]string, error)
	prompts(context.Context) ([]string, error)
	// read returns the MIME type and the text, or the base64.
	read(ctx context.Context, uri string) (string, error)
	// prompt returns role and text of each message.
	prompt(ctx context.Context, name string, args map[string]string) ([]string, error)
	complete(ctx context.Context, template bool, of, argument, value string, known map[string]string) ([]string, error)
	// text calls a tool whose result is a text.
	text(ctx context.Context, tool string, args map[string]any) (string, error)
	// slow calls the tool slow, and requests its progress.
	slow(ctx context.Context, args map[string]any, progress func(float64)) (string, error)
	// logFrom requests log messages of info and above.
	logFrom(context.Context) error
	// watch subscribes to changes of a resource and of the tools.
	watch(ctx context.Context, uri string) error
	// code returns the code of the JSON-RPC error in err.
	code(err error) int
	// notes are the notifications that the guest's handlers got.
	notes() *notes
	close() error
}

// notes collects a guest's notifications from any goroutine.
type notes struct {
	inputRequests, log, events chan string
	acked                      chan string // subscriptions that the server acknowledged
}

func newNotes() *notes {
	return &notes{make(chan string, 100), make(chan string, 100), make(chan string, 100), make(chan string, 100)}
}

// collectNotes returns the next n notes.
func collectNotes(ctx context.Context, from <-chan string, n int) (all []string, err error) {
	for range n {
		select {
		case note := <-from:
			all = append(all, note)
		case <-ctx.Done():
			return all, fmt.Errorf("wait for note %d of %d: %w", len(all)+1, n, ctx.Err())
		}
	}
	return all, nil
}

// A visiting is a visit in progress.
type visiting struct {
	guest
	ctx context.Context
	visit
	able features
	errs []error
}

func (v *visiting) check(doing string, err error) {
	if err != nil {
		v.errs = append(v.errs, fmt.Errorf("%s: %w", doing, err))
	}
}

// makeVisit makes the visit of a guest and closes the guest.
func makeVisit(t *testing.T, g guest, able features) visit {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), tourTimeout)
	defer cancel()
	v := &visiting{guest: g, ctx: ctx, able: able, visit: visit{
		Read: map[string]string{}, Codes: map[string]int{}, Completion: map[string][]string{}, Answers: map[string]string{}, Tasks: map[string]string{},
	}}
	v.Revision = g.revision()
	v.Server, v.Instructions = g.about()
	v.list()
	v.readAll()
	v.callSlow()
	v.respond()
	v.listen()
	v.check("close", g.close())
	if err := errors.Join(v.errs...); err != nil {
		v.Failure = err.Error()
	}
	return v.visit
}

// list lists tools, resources, templates and prompts.
func (v *visiting) list() {
	for what, list := range map[string]struct {
		of   func(context.Context) ([]string, error)
		into *[]string
	}{
		"tools": {v.tools, &v.Tools}, "resources": {v.resources, &v.Resources}, "templates": {v.templates, &v.Templates}, "prompts": {v.prompts, &v.Prompts},
	} {
		names, err := list.of(v.ctx)
		v.check(what, err)
		*list.into = sorted(names)
	}
}

// readAll reads resources, gets prompts and completes arguments.
func (v *visiting) readAll() {
	var err error
	for _, uri := range []string{greetingURI, itemURI, logoURI} {
		v.Read[uri], err = v.read(v.ctx, uri)
		v.check(uri, err)
	}
	_, err = v.read(v.ctx, missingItem)
	v.Codes["missing resource"] = v.code(err)
	v.Prompt, err = v.prompt(v.ctx, "greet", map[string]string{"name": "Ada", "style": "formal"})
	v.check("prompt", err)
	_, err = v.prompt(v.ctx, "greet", nil)
	v.Codes["missing argument"] = v.code(err)
	_, err = v.prompt(v.ctx, "no_such_prompt", nil)
	v.Codes["unknown prompt"] = v.code(err)
	complete := func(key string, template bool, of, argument, value string, known map[string]string) {
		var err error
		v.Completion[key], err = v.complete(v.ctx, template, of, argument, value, known)
		v.check("complete "+key, err)
	}
	complete("style", false, "greet", "style", "f", nil)
	complete("id", true, itemTemplate, "id", "1", nil)
	complete("name", false, "greet", "name", "", nil)
	if v.able.Context {
		complete("name, formal", false, "greet", "name", "", map[string]string{"style": "formal"})
	}
}

// callSlow makes a call of the tool slow that ends, and one that the guest cancels.
func (v *visiting) callSlow() {
	done, err := v.slow(v.ctx, map[string]any{"steps": 3, "delay_ms": 1}, func(float64) {})
	v.check("slow", err)
	ctx, cancel := context.WithCancel(v.ctx)
	defer cancel()
	seen := make(chan string, 1000)
	_, err = v.slow(ctx, map[string]any{"steps": 1000, "delay_ms": 20}, func(p float64) {
		if seen <- fmt.Sprint("progress ", p); p >= 2 {
			cancel()
		}
	})
	progress, late := collectNotes(v.ctx, seen, 2)
	v.check("progress", late)
	end := "given up"
	if !cancelled(ctx, err) {
		end = fmt.Sprint(err)
	}
	got, err := v.text(v.ctx, "cancelled", cancelledArgs(v.able))
	v.check("cancelled", err)
	v.Slow = slices.Concat([]string{done}, progress, []string{end, got})
}

// cancelledArgs returns the arguments of the call that checks whether the server got the
// cancellation.
func cancelledArgs(able features) map[string]any {
	if able.Cancel {
		return map[string]any{}
	}
	return map[string]any{"for_ms": 100}
}

// respond makes the server send each input request that the guest supports, and log messages. It
// also runs tasks.
func (v *visiting) respond() {
	try := func(able bool, key string, call func() (string, error)) {
		if !able {
			return
		}
		var err error
		v.Answers[key], err = call()
		v.check(key, err)
		if key == "roots" {
			return // some guests have no handler for roots
		}
		request, err := collectNotes(v.ctx, v.notes().inputRequests, 1)
		v.check(key, err)
		v.InputRequests = append(v.InputRequests, request...)
	}
	tool := func(name string) func() (string, error) {
		return func() (string, error) { return v.text(v.ctx, name, map[string]any{}) }
	}
	try(v.able.Elicit, "ask", tool("ask"))
	try(v.able.Elicit, "asked prompt", func() (string, error) {
		messages, err := v.prompt(v.ctx, "asked", nil)
		return strings.Join(messages, ", "), err
	})
	try(v.able.Elicit, "asked resource", func() (string, error) { return v.read(v.ctx, askedURI) })
	try(v.able.Visit, "visit", tool("visit"))
	try(v.able.Sample, "sample", tool("sample"))
	try(v.able.Roots, "roots", tool("roots"))
	if v.able.Log {
		v.check("set level", v.logFrom(v.ctx))
		_, err := v.text(v.ctx, "log", map[string]any{})
		v.check("log", err)
		v.Log, err = collectNotes(v.ctx, v.notes().log, 2)
		v.check("log", err)
	}
	if tasks, ok := v.guest.(interface {
		runTasks(ctx context.Context, interview bool) (map[string]string, error)
	}); ok && v.able.Tasks {
		var err error
		v.Tasks, err = tasks.runTasks(v.ctx, v.able.Interview)
		v.check("tasks", err)
		if v.able.Interview {
			request, err := collectNotes(v.ctx, v.notes().inputRequests, 1)
			v.check("tasks", err)
			v.InputRequests = append(v.InputRequests, request...)
		}
	}
}

// listen makes the server notify the guest of changes.
func (v *visiting) listen() {
	if !v.able.Subscribe {
		return
	}
	v.check("subscribe", v.watch(v.ctx, greetingURI))
	for _, uri := range []string{"test://a", greetingURI} {
		_, err := v.text(v.ctx, "touch", map[string]any{"uri": uri})
		v.check("touch", err)
	}
	updated, err := collectNotes(v.ctx, v.notes().events, 1)
	v.check("update", err)
	_, err = v.text(v.ctx, "extend", map[string]any{})
	v.check("extend", err)
	changed, err := collectNotes(v.ctx, v.notes().events, 1)
	v.check("change", err)
	v.Events = slices.Concat(updated, changed)
}

// checkVisit compares a guest's report with the expected one.
func checkVisit(t *testing.T, got, want visit) {
	t.Helper()
	if got.Failure != "" {
		t.Errorf("visit failed: %s", got.Failure)
	}
	got.Failure = ""
	if len(got.Tasks) == 0 {
		got.Tasks = map[string]string{}
	}
	if len(got.Events) == 0 {
		got.Events = nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("visit (-want +got):\n%s", diff)
	}
}

// without returns c with a change, usually without some features.
func (c features) without(change func(*features)) features {
	change(&c)
	return c
}

// withoutTasks removes tasks.
func withoutTasks(c *features) { c.Tasks, c.Interview = false, false }

// formLine returns the record of the input request of the tool ask.
func formLine(schema any, message string) string {
	members, _ := schema.(map[string]any)
	properties, _ := members["properties"].(map[string]any)
	kind := func(name string) any {
		property, _ := properties[name].(map[string]any)
		return property["type"]
	}
	return fmt.Sprintf("form name:%v age:%v: %s", kind("name"), kind("age"), message)
}
