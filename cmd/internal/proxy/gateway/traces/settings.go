package traces

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpwire/cmd/internal/trace/otlp"
)

// defaultTimeout limits an attempt to export a batch.
const defaultTimeout = 10 * time.Second

// settings are what the variables say.
type settings struct {
	endpoint *url.URL
	header   http.Header
	timeout  time.Duration
	gzip     bool
	// roots are the certificates that are trusted; nil means those of the system.
	roots *x509.CertPool
	// resource has the attributes of the resource.
	resource []otlp.Attribute
}

// settingsOf returns the settings, or nil if the variables name no endpoint or disable the export.
// An error names the variable, and has no values that may be secret.
func settingsOf(o *Options) (*settings, sampler, error) {
	// of returns a variable for spans, or the one for all signals.
	of := func(name string) string {
		return cmp.Or(o.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name), o.Getenv("OTEL_EXPORTER_OTLP_"+name))
	}
	address := of("ENDPOINT")
	exporter := o.Getenv("OTEL_TRACES_EXPORTER")
	if address == "" || strings.EqualFold(o.Getenv("OTEL_SDK_DISABLED"), "true") || exporter == "none" {
		return nil, sampler{}, nil
	}
	if exporter != "" && exporter != "otlp" {
		return nil, sampler{}, fmt.Errorf("OTEL_TRACES_EXPORTER=%.40q: want otlp or none", exporter)
	}
	s := &settings{timeout: defaultTimeout, header: http.Header{"Content-Type": {"application/json"}, "User-Agent": {"mcpwire/" + o.Version}}}
	var err error
	if s.endpoint, err = url.Parse(address); err != nil || s.endpoint.Host == "" || s.endpoint.Scheme != "http" && s.endpoint.Scheme != "https" {
		return nil, sampler{}, errors.New("OTEL_EXPORTER_OTLP_ENDPOINT: want a URL such as http://127.0.0.1:4318")
	}
	if o.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		s.endpoint.Path = strings.TrimSuffix(s.endpoint.Path, "/") + "/v1/traces"
		s.endpoint.RawPath = ""
	}
	// Collectors take both encodings at the same address.
	if v := of("PROTOCOL"); v != "" && v != "http/json" && v != "http/protobuf" {
		return nil, sampler{}, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL=%.40q: spans are exported over HTTP only: unset it, and name the collector's port for HTTP, often 4318", v)
	}
	headers, err := pairs(of("HEADERS"))
	if err != nil {
		return nil, sampler{}, fmt.Errorf("OTEL_EXPORTER_OTLP_HEADERS: %w", err)
	}
	for name, value := range headers {
		s.header.Set(name, value)
	}
	if v := of("TIMEOUT"); v != "" {
		ms, err := strconv.Atoi(v)
		if err != nil || ms <= 0 || ms > math.MaxInt32 {
			return nil, sampler{}, errors.New("OTEL_EXPORTER_OTLP_TIMEOUT: want milliseconds")
		}
		s.timeout = time.Duration(ms) * time.Millisecond
	}
	switch v := of("COMPRESSION"); v {
	case "", "none":
	case "gzip":
		s.gzip = true
		s.header.Set("Content-Encoding", v)
	default:
		return nil, sampler{}, fmt.Errorf("OTEL_EXPORTER_OTLP_COMPRESSION=%.40q: want gzip or none", v)
	}
	if name := of("CERTIFICATE"); name != "" {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, sampler{}, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		if s.roots = x509.NewCertPool(); !s.roots.AppendCertsFromPEM(text) {
			return nil, sampler{}, errors.New("OTEL_EXPORTER_OTLP_CERTIFICATE: the file has no certificate in PEM")
		}
	}
	if s.resource, err = resourceOf(o); err != nil {
		return nil, sampler{}, err
	}
	sampler, err := samplerOf(o.Getenv("OTEL_TRACES_SAMPLER"), o.Getenv("OTEL_TRACES_SAMPLER_ARG"))
	return s, sampler, err
}

// pairs parses NAME=VALUE,… where the parts are percent-encoded.
func pairs(text string) (map[string]string, error) {
	all := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		name, err := url.PathUnescape(strings.TrimSpace(name))
		value, err2 := url.PathUnescape(strings.TrimSpace(value))
		if !ok || name == "" || err != nil || err2 != nil {
			return nil, errors.New("want NAME=VALUE,NAME=VALUE with percent-encoded values")
		}
		all[name] = value
	}
	return all, nil
}

// resourceOf returns the attributes of the resource.
func resourceOf(o *Options) (list []otlp.Attribute, err error) {
	all, err := pairs(o.Getenv("OTEL_RESOURCE_ATTRIBUTES"))
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	all["service.name"] = cmp.Or(o.Getenv("OTEL_SERVICE_NAME"), all["service.name"], o.Service)
	all["service.version"] = cmp.Or(all["service.version"], o.Version)
	all["telemetry.sdk.language"], all["telemetry.sdk.name"], all["telemetry.sdk.version"] = "go", "mcpwire", o.Version
	if o.Instance != "" && all["service.instance.id"] == "" {
		all["service.instance.id"] = o.Instance
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		list = append(list, otlp.Attribute{Key: key, Value: all[key]})
	}
	return list, nil
}

// transport returns what sends requests to the collector.
func (s *settings) transport() http.RoundTripper {
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 1,
		TLSClientConfig: &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS12},
	}
}

// A sampler decides which traces are recorded
// (https://opentelemetry.io/docs/specs/otel/trace/sdk/#sampling).
type sampler struct {
	// byParent means that the parent decides, if there is one.
	byParent bool
	// below is the share of traces without a parent, as a number out of 1<<63.
	below uint64
}

func samplerOf(name, arg string) (s sampler, err error) {
	rest, byParent := strings.CutPrefix(cmp.Or(name, "parentbased_always_on"), "parentbased_")
	s.byParent = byParent
	switch rest {
	case "always_on":
		s.below = 1 << 63
	case "always_off":
	case "traceidratio":
		ratio, err := strconv.ParseFloat(cmp.Or(arg, "1"), 64)
		if err != nil || !(ratio >= 0 && ratio <= 1) {
			return s, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG=%.40q: want a number from 0 to 1", arg)
		}
		s.below = uint64(ratio * (1 << 63))
	default:
		return s, fmt.Errorf("OTEL_TRACES_SAMPLER=%.40q: want always_on, always_off or traceidratio, or one of them after parentbased_", name)
	}
	return s, nil
}

// samples reports if a trace is recorded. flags are those of its traceparent, or "" without one.
func (s sampler) samples(trace, flags string) bool {
	if s.byParent && flags != "" {
		return strings.IndexByte("13579bdf", flags[1]) >= 0
	}
	low, err := strconv.ParseUint(trace[16:], 16, 64)
	return err == nil && low>>1 < s.below
}

// encode returns the body of an export request.
func (t *Tracer) encode(batch []*otlp.Span) ([]byte, error) {
	text := otlp.Append(nil, t.resource, "mcpwire/gateway", t.options.Version, batch)
	if !t.gzip {
		return text, nil
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(text)
	err = errors.Join(err, w.Close())
	return out.Bytes(), err
}
