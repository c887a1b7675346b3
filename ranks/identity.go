package ranks

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"time"
)

// All connections between ranks are TLS 1.3. Both sides have the same key pair, which follows from
// the secret, and accept no other one. So each side proves that it knows the secret, and a process
// without it cannot read or change the data.
//
// One side has to prove it first, and in TLS that is the server. Its proof allows the other side to
// test guesses of the secret. The server is therefore the side that connects: a stranger that
// connects to a rank gets no such proof.

// preface begins each connection, before TLS. The side that has opened the connection sends it.
const preface = "tilework ranks 2\n"

// newIdentity returns the settings of TLS for ranks with a secret.
func newIdentity(secret []byte) (*tls.Config, error) {
	seed, err := hkdf.Key(sha256.New, secret, nil, "tilework ranks 2: key pair", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	key := ed25519.NewKeyFromSeed(seed)
	public := key.Public().(ed25519.PublicKey)
	form := &x509.Certificate{SerialNumber: big.NewInt(1)}
	certificate, err := x509.CreateCertificate(rand.Reader, form, form, public, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: key}},
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // VerifyConnection compares the key itself
		SessionTicketsDisabled: true,
		// Small records would only help the first bytes.
		DynamicRecordSizingDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if !public.Equal(s.PeerCertificates[0].PublicKey) {
				return ErrSecret
			}
			return nil
		},
	}, nil
}

// badCertificate is the alert of a side that finds another secret (RFC 8446, section 6.2).
const badCertificate = tls.AlertError(42)

// introduce proves to the rank that has accepted conn that this one knows the secret, and checks
// its proof. The error is ErrSecret if the other side has another one.
func (g *Group) introduce(conn net.Conn) (*tls.Conn, error) {
	_ = conn.SetDeadline(time.Now().Add(g.config.handshakeTime())) // a closed connection fails below
	if _, err := io.WriteString(conn, preface); err != nil {
		return nil, err
	}
	c := tls.Server(conn, g.identity)
	err := c.Handshake()
	var remote *net.OpError
	if errors.As(err, &remote) && remote.Err.Error() == badCertificate.Error() {
		err = ErrSecret
	}
	if err != nil {
		return nil, fmt.Errorf("proof of the secret: %w", err)
	}
	return c, nil
}
