package main

import (
	"context"
	"errors"

	"mcpwire/client"
	"mcpwire/skills"
)

// listSkills lists the skills and reads none.
func listSkills(ctx context.Context, s *stage) error {
	return s.with(ctx, func(c *client.Client) error {
		for _, err := range skills.List(ctx, c) {
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// loadSkills lists the skills, and loads each: SKILL.md, and then its other files. The server sends
// a SKILL.md that is not what the entry says, so no other file may be read.
func loadSkills(ctx context.Context, s *stage) error {
	return s.with(ctx, func(c *client.Client) error {
		rejected := false
		for skill, err := range skills.List(ctx, c) {
			if err != nil {
				return err
			}
			for _, name := range append([]string{"SKILL.md"}, paths(skill)...) {
				if _, err = skill.Read(ctx, c, name); err != nil {
					break
				}
			}
			if !errors.Is(err, skills.ErrMismatch) {
				return errors.New("a SKILL.md that is not what its entry says was accepted")
			}
			rejected = true
		}
		if !rejected {
			return errors.New("the server has no skills")
		}
		return nil
	})
}

// paths returns the paths of the skill's files.
func paths(skill *skills.Skill) []string {
	var list []string
	for _, f := range skill.Files {
		list = append(list, f.Path)
	}
	return list
}
