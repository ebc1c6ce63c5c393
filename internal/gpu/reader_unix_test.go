//go:build unix

package gpu_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/gpu"
	"github.com/trainyard/trainyard/internal/gpu/gputest"
)

// longest is for machines that are very busy. What must not wait for nvidia-smi is compared with how long it hangs, or is waited for.
const longest = 5 * time.Minute

// until asks again and again until the answer is as wanted.
func until(t *testing.T, r *gpu.Reader, visible string, want float64, words string) {
	t.Helper()
	late := time.After(longest)
	for {
		percent, why := r.Use(visible)
		if value(percent) == want && strings.Contains(why, words) {
			return
		}
		select {
		case <-late:
			t.Fatalf("%v %q, want %v %q", value(percent), why, want, words)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestAReadingIsShared(t *testing.T) {
	smi := gputest.Here(t)
	smi.Set("80", "20")
	once := gpu.Reader{Again: time.Hour}
	defer once.Close()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { once.Use("") })
	}
	all.Wait()
	if _, err := once.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	once.Use("")
	if n := len(smi.Asked()); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
	var r gpu.Reader
	defer r.Close()
	until(t, &r, "0", 80, "")
	until(t, &r, "1", 20, "")
	smi.Set("10", "30")
	until(t, &r, "", 20, "")
	smi.Break()
	until(t, &r, "", -1, "couldn't communicate with the NVIDIA driver")
}

func TestThisProcessMayBeGivenSomeGPUsOnly(t *testing.T) {
	gputest.Here(t).Set("80", "20", "30")
	var r gpu.Reader
	defer r.Close()
	for value, want := range map[string]string{"all": "0 1 2", "2": "2", "": "", gpu.None: "", "MIG-a,MIG-b": "MIG-a MIG-b"} {
		if t.Setenv(gpu.VisibleVariable, value); value == "all" {
			os.Unsetenv(gpu.VisibleVariable)
		}
		if all, err := r.List(t.Context()); err != nil || strings.Join(gpu.Names(all), " ") != want {
			t.Errorf("with %q it has %+v, %v", value, all, err)
		}
	}
}

func TestWithoutTheProgramThereAreNoGPUs(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var r gpu.Reader
	if all, err := r.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("there are %+v, %v", all, err)
	}
	if percent, why := r.Use(""); percent != nil || why != "there is no nvidia-smi" {
		t.Errorf("%v %q", percent, why)
	}
}

func TestWithoutADriverThereAreNoGPUs(t *testing.T) {
	gputest.Here(t).Break()
	var r gpu.Reader
	defer r.Close()
	if all, err := r.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("there are %+v, %v", all, err)
	}
}

// Where nothing keeps the driver awake, the first answer of a computer with many GPUs takes seconds.
func TestAFirstAnswerThatIsSlowIsWaitedFor(t *testing.T) {
	smi := gputest.Here(t)
	smi.Hang()
	var r gpu.Reader
	defer r.Close()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if all, err := r.List(gone); trainyard.CodeOf(err) != trainyard.CodeBusy {
		t.Errorf("before there is an answer: %+v, %v", all, err)
	}
	wake := time.AfterFunc(2500*time.Millisecond, smi.Wake)
	defer wake.Stop()
	if all, err := r.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("there are %+v, %v", all, err)
	}
}

func TestOneThatHangsHoldsNobodyUp(t *testing.T) {
	smi := gputest.Here(t)
	smi.Hang()
	var r gpu.Reader
	from := time.Now()
	if percent, why := r.Use(""); percent != nil || !strings.Contains(why, "was not heard yet") {
		t.Fatalf("%v %q", percent, why)
	}
	for range 100 {
		r.Use("")
	}
	if took := time.Since(from); took > 30*time.Second { // it hangs for longer
		t.Errorf("to ask took %s", took)
	}
	late := time.After(longest)
	for len(smi.Asked()) == 0 {
		select {
		case <-late:
			t.Fatal("it is not asked")
		case <-time.After(time.Millisecond):
		}
		r.Use("") // the one before may have been killed before it could say so
	}
	r.Close()
	if _, err := r.List(t.Context()); trainyard.CodeOf(err) != trainyard.CodeBusy { // no other is waited for
		t.Errorf("without an answer: %v", err)
	}
	r.Close()
	for _, asked := range smi.Asked() {
		pid, err := strconv.Atoi(asked)
		if err != nil {
			t.Fatal(err)
		}
		for syscall.Kill(pid, 0) != syscall.ESRCH {
			select {
			case <-late:
				t.Fatalf("%d is still there", pid)
			case <-time.After(time.Millisecond):
			}
		}
	}
}
