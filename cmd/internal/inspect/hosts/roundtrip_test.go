package hosts_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mcpwire/cmd/internal/inspect/hosts"
)

// A maker generates documents with unusual formatting.
type maker struct {
	*rand.Rand
	toml bool
	eol  string
}

func (m *maker) pick(list ...string) string { return list[m.IntN(len(list))] }

// gap returns white space and comments that are allowed between the parts of JSON.
func (m *maker) gap() string {
	var b strings.Builder
	for range m.IntN(3) {
		b.WriteString(m.pick("", " ", "\t", m.eol, m.eol+"    ", "/* a \"b\" { */", "// c: [,"+m.eol))
	}
	return b.String()
}

func (m *maker) str() string {
	if m.toml {
		return m.pick(`"node"`, `'C:\x\y.exe'`, `"a\u0041\"b"`, `""`, "\"é😀\"", `"--"`, `"tap"`, `"""x"""`)
	}
	return m.pick(`"node"`, `"C:\\x\\y.exe"`, `"a\u0041\"b\/"`, `""`, "\"é😀\"", `"--"`, `"tap"`, `"x // y"`)
}

func (m *maker) command() string {
	if m.toml {
		return m.pick(`"node"`, `'C:\x\y.exe'`, `"a\u0041\"b"`, `'''npx'''`)
	}
	return m.pick(`"node"`, `"C:\\x\\y.exe"`, `"a\u0041\"b\/"`, `"x // y"`)
}

func (m *maker) members(list []string) string {
	var b strings.Builder
	for i, s := range list {
		b.WriteString(m.gap() + s + m.gap())
		if i < len(list)-1 || m.IntN(4) == 0 {
			b.WriteByte(',')
		}
	}
	return b.String() + m.gap()
}

func (m *maker) json(names []string) string {
	var servers []string
	for _, name := range names {
		args := make([]string, m.IntN(4))
		for j := range args {
			args[j] = m.str()
		}
		command := `"command"` + m.gap() + ":" + m.gap() + m.command()
		list := []string{`"args"` + m.gap() + ":" + m.gap() + "[" + m.members(args) + "]", command, `"x"` + m.gap() + ":" + m.gap() + m.pick("null", "1e3", `{"command": "no"}`, "[]")}
		switch m.IntN(5) {
		case 0:
			list = list[1:]
		case 1:
			list[0] = `"args": null`
		case 2:
			argv := append([]string{m.command()}, args...)
			list = []string{`"command"` + m.gap() + ":" + m.gap() + "[" + m.members(argv) + "]"}
		}
		m.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		servers = append(servers, fmt.Sprintf("%q%s:%s{%s}", name, m.gap(), m.gap(), m.members(list)))
	}
	return m.pick("", "\ufeff") + m.gap() + `{` + m.gap() + `"mcpServers"` + m.gap() + ":{" + m.members(servers) + "}" + m.gap() + "}" + m.gap() + m.pick("", "// end", m.eol)
}

func (m *maker) tomlText(names []string) string {
	blank := func() string { return m.pick("", " ", "\t", "  ") }
	line := func(s string) string { return blank() + s + blank() + m.pick("", "# c = [", "#") + m.eol }
	var b strings.Builder
	b.WriteString(line("model = 'x'"))
	for _, name := range names {
		args := make([]string, m.IntN(4))
		for j := range args {
			args[j] = m.str()
		}
		list := "[" + strings.Join(args, m.pick(",", ", ", ",\n  # in\n  ")) + m.pick("", m.eol+" # last"+m.eol)
		if len(args) > 0 {
			list += m.pick("", ",")
		}
		list += "]"
		command := "command" + blank() + "=" + blank() + m.command()
		lines := []string{"args" + blank() + "=" + blank() + list, command, "startup_timeout_sec = 2.5"}
		if m.IntN(3) == 0 {
			lines = lines[1:]
		}
		m.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		switch m.IntN(3) {
		case 0:
			b.WriteString(line(fmt.Sprintf("[%smcp_servers . %q%s]", blank(), name, blank())))
			for _, l := range lines {
				b.WriteString(line(l))
			}
			b.WriteString(m.pick("", line(fmt.Sprintf("[mcp_servers.%q.env]", name))+line(`K = "v"`)))
		case 1:
			b.WriteString(line(fmt.Sprintf("[mcp_servers.%q]", name)) + line("tools.x = 1"))
			for _, l := range lines {
				b.WriteString(line(l))
			}
		default:
			for i, l := range lines {
				lines[i] = strings.ReplaceAll(strings.ReplaceAll(l, "\n", " "), "# in", "")
				lines[i] = strings.ReplaceAll(strings.ReplaceAll(lines[i], "# last", ""), "\r", " ")
			}
			b.WriteString(line("[mcp_servers]") + line(fmt.Sprintf("%q = {%s}", name, strings.Join(lines, ","+blank()))))
			// the table must not be defined twice
			return strings.TrimSuffix(b.String(), m.pick("", m.eol))
		}
	}
	return strings.TrimSuffix(b.String(), m.pick("", m.eol))
}

// TestRoundTrip shows that wrapping and unwrapping gives the original bytes, with the backup and
// without it, in any order.
func TestRoundTrip(t *testing.T) {
	for seed := range uint64(100) {
		m := &maker{Rand: rand.New(rand.NewPCG(seed, 7)), toml: seed%2 == 1}
		m.eol = m.pick("\n", "\r\n")
		names := []string{"fs", "a/b~c", "ünï\u202e"}[:1+m.IntN(3)]
		file, text := "c.json", ""
		if m.toml {
			file, text = "c.toml", m.tomlText(names)
		} else {
			text = m.json(names)
		}
		e, root := machine(t, "linux", map[string]string{"src/" + file: text}, nil)
		path := filepath.Join(root, "src", file)
		f, err := hosts.ReadFile(e, path)
		if err != nil || len(f.Errors) > 0 {
			t.Fatalf("seed %d: %v %v\n%s", seed, err, f.Errors, text)
		}
		list := slices.DeleteFunc(f.Servers, func(s hosts.Server) bool { return s.Command == "" })
		if len(list) == 0 {
			continue
		}
		checkRoundTrip(t, e, path, text, list, m)
	}
}

func checkRoundTrip(t *testing.T, e *hosts.Env, path, text string, list []hosts.Server, m *maker) {
	t.Helper()
	for _, s := range list {
		edit(t, e, path, func(d *hosts.Document) error {
			return d.Wrap(s.Pointer, []string{"/opt/mc p/mcpwire", "tap", "--name", s.Name, "--"})
		})
	}
	f, err := hosts.ReadFile(e, path)
	if err != nil {
		t.Fatalf("wrapped: %v\n%s\n%s", err, text, read(t, path))
	}
	for _, s := range f.Servers {
		if s.Command != "" && !s.Wrapped {
			t.Fatalf("%q is not wrapped:\n%s", s.Name, read(t, path))
		}
	}
	wrapped := read(t, path)
	m.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	for range 2 {
		for _, s := range list {
			edit(t, e, path, func(d *hosts.Document) error { return d.Unwrap(s.Pointer) })
		}
		if got := read(t, path); got != text {
			t.Fatalf("not what it was:\n--- before\n%q\n--- wrapped\n%q\n--- after\n%q", text, wrapped, got)
		}
		// After another change the backup cannot be used: the changed line must remain.
		for _, s := range list {
			edit(t, e, path, func(d *hosts.Document) error {
				return d.Wrap(s.Pointer, []string{"mcpwire", "tap", "--name", s.Name, "--"})
			})
		}
		note := "// note\n"
		if m.toml {
			note = "# note\n"
		}
		text = strings.TrimPrefix(text, "\ufeff")
		write(t, path, note+strings.TrimPrefix(read(t, path), "\ufeff"))
		text = note + text
	}
}

func edit(t *testing.T, e *hosts.Env, path string, change func(*hosts.Document) error) {
	t.Helper()
	d, err := hosts.Open(e, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := change(d); err != nil {
		t.Fatalf("%v\n%s", err, read(t, path))
	}
	if changed, err := d.Save(); err != nil || !changed {
		t.Fatalf("save: %v %v\n%s\n%s", changed, err, read(t, path), d.Result())
	}
}
