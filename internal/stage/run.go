package stage

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// makeOutputs makes the folders that named outputs are written to.
func makeOutputs(folder string, outputs map[string]trainyard.TaskOutput) error {
	for name, out := range outputs {
		if strings.EqualFold(out.Mode, modeDirect) {
			continue
		}
		dir := outputPath(folder, name, out)
		if isFile(out.Type) {
			dir = filepath.Dir(dir)
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make output %q: %w", name, err)
		}
	}
	return nil
}

func isFile(kind string) bool { return strings.EqualFold(kind, "uri_file") }

// outputPath is where the task writes a named output: a folder, or a file whose folder is there and which is not.
func outputPath(folder, name string, out trainyard.TaskOutput) string {
	dir := filepath.Join(folder, outputsPart, plainName(name))
	if !isFile(out.Type) {
		return dir
	}
	base := path.Base(out.Key)
	if strings.HasSuffix(out.Key, "/") || out.Key == "" {
		base = name
	}
	return filepath.Join(dir, plainName(base))
}

// inputValues is what ${{inputs.x}} means: a value, a URI or a path.
func inputValues(t trainyard.Task, f facts, r trainyard.Run) map[string]string {
	out := map[string]string{}
	for name, in := range t.Inputs {
		switch {
		case in.Missing:
		case in.Type == literal:
			out[name] = in.Value
		case strings.EqualFold(in.Mode, modeDirect):
			out[name] = in.URI
		default:
			out[name] = r.Seen(f.Inputs[name])
		}
	}
	return out
}

// run is what a driver starts: the command with its expressions filled in, and the environment.
func (s *Stager) run(ctx context.Context, t trainyard.Task, folder string, f facts) (trainyard.Run, error) {
	run := trainyard.Run{Dir: filepath.Join(folder, workPart), LogDir: filepath.Join(folder, logsPart), Root: folder, Shared: f.Shared, Context: f.Context}
	if t.Contained {
		run.View = trainyard.ContainedView
	}
	inputs := inputValues(t, f, run)
	outputs := map[string]string{}
	for name, out := range t.Outputs {
		if outputs[name] = run.Seen(outputPath(folder, name, out)); strings.EqualFold(out.Mode, modeDirect) {
			outputs[name] = out.URI
		}
	}
	command, err := trainyard.Render(t.Command, func(expr string) (string, bool, error) { return lookup(expr, t, inputs, outputs) })
	if err != nil {
		return trainyard.Run{}, &trainyard.ClassError{Class: trainyard.ClassUser, Err: err}
	}
	env := map[string]string{"AZUREML_SCRIPT_DIRECTORY_NAME": run.Seen(run.Dir)}
	for name, value := range inputs {
		env["AZURE_ML_INPUT_"+name] = value
		if t.Inputs[name].Type != literal {
			env["AZUREML_DATAREFERENCE_"+name] = value
		}
	}
	for name, value := range outputs {
		env["AZURE_ML_OUTPUT_"+name] = value
		env["AZUREML_DATAREFERENCE_"+name] = value
	}
	maps.Copy(env, f.Vars)
	maps.Copy(env, t.Env)
	run.Command, run.Env = command, env
	if t.Contained {
		return run, nil
	}
	layer := f.Layer
	if layer == nil {
		if layer, err = s.nodeLayer(ctx); err != nil {
			return trainyard.Run{}, err
		}
	}
	if layer != nil {
		layer.enter(filepath.Join(folder, pythonPart), env)
	}
	return run, nil
}

// lookup finds what an expression in a command means.
func lookup(expr string, t trainyard.Task, inputs, outputs map[string]string) (value string, ok bool, err error) {
	kind, name, _ := strings.Cut(expr, ".")
	switch kind {
	case "inputs":
		if in, known := t.Inputs[name]; known {
			return inputs[name], !in.Missing, nil
		}
		return "", false, unknownName("input", expr, name, slices.Sorted(maps.Keys(t.Inputs)))
	case "outputs":
		if value, known := outputs[name]; known {
			return value, true, nil
		}
		return "", false, unknownName("output", expr, name, slices.Sorted(maps.Keys(outputs)))
	}
	return "", false, trainyard.Invalid("the command uses ${{%s}}; a command can use ${{inputs.NAME}} and ${{outputs.NAME}}", expr)
}

func unknownName(noun, expr, name string, have []string) error {
	if len(have) == 0 {
		return trainyard.Invalid("the command uses ${{%s}}, and the job has no %ss; add %q under %ss", expr, noun, name, noun)
	}
	return trainyard.Invalid("the command uses ${{%s}}, and the job has no %s %q; its %ss are %s", expr, noun, name, noun, strings.Join(have, ", "))
}
