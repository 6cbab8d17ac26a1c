package mcp

import "mcpwire/internal/jsonwire"

// AppendJSON appends the JSON text of all fields that are set.
func (i *Implementation) AppendJSON(dst []byte) []byte {
	o := beginObject(dst)
	o.must("name", i.Name)
	o.must("version", i.Version)
	o.text("title", i.Title)
	o.text("description", i.Description)
	o.text("websiteUrl", i.WebsiteURL)
	if len(i.Icons) > 0 {
		o.key("icons")
		o.dst = AppendIcons(o.dst, i.Icons)
	}
	return o.end()
}

// ParseImplementation reads the name, version and title of an Implementation from valid JSON text. What is missing or of the wrong type stays
// empty: identity is informational and nothing to refuse a peer for.
func ParseImplementation(text []byte) Implementation {
	var i Implementation
	if len(text) == 0 || text[0] != '{' {
		return i
	}
	members := jsonwire.ObjectMembers(text)
	for members.Next() {
		v := members.Value()
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
