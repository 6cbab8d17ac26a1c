package doctor

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/inspect/probe"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/stdio"
)

// A failure of the corpus, testdata/failures. Its README describes the format.
type recordedFailure struct {
	name  string
	title string
	// values holds the values of the lines "key: value", by key.
	values map[string][]string
	// sections are the recorded parts, in the order of the file.
	sections []txtar.File
}

func (f *recordedFailure) get(key string) string { return strings.Join(f.values[key], "\n") }

func (f *recordedFailure) section(name string) []byte {
	for _, s := range f.sections {
		if s.Name == name {
			return s.Data
		}
	}
	return nil
}

func (f *recordedFailure) overHTTP() bool {
	return f.get("url") != "" || len(f.sections) > 0 && slices.Contains([]string{"GET", "POST", "DELETE"}, strings.Fields(f.sections[0].Name)[0])
}

var failureKeys = []string{
	"origin", "command", "env", "exit", "signal", "exit-at", "after", "delay", "silent", "modern", "cause", "remedy", "must", "mustnot",
	"variable", "unknown", "url", "header",
}

func readFailure(t *testing.T, path string) *recordedFailure {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := &recordedFailure{name: strings.TrimSuffix(filepath.Base(path), ".txtar"), values: map[string][]string{}}
	for i, line := range strings.Split(string(a.Comment), "\n") {
		key, value, found := strings.Cut(line, ":")
		base, _, _ := strings.Cut(key, "@")
		switch {
		case i == 0:
			f.title = line
		case line == "" || line[0] == '#':
		case !found || !slices.Contains(failureKeys, base):
			t.Errorf("%s: line %d: %q", path, i+1, line)
		default:
			f.values[key] = append(f.values[key], strings.TrimSpace(value))
		}
	}
	for _, s := range a.Files {
		if name, ok := strings.CutSuffix(s.Name, ".quoted"); ok {
			var data []byte
			for line := range strings.Lines(string(s.Data)) {
				text, err := strconv.Unquote(`"` + strings.TrimSuffix(line, "\n") + `"`)
				if err != nil {
					t.Fatalf("%s: section %s: %q: %v", path, s.Name, line, err)
				}
				data = append(data, text...)
			}
			s = txtar.File{Name: name, Data: data}
		}
		f.sections = append(f.sections, s)
	}
	return f
}

func (f *recordedFailure) duration(t *testing.T, key string) time.Duration {
	if f.get(key) == "" {
		return 0
	}
	d, err := time.ParseDuration(f.get(key))
	if err != nil {
		t.Errorf("%s: %s: %v", f.name, key, err)
	}
	return d
}

// examine runs doctor on the failure, and returns its report.
func (f *recordedFailure) examine(t *testing.T) *doctorReport {
	e := &kit.Env{Stdin: os.Stdin, Stdout: io.Discard, Stderr: io.Discard, Prompter: &kit.Prompter{}}
	target := targets.Spec{Name: "server", Env: f.values["env"], Command: strings.Fields(cmp.Or(f.get("command"), "server"))}
	if f.overHTTP() {
		target.Command, target.URL, target.Header = nil, cmp.Or(f.get("url"), "http://127.0.0.1:8000/mcp"), http.Header{}
		for _, h := range f.values["header"] {
			name, value, _ := strings.Cut(h, ":")
			target.Header.Set(name, strings.TrimSpace(value))
		}
	}
	flags := &targets.Flags{Transport: targets.TransportAuto, Protocol: "auto", NoOAuth: true, Timeout: 30 * time.Second, ConnectTimeout: 30 * time.Second}
	d, err := targets.NewDialer(e, target, flags)
	if err != nil {
		t.Fatal(err)
	}
	names := kit.NewSecretNames()
	r := &doctorReport{out: io.Discard, json: true, Sections: []*doctorSection{}, Target: kit.ShellText(names.Args(target.Command...))}
	doc := &doctor{e: e, d: d, report: r, wait: 30 * time.Second, connect: 30 * time.Second, quick: true, names: names, target: kit.PlainArgs("--", "server")}
	if f.overHTTP() {
		doc.target = kit.PlainArgs(target.URL)
		u, err := url.Parse(target.URL)
		if err != nil {
			t.Fatal(err)
		}
		played := &playedHTTP{t: t, f: f, times: map[int]int{}}
		d.HTTP.Next, doc.metadata = played, played
		doc.endpoint(t.Context(), u)
	} else {
		d.Start = func(_ context.Context, stderr io.Writer) (wireclient.Child, error) {
			return startPlayed(t, f, stderr), nil
		}
		doc.program(t.Context())
	}
	_ = r.finish() // the exit status, which is in r
	return r
}

// TestExplainEnd shows that check says why a process ended after the handshake, at a request that
// hosts send, and starts no more processes then than one for each handshake and one for each list.
func TestExplainEnd(t *testing.T) {
	f := readFailure(t, filepath.Join("testdata", "failures", "crash-tools-list.txtar"))
	var out bytes.Buffer
	var starts atomic.Int32
	synctest.Test(t, func(t *testing.T) {
		start := func(_ context.Context, stderr io.Writer) (wireclient.Child, error) {
			starts.Add(1)
			return startPlayed(t, f, stderr), nil
		}
		report, err := probe.Run(t.Context(), &probe.Target{Command: []string{"server"}, Start: start}, nil)
		if err != nil {
			t.Fatal(err)
		}
		(&targets.Dialer{Env: &kit.Env{Stderr: &out}}).ExplainEnd(report.Failures)
	})
	for _, want := range []string{"not all rules were checked, because the server ends at tools/list: exit status 1", "its standard error ends with: Error: connect ECONNREFUSED 127.0.0.1:5432", "hint: nothing accepts connections"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %q", want, out.String())
		}
	}
	if n, most := int(starts.Load()), 2*len(mcp.Revisions()); n > most {
		t.Errorf("%d processes were started, want at most %d", n, most)
	}
}

// A playedProcess is a fake process that fails as recorded.
type playedProcess struct {
	t      *testing.T
	f      *recordedFailure
	stderr io.Writer
	start  time.Time
	in     *io.PipeReader
	out    *io.PipeWriter
	input  *io.PipeWriter
	output *io.PipeReader
	end    sync.Once
	done   chan struct{}
	err    error
	wg     sync.WaitGroup
}

func startPlayed(t *testing.T, f *recordedFailure, stderr io.Writer) *playedProcess {
	p := &playedProcess{t: t, f: f, stderr: stderr, start: time.Now(), done: make(chan struct{})}
	p.in, p.input = io.Pipe()
	p.output, p.out = io.Pipe()
	p.wg.Go(p.run)
	return p
}

func (p *playedProcess) Read(b []byte) (int, error)  { return p.output.Read(b) }
func (p *playedProcess) Write(b []byte) (int, error) { return p.input.Write(b) }
func (p *playedProcess) CloseWrite() error           { return p.input.Close() }
func (p *playedProcess) Done() <-chan struct{}       { return p.done }
func (p *playedProcess) Pid() int                    { return 0 }

func (p *playedProcess) Wait() error {
	<-p.done
	return p.err
}

func (p *playedProcess) Close() error {
	p.input.Close()
	p.exit(nil)
	p.output.Close()
	p.wg.Wait()
	return p.err
}

// exit ends the process once.
func (p *playedProcess) exit(err error) {
	p.end.Do(func() {
		p.err = err
		close(p.done)
		p.out.Close()
		p.in.Close()
	})
}

// exits ends the process as recorded.
func (p *playedProcess) exits() {
	select {
	case <-p.done:
		return
	case <-time.After(p.f.duration(p.t, "after")):
	}
	e := &stdio.ExitError{Name: "server", After: time.Since(p.start)}
	if name := p.f.get("signal"); name != "" {
		e.Code = -1
		for s := syscall.Signal(1); s < 32; s++ {
			if s.String() == name {
				e.Signal = s
			}
		}
		if e.Signal == nil {
			p.t.Errorf("%s: unknown signal %q", p.f.name, name)
		}
	} else {
		e.Code, _ = strconv.Atoi(p.f.get("exit"))
	}
	p.exit(e)
}

func (p *playedProcess) run() {
	f := p.f
	_, _ = p.stderr.Write(f.section("stderr"))
	_, _ = p.out.Write(f.section("stdout"))
	at, ends := f.get("exit-at"), f.get("exit") != "" || f.get("signal") != ""
	if ends && (at == "" || at == "start") {
		p.exits()
		return
	}
	silent := strings.Fields(f.get("silent"))
	delay := f.duration(p.t, "delay")
	in := bufio.NewReader(p.in)
	for {
		line, err := in.ReadBytes('\n')
		var m jsonrpc.Message
		if err != nil {
			p.says("eof", nil)
			if ends && at == "eof" {
				p.exits()
			}
			p.exit(nil)
			return
		}
		if jsonrpc.Parse(bytes.TrimSpace(line), &m, 0) != nil {
			continue
		}
		method := string(m.Method)
		select {
		case <-time.After(delay + f.duration(p.t, "delay@"+method)):
			delay = 0
		case <-p.done:
			return
		}
		_, _ = p.stderr.Write(f.section("stderr@" + method))
		_, _ = p.out.Write(f.section("stdout@" + method))
		if ends && (at == method || at == "first" || at == "initialized" && method == mcp.NotificationInitialized) {
			p.exits()
			return
		}
		if m.Kind == jsonrpc.KindRequest && !slices.Contains(silent, method) && !slices.Contains(silent, "all") {
			p.says(method, &m)
		}
	}
}

// says writes the answer to a message.
func (p *playedProcess) says(method string, m *jsonrpc.Message) {
	answer := p.f.section("answer@" + method)
	if m == nil {
		_, _ = p.stderr.Write(p.f.section("stderr@eof"))
		_, _ = p.out.Write(p.f.section("stdout@eof"))
		return
	}
	if answer == nil {
		answer = defaultAnswer(method, p.f.get("modern") != "")
	}
	_, _ = p.out.Write(fillIn(answer, m, nil))
}

// defaultAnswer returns what a working server answers, with the placeholders of the corpus.
func defaultAnswer(method string, modern bool) []byte {
	result, more := "", ""
	if modern {
		more = `,"resultType":"complete","ttlMs":0,"cacheScope":"private"`
	}
	switch {
	case method == mcp.MethodDiscover && modern:
		result = `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x","version":"1"}}` + more + `}`
	case method == mcp.MethodInitialize && !modern:
		result = `{"protocolVersion":"{version}","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`
	case method == mcp.MethodToolsList:
		result = `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]` + more + `}`
	case method == mcp.MethodPing && !modern:
		result = `{}`
	default:
		return []byte(`{"jsonrpc":"2.0","id":{id},"error":{"code":-32601,"message":"Method not found"}}` + "\n")
	}
	return []byte(`{"jsonrpc":"2.0","id":{id},"result":` + result + "}\n")
}

// fillIn replaces the placeholders in a recorded answer to a request.
func fillIn(text []byte, m *jsonrpc.Message, u *url.URL) []byte {
	var params struct {
		Version string         `json:"protocolVersion"`
		Meta    map[string]any `json:"_meta"`
	}
	_ = json.Unmarshal(m.Params, &params)
	if params.Version == "" {
		params.Version, _ = params.Meta[mcp.MetaProtocolVersion].(string)
	}
	pairs := []string{"{id}", string(m.ID), "{version}", params.Version, "{method}", string(m.Method)}
	if u != nil {
		pairs = append(pairs, "{origin}", u.Scheme+"://"+u.Host, "{host}", u.Host)
	}
	return []byte(strings.NewReplacer(pairs...).Replace(string(text)))
}

// A playedHTTP is a fake server over HTTP that fails as recorded.
type playedHTTP struct {
	t *testing.T
	f *recordedFailure
	// times counts the answers of each section.
	times map[int]int
}

var playedStatus = regexp.MustCompile(`(?m)^(HTTP/|close$|silence$)`)

func (p *playedHTTP) RoundTrip(r *http.Request) (*http.Response, error) {
	var m jsonrpc.Message
	if r.Body != nil {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		_ = jsonrpc.Parse(body, &m, 0)
	}
	for i, s := range p.f.sections {
		words := append(strings.Fields(s.Name), "", "")
		path, all := strings.CutSuffix(words[1], "*")
		at := playedStatus.FindIndex(s.Data)
		if at == nil {
			p.t.Fatalf("%s: no status line in %s", p.f.name, s.Name)
		}
		if words[0] != r.Method || r.URL.Path != path && !(all && strings.HasPrefix(r.URL.Path, path)) || words[2] != "" && words[2] != string(m.Method) {
			continue
		}
		delay, ok := p.conditions(i, string(s.Data[:at[0]]), r)
		if !ok {
			continue
		}
		p.times[i]++
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		return p.answer(r, &m, s.Data[at[0]:])
	}
	return p.answer(r, &m, []byte("HTTP/1.1 404 Not Found\n\n"))
}

// conditions evaluates the lines before the status line.
func (p *playedHTTP) conditions(section int, lines string, r *http.Request) (delay time.Duration, ok bool) {
	for line := range strings.Lines(lines) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		name, pattern, _ := strings.Cut(value, ":")
		have := r.Header.Get(name)
		if strings.EqualFold(name, "host") {
			have = cmp.Or(r.Host, r.URL.Host)
		}
		switch n, _ := strconv.Atoi(value); key {
		case "if", "unless":
			if regexp.MustCompile(strings.TrimSpace(pattern)).MatchString(have) != (key == "if") {
				return 0, false
			}
		case "times":
			if p.times[section] >= n {
				return 0, false
			}
		case "delay":
			delay, _ = time.ParseDuration(value)
		default:
			p.t.Errorf("%s: unknown condition %q", p.f.name, line)
		}
	}
	return delay, true
}

func (p *playedHTTP) answer(r *http.Request, m *jsonrpc.Message, text []byte) (*http.Response, error) {
	text = fillIn(text, m, r.URL)
	switch strings.TrimSpace(string(text)) {
	case "close":
		return nil, io.EOF
	case "silence":
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	head, body, _ := bytes.Cut(text, []byte("\n\n"))
	whole := append(bytes.ReplaceAll(append(head, '\n'), []byte("\n"), []byte("\r\n")), "\r\n"...)
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(whole)), r)
	if err != nil {
		p.t.Errorf("%s: %v in %q", p.f.name, err, head)
		return nil, err
	}
	held, holds := bytes.CutSuffix(body, []byte("hold\n"))
	resp.ContentLength = int64(len(body))
	if resp.Body = io.NopCloser(bytes.NewReader(body)); holds {
		resp.ContentLength = -1
		resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(held), heldReader{r.Context()}))
	}
	return resp, nil
}

// A heldReader gives nothing until its context ends.
type heldReader struct{ ctx context.Context }

func (h heldReader) Read([]byte) (int, error) {
	<-h.ctx.Done()
	return 0, h.ctx.Err()
}

// conclusion returns doctor's own words: the verdict, the hints, and the next command.
func conclusion(r *doctorReport) string {
	text := []string{"Result: " + r.Status + ": " + r.Verdict}
	for _, s := range r.Sections {
		for _, l := range s.Lines {
			if l.Hint != "" && l.Mark != markNote {
				text = append(text, "→ "+l.Hint)
			}
		}
	}
	if r.Next != "" {
		text = append(text, strings.TrimSuffix("next, "+r.NextWhen, ", ")+": "+r.Next)
	}
	return strings.Join(text, "\n")
}

// namedVariable matches a variable that doctor calls missing.
var namedVariable = regexp.MustCompile(`\b([A-Z][A-Z0-9_]+) is missing|--env ([A-Z][A-Z0-9_]+)=value|the value of ([A-Z][A-Z0-9_]+),`)

// judge compares what doctor concludes with what the failure's author expects. named reports that
// doctor names the cause; wrong lists what it says and must not say.
func (f *recordedFailure) judge(r *doctorReport) (named bool, missing, wrong []string) {
	text := conclusion(r)
	lower := strings.ToLower(text)
	has := func(alternatives string) bool {
		return slices.ContainsFunc(strings.Split(alternatives, " | "), func(s string) bool { return strings.Contains(lower, strings.ToLower(strings.TrimSpace(s))) })
	}
	for _, want := range f.values["must"] {
		if !has(want) {
			missing = append(missing, want)
		}
	}
	for _, not := range f.values["mustnot"] {
		if has(not) {
			wrong = append(wrong, not)
		}
	}
	for _, m := range namedVariable.FindAllStringSubmatch(text, -1) {
		if v := cmp.Or(m[1], m[2], m[3]); !slices.Contains(f.values["variable"], v) && v != "NAME" {
			wrong = append(wrong, "variable "+v)
		}
	}
	if f.get("unknown") != "" && !strings.Contains(lower, "does not know") {
		wrong = append(wrong, `a certainty: "does not know" is missing`)
	}
	return len(missing) == 0, missing, wrong
}

// TestDoctorFailures replays recorded failures, and compares what doctor concludes with the cause
// and the remedy that an engineer would name. MCPWIRE_FAILURES names another folder with failures.
func TestDoctorFailures(t *testing.T) {
	t.Setenv("MCPWIRE_HOME", t.TempDir())
	dir := cmp.Or(os.Getenv("MCPWIRE_FAILURES"), filepath.Join("testdata", "failures"))
	files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no failures in %s: %v", dir, err)
	}
	all, named := 0, 0
	var unnamed []string
	for _, file := range files {
		f := readFailure(t, file)
		t.Run(f.name, func(t *testing.T) {
			if f.title == "" || f.get("origin") == "" || f.get("cause") == "" || f.get("must") == "" && f.get("unknown") == "" {
				t.Error("the title, origin, cause or must is missing")
			}
			var r *doctorReport
			synctest.Test(t, func(t *testing.T) { r = f.examine(t) })
			known, missing, wrong := f.judge(r)
			if all++; known {
				named++
			} else {
				unnamed = append(unnamed, f.name)
				t.Logf("not named: %q in\n%s", missing, conclusion(r))
			}
			if len(wrong) > 0 {
				t.Errorf("wrong: %q in\n%s", wrong, conclusion(r))
			}
			if testing.Verbose() {
				t.Log(conclusion(r))
			}
		})
	}
	t.Logf("doctor names the cause of %d of %d failures; not of %q", named, all, unnamed)
	if named*100 < all*95 {
		t.Errorf("doctor names the cause of %d of %d failures only", named, all)
	}
	if least := 100; os.Getenv("MCPWIRE_FAILURES") == "" && len(files) < least {
		t.Errorf("%d failures, want at least %d", len(files), least)
	}
}
