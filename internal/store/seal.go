package store

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/trainyard/trainyard"
)

// sealed is what a sealed value begins with, inside a JSON string.
const sealed = "sealed:"

// sealer keeps passwords and keys of computes unreadable in the database file and in its copies (AES-256-GCM). The zero sealer, without a
// key, leaves everything as it is.
type sealer struct{ aead cipher.AEAD }

func newSealer(key []byte) (sealer, error) {
	if len(key) == 0 {
		return sealer{}, nil
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return sealer{}, fmt.Errorf("use the key that seals secrets: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	return sealer{aead}, err
}

// seal makes a JSON value unreadable; nothing stays nothing.
func (s sealer) seal(plain json.RawMessage) json.RawMessage {
	if s.aead == nil || len(plain) == 0 {
		return plain
	}
	nonce := make([]byte, s.aead.NonceSize())
	rand.Read(nonce)
	out, _ := json.Marshal(sealed + base64.StdEncoding.EncodeToString(s.aead.Seal(nonce, nonce, plain, nil))) // a string always marshals
	return out
}

// open makes a JSON value readable again. One that was never sealed is returned as it is.
func (s sealer) open(value json.RawMessage) (json.RawMessage, error) {
	var text string
	if json.Unmarshal(value, &text) != nil || !strings.HasPrefix(text, sealed) {
		return value, nil
	}
	data, err := base64.StdEncoding.DecodeString(text[len(sealed):])
	if err != nil || s.aead == nil || len(data) < s.aead.NonceSize() {
		return nil, trainyard.Errorf(trainyard.CodeInternal, "a secret in the database is sealed and there is no key for it; put the file with the key back where it was")
	}
	n := s.aead.NonceSize()
	plain, err := s.aead.Open(nil, data[:n], data[n:], nil)
	if err != nil {
		return nil, trainyard.Errorf(trainyard.CodeInternal, "a secret in the database was sealed with another key; put the file with the key that belongs to this database back")
	}
	return plain, nil
}
