package main

import (
	"errors"

	"mcpwire/server"
)

// fullSchema has keywords of JSON Schema 2020-12 that intermediaries often drop.
const fullSchema = `{
	"$schema": "https://json-schema.org/draft/2020-12/schema",
	"type": "object",
	"$defs": {
		"address": {
			"$anchor": "addressDef",
			"type": "object",
			"properties": {"street": {"type": "string"}, "city": {"type": "string"}}
		}
	},
	"properties": {
		"name": {"type": "string"},
		"address": {"$ref": "#/$defs/address"},
		"contactMethod": {"type": "string", "enum": ["phone", "email"]},
		"phone": {"type": "string"},
		"email": {"type": "string"}
	},
	"allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
	"if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
	"then": {"required": ["phone"]},
	"else": {"required": ["email"]},
	"additionalProperties": false
}`

// headerSchema has arguments that are mirrored in headers.
const headerSchema = `{
	"type": "object",
	"properties": {
		"region": {"type": "string", "x-mcp-header": "Region"},
		"level": {"type": "integer", "x-mcp-header": "Level"}
	}
}`

// addSchemas registers tools for scenarios about schemas.
func addSchemas(srv *server.Server) error {
	return errors.Join(
		addRaw(srv, "json_schema_2020_12_tool", "Have a schema with much of JSON Schema 2020-12.", fullSchema),
		addRaw(srv, "test_x_mcp_header", "Have arguments that are mirrored in headers.", headerSchema),
	)
}
