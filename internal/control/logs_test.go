package control

import (
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// A log that lost bytes of an attempt before is filled up, so that what the present attempt says arrives all the same.
func TestALogThatLostBytesGoesOn(t *testing.T) {
	const name = "user_logs/std_log.txt"
	for what, tt := range map[string]struct {
		has  string
		base int64
		said bool
	}{
		"nothing lost":      {strings.Repeat("x", 100), 100, false},
		"a few bytes":       {strings.Repeat("x", 95), 100, false},
		"the end":           {"begin", 200, true},
		"all":               {"", 300, true},
		"more than a piece": {"", 3<<20 + 7, true},
	} {
		t.Run(what, func(t *testing.T) {
			log := []byte(tt.has)
			add := func(offset int64, data []byte) (int64, error) { // as blob.Bucket.Append
				if size := int64(len(log)); offset <= size && offset+int64(len(data)) > size {
					log = append(log, data[size-offset:]...)
				}
				return int64(len(log)), nil
			}
			before := &trainyard.Attempt{Number: 1, Class: trainyard.ClassNodeLost, Logs: map[string]int64{name: tt.base}}
			if size, err := appendAfter(before, 2, name, 0, []byte("new words\n"), add); err != nil || size != 10 {
				t.Fatalf("size %d, %v", size, err)
			}
			if size, err := appendAfter(before, 2, name, 10, []byte("more\n"), add); err != nil || size != 15 {
				t.Fatalf("size %d, %v", size, err)
			}
			got, tail := string(log), heading(before, 2, name)+"new words\nmore\n"
			if !strings.HasPrefix(got, tt.has) || got[tt.base:] != tail {
				t.Errorf("log of %d bytes ends in %q", len(got), got[max(0, len(got)-100):])
			}
			if strings.Contains(got, "bytes of earlier attempts were lost ---\n") != tt.said {
				t.Errorf("what was lost is said: %v; %.100q", !tt.said, got)
			}
		})
	}
}
