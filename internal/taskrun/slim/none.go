//go:build !slimtask

package slim

func packed() map[string][]byte { return nil }
