package store

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trainyard/trainyard"
)

// fill writes until the disk is full, then checks that the store says so in words, still has all that it acknowledged, and goes on when
// there is room again. DIR/ballast is in the way of that room.
func fill(s *Store) int {
	dir := filepath.Dir(s.db.where)
	ballast, big := filepath.Join(dir, "ballast"), json.RawMessage(`"`+strings.Repeat("x", 20000)+`"`)
	var acked []string
	var full error
	for i := 0; full == nil && i < 1000; i++ {
		j := aJob(fmt.Sprintf("j%d", i), "c", 1, 1)
		j.Spec.Extra = trainyard.Extra{"big": big}
		if full = s.Update(bg, func(tx *Tx) error { return tx.InsertJob(j) }); full == nil {
			acked = append(acked, j.Name)
		}
	}
	if full == nil {
		fmt.Println("the disk is never full")
		return 1
	}
	for _, part := range []string{"disk that holds " + s.db.where + " is full", "nothing was stored", "free some space"} {
		if !strings.Contains(full.Error(), part) {
			fmt.Printf("the error does not say %q: %v\n", part, full)
			return 1
		}
	}
	if queued, _ := s.Counts(computeKey("c")); queued != len(acked) {
		fmt.Printf("%d acknowledged, %d in memory\n", len(acked), queued)
		return 1
	}
	for _, name := range acked {
		if _, err := s.Job(bg, key(name)); err != nil {
			fmt.Println("lost:", err)
			return 1
		}
	}
	os.Remove(ballast)
	if err := s.Update(bg, func(tx *Tx) error { return tx.InsertJob(aJob("after", "c", 1, 1)) }); err != nil {
		fmt.Println("with room again:", err)
		return 1
	}
	if err := s.Close(); err != nil {
		fmt.Println("close:", err)
		return 1
	}
	fmt.Println("ok")
	return 0
}

func TestAFolderThatCannotBeWrittenIsRefusedInWords(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(file, "trainyard.db")
	_, err := Open(bg, Config{DSN: "sqlite:" + path})
	wantError(t, err, trainyard.CodeInternal, path, "cannot be written", "--data")
}
