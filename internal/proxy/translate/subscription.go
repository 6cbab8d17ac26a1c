package translate

import (
	"bytes"
	"iter"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// lists are the lists whose changes a subscription covers.
type lists struct{ tools, prompts, resources bool }

// filteredLists returns the lists in a filter, the member notifications of subscriptions/listen.
func filteredLists(filter []byte) lists {
	is := func(name string) bool { return string(era.Lookup(filter, name)) == "true" }
	return lists{is("toolsListChanged"), is("promptsListChanged"), is("resourcesListChanged")}
}

// filteredResources yields the URIs of the resources in a filter.
func filteredResources(filter []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		list := era.Lookup(filter, "resourceSubscriptions")
		if len(list) == 0 || list[0] != '[' {
			return
		}
		for elements := jsonwire.ArrayElements(list); elements.Next(); {
			if uri, ok := jsonrpc.ID(elements.Value()).Text(); ok && !yield(uri) {
				return
			}
		}
	}
}

// announcedLists returns the lists whose changes a server announces, by its capabilities.
func announcedLists(caps []byte) lists {
	is := func(name string) bool { return string(era.Lookup(caps, name, "listChanged")) == "true" }
	return lists{is("tools"), is("prompts"), is("resources")}
}

// and returns the lists that are in both.
func (l lists) and(other lists) lists {
	return lists{l.tools && other.tools, l.prompts && other.prompts, l.resources && other.resources}
}

// notifications returns the methods of the lists' change notifications.
func (l lists) notifications() []string {
	var methods []string
	if l.tools {
		methods = append(methods, mcp.NotificationToolsChanged)
	}
	if l.prompts {
		methods = append(methods, mcp.NotificationPromptsChanged)
	}
	if l.resources {
		methods = append(methods, mcp.NotificationResourcesChanged)
	}
	return methods
}

// appendFilter appends a filter with the lists and the URIs of resources.
func (l lists) appendFilter(dst []byte, uris []string) []byte {
	var members []byte
	if l.tools {
		members = append(members, `,"toolsListChanged":true`...)
	}
	if l.prompts {
		members = append(members, `,"promptsListChanged":true`...)
	}
	if l.resources {
		members = append(members, `,"resourcesListChanged":true`...)
	}
	for i, uri := range uris {
		if i == 0 {
			members = append(members, `,"resourceSubscriptions":[`...)
		} else {
			members = append(members, ',')
		}
		members = jsonwire.AppendQuote(members, uri)
	}
	if len(uris) > 0 {
		members = append(members, ']')
	}
	return append(append(append(dst, '{'), bytes.TrimPrefix(members, []byte(","))...), '}')
}

// matchesSubscription reports if a resource is subscribed, or part of one that is.
func matchesSubscription(subscribed iter.Seq[string], uri string) bool {
	for whole := range subscribed {
		if era.IsSubresource(uri, whole) {
			return true
		}
	}
	return false
}
