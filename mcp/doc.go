// Package mcp is the vocabulary of the Model Context Protocol: revisions, methods, error codes, and the types that travel in messages, in the
// specification's own names (https://modelcontextprotocol.io/specification).
//
// Nothing in it blocks, reads or writes. A type has the newest revision's shape; what an older revision calls otherwise, or lacks, is
// said in its comment and dealt with by mcpwire's era package.
//
// # Concurrency
//
// Values are plain data: share them for reading.
package mcp
