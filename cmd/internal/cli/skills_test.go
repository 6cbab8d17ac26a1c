package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/exit"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/skills"
	"mcpwire/streamable"
)

// serveSkills returns the URL of a server that prepare has completed.
func serveSkills(t *testing.T, prepare func(*server.Server) error) string {
	t.Helper()
	srv, err := server.New("skilled", "1.0.0", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := prepare(srv); err != nil {
		t.Fatal(err)
	}
	h, err := streamable.NewHandler(srv, nil)
	if err != nil {
		t.Fatal(err)
	}
	site := httptest.NewServer(h)
	t.Cleanup(site.Close)
	return site.URL
}

func TestSkillsCommand(t *testing.T) {
	const tidy, refunds = "---\nname: tidy\ndescription: Tidy a folder\n---\nBe tidy.\n", "---\nname: refunds\ndescription: Refund\n---\n"
	honest := serveSkills(t, func(srv *server.Server) error {
		return skills.Add(srv, fstest.MapFS{
			"tidy/SKILL.md": {Data: []byte(tidy)}, "tidy/more/a.md": {Data: []byte("more\n")}, "billing/refunds/SKILL.md": {Data: []byte(refunds)},
		})
	})
	// A server whose file differs from its list.
	lying := serveSkills(t, func(srv *server.Server) error {
		const uri = "skill://tidy/SKILL.md"
		err := srv.AddExtension("io.modelcontextprotocol/skills", json.RawMessage(`{}`))
		if err == nil {
			err = srv.AddRawMethod("skills/list", func(*server.Call, json.RawMessage) (json.RawMessage, error) {
				return json.RawMessage(`{"ttlMs":0,"cacheScope":"private","skills":[{"uri":"` + uri + `","frontmatter":{"name":"tidy","description":"Tidy a folder"},` +
					`"resources":[{"uri":"` + uri + `","size":67,"digest":"sha256:` + strings.Repeat("0", 64) + `"}]}]}`), nil
			})
		}
		if err == nil {
			err = server.AddResource(srv, mcp.Resource{URI: uri, Name: "tidy"}, server.Static(tidy))
		}
		return err
	})
	digest := func(s string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(s))) }
	refundsJSON := `{"uri":"skill://billing/refunds/SKILL.md","name":"refunds","description":"Refund","frontmatter":{"description":"Refund","name":"refunds"},` +
		`"files":[{"path":"SKILL.md","uri":"skill://billing/refunds/SKILL.md","size":42,"digest":"` + digest(refunds) + `"}]`
	tidyJSON := `{"uri":"skill://tidy/SKILL.md","name":"tidy","description":"Tidy a folder","frontmatter":{"description":"Tidy a folder","name":"tidy"},` +
		`"files":[{"path":"SKILL.md","uri":"skill://tidy/SKILL.md","size":55,"digest":"` + digest(tidy) + `"},{"path":"more/a.md","uri":"skill://tidy/more/a.md","size":5,"digest":"` + digest("more\n") + `"}]`
	lieJSON := `{"uri":"skill://tidy/SKILL.md","name":"tidy","description":"Tidy a folder","frontmatter":{"name":"tidy","description":"Tidy a folder"},` +
		`"files":[{"path":"SKILL.md","uri":"skill://tidy/SKILL.md","size":67,"digest":"sha256:` + strings.Repeat("0", 64) + `"}],` +
		`"findings":[{"path":"SKILL.md","message":"read SKILL.md of skill tidy: the file does not match the skill's entry: it has 55 bytes, not 67"}]}`
	none := serveSkills(t, func(*server.Server) error { return nil })
	for _, tt := range []struct {
		name   string
		args   []string
		status int
		stdout string
		stderr string
	}{
		{"list", []string{honest}, 0, "refunds — Refund\n  skill://billing/refunds/SKILL.md (1 file, 42 B)\ntidy — Tidy a folder\n  skill://tidy/SKILL.md (2 files, 60 B)\n", ""},
		{"read", []string{honest, "tidy"}, 0, tidy, ""},
		{"read by URI", []string{honest, "skill://billing/refunds/SKILL.md"}, 0, refunds, ""},
		{"read a file", []string{honest, "tidy", "more/a.md"}, 0, "more\n", ""},
		{"no such file", []string{honest, "tidy", "b.md"}, exit.Answer, "", "the files of the skill are SKILL.md, more/a.md"},
		{"no such skill", []string{honest, "messy"}, exit.Answer, "", "the server lists no skill messy"},
		{"verify", []string{honest, "--verify"}, 0, "skill://billing/refunds/SKILL.md: verified 1 file\nskill://tidy/SKILL.md: verified 2 files\n", ""},
		{"verify one", []string{honest, "tidy", "--verify"}, 0, "skill://tidy/SKILL.md: verified 2 files\n", ""},
		{"verify a lie", []string{lying, "--verify"}, exit.Findings, "…", ""},
		{"read a lie", []string{lying, "tidy"}, exit.Answer, "", "does not match"},
		{"list as JSON", []string{honest, "--json"}, 0, refundsJSON + "}\n" + tidyJSON + "}\n", ""},
		{"one as JSON", []string{honest, "tidy", "--json"}, 0, tidyJSON + "}\n", ""},
		{"verify as JSON", []string{honest, "refunds", "--verify", "--json"}, 0, refundsJSON + `,"findings":[]}` + "\n", ""},
		{"verify a lie as JSON", []string{lying, "--verify", "--json"}, exit.Findings, lieJSON + "\n", ""},
		{"undeclared", []string{none}, exit.Answer, "", "the server declares no skills"},
		{"too many", []string{honest, "a", "b", "c"}, exit.Usage, "", "unexpected argument"},
		{"file and verify", []string{honest, "a", "b", "--verify"}, exit.Usage, "", "PATH or --verify"},
		{"file and JSON", []string{honest, "a", "b", "--json"}, exit.Usage, "", "PATH or --json"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stdin, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			defer stdin.Close()
			var stdout, stderr bytes.Buffer
			status := Run(t.Context(), append([]string{"skills"}, tt.args...), stdin, &stdout, &stderr)
			if status != tt.status {
				t.Errorf("status: got %d, want %d", status, tt.status)
			}
			if tt.stdout == "…" {
				if !strings.Contains(stdout.String(), "skill://tidy/SKILL.md: ") || strings.Contains(stdout.String(), "verified") {
					t.Errorf("stdout: got %q, want that the file differs", stdout.String())
				}
			} else if diff := cmp.Diff(tt.stdout, stdout.String()); diff != "" {
				t.Errorf("stdout (-want +got):\n%s", diff)
			}
			if !strings.Contains(stderr.String(), tt.stderr) || tt.stderr == "" && stderr.Len() > 0 {
				t.Errorf("stderr: got %q, want %q", stderr.String(), tt.stderr)
			}
		})
	}
}
