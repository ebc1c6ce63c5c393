package output

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/blob"
)

const std = "user_logs/std_log.txt"

var home = trainyard.DefaultScope()

func open(t *testing.T) (*Store, *blob.Bucket) {
	t.Helper()
	b, err := blob.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return New(b), b
}

func say(t *testing.T, s *Store, job, name string, offset int64, data string) {
	t.Helper()
	size, err := s.Append(context.Background(), home, job, name, offset, []byte(data))
	if err != nil || size != offset+int64(len(data)) {
		t.Errorf("Append(%s %s, %d, %q) = %d, %v", job, name, offset, data, size, err)
	}
}

func TestLogsAreWhereTheJobsArtifactsAre(t *testing.T) {
	s, b := open(t)
	say(t, s, "job1", std, 0, "hello\n")
	say(t, s, "job1", "system_logs/environment.txt", 0, "building")
	say(t, s, "job1", "logs/deep/er.txt", 0, "x")
	say(t, s, "job10", std, 0, "another job")
	if err := b.Put(t.Context(), Artifacts(home, "job1")+"/outputs/model.pkl", strings.NewReader("m")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Stat(t.Context(), "workspaceartifactstore/ExperimentRun/dcid.job1/user_logs/std_log.txt"); err != nil {
		t.Error(err)
	}
	files, err := s.Files(t.Context(), home, "job1")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		got = append(got, fmt.Sprint(f.Key, " ", f.Size))
	}
	if want := []string{"logs/deep/er.txt 1", "system_logs/environment.txt 8", "user_logs/std_log.txt 6"}; !cmp.Equal(got, want) {
		t.Errorf("Files = %q, want %q", got, want)
	}
	other := trainyard.Scope{Subscription: "s", ResourceGroup: "rg", Workspace: "ws"}
	if files, err := s.Files(t.Context(), other, "job1"); len(files) > 0 || err != nil {
		t.Errorf("another workspace sees %v, %v", files, err)
	}
}

func TestBytesAreKeptAsTheyCame(t *testing.T) {
	s, _ := open(t)
	raw := "ok \xff\xfe\x00 \r progress\r\n\xe6\x97"
	say(t, s, "j", std, 0, raw)
	say(t, s, "j", std, int64(len(raw)), "\xa5 done")
	r, info, err := s.Read(t.Context(), home, "j", std, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil || string(got) != raw[3:]+"\xa5 done" || info.Key != std || info.Size != int64(len(raw)+6) {
		t.Errorf("Read = %q, %+v, %v", got, info, err)
	}
}

func TestOnlyLogsCanBeNamed(t *testing.T) {
	s, _ := open(t)
	for _, c := range [][2]string{{"j", "outputs/model.pkl"}, {"j", "user_logs"}, {"j", "user_logs/"}, {"j", "user_logs/../outputs/x"}, {"j", ""},
		{"j", "/user_logs/x"}, {"", std}, {"../j", std}, {"a/b", std}} {
		_, appendErr := s.Append(t.Context(), home, c[0], c[1], 0, []byte("x"))
		_, _, readErr := s.Read(t.Context(), home, c[0], c[1], 0)
		_, waitErr := s.Wait(t.Context(), home, c[0], c[1], 0)
		for op, err := range map[string]error{"Append": appendErr, "Read": readErr, "Wait": waitErr} {
			if trainyard.CodeOf(err) != trainyard.CodeInvalid {
				t.Errorf("%s(%q) = %v, want a ValidationError", op, c, err)
			}
		}
	}
}

func TestWaitReturnsWhenThereIsMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t)
		got := make(chan int64, 1)
		follow := func(beyond int64) {
			size, err := s.Wait(context.Background(), home, "j", std, beyond)
			if err != nil {
				t.Error(err)
			}
			got <- size
		}
		go follow(0)
		synctest.Wait()
		say(t, s, "j", "logs/other.txt", 0, "not this one")
		say(t, s, "other", std, 0, "nor this")
		synctest.Wait()
		if len(got) > 0 {
			t.Fatal("woken by another log")
		}
		say(t, s, "j", std, 0, "12345")
		if size := <-got; size != 5 {
			t.Errorf("Wait = %d, want 5", size)
		}
		go follow(3)
		if size := <-got; size != 5 {
			t.Errorf("Wait for what is there = %d, want 5", size)
		}
		go follow(7)
		synctest.Wait()
		say(t, s, "j", std, 0, "12345") // again
		say(t, s, "j", std, 5, "67")
		synctest.Wait()
		if len(got) > 0 {
			t.Fatal("woken before there was more than 7")
		}
		say(t, s, "j", std, 7, "8")
		if size := <-got; size != 8 {
			t.Errorf("Wait = %d, want 8", size)
		}
		if len(s.more) > 0 {
			t.Errorf("%d logs are still waited for", len(s.more))
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := open(t)
		say(t, s, "j", std, 0, "123")
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		begun := time.Now()
		size, err := s.Wait(ctx, home, "j", std, 3)
		if size != 3 || err != nil || time.Since(begun) != 20*time.Second {
			t.Errorf("Wait = %d, %v after %v; want 3 after 20 s", size, err, time.Since(begun))
		}
		if len(s.more) > 0 {
			t.Errorf("%d logs are still waited for", len(s.more))
		}
	})
}

func TestManyFollowersMissNothing(t *testing.T) {
	s, _ := open(t)
	const lines = 300
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for at := int64(0); at < lines; {
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				size, err := s.Wait(ctx, home, "j", std, at)
				cancel()
				if err != nil || size <= at {
					t.Errorf("Wait beyond %d = %d, %v", at, size, err)
					return
				}
				at = size
			}
		})
	}
	for i := range lines {
		say(t, s, "j", std, int64(i), "x")
	}
	wg.Wait()
}
