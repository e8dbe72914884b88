package broker

import (
	"crypto/tls"

	"millrace/auth"

	"github.com/mochi-mqtt/server/v2/packets"
)

// secure makes the handshake of a TLS door. It runs within the time of CONNECT, so a client that drips its hello holds a
// connection no longer than one that drips its CONNECT.
func (c *conn) secure() error {
	s, ok := c.raw.(*tls.Conn)
	if !ok || c.door.shake == nil {
		return nil
	}
	if err := s.Handshake(); err != nil {
		return err
	}
	if chain := s.ConnectionState().PeerCertificates; len(chain) > 0 { // only of a door that verifies them
		c.certified = true
		c.certificate = chain[0].Subject.CommonName
	}
	return nil
}

// certifiedSignIn is the sign-in by certificate: its common name is the client. A user name may repeat it; a password is
// not looked at, the key of the certificate says more.
func (b *Broker) certifiedSignIn(c *conn, user []byte) (p *auth.Principal, refusal packets.Code, ok bool) {
	if len(user) > 0 && string(user) != c.certificate {
		return nil, refusedPassword, false
	}
	if p, ok = b.users.CertifiedFrom(c.raw.RemoteAddr().String(), c.certificate); !ok {
		return nil, refusedPolicy, false
	}
	return p, refusal, true
}

// checkCertificate looks whether the certificate's files have changed.
func (l *listener) checkCertificate() {
	if d := l.doors[doorTLS]; d != nil {
		d.pair.Check()
	}
}
