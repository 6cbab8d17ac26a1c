package targets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"mcpwire/client"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
	"mcpwire/schema"
)

// answers sets the handlers for input requests: elicitation, sampling and roots. It reads the files
// that the flags name.
func (d *Dialer) answers() error {
	o, f := &d.opts, d.Flags
	o.Input.ElicitModes = []mcp.ElicitMode{mcp.ElicitModeForm, mcp.ElicitModeURL}
	switch way := f.elicit; {
	case way == "ask" || way == "" && d.canAsk():
		if !d.canAsk() {
			return exit.Usagef("--elicit ask needs a terminal: give --elicit @FILE with the responses, or --elicit decline")
		}
		o.Input.Elicit = func(ctx context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			d.Notes.Clear()
			return newForm(d.Target.Name, p).fill(ctx, d.Ask)
		}
	case way == "" || way == "decline":
		o.Input.Elicit = func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			d.Notes.Linef("declined the server's elicitation: %s", safe.Clip(p.Message, 500))
			return &mcp.ElicitResult{Action: mcp.ElicitActionDecline}, nil
		}
	case strings.HasPrefix(way, "@"):
		prepared, err := readAnswers(way[1:])
		if err != nil {
			return exit.Usagef("--elicit: %w", err)
		}
		o.Input.Elicit = func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
			r, err := prepared.elicit(p)
			problem := err
			if err == nil {
				// The client rejects such a result without telling the user why.
				problem = checkContent(r, p)
			}
			if problem != nil {
				d.Notes.Warnf("%s: %v", safe.Line(way[1:]), problem)
			}
			return r, err
		}
	default:
		return exit.Usagef("--elicit %s: want ask, decline or @FILE", safe.Line(way))
	}
	if err := d.sampling(); err != nil {
		return err
	}
	return d.folders()
}

// canAsk reports whether there is a user to ask.
func (d *Dialer) canAsk() bool {
	return d.Ask != nil || d.Env.CanAsk()
}

// sampling sets the handler for sampling requests.
func (d *Dialer) sampling() error {
	switch way := d.Flags.sampling; {
	case way == "":
	case way == "decline":
		d.opts.Input.Sample = func(context.Context, *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
			d.Notes.Linef("declined the server's sampling request")
			return nil, client.ErrRefused
		}
	case strings.HasPrefix(way, "@"):
		list, err := readList(way[1:])
		if err != nil {
			return exit.Usagef("--sampling: %w", err)
		}
		results := make([]*mcp.CreateMessageResult, len(list.items))
		for i, text := range list.items {
			results[i] = new(mcp.CreateMessageResult)
			if err := results[i].UnmarshalJSON(text); err != nil {
				return exit.Usagef("--sampling: %s: not a CreateMessageResult: %w", safe.Line(way[1:]), err)
			}
		}
		var mu sync.Mutex
		d.opts.Input.Sample = func(context.Context, *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
			mu.Lock()
			defer mu.Unlock()
			if len(results) == 0 {
				return nil, fmt.Errorf("%s has no more responses", safe.Line(way[1:]))
			}
			r := results[0]
			if len(results) > 1 || list.many {
				results = results[1:]
			}
			return r, nil
		}
	default:
		return exit.Usagef("--sampling %s: want decline or @FILE", safe.Line(way))
	}
	return nil
}

// folders sets the handler for the roots that a server may list.
func (d *Dialer) folders() error {
	var roots []mcp.Root
	for _, name := range d.Flags.roots {
		path, err := filepath.Abs(name)
		if err != nil {
			return err
		}
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			return exit.Usagef("--root %s: no such folder", safe.Line(name))
		}
		slashed := filepath.ToSlash(path)
		if !strings.HasPrefix(slashed, "/") {
			slashed = "/" + slashed
		}
		roots = append(roots, mcp.Root{URI: (&url.URL{Scheme: "file", Path: slashed}).String(), Name: filepath.Base(path)})
	}
	if roots != nil {
		d.opts.Input.Roots = func(context.Context) ([]mcp.Root, error) { return roots, nil }
	}
	return nil
}

// A jsonList is the content of a file of answers: one JSON object, or several in an array.
type jsonList struct {
	items []json.RawMessage
	many  bool
}

func readList(file string) (jsonList, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return jsonList{}, err
	}
	text = []byte(strings.TrimSpace(string(text)))
	if err := jsonwire.Valid(text, 0); err != nil {
		return jsonList{}, fmt.Errorf("%s: not JSON: %w", safe.Line(file), err)
	}
	list := jsonList{items: []json.RawMessage{text}}
	if text[0] == '[' {
		list = jsonList{many: true}
		elements := jsonwire.ArrayElements(text)
		for elements.Next() {
			list.items = append(list.items, elements.Value())
		}
	}
	for _, item := range list.items {
		if item[0] != '{' {
			return list, fmt.Errorf("%s: want an object, or an array of objects", safe.Line(file))
		}
	}
	return list, nil
}

// prepared holds answers from a file: either an array of objects for successive requests, or one
// object whose members answer any form that has fields of their names. An object with the member
// action is a complete result; any other is the content of an accepted form.
type prepared struct {
	mu   sync.Mutex
	list jsonList
}

func readAnswers(file string) (*prepared, error) {
	list, err := readList(file)
	return &prepared{list: list}, err
}

func (a *prepared) elicit(p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.list.items) == 0 {
		return nil, errors.New("the file has no more responses")
	}
	item := a.list.items[0]
	if a.list.many {
		a.list.items = a.list.items[1:]
	}
	if isElicitResult(item) {
		r := new(mcp.ElicitResult)
		return r, r.UnmarshalJSON(item)
	}
	// Only the user can have visited the page.
	if p.Mode == mcp.ElicitModeURL {
		return &mcp.ElicitResult{Action: mcp.ElicitActionDecline}, nil
	}
	if !a.list.many {
		item = pickFields(item, p.RequestedSchema)
	}
	return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: item}, nil
}

// checkContent returns why an accepted response does not match the form's schema. It returns nil if
// it matches or the schema is invalid.
func checkContent(r *mcp.ElicitResult, p *mcp.ElicitRequestParams) error {
	if r.Action != mcp.ElicitActionAccept || p.Mode == mcp.ElicitModeURL {
		return nil
	}
	v, err := schema.Compile(p.RequestedSchema, nil)
	if err != nil {
		return nil
	}
	content := r.Content
	if content == nil {
		content = json.RawMessage("{}")
	}
	err = v.Validate(content)
	if e, ok := errors.AsType[*schema.Error](err); ok {
		e.Root = "the answer"
	}
	if err != nil {
		return errors.New(safe.Clip(err.Error(), 500))
	}
	return nil
}

// isElicitResult reports whether an object is a complete result with the user's action.
func isElicitResult(object json.RawMessage) bool {
	members := jsonwire.ObjectMembers(object)
	for members.Next() {
		if members.KeyIs("action") {
			switch string(members.Value()) {
			case `"accept"`, `"decline"`, `"cancel"`:
				return true
			}
		}
	}
	return false
}

// pickFields returns the members of an object for which a form has fields.
func pickFields(object, form json.RawMessage) json.RawMessage {
	fields, _ := Properties(form)
	out := []byte{'{'}
	members := jsonwire.ObjectMembers(object)
	for members.Next() {
		for _, f := range fields {
			if !members.KeyIs(f.Name) {
				continue
			}
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(jsonwire.AppendQuote(out, f.Name), ':')
			out = append(out, members.Value()...)
			break
		}
	}
	return append(out, '}')
}

// An AskFunc shows a prompt to the user and returns the line that they type. It returns io.EOF at
// the end of input.
type AskFunc func(ctx context.Context, prompt string) (string, error)

// A form is an elicitation request for the user.
type form struct {
	server string
	params *mcp.ElicitRequestParams
	fields []field
}

// A field is one field of a form.
type field struct {
	Property
	title string
	// options lists the allowed values. It is nil if any value is allowed.
	options []option
	// several reports whether the user may choose more than one option.
	several bool
	// badDefault says why the default of the schema is not offered. It is empty otherwise.
	badDefault string
	answer     json.RawMessage
}

type option struct {
	value json.RawMessage
	label string
}

const maxOptions = 200

func newForm(server string, p *mcp.ElicitRequestParams) *form {
	f := &form{server: server, params: p}
	props, _ := Properties(p.RequestedSchema)
	for _, prop := range props {
		f.fields = append(f.fields, newField(prop))
	}
	return f
}

// Values returns the values that a schema lists, as people write them. It returns nil if it lists
// none.
func (p Property) Values() (list []string) {
	for _, o := range newField(p).options {
		list = append(list, plainText(o.value))
	}
	if p.Kind == "boolean" {
		list = append(list, "true", "false")
	}
	return list
}

// newField returns the field for a property, without an answer.
func newField(p Property) field {
	f := field{Property: p}
	if p.Fallback != nil {
		if problem := f.check(p.Fallback); problem != "" {
			f.badDefault = "its default " + safe.Clip(string(p.Fallback), 100) + " is invalid: " + problem
			f.Fallback = nil
		}
	}
	var s struct {
		Title     string
		Enum      []json.RawMessage
		EnumNames []string `json:"enumNames"`
		OneOf     []titled `json:"oneOf"`
		Items     struct {
			Enum  []json.RawMessage
			AnyOf []titled `json:"anyOf"`
		}
	}
	if json.Unmarshal(p.Schema, &s) != nil {
		return f
	}
	f.title = s.Title
	f.several = p.Kind == "array"
	if f.several {
		s.Enum, s.OneOf = s.Items.Enum, s.Items.AnyOf
	}
	for i, v := range s.Enum {
		o := option{value: v, label: plainText(v)}
		if i < len(s.EnumNames) && !f.several {
			o.label = s.EnumNames[i]
		}
		f.options = append(f.options, o)
	}
	for _, t := range s.OneOf {
		if t.Const != nil {
			f.options = append(f.options, option{t.Const, t.Title})
		}
	}
	f.options = f.options[:min(len(f.options), maxOptions)]
	return f
}

type titled struct {
	Const json.RawMessage
	Title string
}

// plainText returns a JSON value as people write it.
func plainText(v json.RawMessage) string {
	if len(v) > 1 && v[0] == '"' {
		return jsonwire.Text(v)
	}
	return string(v)
}

// The errors stand for commands that the user types instead of an answer.
var (
	errDecline = errors.New("declined")
	errCancel  = errors.New("cancelled")
	errBack    = errors.New("back")
)

// fill asks the user to fill in the form. The end of input cancels it.
func (f *form) fill(ctx context.Context, ask AskFunc) (*mcp.ElicitResult, error) {
	content, err := f.answer(ctx, ask)
	switch {
	case errors.Is(err, errDecline):
		return &mcp.ElicitResult{Action: mcp.ElicitActionDecline}, nil
	case err != nil:
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return &mcp.ElicitResult{Action: mcp.ElicitActionCancel}, nil
	}
	return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: content}, nil
}

func (f *form) answer(ctx context.Context, ask AskFunc) (json.RawMessage, error) {
	head := fmt.Sprintf("\nThe server %s requests input: %s\n", clip.Characters(f.server, 40), safe.ClipText(f.params.Message, 4000))
	if f.params.Mode == mcp.ElicitModeURL {
		return nil, f.visit(ctx, head, ask)
	}
	head += "(An empty line uses the value in brackets, or omits the field.\n:back, :decline and :cancel do what they say.)\n"
	for {
		for i := 0; i < len(f.fields); {
			err := f.fields[i].fill(ctx, head, ask)
			head = ""
			switch {
			case errors.Is(err, errBack):
				i = max(0, i-1)
			case err != nil:
				return nil, err
			default:
				i++
			}
		}
		content := f.content()
		prompt := head + "Send " + safe.Clip(string(content), 2000) + "? [Y]es, [e]dit, [d]ecline, [c]ancel: "
		head = ""
		line, err := ask(ctx, prompt)
		if err != nil {
			return nil, err
		}
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "", "y", "yes":
			return content, nil
		case "d", "decline", ":decline":
			return nil, errDecline
		case "c", "cancel", ":cancel":
			return nil, errCancel
		}
	}
}

// visit asks for consent to a web page. It does not open the page: the user does, after seeing the
// whole address.
func (f *form) visit(ctx context.Context, head string, ask AskFunc) error {
	host := ""
	if u, err := url.Parse(f.params.URL); err == nil {
		host = u.Hostname()
	}
	prompt := head + "It wants you to open a web page of " + safe.Line(host) + ":\n  " + safe.Line(f.params.URL) + "\n"
	if strings.Contains(host, "xn--") {
		prompt += "Careful: the host name contains letters that may only look like familiar ones.\n"
	}
	for {
		line, err := ask(ctx, prompt+"Will you open it yourself? [y]es, [d]ecline, [c]ancel: ")
		if err != nil {
			return err
		}
		prompt = ""
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "y", "yes":
			return nil
		case "d", "n", "no", "decline", ":decline":
			return errDecline
		case "c", "cancel", ":cancel":
			return errCancel
		}
	}
}

// content returns the object of all answers.
func (f *form) content() json.RawMessage {
	out := []byte{'{'}
	for _, field := range f.fields {
		if field.answer == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(jsonwire.AppendQuote(out, field.Name), ':')
		out = append(out, field.answer...)
	}
	return append(out, '}')
}

// fill asks for the field until the answer is valid.
func (f *field) fill(ctx context.Context, head string, ask AskFunc) error {
	prompt := head + f.prompt()
	for {
		line, err := ask(ctx, prompt)
		if err != nil {
			return err
		}
		switch strings.TrimSpace(line) {
		case ":decline":
			return errDecline
		case ":cancel":
			return errCancel
		case ":back":
			return errBack
		case "":
			if line == "" && f.skip() {
				return nil
			}
		}
		value, problem := f.read(line)
		if problem == "" {
			problem = f.check(value)
		}
		if problem == "" {
			f.answer = value
			return nil
		}
		prompt = "  " + problem + "\n  " + safe.Line(f.Name) + ": "
	}
}

// skip keeps the present answer or takes the default. It reports whether the field may stay so.
func (f *field) skip() bool {
	if f.answer == nil && f.Fallback != nil {
		f.answer = f.Fallback
	}
	return f.answer != nil || !f.Required
}

func (f *field) prompt() string {
	var b strings.Builder
	kind := safe.Line(f.Kind)
	switch {
	case f.several:
		kind = "any of these, separated by commas"
	case f.options != nil:
		kind = "one of these"
	case f.Kind == "boolean":
		kind = "yes or no"
	}
	b.WriteString("  " + safe.Line(f.Name) + " (" + kind)
	if f.Required {
		b.WriteString(", required")
	}
	b.WriteString(")")
	if f.title != "" && f.title != f.Name {
		b.WriteString(" — " + safe.Clip(f.title, 200))
	}
	if f.Description != "" {
		b.WriteString(" — " + safe.Clip(f.Description, 1000))
	}
	b.WriteByte('\n')
	for i, o := range f.options {
		b.WriteString("    " + strconv.Itoa(i+1) + ". " + safe.Clip(o.label, 200))
		if plain := plainText(o.value); plain != o.label {
			b.WriteString(" (" + safe.Clip(plain, 100) + ")")
		}
		b.WriteByte('\n')
	}
	if f.badDefault != "" {
		b.WriteString("    " + f.badDefault + "\n")
	}
	b.WriteString("  " + safe.Line(f.Name))
	if given := f.answer; given != nil {
		b.WriteString(" [" + safe.Clip(plainText(given), 200) + "]")
	} else if f.Fallback != nil {
		b.WriteString(" [" + safe.Clip(plainText(f.Fallback), 200) + "]")
	}
	return b.String() + ": "
}

// read converts the typed line to a value. problem says why that is impossible.
func (f *field) read(line string) (value json.RawMessage, problem string) {
	text := strings.TrimSpace(line)
	switch {
	case f.several && f.options != nil:
		out := []byte{'['}
		for _, part := range strings.Split(text, ",") {
			if part = strings.TrimSpace(part); part == "" {
				continue
			}
			v, problem := f.choose(part)
			if problem != "" {
				return nil, problem
			}
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, v...)
		}
		return append(out, ']'), ""
	case f.options != nil:
		return f.choose(text)
	}
	switch f.Kind {
	case "boolean":
		switch strings.ToLower(text) {
		case "y", "yes", "true":
			return json.RawMessage("true"), ""
		case "n", "no", "false":
			return json.RawMessage("false"), ""
		}
		return nil, "want yes or no"
	case "integer", "number":
		if v, ok := convert(f.Kind, text); ok {
			return v, ""
		}
		return nil, "want " + article(f.Kind)
	}
	return jsonwire.AppendQuote(nil, line), ""
}

// choose returns an option by its value, label or number.
func (f *field) choose(text string) (value json.RawMessage, problem string) {
	i := slices.IndexFunc(f.options, func(o option) bool { return plainText(o.value) == text })
	if i < 0 {
		i = slices.IndexFunc(f.options, func(o option) bool { return strings.EqualFold(o.label, text) })
	}
	if n, err := strconv.Atoi(text); i < 0 && err == nil && n >= 1 && n <= len(f.options) {
		i = n - 1
	}
	if i < 0 {
		return nil, "want the name or number of one of the above"
	}
	return f.options[i].value, ""
}

// check validates an answer against the field's schema. It accepts everything if the schema is
// invalid.
func (f *field) check(value json.RawMessage) (problem string) {
	v, err := schema.Compile(f.Schema, nil)
	if err != nil {
		return ""
	}
	err = v.Validate(value)
	if e, ok := errors.AsType[*schema.Error](err); ok {
		e.Root = "the answer"
	}
	if err != nil {
		return safe.Clip(err.Error(), 500)
	}
	return ""
}
