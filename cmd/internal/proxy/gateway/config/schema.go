package config

import _ "embed"

//go:generate go test . -run ^TestSchema$ -update

// Schema is the JSON Schema of a file (https://json-schema.org/draft/2020-12). It is generated from
// the types of this package. It must not be changed.
//
//go:embed gateway.schema.json
var Schema []byte
