package call

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/plural"
	"mcpwire/skills"
)

const skillsLong = `List the skills of a server, or print a file of one. Skills are instructions for
a model, in folders with a file SKILL.md (https://agentskills.io, SEP-2640).

NAME is the name of a skill or the URI of its SKILL.md. PATH is a file of it; the
default is SKILL.md. A file that is not what the server's list says, by size and
digest, is not printed. --verify reads all files and reports those.

--json prints an object for each skill, or for NAME: its frontmatter and files,
and with --verify the findings. files is null if they are generated.

Exit status: 6 if --verify finds a difference.`

const skillsExample = `  mcpwire skills http://127.0.0.1:8080/mcp
  mcpwire skills http://127.0.0.1:8080/mcp commit-messages
  mcpwire skills http://127.0.0.1:8080/mcp commit-messages references/a.md
  mcpwire skills --verify --json -- node server.js
  mcpwire skills check ./skills`

// NewSkillsCommand returns the command skills.
func NewSkillsCommand(e *kit.Env) *cobra.Command {
	c := newVerbCommand(e, &cobra.Command{
		Use:     "skills TARGET [NAME [PATH]] [FLAGS] | check FOLDER",
		Short:   "list, read and verify the skills of a server",
		Long:    skillsLong,
		Example: skillsExample,
	}, &skillsVerb{})
	c.AddCommand(newSkillsCheckCommand(e))
	return c
}

// A skillsVerb lists, reads or verifies skills.
type skillsVerb struct {
	verify, json bool
	name, path   string
}

func (v *skillsVerb) register(flags *pflag.FlagSet) {
	flags.BoolVar(&v.verify, "verify", false, "read all files, and compare them with the list")
	flags.BoolVar(&v.json, "json", false, "print an object for each skill")
}

func (v *skillsVerb) parse(args []string) error {
	switch {
	case len(args) > 2:
		return exit.Usagef("skills: unexpected argument %q (skills takes one NAME and one PATH)", clip.Characters(args[2], 60))
	case len(args) == 2 && v.verify:
		return exit.Usagef("skills: PATH or --verify, not both")
	case len(args) == 2 && v.json:
		return exit.Usagef("skills: PATH or --json, not both")
	case len(args) == 2:
		v.path = args[1]
		fallthrough
	case len(args) == 1:
		v.name = args[0]
	}
	return nil
}

func (v *skillsVerb) run(ctx context.Context, s *session) error {
	if s.Profile().Capabilities.Extensions["io.modelcontextprotocol/skills"] == nil {
		return exit.Fail(exit.Answer, "unsupported", "", errors.New("the server declares no skills"))
	}
	// The list continues after an entry that is invalid. The last error decides the exit status.
	var failed error
	found, differ := false, false
	for skill, err := range skills.List(ctx, s.Client) {
		if err != nil {
			if failed != nil {
				s.notes.Warnf("%s", safe.Clip(failed.Error(), 1000))
			}
			failed = err
			continue
		}
		if v.name != "" && v.name != skill.Name && v.name != skill.URI {
			continue
		}
		found = true
		if v.name != "" && !v.verify && !v.json {
			return v.read(ctx, s, skill)
		}
		shown := skillOf(skill)
		if v.verify {
			if shown.Findings, err = verifySkill(ctx, s, skill); err != nil {
				return err
			}
			differ = differ || len(shown.Findings) > 0
		}
		if err := v.show(s, shown); err != nil {
			return err
		}
	}
	switch {
	case failed != nil:
		return failed
	case v.name != "" && !found:
		return exit.Fail(exit.Answer, "not_found", "mcpwire skills TARGET lists them", fmt.Errorf("the server lists no skill %s", safe.Clip(v.name, 200)))
	case !found:
		s.notes.Linef("the server lists no skills")
	case differ:
		return &exit.Status{Code: exit.Findings}
	}
	return nil
}

// A skillJSON is a skill in the output of --json.
type skillJSON struct {
	URI         string          `json:"uri"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Frontmatter json.RawMessage `json:"frontmatter"`
	// Files is nil if the files are generated.
	Files []skillFileJSON `json:"files"`
	// Findings is nil without --verify.
	Findings []skillFindingJSON `json:"findings,omitzero"`
}

type skillFileJSON struct {
	Path   string `json:"path"`
	URI    string `json:"uri"`
	Size   int64  `json:"size"`
	Digest string `json:"digest"`
}

type skillFindingJSON struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

func skillOf(skill *skills.Skill) *skillJSON {
	j := &skillJSON{URI: skill.URI, Name: skill.Name, Description: skill.Description, Frontmatter: skill.Frontmatter}
	if skill.Files != nil {
		j.Files = make([]skillFileJSON, 0, len(skill.Files))
	}
	for _, f := range skill.Files {
		j.Files = append(j.Files, skillFileJSON{f.Path, f.URI, f.Size, f.Digest})
	}
	return j
}

// contents returns what the skill consists of.
func (j *skillJSON) contents() string {
	if j.Files == nil {
		return "generated, so nothing can be verified"
	}
	bytes := int64(0)
	for _, f := range j.Files {
		bytes += f.Size
	}
	return plural.Of(len(j.Files), "file") + ", " + kit.SizeText(int(bytes))
}

// show prints a skill of the list, or what is found in it.
func (v *skillsVerb) show(s *session, skill *skillJSON) error {
	switch {
	case v.json:
		return s.writeObject(skill)
	case !v.verify:
		return s.write(fmt.Sprintf("%s — %s\n  %s (%s)\n", safe.Clip(skill.Name, 100), safe.Clip(skill.Description, 1000), safe.Clip(skill.URI, 300), skill.contents()))
	case len(skill.Findings) == 0:
		result := skill.contents()
		if skill.Files != nil {
			result = "verified " + plural.Of(len(skill.Files), "file")
		}
		return s.write(fmt.Sprintf("%s: %s\n", safe.Clip(skill.URI, 300), result))
	}
	for _, f := range skill.Findings {
		if err := s.write(fmt.Sprintf("%s: %s\n", safe.Clip(skill.URI, 300), safe.Clip(f.Message, 1000))); err != nil {
			return err
		}
	}
	return nil
}

// read prints a file of a skill.
func (v *skillsVerb) read(ctx context.Context, s *session, skill *skills.Skill) error {
	path := cmp.Or(v.path, "SKILL.md")
	text, err := skill.Read(ctx, s.Client, path)
	if errors.Is(err, skills.ErrMismatch) {
		var files []string
		for _, f := range skill.Files {
			files = append(files, safe.Clip(f.Path, 100))
		}
		return exit.Fail(exit.Answer, "mismatch", "the files of the skill are "+safe.Clip(strings.Join(files, ", "), 1000), err)
	}
	if err != nil {
		return err
	}
	if kit.WriterIsTerminal(s.e.Stdout) {
		return s.writeText(string(text))
	}
	return s.write(string(text))
}

// verifySkill reads all files of a skill, and returns which of them are not what the list says. The
// findings are not nil.
func verifySkill(ctx context.Context, s *session, skill *skills.Skill) ([]skillFindingJSON, error) {
	findings := []skillFindingJSON{}
	for _, f := range skill.Files {
		switch _, err := skill.Read(ctx, s.Client, f.Path); {
		case errors.Is(err, skills.ErrMismatch):
			findings = append(findings, skillFindingJSON{f.Path, err.Error()})
		case err != nil:
			return nil, err
		}
	}
	return findings, nil
}

func newSkillsCheckCommand(e *kit.Env) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "check FOLDER [--json]",
		Short: "check the skills in a folder",
		Long: `Check the skills in a folder before a server publishes them: each folder in it, at
any depth, that contains SKILL.md, or FOLDER itself. check reports what servers
refuse (of package skills, and by SEP-2640), what https://agentskills.io does not
allow, files that would not be served, and links in SKILL.md to missing files.
It prints a line for each finding: PATH: MESSAGE.

--json prints one object with the valid skills, as mcpwire skills does, and the
findings.

Exit status: 0 nothing found, 6 findings, 1 the folder cannot be read.`,
		Example: `  mcpwire skills check ./skills
  mcpwire skills check ./skills/commit-messages --json | jq .findings`,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return exit.Usagef("skills check: missing the folder")
			case len(args) > 1:
				return exit.Usagef("skills check: unexpected argument %q: it takes one folder", clip.Characters(args[1], 60))
			}
			return checkSkills(e, args[0], asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one object")
	return c
}

// checkSkills prints what is wrong with the skills in a folder.
func checkSkills(e *kit.Env, folder string, asJSON bool) error {
	if info, err := os.Stat(folder); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is not a folder", safe.Line(folder))
	}
	files, within := os.DirFS(folder), ""
	if _, err := os.Lstat(filepath.Join(folder, "SKILL.md")); err == nil {
		// The folder is a skill itself, which must have the name of the folder.
		abs, err := filepath.Abs(folder)
		if err != nil {
			return err
		}
		files, within = oneFolder{os.DirFS(filepath.Dir(abs)), filepath.Base(abs)}, filepath.Base(abs)+"/"
	}
	list, findings, err := skills.Check(files)
	if err != nil {
		return err
	}
	result := struct {
		Skills   []*skillJSON       `json:"skills"`
		Findings []skillFindingJSON `json:"findings"`
	}{[]*skillJSON{}, []skillFindingJSON{}}
	for _, s := range list {
		result.Skills = append(result.Skills, skillOf(s))
	}
	for _, f := range findings {
		result.Findings = append(result.Findings, skillFindingJSON{filepath.Join(folder, filepath.FromSlash(strings.TrimPrefix(f.Path, within))), f.Message})
	}
	if asJSON {
		err = kit.WriteJSON(e.Stdout, result)
	} else {
		err = printSkillFindings(e, len(list), result.Findings)
	}
	if err == nil && len(findings) > 0 {
		return &exit.Status{Code: exit.Findings}
	}
	return err
}

// printSkillFindings prints findings for people.
func printSkillFindings(e *kit.Env, valid int, findings []skillFindingJSON) error {
	for _, f := range findings {
		if _, err := fmt.Fprintf(e.Stdout, "%s: %s\n", safe.Line(f.Path), safe.Clip(f.Message, 1000)); err != nil {
			return err
		}
	}
	if len(findings) > 0 {
		return nil
	}
	_, err := fmt.Fprintf(e.Stdout, "no findings in %s\n", plural.Of(valid, "skill"))
	return err
}

// A oneFolder is a file system of which only one folder is listed.
type oneFolder struct {
	fs.FS
	name string
}

// ReadDir implements [fs.ReadDirFS].
func (o oneFolder) ReadDir(dir string) ([]fs.DirEntry, error) {
	if dir != "." {
		return fs.ReadDir(o.FS, dir)
	}
	info, err := fs.Stat(o.FS, o.name)
	if err != nil {
		return nil, err
	}
	return []fs.DirEntry{fs.FileInfoToDirEntry(info)}, nil
}
