package era

import (
	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// EndAs closes a result object that has members already, as End does, for a result of another type than complete. Legacy revisions have no such results.
func (id *Identity) EndAs(dst []byte, f *Features, resultType string) []byte {
	dst = jsonwire.AppendQuote(append(dst, `,"resultType":`...), resultType)
	dst = append(append(dst, `,"_meta":{"`+mcp.MetaServerInfo+`":`...), id.infos[f.Revision]...)
	return append(dst, "}}"...)
}
