package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Files in the directory of Certificates. Clients need the first; the keys never leave the machine.
const (
	caFile        = "ca.pem"
	caKeyFile     = "ca-key.pem"
	serverFile    = "server.pem"
	serverKeyFile = "server-key.pem"
)

const (
	caLife      = 10 * 365 * 24 * time.Hour
	serverLife  = 397 * 24 * time.Hour // the longest that all systems accept
	renewWithin = 30 * 24 * time.Hour
	backdate    = time.Hour // for clients whose clock is behind
)

// Certificates returns the server's certificate for names and for those that every server has (this machine's names and addresses, and
// the storage accounts below each), with the certificate of the authority that signed it. Both are made at the first call and kept in
// dir, with mode 0600. The server's is made again when it is about to expire or lacks a name; the authority's is not, because clients
// and agents trust that very one: a damaged or expired one is an error that says what to do.
func Certificates(dir string, names []string) (cert tls.Certificate, caPEM []byte, err error) {
	return certificates(dir, names, time.Now())
}

func certificates(dir string, names []string, now time.Time) (tls.Certificate, []byte, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("make the certificate directory: %w", err)
	}
	ca, err := loadPair(dir, caFile, caKeyFile)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !exists(dir, caFile) && !exists(dir, caKeyFile):
		ca, err = makeCA(dir, now)
	case err == nil && now.After(ca.Leaf.NotAfter.Add(-renewWithin)):
		err = fmt.Errorf("the authority expires at %s", ca.Leaf.NotAfter.Format(time.DateOnly))
	}
	if err != nil {
		return tls.Certificate{}, nil, fmt.Errorf("certificate authority in %s: %w; restore %s and %s from a backup, or delete both to make a new one that every client and agent must then be given",
			dir, err, caFile, caKeyFile)
	}
	want := serverNames(names)
	server, err := loadPair(dir, serverFile, serverKeyFile)
	if err != nil || now.After(server.Leaf.NotAfter.Add(-renewWithin)) || !covers(server.Leaf, want) || server.Leaf.CheckSignatureFrom(ca.Leaf) != nil {
		if server, err = makeServer(dir, ca, want, now); err != nil {
			return tls.Certificate{}, nil, fmt.Errorf("make the server's certificate in %s: %w", dir, err)
		}
	}
	caPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Leaf.Raw})
	return server, caPEM, nil
}

// serverNames adds to names what every server's certificate has, and the storage accounts below each. Sorted, without doubles.
func serverNames(names []string) []string {
	all := append([]string{"localhost", "127.0.0.1", "::1", "*.localhost"}, names...)
	if host, err := os.Hostname(); err == nil && host != "" && net.ParseIP(host) == nil {
		all = append(all, host)
	}
	for _, n := range slices.Clone(all) {
		if ip := net.ParseIP(n); ip != nil && ip.IsUnspecified() {
			all = append(all, addresses()...) // a server on 0.0.0.0 is reached by any of them
		}
		if net.ParseIP(n) == nil && n != "" && !strings.HasPrefix(n, "*") {
			all = append(all, "*.blob.core."+n)
		}
	}
	for i := range all {
		all[i] = strings.ToLower(strings.TrimSuffix(all[i], "."))
	}
	all = slices.DeleteFunc(all, func(n string) bool { return n == "" || net.ParseIP(n).IsUnspecified() })
	slices.Sort(all)
	return slices.Compact(all)
}

// addresses are those that other machines can reach this one by.
func addresses() []string {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil // the names remain
	}
	var out []string
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			out = append(out, n.IP.String())
		}
	}
	return out
}

// covers says whether the certificate has all names.
func covers(c *x509.Certificate, names []string) bool {
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			if !slices.ContainsFunc(c.IPAddresses, ip.Equal) {
				return false
			}
		} else if !slices.Contains(c.DNSNames, n) {
			return false
		}
	}
	return true
}

func makeCA(dir string, now time.Time) (tls.Certificate, error) {
	host, _ := os.Hostname()
	return makeCert(dir, caFile, caKeyFile, &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"Trainyard"}, CommonName: "Trainyard authority of " + host},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}, nil)
}

func makeServer(dir string, ca tls.Certificate, names []string, now time.Time) (tls.Certificate, error) {
	t := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{"Trainyard"}, CommonName: "Trainyard server"},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(serverLife),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if t.NotAfter.After(ca.Leaf.NotAfter) {
		t.NotAfter = ca.Leaf.NotAfter
	}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	return makeCert(dir, serverFile, serverKeyFile, t, &ca)
}

// makeCert makes a key and a certificate, signed by parent or by itself, and stores both: the key first, so that a crash between the
// two leaves a pair that does not match and is seen.
func makeCert(dir, certName, keyName string, t *x509.Certificate, parent *tls.Certificate) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	t.SerialNumber = new(big.Int).SetBytes(random(16))
	t.SerialNumber.SetBit(t.SerialNumber, 127, 0) // positive, and at most 20 octets (RFC 5280, 4.1.2.2)
	signer, issuer := any(key), t
	if parent != nil {
		signer, issuer = parent.PrivateKey, parent.Leaf
	}
	der, err := x509.CreateCertificate(rand.Reader, t, issuer, &key.PublicKey, signer)
	if err != nil {
		return tls.Certificate{}, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return tls.Certificate{}, err
	}
	if err := writeFile(dir, keyName, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})); err != nil {
		return tls.Certificate{}, err
	}
	if err := writeFile(dir, certName, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})); err != nil {
		return tls.Certificate{}, err
	}
	return loadPair(dir, certName, keyName)
}

// loadPair reads a certificate and its key, and makes sure that nobody else can read the key.
func loadPair(dir, certName, keyName string) (tls.Certificate, error) {
	keyPath := filepath.Join(dir, keyName)
	c, err := tls.LoadX509KeyPair(filepath.Join(dir, certName), keyPath)
	if err != nil {
		return c, err
	}
	if err := os.Chmod(keyPath, 0o600); err != nil {
		return c, err
	}
	c.Leaf, err = x509.ParseCertificate(c.Certificate[0])
	return c, err
}

func exists(dir, name string) bool {
	_, err := os.Lstat(filepath.Join(dir, name))
	return err == nil
}

// writeFile replaces a file whole, readable by its owner alone.
func writeFile(dir, name string, data []byte) error {
	f, err := os.CreateTemp(dir, name+".*") // has mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, name))
}
