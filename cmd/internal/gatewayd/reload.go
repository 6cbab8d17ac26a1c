package gatewayd

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	gatewayconfig "mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/cmd/internal/text/safe"
)

// A ReloadStatus counts reloads.
type ReloadStatus struct {
	// Loaded is when the present configuration was loaded.
	Loaded time.Time `json:"loaded"`
	// Reloads and Failures count the reloads that succeeded and failed.
	Reloads  int64 `json:"reloads"`
	Failures int64 `json:"failures"`
	// LastError is the error of the last reload, or "" if it succeeded.
	LastError string `json:"lastError,omitempty"`
}

// watch reloads the configuration when its file changes, and on SIGHUP unless a terminal may have
// sent it, until ctx ends.
func (p *process) watch(ctx context.Context, file *gatewayconfig.Watcher) {
	hangup := make(chan os.Signal, 1)
	if p.address != "stdio" {
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
	}
	ticker := time.NewTicker(gatewayconfig.PollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
			if a := p.now().policy.audit; a != nil {
				if err := a.Reopen(); err != nil {
					p.log.Error("audit not reopened", "error", err)
				}
			}
			file.Forget()
		case <-ticker.C:
			if pins := p.now().policy.pins; pins != nil && pins.Reread() {
				p.gateway.Reload()
			}
			if !file.Changed() {
				continue
			}
		}
		p.reload()
	}
}

// reload loads the configuration and applies it, all or nothing.
func (p *process) reload() {
	start := time.Now()
	old := p.now()
	err := p.replace(old)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.reloads.Failures++
		p.reloads.LastError = safe.Line(err.Error())
		var all gatewayconfig.Errors
		if !errors.As(err, &all) {
			p.log.Error("the configuration was not reloaded; the old one stays", "error", safe.Line(err.Error()))
		}
		for _, one := range all {
			p.log.Error("the configuration was not reloaded; the old one stays", "error", safe.Line(one.Error()))
		}
		return
	}
	p.reloads.Reloads++
	p.reloads.Loaded, p.reloads.LastError = time.Now(), ""
	added, changed, removed := compareUpstreams(old, p.current)
	p.log.Info("configuration reloaded", "took", time.Since(start).Round(time.Millisecond), "added", added, "changed", changed, "removed", removed)
}

// replace replaces the configuration old by the one in the file.
func (p *process) replace(old *configuration) error {
	c, err := p.load(old)
	if err != nil {
		return err
	}
	if err := c.NeedsRestart(old.Config); err != nil {
		return errors.Join(err, c.policy.release(old.policy))
	}
	oldModes := c.policy.pinModes.Load()
	modes := pinModesOf(c.Config)
	c.policy.pinModes.Store(&modes)
	if err := p.gateway.Apply(&c.options); err != nil {
		c.policy.pinModes.Store(oldModes)
		return errors.Join(err, c.policy.release(old.policy))
	}
	if p.logins != nil && p.logins.ring != nil && c.Keys != nil {
		if err := p.logins.ring.Replace(c.options.Secrets...); err != nil {
			p.log.Error("stored logins stay sealed with the old keys", "error", err)
		}
	}
	p.mu.Lock()
	p.current = c
	p.mu.Unlock()
	p.warnMissing(c)
	if err := old.policy.release(c.policy); err != nil {
		p.log.Warn("what the old configuration had was not closed", "error", err)
	}
	return nil
}

// compareUpstreams returns the names of the upstreams that were added, connect in another way, or
// were removed.
func compareUpstreams(old, c *configuration) (added, changed, removed []string) {
	fingerprints := map[string]string{}
	for _, u := range old.options.Upstreams {
		fingerprints[u.Name] = u.Fingerprint
	}
	for _, u := range c.options.Upstreams {
		switch was, ok := fingerprints[u.Name]; {
		case !ok:
			added = append(added, u.Name)
		case was != u.Fingerprint:
			changed = append(changed, u.Name)
		}
		delete(fingerprints, u.Name)
	}
	for _, u := range old.options.Upstreams {
		if _, ok := fingerprints[u.Name]; ok {
			removed = append(removed, u.Name)
		}
	}
	return added, changed, removed
}
