module mcpwire/interop/web

go 1.26.0

replace mcpwire => ../../

require mcpwire v0.0.0-00010101000000-000000000000

require (
	github.com/go-jose/go-jose/v4 v4.1.8 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/time v0.16.0 // indirect
)

ignore ./node_modules
