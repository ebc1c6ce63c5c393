package target

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAFileThatWasNotWrittenWholeIsNotRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.json")
	var v struct{ A int }
	if ok, err := ReadJSON(path, &v); ok || err != nil {
		t.Errorf("a file that is not there: %v, %v", ok, err)
	}
	if err := WriteJSON(path, struct{ A int }{7}); err != nil {
		t.Fatal(err)
	}
	if ok, err := ReadJSON(path, &v); !ok || err != nil || v.A != 7 {
		t.Errorf("%v, %v, %+v", ok, err, v)
	}
	if err := os.WriteFile(path, []byte(`{"A":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if ok, err := ReadJSON(path, &v); ok || err != nil {
		t.Errorf("half a file: %v, %v", ok, err)
	}
}
