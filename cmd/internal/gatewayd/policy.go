package gatewayd

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"reflect"
	"sync/atomic"

	"mcpwire/cmd/internal/proxy/gateway"
	gatewayconfig "mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/cmd/internal/proxy/gateway/policy"
	"mcpwire/cmd/internal/trace/captures"
)

// PinFile returns a configuration and the file of its pins.
func PinFile(path string) (*gatewayconfig.Config, string, error) {
	conf, err := gatewayconfig.Load(path)
	if err != nil {
		return nil, "", configurationError(path, err)
	}
	file, err := pinFileOf(conf, path)
	return conf, file, err
}

// A callerPolicy has what a configuration says about callers. Parts that two configurations share
// keep their state in both.
type callerPolicy struct {
	view   func(context.Context) gateway.View
	limits *policy.Limits
	// pins and audit are nil if the configuration has none.
	pins  *policy.Pins
	audit *policy.Audit
	// durations is nil without an address for operators.
	durations *policy.Durations

	// limitOptions made limits. pinFile and auditFile are those of pins and audit.
	limitOptions       policy.LimitOptions
	pinFile, auditFile string
	// pinModes has the modes of the present upstreams.
	pinModes *atomic.Pointer[map[string]policy.PinMode]
}

// newCallerPolicy makes the policy of a configuration. It keeps parts of old, which may be nil.
// The caller must call release for the policy that it does not use. An error may be
// [gatewayconfig.Errors].
func newCallerPolicy(c *gatewayconfig.Config, path string, old *callerPolicy, stderr io.Writer, log *slog.Logger) (_ *callerPolicy, err error) {
	if old == nil {
		old = &callerPolicy{pinModes: &atomic.Pointer[map[string]policy.PinMode]{}}
	}
	p := &callerPolicy{pinModes: old.pinModes, durations: old.durations}
	if p.durations == nil && c.Admin.Address != "" {
		p.durations = &policy.Durations{}
	}
	if p.view, err = viewsOf(c); err != nil {
		return nil, err
	}
	p.limitOptions = limitsOf(c)
	if p.limits = old.limits; p.limits == nil || !reflect.DeepEqual(p.limitOptions, old.limitOptions) {
		p.limits = policy.NewLimits(p.limitOptions)
	}
	defer func() {
		if err != nil {
			_ = p.release(old)
		}
	}()
	if p.auditFile = c.Audit; p.auditFile != "" {
		if p.audit = old.audit; p.audit == nil || p.auditFile != old.auditFile {
			o := policy.AuditOptions{Path: c.Audit, Logger: log}
			if c.Audit == "stderr" {
				o.Path, o.Writer = "", stderr
			}
			if p.audit, err = policy.OpenAudit(o); err != nil {
				p.audit = nil
				return nil, c.Errorf("audit", "audit: %v", err)
			}
		}
	}
	if modes := pinModesOf(c); len(modes) > 0 {
		if p.pinFile, err = pinFileOf(c, path); err != nil {
			return nil, err
		}
		if p.pins = old.pins; p.pins == nil || p.pinFile != old.pinFile {
			mode := func(upstream string) policy.PinMode {
				if modes := p.pinModes.Load(); modes != nil {
					return (*modes)[upstream]
				}
				return ""
			}
			if p.pins, err = policy.OpenPins(policy.PinOptions{Path: p.pinFile, Mode: mode, Logger: log}); err != nil {
				p.pins = nil
				return nil, c.Errorf("pins", "pins: %v", err)
			}
		}
	}
	return p, nil
}

// release closes the parts that other does not have. other may be nil.
func (p *callerPolicy) release(other *callerPolicy) error {
	if other == nil {
		other = &callerPolicy{}
	}
	var errs []error
	if p.audit != nil && p.audit != other.audit {
		errs = append(errs, p.audit.Close())
	}
	if p.pins != nil && p.pins != other.pins {
		errs = append(errs, p.pins.Close())
	}
	return errors.Join(errs...)
}

// apply sets the hooks of a gateway.
func (p *callerPolicy) apply(o *gateway.Options) {
	o.View, o.Admit = p.view, p.limits.Admit
	switch {
	case p.audit != nil && p.durations != nil:
		o.Audit = func(r *gateway.CallRecord) {
			p.durations.Record(r)
			p.audit.Record(r)
		}
	case p.audit != nil:
		o.Audit = p.audit.Record
	case p.durations != nil:
		o.Audit = p.durations.Record
	}
	if p.pins != nil {
		o.Pin = p.pins.Decide
	}
}

// limitsOf returns the limits of a configuration.
func limitsOf(c *gatewayconfig.Config) policy.LimitOptions {
	o := policy.LimitOptions{Caller: c.Limits.PerCaller, Upstreams: map[string]policy.Limit{}}
	for _, u := range c.Upstreams {
		// The burst belongs to the rate.
		l, all := u.Limits, c.Limits.Upstream
		if l.Rate == 0 {
			l.Rate, l.Burst = all.Rate, all.Burst
		}
		o.Upstreams[u.Name] = policy.Limit{Rate: l.Rate, Burst: l.Burst, Concurrent: cmp.Or(l.Concurrent, all.Concurrent)}
	}
	return o
}

// viewsOf returns the function that returns the view of a caller, or nil if everybody sees
// everything. An error is a [*gatewayconfig.Error].
func viewsOf(c *gatewayconfig.Config) (func(context.Context) gateway.View, error) {
	filters := map[string]policy.Filters{}
	for _, u := range c.Upstreams {
		f := policy.Filters{Tools: u.Tools, Prompts: u.Prompts, Resources: u.Resources}
		if !reflect.ValueOf(f).IsZero() {
			filters[u.Name] = f
		}
	}
	if len(c.Views) == 0 && len(filters) == 0 {
		return nil, nil
	}
	views, err := policy.NewViews(c.Views, filters)
	if e, ok := errors.AsType[*policy.ViewsError](err); ok {
		return nil, c.Errorf(e.Path, "%v", e)
	}
	if err != nil {
		return nil, err
	}
	return views.Of, nil
}

// pinModesOf returns the modes of the upstreams that pin definitions.
func pinModesOf(c *gatewayconfig.Config) map[string]policy.PinMode {
	modes := map[string]policy.PinMode{}
	for _, u := range c.Upstreams {
		if mode := policy.PinMode(u.Pin); mode == policy.PinWarn || mode == policy.PinHide {
			modes[u.Name] = mode
		}
	}
	return modes
}

// pinFileOf returns the file of the pins of a configuration, whose path is given.
func pinFileOf(c *gatewayconfig.Config, path string) (string, error) {
	if c.Pins != "" {
		return c.Pins, nil
	}
	return stateFile(path, ".pins.json")
}

// stateFile returns the default path of what the gateway of a configuration, whose path is given,
// stores. It ends with suffix.
func stateFile(path, suffix string) (string, error) {
	dir, err := captures.StateDir()
	if err != nil {
		return "", err
	}
	if path, err = filepath.Abs(path); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(dir, "gateway", hex.EncodeToString(sum[:8])+suffix), nil
}
