package taphttp

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// newTransport returns what brings requests to the server. It adds nothing to them: compression is the client's business, as are cookies and redirects,
// which a transport does not know of.
func newTransport(o *Options) *http.Transport {
	config := o.TLS.Clone()
	if config == nil {
		config = new(tls.Config)
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(!o.NoHTTP2)
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := o.Dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return newServerConn(c), nil
	}
	return &http.Transport{
		Proxy:           http.ProxyFromEnvironment,
		DialContext:     dial,
		DialTLSContext:  dialTLS(o, config),
		TLSClientConfig: config,
		Protocols:       &protocols,
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:               30 * time.Second, // without a frame, to notice that the server is gone without a word
			PingTimeout:                   15 * time.Second,
			MaxReceiveBufferPerStream:     256 << 10, // what a slow client leaves unread stays at the server
			MaxReceiveBufferPerConnection: 256 << 20,
		},
		TLSHandshakeTimeout:   handshakeTimeout,
		ExpectContinueTimeout: time.Second,
		DisableCompression:    true,
		MaxIdleConnsPerHost:   128,
		// Some frameworks close a connection that was idle for 5 s. A request that is on its way then is lost, and it may not be sent again.
		IdleConnTimeout:        4 * time.Second,
		MaxResponseHeaderBytes: o.MaxHeader,
	}
}

const handshakeTimeout = 15 * time.Second

// newServerConn returns a connection of which the heads are seen.
func newServerConn(c net.Conn) *serverConn {
	s := &serverConn{Conn: c}
	s.head.max = maxRawHead
	return s
}

// dialTLS connects to a server directly: what goes by a proxy does not come here. If it turns out to be HTTP/2, net/http wants to see the connection itself.
func dialTLS(o *Options, config *tls.Config) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		clientConfig := config.Clone()
		if clientConfig.ServerName == "" {
			clientConfig.ServerName = host
		}
		clientConfig.NextProtos = []string{"http/1.1"}
		if !o.NoHTTP2 {
			clientConfig.NextProtos = []string{"h2", "http/1.1"}
		}
		raw, err := o.Dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		conn := tls.Client(raw, clientConfig)
		ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
		defer cancel()
		if err := conn.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, err
		}
		if conn.ConnectionState().NegotiatedProtocol == "h2" {
			return conn, nil
		}
		return newServerConn(conn), nil
	}
}
