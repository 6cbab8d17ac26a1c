package skills_test

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/skills"
)

func TestCheck(t *testing.T) {
	const head = "---\nname: a\ndescription: A\n"
	links := head + "---\n" + strings.Join([]string{
		"[forms](references/FORMS.md) and [again](./references/FORMS.md#top), [folder](references), [here](.)",
		"[gone](references/GONE.md) ![image](<gone image.png>) [twice](references/GONE.md)",
		"[web](https://example.com/x.md) [mail](mailto:a@example.com) [top](#top) [root](/etc/hosts)",
		"[outside](../b/SKILL.md) `[code](code.md)` [escaped](two%20words.md)",
		"```", "[fenced](fenced.md)", "```",
		"~~~~", "[fenced](fenced.md)", "```", "[fenced](fenced.md)", "~~~~",
		"[after](after.md)",
	}, "\n")
	for _, tt := range []struct {
		name   string
		files  fstest.MapFS
		skills string
		want   []skills.Finding
	}{
		{"valid", fstest.MapFS{"README.md": text("x"), "a/SKILL.md": text(head + "license: MIT\ncompatibility: git\nallowed-tools: Bash Read\nmetadata: {version: \"1\"}\n---\n"), "a/.git": {Mode: os.ModeSymlink}},
			"a", []skills.Finding{}},
		{"none", fstest.MapFS{"a/README.md": text("x")}, "", []skills.Finding{{".", "no skills: no folder in it contains SKILL.md"}}},
		{"several", fstest.MapFS{"a/SKILL.md": text("x"), "b/SKILL.md": text("---\nname: c\ndescription: C\n---\n"), "c/SKILL.md": text("---\nname: c\ndescription: C\n---\n"), "SKILL.md": text("")},
			"c", []skills.Finding{
				{"SKILL.md", "a skill is a folder within the given one"},
				{"a/SKILL.md", "no frontmatter: the first line must be ---"},
				{"b/SKILL.md", `skill "skill://b/SKILL.md": the last folder is not the name c`},
			}},
		{"fields", fstest.MapFS{"a/SKILL.md": text("---\nname: a\ndescription: " + strings.Repeat("é", 1025) + "\ncompatibility: \" \"\nlicense: [MIT]\nallowed-tools: [Bash]\nmetadata: {version: 1.0, author: me}\n---\n")},
			"a", []skills.Finding{
				{"a/SKILL.md", "description: 1025 characters, limit 1024"},
				{"a/SKILL.md", "compatibility: it is blank"},
				{"a/SKILL.md", "license: want text"},
				{"a/SKILL.md", "allowed-tools: want text"},
				{"a/SKILL.md", `metadata: the value of "version" is not text: put it in quotes`},
			}},
		{"metadata", fstest.MapFS{"a/SKILL.md": text(head + "metadata: [x]\n---\n")}, "", []skills.Finding{
			{"a/SKILL.md", "metadata: want keys with text"},
		}},
		{"no regular file", fstest.MapFS{"a/SKILL.md": text(head + "---\n"), "a/link.md": {Data: []byte("SKILL.md"), Mode: os.ModeSymlink}, "link.md": {Data: []byte("x"), Mode: os.ModeSymlink}},
			"a", []skills.Finding{{"a/link.md", "not a regular file: it is not served"}}},
		{"links and letters", fstest.MapFS{"a/SKILL.md": {Data: []byte("../b.md"), Mode: os.ModeSymlink}, "b/skill.md": text(head), "c/SKILL.md": text("---\nname: c\ndescription: C\n---\n"), "c/skill.md": text("x"), "c/d/Skill.md": text("x")},
			"c", []skills.Finding{
				{"a/SKILL.md", "not a regular file: it is not served"},
				{"b/skill.md", "not the file of a skill, which has the name SKILL.md"},
				{"c/d/Skill.md", "not the file of a skill, which has the name SKILL.md"},
			}},
		{"too large", fstest.MapFS{"a/SKILL.md": text(head + "---\n"), "a/x": {Data: make([]byte, 16<<20+1)}},
			"a", []skills.Finding{{"a/x", "too large: a skill may have 16777216 bytes, and all skills 268435456"}}},
		{"links", fstest.MapFS{"a/SKILL.md": text(links), "a/references/FORMS.md": text("x"), "a/two words.md": text("x"), "b/SKILL.md": text("---\nname: b\ndescription: B\n---\n")},
			"a b", []skills.Finding{
				{"a/SKILL.md", "it links to references/GONE.md, which the skill does not have"},
				{"a/SKILL.md", "it links to gone image.png, which the skill does not have"},
				{"a/SKILL.md", "it links to ../b/SKILL.md, which the skill does not have"},
				{"a/SKILL.md", "it links to after.md, which the skill does not have"},
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list, findings, err := skills.Check(tt.files)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, s := range list {
				names = append(names, s.Name)
			}
			if diff := cmp.Diff(tt.skills, strings.Join(names, " ")); diff != "" {
				t.Errorf("skills (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.want, findings); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}
