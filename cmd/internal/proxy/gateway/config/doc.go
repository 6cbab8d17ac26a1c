// Package config reads the configuration of mcpwire gateway: a file in YAML
// (https://yaml.org/spec/1.2.2) that lists servers and says who may use them.
//
// [Load] is strict: unknown and duplicate keys, values of the wrong type or too small, names
// that collide and secrets in plain text are errors. It reports all errors of a file at once, each
// with line and column. [Config.Check] also looks at the machine: whether the variables, files and
// programs that the file names exist. [Schema] describes the file for editors. [Watch] reports
// changes of the file.
//
// # Concurrency
//
// A [Config] must not be changed, and may then be shared.
//
// # Errors
//
// An invalid file leads to [Errors].
//
// # Compatibility
//
// New versions may add keys.
package config
