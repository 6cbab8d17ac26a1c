package translate_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"mcpwire/internal/proxy/translate"
	"mcpwire/jsonrpc"
)

var update = flag.Bool("update", false, "write the output of the translator into the transcripts")

// A transcript is a txtar file in testdata; each of its sections is a separate session:
//
//	c> {…}       a message from the client
//	s< {…}       a message from the server
//	s> {…}       a message to the server
//	c< {…}       a message to the client
//	x rule       the message was dropped
//	@modern      at the top: a modern client and a legacy server, instead of a legacy client and a modern server
//	@limit held=1 rounds=2 …     at the top: limits
//	@wait 10ms   advance the clock
//	@closed 3, @failed 3, @lost 3 4, @ready, @missed, @close    calls of the driver
//	# …          a comment
//
//	@handshake REVISION CLIENT SERVER    a handshake that is not recorded, with the capabilities of the two
//
// A number after the arrow is the stream or the call of the message. "final" and a status, or
// "cancel" and the call, come before the text. "$/" is short for "io.modelcontextprotocol/", and
// $STATE for the last requestState; abbreviations has the others. With -update, the test writes the
// results into the file.
type transcript struct {
	file, name string
	lines      []string
}

func transcripts(t testing.TB) []transcript {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	var all []transcript
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range archive.Files {
			all = append(all, transcript{file, s.Name, strings.Split(strings.TrimRight(string(s.Data), "\n"), "\n")})
		}
	}
	return all
}

// abbreviations has pairs of a text that most messages contain and its short form.
var abbreviations = []string{
	`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities"`, `$V`,
	`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"}`, `$I`,
	`"io.modelcontextprotocol/serverInfo":{"name":"s","version":"2"}`, `$S`,
	`"io.modelcontextprotocol/`, `"$/`,
}

var shorten, lengthen = strings.NewReplacer(abbreviations...), func() *strings.Replacer {
	back := slices.Clone(abbreviations)
	for i := 0; i < len(back); i += 2 {
		back[i], back[i+1] = back[i+1], back[i]
	}
	return strings.NewReplacer(back...)
}()

// A player plays one transcript.
type player struct {
	t     translate.Translator
	now   time.Time
	ids   int
	state string
	got   []string
	// observe is called with each output, and with each incoming message, for which in is the text
	// and only o.To is set. It may be nil.
	observe func(o translate.Out, in string)
}

func (p *player) options(lines []string) *translate.Options {
	opts := &translate.Options{NewID: func() string {
		p.ids++
		return "id-" + strconv.Itoa(p.ids)
	}}
	for _, line := range lines {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] != "@limit" {
			continue
		}
		for _, word := range words[1:] {
			name, value, _ := strings.Cut(word, "=")
			n, _ := strconv.Atoi(value)
			l := &opts.Limits
			*map[string]*int{"held": &l.AwaitingInput, "rounds": &l.InputRounds, "asks": &l.InputRequests, "requests": &l.Requests, "listens": &l.Subscriptions,
				"tasks": &l.Tasks, "bytes": &l.Bytes, "subscriptions": &l.Resources}[name] = n
		}
	}
	return opts
}

func (p *player) play(lines []string) {
	opts := p.options(lines)
	p.now = time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)
	p.t = translate.NewLegacyToModern(opts)
	for _, line := range lines {
		if line == "@modern" {
			p.t = translate.NewModernToLegacy(opts)
		}
	}
	for _, line := range lines {
		word, rest, _ := strings.Cut(line, " ")
		switch {
		case strings.HasPrefix(word, "c>"), strings.HasPrefix(word, "s<"):
			p.got = append(p.got, line)
			p.send(word, rest)
		case strings.HasPrefix(word, "c<"), strings.HasPrefix(word, "s>"), word == "x":
		default:
			p.got = append(p.got, line)
			p.direct(word, strings.Fields(rest))
		}
	}
}

func (p *player) send(word, text string) {
	text = lengthen.Replace(strings.ReplaceAll(text, "$STATE", p.state))
	on, _ := strconv.ParseInt(word[2:], 10, 64)
	if p.observe != nil {
		side := translate.Downstream
		if word[0] == 's' {
			side = translate.Upstream
		}
		p.observe(translate.Out{To: side}, text)
	}
	if word[0] == 'c' {
		p.take(p.t.FromDownstream(p.now, []byte(text), uint64(on)))
	} else {
		p.take(p.t.FromUpstream(p.now, []byte(text), on))
	}
}

func (p *player) direct(word string, args []string) {
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(args[i], 10, 64)
		return n
	}
	lost := &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the connection to the server ended"}
	switch word {
	case "@handshake":
		kept := p.got
		p.handshake(args[0], args[1], args[2])
		p.got = kept
	case "@wait":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			panic(err)
		}
		p.now = p.now.Add(d)
		p.take(p.t.Tick(p.now))
	case "@closed":
		p.take(p.t.StreamClosed(p.now, uint64(number(0))))
	case "@failed":
		p.take(p.t.CallFailed(p.now, number(0), lost))
	case "@lost":
		var unsent []int64
		for i := range args {
			unsent = append(unsent, number(i))
		}
		p.take(p.t.UpstreamLost(p.now, lost, unsent...))
	case "@ready":
		p.take(p.t.UpstreamReady(p.now))
	case "@missed":
		p.take(p.t.NotificationsLost(p.now))
	case "@close":
		p.take(p.t.Close(p.now, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "closed"}))
	}
}

// handshake plays the handshake of a session.
func (p *player) handshake(revision, client, server string) {
	if _, modern := p.t.(*translate.ModernToLegacy); modern {
		p.send("c>1", `{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{"_meta":{$V:`+client+`,$I}}}`)
		p.send("s<", `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"`+revision+`","capabilities":`+server+`,"serverInfo":{"name":"s","version":"2"}}}`)
		return
	}
	p.send("c>", `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"`+revision+`","capabilities":`+client+`,"clientInfo":{"name":"c","version":"1"}}}`)
	p.send("s<", `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":`+server+`,"ttlMs":0,"cacheScope":"public","_meta":{$S}}}`)
	p.send("c>", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// take records the output of the translator.
func (p *player) take(outs []translate.Out) {
	for _, o := range outs {
		if p.observe != nil {
			p.observe(o, "")
		}
		text := string(o.Message)
		if _, rest, ok := strings.Cut(text, `"requestState":"`); ok && o.To == translate.Downstream {
			state, _, _ := strings.Cut(rest, `"`)
			p.state = state
		}
		if p.state != "" {
			text = strings.ReplaceAll(text, p.state, "$STATE")
		}
		text = shorten.Replace(text)
		head := "x"
		switch o.To {
		case translate.Downstream:
			head = "c<"
			if o.Stream != 0 {
				head += strconv.FormatUint(o.Stream, 10)
			}
			if o.Status != 0 {
				head += fmt.Sprintf(" %d", o.Status)
			}
			if o.Final && o.Stream != 0 {
				head += " final"
			}
		case translate.Upstream:
			head = "s>"
			if o.Cancel {
				head += fmt.Sprintf(" cancel %d", o.Call)
			}
			if o.Withdraw {
				head += fmt.Sprintf(" withdraw %d", o.Call)
			}
		default:
			text = o.Rule
		}
		p.got = append(p.got, strings.TrimRight(head+" "+text, " "))
	}
}

// TestTranscripts plays all transcripts and compares the output.
func TestTranscripts(t *testing.T) {
	written := map[string]*txtar.Archive{}
	for _, s := range transcripts(t) {
		t.Run(filepath.Base(s.file)+"/"+s.name, func(t *testing.T) {
			p := new(player)
			p.play(s.lines)
			if *update {
				if written[s.file] == nil {
					written[s.file] = new(txtar.Archive)
				}
				a := written[s.file]
				a.Files = append(a.Files, txtar.File{Name: s.name, Data: []byte(strings.Join(p.got, "\n") + "\n")})
				return
			}
			if diff := cmp.Diff(s.lines, p.got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for file, archive := range written {
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDocument checks that doc/translation.md describes the translation of each method,
// notification and error code of package mcp in both directions.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../../doc/translation.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) != 3 {
			continue
		}
		for i, part := range strings.Split(cells[0], "`") {
			if i%2 == 1 {
				rows[part] = strings.TrimSpace(cells[1]) != "" && strings.TrimSpace(cells[2]) != ""
			}
		}
	}
	names := constants(t, "../../../mcp/method.go")
	names = append(names, constants(t, "../../../mcp/error.go")...)
	if len(names) < 45 {
		t.Fatalf("got only %d names: %q", len(names), names)
	}
	for _, name := range names {
		if !rows[name] {
			t.Errorf("doc/translation.md: no row for %s, or a row with an empty cell", name)
		}
	}
}

// constants returns the values of a file's constants.
func constants(t *testing.T, path string) (values []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for _, v := range spec.Values {
			switch v := v.(type) {
			case *ast.BasicLit:
				value, _ := strconv.Unquote(v.Value)
				values = append(values, value)
			case *ast.UnaryExpr: // a negative error code
				if lit, ok := v.X.(*ast.BasicLit); ok {
					values = append(values, v.Op.String()+lit.Value)
				}
			}
		}
		return false
	})
	return values
}
