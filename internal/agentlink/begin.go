package agentlink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// Tellers tells tasks what they are to run that were begun by an engine without being told: target.Teller, of all nodes that the server hosts.
type Tellers interface {
	Tell(ctx context.Context, node trainyard.NodeID, task trainyard.TaskID, ticket string) (json.RawMessage, error)
}

// begin answers a task that asks what it is to run. The ticket is all that it shows.
func (h handler) begin(w http.ResponseWriter, r *http.Request) {
	ticket, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	err := error(trainyard.Errorf(trainyard.CodeForbidden, "no task asks here"))
	if ok && h.Tellers != nil {
		var order json.RawMessage
		order, err = h.Tellers.Tell(r.Context(), trainyard.NodeID(r.PathValue("node")), trainyard.TaskID(r.URL.Query().Get("task")), ticket)
		if err == nil {
			err = answer(w, order)
		}
	}
	if err != nil {
		h.fail(w, r, err)
	}
}

// errTold is of a task that was told what to run and cannot.
var errTold = errors.New("the task cannot be written down")

// AskStatus is what a program that asks is to exit with: 3 for a task that was told what to run and cannot, which is to end.
func AskStatus(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errTold):
		return 3
	}
	return 1
}

// Ask asks what a task is to run, and writes that to a file, whole or not at all. args are a trainyard.Question as JSON, the file with the ticket,
// one that is there once the task was told otherwise, which ends the asking, and the files to write, the first that can be. It is asked again for
// an hour, whatever comes in between, since an answer may have been lost after which nobody else is told; only the server itself can refuse.
func Ask(ctx context.Context, args []string) error {
	if len(args) < 4 {
		return trainyard.Invalid("ask wants a question, and the files of the ticket, of the mark that it was told, and of the task")
	}
	var q trainyard.Question
	if err := json.Unmarshal([]byte(args[0]), &q); err != nil {
		return fmt.Errorf("read the question: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	for pause := 25 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		order, err := askOnce(ctx, q, args[1])
		if err == nil {
			return writeFirst(args[3:], order)
		}
		if trainyard.CodeOf(err) == trainyard.CodeForbidden {
			return err
		}
		if _, there := os.Stat(args[2]); !errors.Is(there, fs.ErrNotExist) {
			return errors.New("the task was told otherwise")
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// writeFirst writes the first of some files that can be written.
func writeFirst(paths []string, data []byte) error {
	all := []error{errTold}
	for _, path := range paths {
		err := os.WriteFile(path+".part", data, 0o600)
		if err == nil {
			err = os.Rename(path+".part", path)
		}
		if err == nil {
			return nil
		}
		all = append(all, err)
		_ = os.Remove(path + ".part") // it may not be there
	}
	return errors.Join(all...)
}

// askOnce asks with the ticket as it is now.
func askOnce(ctx context.Context, q trainyard.Question, ticket string) (order json.RawMessage, err error) {
	token, err := os.ReadFile(ticket)
	if err != nil {
		return nil, fmt.Errorf("read the ticket: %w", err)
	}
	link, err := Dial(DialConfig{URL: q.Server, CA: q.CA, Node: q.Node, Token: strings.TrimSpace(string(token))})
	if err != nil {
		return nil, err
	}
	defer link.Close()
	err = link.call(ctx, http.MethodPost, link.url(q.Node, "begin", "task", string(q.Task)), nil, &order)
	return order, err
}
