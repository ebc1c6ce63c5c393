// Package output keeps what attempts said: log bytes, appended by offset and followed from one, byte for byte as they came. It holds
// them in the blob store under the job's artifacts, where every other artifact of the job is too, and wakes who waits for more. It
// does not parse them, does not know whether the job is over, and forgets nothing: deleting is the blob store's.
package output

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/blob"
)

// Folders of a job's artifacts that hold logs.
const (
	UserLogs   = "user_logs"   // what the user's processes wrote to standard output and error
	SystemLogs = "system_logs" // what staging said: environment builds, downloads
	Logs       = "logs"        // the job's own ./logs
)

var folders = []string{Logs, SystemLogs, UserLogs}

// Store keeps logs. It is safe for concurrent use. Only appends made through it wake those who wait at it.
type Store struct {
	blobs *blob.Bucket
	mu    sync.Mutex
	more  map[string]*signal // by blob key, for logs that someone waits for
}

// signal is a log that someone waits for: changed is closed when it grows.
type signal struct {
	changed chan struct{}
	waiting int
}

// New keeps logs in blobs.
func New(blobs *blob.Bucket) *Store {
	return &Store{blobs: blobs, more: map[string]*signal{}}
}

// Artifacts is the blob prefix, without a slash at its end, of everything a job leaves behind: Task.Artifacts, user_logs, outputs.
func Artifacts(scope trainyard.Scope, job string) string {
	return trainyard.DataPath{Scope: scope, Datastore: trainyard.ArtifactDatastore, Path: "ExperimentRun/dcid." + job}.Key()
}

// Key is the blob key of a job's log: name is "user_logs/std_log.txt" and the like.
func Key(scope trainyard.Scope, job, name string) (string, error) {
	if job == "" || strings.Contains(job, "/") {
		return "", trainyard.Invalid("%q is no name of a job", job)
	}
	folder, rest, _ := strings.Cut(name, "/")
	if !slices.Contains(folders, folder) || rest == "" {
		return "", trainyard.Invalid("%q is no log of job %q: logs are in %s", name, job, strings.Join(folders, ", "))
	}
	return Artifacts(scope, job) + "/" + name, nil
}

// Append adds to a log, as blob.Bucket.Append does: bytes before the present size are ignored, a gap adds nothing, and the size that the
// log has now is returned.
func (s *Store) Append(ctx context.Context, scope trainyard.Scope, job, name string, offset int64, data []byte) (int64, error) {
	key, err := Key(scope, job, name)
	if err != nil {
		return 0, err
	}
	size, err := s.blobs.Append(ctx, key, offset, data)
	s.wake(key) // also after an error: part of data may be there
	return size, err
}

// Files lists a job's logs in order of name. Keys are relative to the job's artifacts: "user_logs/std_log.txt".
func (s *Store) Files(ctx context.Context, scope trainyard.Scope, job string) ([]trainyard.BlobInfo, error) {
	var all []trainyard.BlobInfo
	for _, folder := range folders {
		prefix, err := Key(scope, job, folder+"/x")
		if err != nil {
			return nil, err
		}
		found, err := s.blobs.List(ctx, strings.TrimSuffix(prefix, "x"))
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			f.Key = strings.TrimPrefix(f.Key, Artifacts(scope, job)+"/")
			all = append(all, f)
		}
	}
	return all, nil
}

// Read reads a log from a byte offset to the end that it has now. The caller closes.
func (s *Store) Read(ctx context.Context, scope trainyard.Scope, job, name string, offset int64) (io.ReadCloser, trainyard.BlobInfo, error) {
	key, err := Key(scope, job, name)
	if err != nil {
		return nil, trainyard.BlobInfo{}, err
	}
	r, info, err := s.blobs.Open(ctx, key, offset)
	info.Key = name
	return r, info, err
}

// Wait returns the size of a log as soon as it is more than beyond. When ctx is done it returns the size that the log has, without an
// error; a log that is not there has size 0. To stop at a job's end, end ctx.
func (s *Store) Wait(ctx context.Context, scope trainyard.Scope, job, name string, beyond int64) (int64, error) {
	key, err := Key(scope, job, name)
	if err != nil {
		return 0, err
	}
	for {
		more := s.await(key) // before the look, so that what comes after the look is not missed
		info, err := s.blobs.Stat(ctx, key)
		if err != nil && !trainyard.IsNotFound(err) || info.Size > beyond {
			s.leave(key)
			return info.Size, err
		}
		select {
		case <-ctx.Done():
			s.leave(key)
			return info.Size, nil
		case <-more:
			s.leave(key)
		}
	}
}

// await returns a channel that is closed when the log next grows. Each call needs one of leave.
func (s *Store) await(key string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.more[key]
	if w == nil {
		w = &signal{changed: make(chan struct{})}
		s.more[key] = w
	}
	w.waiting++
	return w.changed
}

func (s *Store) leave(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.more[key]; w != nil {
		if w.waiting--; w.waiting == 0 {
			delete(s.more, key)
		}
	}
}

func (s *Store) wake(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.more[key]; w != nil {
		close(w.changed)
		w.changed = make(chan struct{})
	}
}
