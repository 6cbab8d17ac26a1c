package tokens

import "mcpwire/internal/json/jsonwire"

// AppendTool appends the text that [CountTool] counts for the definition of a tool, which must be
// valid JSON: an object of its name, description and inputSchema, as far as it has them, in this
// order. It is in the form that JSON.stringify gives it, without white space and with as few
// escapes as possible, because hosts send definitions to models in this form, or in others that
// take about as many tokens.
func AppendTool(dst, tool []byte) []byte {
	begin := len(dst)
	for _, name := range []string{"name", "description", "inputSchema"} {
		if value := jsonwire.Lookup(tool, name); value != nil {
			dst = append(jsonwire.AppendQuote(append(dst, ','), name), ':')
			dst = appendPlain(dst, value)
		}
	}
	if len(dst) == begin {
		dst = append(dst, ',')
	}
	dst[begin] = '{'
	return append(dst, '}')
}

// CountTool returns the number of tokens of the text of [AppendTool], and of the tool's
// outputSchema in the same form, which most hosts do not send to models.
func CountTool(tool []byte) (definition, output int) {
	definition = Count(string(AppendTool(nil, tool)))
	if schema := jsonwire.Lookup(tool, "outputSchema"); schema != nil {
		output = Count(string(appendPlain(nil, schema)))
	}
	return definition, output
}

// appendPlain appends a valid JSON value without white space and unnecessary escapes.
func appendPlain(dst, value []byte) []byte {
	for i := 0; i < len(value); i++ {
		switch c := value[i]; c {
		case ' ', '\n', '\r', '\t':
		case '"':
			end := jsonwire.SkipValue(value, i)
			dst = jsonwire.AppendQuote(dst, jsonwire.Text(value[i:end]))
			i = end - 1
		default:
			dst = append(dst, c)
		}
	}
	return dst
}
