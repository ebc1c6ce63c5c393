package agentlink_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/agentlink"
)

// tellers answers with what follows, one after another, the last again and again.
type tellers []error

func (a *tellers) Tell(_ context.Context, node trainyard.NodeID, task trainyard.TaskID, ticket string) (json.RawMessage, error) {
	if node != "n" || task != "a/task with a space" || ticket != "the ticket" {
		return nil, trainyard.Invalid("asked by %q of %q with %q", node, task, ticket)
	}
	err := (*a)[0]
	if len(*a) > 1 {
		*a = (*a)[1:]
	}
	return json.RawMessage(`{"the":"task"}`), err
}

// Who asks is told, or asks again, or gives it up.
func TestAsk(t *testing.T) {
	busy, no := trainyard.Errorf(trainyard.CodeBusy, "not yet"), trainyard.Errorf(trainyard.CodeForbidden, "not you")
	for name, c := range map[string]struct {
		answers tellers
		ticket  string
		marked  bool   // it was told otherwise
		file    string // that it writes
		away    bool   // the server is
		status  int
		says    string
	}{
		"told at once":         {answers: tellers{nil}},
		"told later":           {answers: tellers{busy, busy, nil}},
		"told in spite of all": {answers: tellers{trainyard.Errorf(trainyard.CodeInternal, "oh"), errors.New("no"), nil}},
		"refused":              {answers: tellers{busy, no, nil}, status: 1, says: "not you"},
		"with another ticket":  {answers: tellers{nil}, ticket: "another", marked: true, status: 1, says: "told otherwise"},
		"without a ticket":     {answers: tellers{nil}, ticket: "-", marked: true, status: 1, says: "told otherwise"},
		"told otherwise":       {answers: tellers{busy}, marked: true, status: 1, says: "told otherwise"},
		"nobody tells":         {status: 1, says: "no task asks here"},
		"nobody is there":      {away: true, marked: true, status: 1, says: "told otherwise"},
		"nowhere to write it":  {answers: tellers{nil}, file: "no/folder/task.json", status: 3, says: "cannot be written down"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var cfg agentlink.Config
			if c.answers != nil {
				cfg.Tellers = &c.answers
			}
			s := httptest.NewTLSServer(agentlink.Handler(cfg))
			defer s.Close()
			if c.away {
				s.Close()
			}
			dir := t.TempDir()
			path := func(name string) string { return filepath.Join(dir, name) }
			if c.ticket != "-" {
				if err := os.WriteFile(path("ticket"), []byte(cmp.Or(c.ticket, "the ticket")), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if c.marked {
				if err := os.WriteFile(path("mark"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
			q, err := json.Marshal(trainyard.Question{Server: s.URL, CA: string(ca), Node: "n", Task: "a/task with a space"})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			file := path(cmp.Or(c.file, "task.json"))
			err = agentlink.Ask(ctx, []string{string(q), path("ticket"), path("mark"), path("no/folder"), file})
			if got := agentlink.AskStatus(err); got != c.status || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Fatalf("it ends with %d (%v), want %d and %q", got, err, c.status, c.says)
			}
			switch data, err := os.ReadFile(file); {
			case c.status == 0 && (err != nil || string(bytes.TrimSpace(data)) != `{"the":"task"}`):
				t.Errorf("it has written %q (%v)", data, err)
			case c.status != 0 && !errors.Is(err, os.ErrNotExist):
				t.Errorf("it has written %q (%v), and was told nothing", data, err)
			}
			if left, _ := filepath.Glob(path("*.part")); len(left) > 0 {
				t.Errorf("it leaves %v", left)
			}
		})
	}
	for _, args := range [][]string{nil, {"{", "a", "b", "c"}, {"{}", "a", "b"}} {
		if err := agentlink.Ask(t.Context(), args); agentlink.AskStatus(err) != 1 {
			t.Errorf("%q: %v", args, err)
		}
	}
}
