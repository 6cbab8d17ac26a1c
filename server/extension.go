package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
)

// checkDeclarations checks and copies what New is given to declare: the settings of each name are on one line then.
func checkDeclarations(option string, all map[string]json.RawMessage, check func(name string) error) map[string]json.RawMessage {
	own := make(map[string]json.RawMessage, len(all))
	for name, settings := range all {
		var err error
		if check != nil {
			err = check(name)
		}
		if err == nil {
			err = checkObject(settings)
		}
		if err != nil {
			panic(fmt.Sprintf("server.New: Options.%s[%q]: %v", option, name, err))
		}
		own[name] = jsonwire.AppendCompact(nil, settings)
	}
	return own
}

// appendDeclarations appends capabilities that somebody else than the protocol defines. Legacy revisions do not mention extensions, but their
// capabilities are an open set, and hosts look for extensions there. Tasks are the exception: those revisions have some of their own.
func (s *Server) appendDeclarations(dst []byte, f *era.Features) []byte {
	dst = appendObjectMember(dst, "experimental", s.opts.Experimental, "")
	omit := ""
	if !f.Modern {
		omit = era.ExtensionTasks
	}
	return appendObjectMember(dst, "extensions", s.opts.Extensions, omit)
}

// appendObjectMember appends a member behind others, unless it would be an empty object.
func appendObjectMember(dst []byte, name string, members map[string]json.RawMessage, omit string) []byte {
	start := len(dst)
	dst = append(jsonwire.AppendQuote(append(dst, ','), name), ":{"...)
	empty := true
	for _, key := range slices.Sorted(maps.Keys(members)) {
		if key == omit {
			continue
		}
		if !empty {
			dst = append(dst, ',')
		}
		empty = false
		dst = append(append(jsonwire.AppendQuote(dst, key), ':'), members[key]...)
	}
	if empty {
		return dst[:start]
	}
	return append(dst, '}')
}

// ClientExtension returns the settings object that the client declared for an extension; ok is false if it did not declare it. Whatever belongs to the
// extension has to stay out of the answer then, or the request be refused ([mcp.MissingRequiredClientCapability]). Settings must not be changed.
func (c *Call) ClientExtension(id string) (settings json.RawMessage, ok bool) {
	settings = c.ex.Client.Extension(c.ex.Features, id)
	return settings, settings != nil
}
