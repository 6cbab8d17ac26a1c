package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/plural"
	"mcpwire/skills"
)

const skillsLong = `List the skills of a server, or print a file of one. Skills are instructions for
a model, in folders with a file SKILL.md (https://agentskills.io, SEP-2640).

NAME is the name of a skill or the URI of its SKILL.md. PATH is a file of it; the
default is SKILL.md. A file that is not what the server's list says, by size and
digest, is not printed. --verify reads all files and reports those.`

const skillsExample = `  mcpwire skills http://127.0.0.1:8080/mcp
  mcpwire skills http://127.0.0.1:8080/mcp commit-messages
  mcpwire skills http://127.0.0.1:8080/mcp commit-messages references/a.md
  mcpwire skills --verify -- node server.js`

func newSkillsCommand(e *env) *cobra.Command {
	return newVerbCommand(e, &cobra.Command{
		Use:     "skills TARGET [NAME [PATH]] [FLAGS]",
		Short:   "list, read and verify the skills of a server",
		Long:    skillsLong,
		Example: skillsExample,
	}, &skillsVerb{})
}

// A skillsVerb lists, reads or verifies skills.
type skillsVerb struct {
	verify     bool
	name, path string
}

func (v *skillsVerb) register(fs *pflag.FlagSet) {
	fs.BoolVar(&v.verify, "verify", false, "read all files, and compare them with the list")
}

func (v *skillsVerb) parse(args []string) error {
	switch {
	case len(args) > 2:
		return usagef("skills: unexpected argument %q (skills takes one NAME and one PATH)", clip.Characters(args[2], 60))
	case len(args) == 2 && v.verify:
		return usagef("skills: PATH or --verify, not both")
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
		return fail(exitAnswer, "unsupported", "", errors.New("the server declares no skills"))
	}
	// The list continues after an entry that is invalid. The last error decides the exit status.
	var failed error
	found, differ := false, false
	for skill, err := range skills.List(ctx, s.Client) {
		if err != nil {
			if failed != nil {
				s.notes.warnf("%s", clipLine(failed.Error(), 1000))
			}
			failed = err
			continue
		}
		if v.name != "" && v.name != skill.Name && v.name != skill.URI {
			continue
		}
		found = true
		switch {
		case v.verify:
			ok, err := v.verifySkill(ctx, s, skill)
			if err != nil {
				return err
			}
			differ = differ || !ok
		case v.name != "":
			return v.read(ctx, s, skill)
		default:
			if err := s.write(describeSkill(skill)); err != nil {
				return err
			}
		}
	}
	switch {
	case failed != nil:
		return failed
	case v.name != "" && !found:
		return fail(exitAnswer, "not_found", "mcpwire skills TARGET lists them", fmt.Errorf("the server lists no skill %s", clipLine(v.name, 200)))
	case !found:
		s.notes.linef("the server lists no skills")
	case differ:
		return &exitStatus{exitFindings}
	}
	return nil
}

// describeSkill returns the lines about a skill in the list.
func describeSkill(skill *skills.Skill) string {
	contents := "generated, so nothing can be verified"
	if skill.Files != nil {
		bytes := int64(0)
		for _, f := range skill.Files {
			bytes += f.Size
		}
		contents = plural.Of(len(skill.Files), "file") + ", " + sizeText(int(bytes))
	}
	return fmt.Sprintf("%s — %s\n  %s (%s)\n", clipLine(skill.Name, 100), clipLine(skill.Description, 1000), clipLine(skill.URI, 300), contents)
}

// read prints a file of a skill.
func (v *skillsVerb) read(ctx context.Context, s *session, skill *skills.Skill) error {
	path := v.path
	if path == "" {
		path = "SKILL.md"
	}
	text, err := skill.Read(ctx, s.Client, path)
	if errors.Is(err, skills.ErrMismatch) {
		var files []string
		for _, f := range skill.Files {
			files = append(files, clipLine(f.Path, 100))
		}
		return fail(exitAnswer, "mismatch", "the files of the skill are "+clipLine(strings.Join(files, ", "), 1000), err)
	}
	if err != nil {
		return err
	}
	if writerIsTerminal(s.e.stdout) {
		return s.writeText(string(text))
	}
	return s.write(string(text))
}

// verifySkill reads all files of a skill, and prints which of them are not what the list says. It
// reports whether all are.
func (v *skillsVerb) verifySkill(ctx context.Context, s *session, skill *skills.Skill) (bool, error) {
	ok := true
	for _, f := range skill.Files {
		switch _, err := skill.Read(ctx, s.Client, f.Path); {
		case errors.Is(err, skills.ErrMismatch):
			ok = false
			if err := s.write(fmt.Sprintf("%s: %s\n", clipLine(skill.URI, 300), clipLine(err.Error(), 1000))); err != nil {
				return false, err
			}
		case err != nil:
			return false, err
		}
	}
	if !ok {
		return false, nil
	}
	result := "verified"
	if skill.Files == nil {
		result = "generated, so nothing can be verified"
	} else {
		result += " " + plural.Of(len(skill.Files), "file")
	}
	return true, s.write(fmt.Sprintf("%s: %s\n", clipLine(skill.URI, 300), result))
}
