package mcp

import "mcpwire/internal/jsonwire"

// ParseImplementation reads an Implementation from valid JSON text. What is missing or of the wrong type stays empty: identity is informational and nothing
// to refuse a peer for.
func ParseImplementation(text []byte) Implementation {
	var i Implementation
	if len(text) == 0 || text[0] != '{' {
		return i
	}
	members := jsonwire.ObjectMembers(text)
	for members.Next() {
		v := members.Value()
		if v[0] == '[' && members.KeyIs("icons") {
			i.Icons = parseIcons(v)
			continue
		}
		if v[0] != '"' {
			continue
		}
		s := jsonwire.UnquoteString(v[1 : len(v)-1])
		switch {
		case members.KeyIs("name"):
			i.Name = s
		case members.KeyIs("version"):
			i.Version = s
		case members.KeyIs("title"):
			i.Title = s
		case members.KeyIs("description"):
			i.Description = s
		case members.KeyIs("websiteUrl"):
			i.WebsiteURL = s
		}
	}
	return i
}

// parseIcons reads the icons of an array and passes over what is none.
func parseIcons(array []byte) (icons []Icon) {
	elements := jsonwire.ArrayElements(array)
	for elements.Next() {
		var icon Icon
		if icon.read(elements.Value()) == nil {
			icons = append(icons, icon)
		}
	}
	return icons
}
