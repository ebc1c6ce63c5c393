//go:build slimtask

package slim

import _ "embed"

// Made by "make build", for each processor that nodes may have.
var (
	//go:embed packed/linux-amd64.gz
	amd64 []byte
	//go:embed packed/linux-arm64.gz
	arm64 []byte
)

func packed() map[string][]byte { return map[string][]byte{"amd64": amd64, "arm64": arm64} }
