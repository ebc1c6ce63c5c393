package gateway

import "testing"

func TestConnectionsFollowTheFilesThatMayBeOpen(t *testing.T) {
	for files, want := range map[uint64]int{0: 20_000, 1024: 341, 100: 64, 30_000: 10_000, 1 << 20: 20_000, 1 << 63: 20_000} {
		if got := connsFor(files); got != want {
			t.Errorf("of %d files: %d, want %d", files, got, want)
		}
	}
}
