package client

import (
	"slices"

	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

func cloneFilter(f mcp.SubscriptionFilter) mcp.SubscriptionFilter {
	f.ResourceSubscriptions = slices.Clone(f.ResourceSubscriptions)
	f.TaskIDs = slices.Clone(f.TaskIDs)
	return f
}

// filterSize is how many things a filter is about, at most.
func filterSize(f *mcp.SubscriptionFilter) int {
	return 3 + len(f.ResourceSubscriptions) + len(f.TaskIDs)
}

// missedEvents returns an event for everything that a filter is about.
func missedEvents(f *mcp.SubscriptionFilter) []Event {
	var all []Event
	add := func(yes bool, e Event) {
		if yes {
			e.Missed = true
			all = append(all, e)
		}
	}
	add(f.ToolsListChanged, Event{Kind: ToolsListChanged})
	add(f.PromptsListChanged, Event{Kind: PromptsListChanged})
	add(f.ResourcesListChanged, Event{Kind: ResourcesListChanged})
	for _, uri := range f.ResourceSubscriptions {
		add(true, Event{Kind: ResourceUpdated, URI: uri})
	}
	for _, id := range f.TaskIDs {
		add(true, Event{Kind: TaskUpdated, TaskID: id})
	}
	return all
}

// matchesFilter reports whether an event is of a kind that was asked for. A modern server decides itself which resources are parts of the ones asked for.
func matchesFilter(f *mcp.SubscriptionFilter, e Event) bool {
	switch e.Kind {
	case ToolsListChanged:
		return f.ToolsListChanged
	case PromptsListChanged:
		return f.PromptsListChanged
	case ResourcesListChanged:
		return f.ResourcesListChanged
	case ResourceUpdated:
		return len(f.ResourceSubscriptions) > 0
	case TaskUpdated:
		return slices.Contains(f.TaskIDs, e.TaskID)
	}
	return true
}

// intersectFilters returns what is in both filters.
func intersectFilters(f, g *mcp.SubscriptionFilter) mcp.SubscriptionFilter {
	return mcp.SubscriptionFilter{
		ToolsListChanged:      f.ToolsListChanged && g.ToolsListChanged,
		PromptsListChanged:    f.PromptsListChanged && g.PromptsListChanged,
		ResourcesListChanged:  f.ResourcesListChanged && g.ResourcesListChanged,
		ResourceSubscriptions: intersect(f.ResourceSubscriptions, g.ResourceSubscriptions),
		TaskIDs:               intersect(f.TaskIDs, g.TaskIDs),
	}
}

// intersect returns the elements of a that b has too.
func intersect(a, b []string) []string {
	in := make(map[string]struct{}, len(b))
	for _, s := range b {
		in[s] = struct{}{}
	}
	var shared []string
	for _, s := range a {
		if _, ok := in[s]; ok {
			shared = append(shared, s)
		}
	}
	return shared
}

// parseFilter reads a filter. What is not of the right type counts as absent: the server does not honour it.
func parseFilter(text []byte) (f mcp.SubscriptionFilter) {
	members := jsonwire.ObjectMembers(text)
	for members.Next() {
		yes := string(members.Value()) == "true"
		switch members.KeyString() {
		case "toolsListChanged":
			f.ToolsListChanged = yes
		case "promptsListChanged":
			f.PromptsListChanged = yes
		case "resourcesListChanged":
			f.ResourcesListChanged = yes
		case "resourceSubscriptions":
			f.ResourceSubscriptions = stringValues(members.Value())
		case "taskIds":
			f.TaskIDs = stringValues(members.Value())
		}
	}
	return f
}

// stringValues returns the strings in a JSON array.
func stringValues(text []byte) []string {
	var all []string
	elements := jsonwire.ArrayElements(text)
	for elements.Next() {
		if s, ok := stringValue(elements.Value()); ok {
			all = append(all, s)
		}
	}
	return all
}
