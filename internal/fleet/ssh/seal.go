package ssh

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const keySize = 32

// sealer keeps what must not lie on disk in the clear: AES-256-GCM, bound to the name of what it is of.
type sealer struct{ aead cipher.AEAD }

// sealer makes one of the key given, or of the fleet's own. A key of its own keeps secrets out of searches and of copies of records; whoever
// can read the whole folder can open them.
func (d *Driver) sealer(key []byte) (sealer, error) {
	if len(key) == 0 {
		var err error
		if key, err = d.ownKey(); err != nil {
			return sealer{}, err
		}
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return sealer{}, fmt.Errorf("use the key of the fleet: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return sealer{}, fmt.Errorf("use the key of the fleet: %w", err)
	}
	return sealer{aead}, nil
}

func (d *Driver) ownKey() ([]byte, error) {
	path := filepath.Join(d.env.Dir, keyFile)
	key, err := os.ReadFile(path)
	if err == nil && len(key) == keySize {
		return key, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the key of the fleet: %w", err)
	}
	key = make([]byte, keySize)
	rand.Read(key)
	if err := write(path, key); err != nil {
		return nil, fmt.Errorf("write the key of the fleet: %w", err)
	}
	return key, nil
}

func (s sealer) close(name string, data []byte) []byte {
	return s.aead.Seal(nil, nil, data, []byte(name))
}

func (s sealer) open(name string, sealed []byte) ([]byte, error) {
	data, err := s.aead.Open(nil, nil, sealed, []byte(name))
	if err != nil {
		return nil, errors.New("it was sealed with another key, or is damaged")
	}
	return data, nil
}
