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

// restore brings back what an attempt that was preempted left: ./outputs, and the named outputs. A job that keeps its checkpoints there
// goes on from them. A job that never stored anything gets nothing.
func (s *Stager) restore(ctx context.Context, t trainyard.Task, w *work) error {
	if !t.Restore {
		return nil
	}
	places := map[string]string{} // folder here, by the prefix that it is stored under
	if t.Artifacts != "" {
		places[t.Artifacts+"/outputs/"] = filepath.Join(w.folder, workPart, "outputs")
	}
	for name, out := range t.Outputs {
		if strings.EqualFold(out.Mode, modeDirect) || out.Key == "" {
			continue
		}
		dir, key := outputPath(w.folder, name, out), strings.TrimSuffix(out.Key, "/")+"/"
		if isFile(out.Type) {
			dir, key = filepath.Dir(dir), path.Dir(out.Key)+"/"
			if strings.HasSuffix(out.Key, "/") {
				key = out.Key
			}
		}
		places[key] = dir
	}
	return w.span(trainyard.SpanData, func() (string, error) {
		w.say("bringing back what the attempt before left")
		files, bytes := 0, int64(0)
		for _, key := range slices.Sorted(maps.Keys(places)) {
			objects, _, err := s.blobObjects(ctx, key)
			if err != nil || len(objects) == 0 {
				if err != nil {
					return "", fmt.Errorf("outputs of the attempt before: %w", err)
				}
				continue
			}
			if err := os.MkdirAll(places[key], 0o755); err != nil {
				return "", err
			}
			rec, err := s.fetch(ctx, places[key], objects, func(int64, int64) {})
			if err != nil {
				return "", s.local(fmt.Errorf("outputs of the attempt before: %w", err), trainyard.ClassData, places[key], rec.Bytes)
			}
			files, bytes = files+len(rec.Files), bytes+rec.Bytes
		}
		return fmt.Sprintf("%s, %s of the attempt before", plural(files, "file"), sized(bytes)), nil
	})
}
