package identity

import (
	"bytes"
	"crypto/x509"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

func TestCertificatesAreMadeOnceAndHaveEveryName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	cert, ca, err := Certificates(dir, []string{"ml.Example.org", "192.0.2.7", "0.0.0.0", ""})
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatal("no CA certificate in the PEM")
	}
	for _, name := range []string{"localhost", "127.0.0.1", "::1", "ml.example.org", "192.0.2.7", "trainyard.blob.core.localhost", "acc.blob.core.ml.example.org"} {
		if _, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"evil.org", "0.0.0.0", "blob.core.localhost", "a.b.blob.core.localhost"} {
		if err := cert.Leaf.VerifyHostname(name); err == nil {
			t.Errorf("good for %s", name)
		}
	}
	again, ca2, err := Certificates(dir, []string{"192.0.2.7", "ml.example.org"})
	if err != nil || !bytes.Equal(again.Certificate[0], cert.Certificate[0]) || !bytes.Equal(ca, ca2) {
		t.Errorf("the second call made new ones: %v", err)
	}
	more, ca3, err := Certificates(dir, []string{"other.example.org"})
	if err != nil || more.Leaf.VerifyHostname("other.example.org") != nil || !bytes.Equal(ca, ca3) {
		t.Errorf("a new name: %v", err)
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, _ := e.Info(); runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", e.Name(), info.Mode())
		}
	}
	if len(entries) != 4 {
		t.Errorf("%d files left, want 4", len(entries))
	}
}

func TestTheServersCertificateIsRenewedWithin30DaysOfItsEnd(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	first, ca, err := certificates(dir, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	same, _, _ := certificates(dir, nil, first.Leaf.NotAfter.Add(-31*24*time.Hour))
	if !bytes.Equal(same.Certificate[0], first.Certificate[0]) {
		t.Error("renewed 31 days before its end")
	}
	later := first.Leaf.NotAfter.Add(-29 * 24 * time.Hour)
	renewed, ca2, err := certificates(dir, nil, later)
	if err != nil || bytes.Equal(renewed.Certificate[0], first.Certificate[0]) || !renewed.Leaf.NotAfter.After(later.Add(300*24*time.Hour)) {
		t.Errorf("not renewed 29 days before its end: %v", err)
	}
	if !bytes.Equal(ca, ca2) {
		t.Error("the authority changed")
	}
}

func TestADamagedServerCertificateIsMadeAgainAndADamagedAuthorityIsNot(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := Certificates(dir, nil); err != nil {
		t.Fatal(err)
	}
	spoil := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("rubbish"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spoil(serverKeyFile)
	if _, _, err := Certificates(dir, nil); err != nil {
		t.Errorf("damaged server key: %v", err)
	}
	spoil(caKeyFile)
	if _, _, err := Certificates(dir, nil); err == nil {
		t.Error("a damaged authority was replaced in silence")
	}
	os.Remove(filepath.Join(dir, caKeyFile))
	if _, _, err := Certificates(dir, nil); err == nil {
		t.Error("an authority without its key was replaced in silence")
	}
	os.Remove(filepath.Join(dir, caFile))
	cert, ca, err := Certificates(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	if _, err := cert.Leaf.Verify(x509.VerifyOptions{Roots: pool, DNSName: "localhost"}); err != nil {
		t.Errorf("the server's certificate is of the old authority: %v", err)
	}
}

func TestAnExpiredAuthorityIsAnErrorThatSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := Certificates(dir, nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := certificates(dir, nil, time.Now().Add(11*365*24*time.Hour)); err == nil {
		t.Error("no error")
	}
}
