// Package skills serves and reads Agent Skills (https://agentskills.io/specification), by the
// extension io.modelcontextprotocol/skills
// (https://modelcontextprotocol.io/seps/2640-skills-extension). A skill is a folder with
// instructions for a model in SKILL.md, and files that it refers to.
//
// A server adds all skills of a folder with one call. The files become resources, and clients can
// list the skills, get one, and list folders:
//
//	srv := server.MustNew("docs", "1.0.0", nil)
//	err := skills.Add(srv, os.DirFS("skills")) // skills/git-workflow/SKILL.md and others
//
// Add returns the first error only. [Check] returns all that is wrong with the skills, in a test of
// the server for example, and so does the command mcpwire skills check.
//
// A client lists skills without their files, and reads a file when it is needed:
//
//	for skill, err := range skills.List(ctx, c) {
//		… // show skill.Name and skill.Description to the model
//	}
//	text, err := skill.Read(ctx, c, "SKILL.md")
//	form, err := skill.Read(ctx, c, "references/FORMS.md")
//
// [Skill.Read] compares what the server sends with the skill's entry: size, digest and frontmatter.
// If they differ, it returns [ErrMismatch] and no content.
//
// # Trust
//
// A digest shows that a file is the one that the user has approved. The server says both, so it
// does not show that the file is harmless. The specification demands of hosts that they treat
// skills as untrusted input of the model, say which server a skill is from, run nothing that a
// skill asks for without the user's consent, and let a skill of one server read no resources of
// another.
//
// # Eras
//
// Servers declare the extension to clients of every revision, and the functions work in both eras.
//
// # Concurrency
//
// All functions and methods may be called by multiple goroutines at once.
package skills
