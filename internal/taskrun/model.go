package taskrun

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/stage"
)

// bringModel stages the task's model alone, and puts it where its server looks for it.
func bringModel(ctx context.Context, st *stage.Stager, t trainyard.Task, to string, out io.Writer) (end trainyard.TaskEnd, err error) {
	model, ok := t.Inputs["model"]
	if !ok {
		return end, trainyard.Invalid("the task has no input \"model\"")
	}
	t.Inputs = map[string]trainyard.TaskInput{"model": model}
	t.CodeKey, t.Environment, t.Outputs, t.Command = "", nil, nil, ""
	if t, err = st.Prepare(ctx, t, said{out}); err != nil {
		end.Result = trainyard.Result{Class: trainyard.ClassOf(err), ExitCode: 1, Message: err.Error()}
		if end.Result.Class == "" {
			return end, err
		}
		return end, nil
	}
	from := t.Run.Env["AZURE_ML_INPUT_model"]
	info, err := os.Stat(from)
	if err == nil && info.IsDir() {
		err = os.CopyFS(to, os.DirFS(from))
	} else if err == nil {
		err = copyFile(from, to)
	}
	if err != nil {
		return end, fmt.Errorf("put the model in its place: %w", err)
	}
	end.Result.Class = trainyard.ClassOK
	return end, nil
}

// said prints what staging says.
type said struct{ out io.Writer }

func (s said) Say(text string)                         { fmt.Fprintln(s.out, text) }
func (said) Span(string, time.Time, time.Time, string) {}
func (said) Log(string, []byte)                        {}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
