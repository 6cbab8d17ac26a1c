package client

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
)

// resolve puts the defaults in place of zero values and checks the rest.
func (o *Options) resolve() error {
	setDefault(&o.Name, "mcpwire")
	setDefault(&o.Version, "0")
	setDefault(&o.ElicitModes, ElicitForm)
	setDefault(&o.ProbeTimeout, 5*time.Second)
	setDefault(&o.HandshakeTimeout, 30*time.Second)
	setDefault(&o.CallTimeout, 5*time.Minute)
	setDefault(&o.MaxRounds, 10)
	setDefault(&o.MaxRequests, 64)
	setDefault(&o.Retry.MaxAttempts, 3)
	setDefault(&o.Retry.MinBackoff, 100*time.Millisecond)
	setDefault(&o.Retry.MaxBackoff, 5*time.Second)
	setDefault(&o.Reconnect.MinBackoff, 200*time.Millisecond)
	setDefault(&o.Reconnect.MaxBackoff, 30*time.Second)
	setDefault(&o.Reconnect.MaxFailures, 8)
	setDefault(&o.Reconnect.StableAfter, 10*time.Second)
	setDefault(&o.Reconnect.MaxWait, time.Minute)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Revisions = slices.Clone(o.Revisions); len(o.Revisions) == 0 {
		o.Revisions = mcp.Revisions()
	}
	for _, r := range o.Revisions {
		if _, err := r.MarshalText(); err != nil {
			return fmt.Errorf("client.Options.Revisions: %w", err)
		}
	}
	if o.Profile != nil && !slices.Contains(o.Revisions, o.Profile.Revision) {
		return fmt.Errorf("client.Options.Profile.Revision %v is not one to be spoken: %v", o.Profile.Revision, o.Revisions)
	}
	if err := checkJSONValues("Capabilities", o.Capabilities, nil); err != nil {
		return err
	}
	return checkJSONValues("Extensions", o.Extensions, func(name string, settings json.RawMessage) error {
		if err := checkObject(settings); err != nil {
			return fmt.Errorf("settings: %w; {} stands for none", err)
		}
		return mcp.CheckExtensionID(name)
	})
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// checkJSONValues checks that the values are JSON, and what else is to be checked.
func checkJSONValues(option string, texts map[string]json.RawMessage, check func(name string, text json.RawMessage) error) error {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		err := jsonwire.Valid(texts[name], 0)
		if err == nil && check != nil {
			err = check(name, texts[name])
		}
		if err != nil {
			return fmt.Errorf("client.Options.%s[%q]: %w", option, name, err)
		}
	}
	return nil
}

// offer is what the options come to for the server.
func (o *Options) offer() era.ClientProfile {
	elicits := o.Elicit != nil
	offer := era.ClientProfile{
		Info: mcp.Implementation{
			Name: o.Name, Version: o.Version, Title: o.Title, Description: o.Description, WebsiteURL: o.WebsiteURL, Icons: o.Icons,
		},
		Form:          elicits && o.ElicitModes&ElicitForm != 0,
		URL:           elicits && o.ElicitModes&ElicitURL != 0,
		Sampling:      o.Sample != nil,
		SamplingTools: o.SampleTools,
		Roots:         o.Roots != nil,
		Extensions:    maps.Clone(o.Extensions),
		Extra:         maps.Clone(o.Capabilities),
	}
	if o.Tasks && offer.Extensions[mcp.ExtensionTasks] == nil {
		if offer.Extensions == nil {
			offer.Extensions = make(map[string]json.RawMessage)
		}
		offer.Extensions[mcp.ExtensionTasks] = json.RawMessage("{}")
	}
	return offer
}

// acceptsResultType reports whether an extension that the client declares has results of that kind.
func (o *Options) acceptsResultType(method, kind string) bool {
	if kind == mcp.ResultTypeTask && method == mcp.MethodToolsCall && (o.Tasks || o.Extensions[mcp.ExtensionTasks] != nil) {
		return true
	}
	return slices.Contains(o.ResultTypes, kind)
}
