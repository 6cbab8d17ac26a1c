package sources

import (
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/trace/filter"
)

// ParseFilter parses a filter. An empty text is nil.
func ParseFilter(command, text string) (*filter.Filter, error) {
	if text == "" {
		return nil, nil
	}
	f, err := filter.Parse(text)
	if err != nil {
		return nil, exit.Usagef("%s: %w", command, err)
	}
	return f, nil
}
