package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trainyard/trainyard/internal/rightsize"
)

// hungryScript is a model of 200 MB that thinks for 5 ms. When it is loaded for the second time it takes all the memory that it can get.
const hungryScript = `
import os, time

def touch(mb):
    ballast = bytearray(mb << 20)
    for i in range(0, len(ballast), 4096):
        ballast[i] = 1
    return ballast

def init():
    global ballast
    with open(os.environ["LOADS"], "a+") as f:
        f.write("x")
        f.seek(0)
        loads = len(f.read())
    ballast = touch(5000 if loads == 2 else 200)

def run(data):
    end = time.process_time() + 0.005
    while time.process_time() < end:
        pass
    return {"ok": True}
`

// separately runs a command and returns what it printed on each stream, and how it ended.
func (l *lab) separately(started func(*exec.Cmd), args ...string) (out, note string, err error) {
	l.t.Helper()
	cmd := exec.Command(l.bin, args...)
	var o, e bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = l.env(), &o, &e
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	if started != nil {
		started(cmd)
	}
	err = cmd.Wait()
	return o.String(), e.String(), err
}

// The right size has room for the model, is not one that ran out of memory, and does what is said of it.
func TestTheRightSizeOfAModel(t *testing.T) {
	l := newLab(t)
	l.file("src/score.py", hungryScript)
	sample := l.file("sample.json", `{"data": [1]}`)
	dep := l.file("blue.yml", `
name: blue
endpoint_name: whichever
code_configuration: {code: src, scoring_script: score.py}
environment:
  image: python:3.11
  conda_file: {dependencies: [python, pip, {pip: [azureml-inference-server-http]}]}
instance_type: Standard_F2s_v2
request_settings: {request_timeout_ms: 60000, max_queue_wait_ms: 60000}
environment_variables: {LOADS: `+l.file("loads", "")+`}
`)
	svg := l.file("plot.svg", "")
	out, note, err := l.separately(nil, "model", "profile", "--file", dep, "--request-file", sample, "--rate", "4", "--p99", "40s", "--duration", "500ms", "--max-concurrency", "2",
		"--sizes", "Standard_D2s_v3,standard_ds1_v2,Standard_D64s_v3", "--plot", svg, "-o", "json")
	if err != nil {
		t.Fatalf("%v\n%s%s", err, note, out)
	}
	var r profileReport
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	want := map[string]rightsize.Outcome{"Standard_DS1_v2": rightsize.OutOfMemory, "Standard_D2s_v3": rightsize.Measured, "Standard_D64s_v3": rightsize.NotHere}
	var used int64
	for _, s := range r.Sizes {
		if s.Outcome != want[s.Name] {
			t.Errorf("%s is %q, want %q: %s", s.Name, s.Outcome, want[s.Name], s.Why)
		}
		delete(want, s.Name)
		used = max(used, s.PeakMB)
	}
	if len(want) > 0 {
		t.Errorf("%v are not in the table", want)
	}
	if !strings.Contains(note, "Standard_DS1_v2 is out of memory") {
		t.Errorf("that a size ran out of memory is not said:\n%s", note)
	}
	rec, size := r.Recommendation, 8*1024.0
	switch {
	case rec == nil || rec.Size != "Standard_D2s_v3" || rec.Instances < 1 || rec.PricePerHour <= 0:
		t.Fatalf("%+v is recommended", rec)
	case used < 200 || r.NeedMB < used || float64(r.WantMB) < 1.5*float64(r.NeedMB) || size < float64(r.WantMB):
		t.Errorf("needs %d MB, wants %d MB, was seen to use %d MB", r.NeedMB, r.WantMB, used)
	}
	if v := r.Verification; v == nil || v.Failed > 0 || v.Requests < 2 || v.Size != rec.Size {
		t.Errorf("the verification is %+v", v)
	}
	l.noEndpoint(note)
	l.plotOf(svg, rec.Size)

	t.Run("leaves nothing behind when it is interrupted", func(t *testing.T) {
		l := l.in(t)
		_, note, err := l.separately(func(cmd *exec.Cmd) {
			l.wait("the temporary endpoint is there", func() bool {
				return strings.HasPrefix(l.cli("online-endpoint", "list", "--query", "[].name", "-o", "tsv"), "profile-")
			})
			_ = cmd.Process.Signal(syscall.SIGINT)
		}, "model", "profile", "--file", dep, "--request-file", sample)
		var end *exec.ExitError
		if !errors.As(err, &end) || end.ExitCode() != 130 {
			t.Errorf("it ended with %v:\n%s", err, note)
		}
		l.noEndpoint(note)
	})
}

// noEndpoint wants the temporary endpoint to be gone.
func (l *lab) noEndpoint(note string) {
	l.t.Helper()
	if left := l.cli("online-endpoint", "list", "--query", "[].name", "-o", "tsv"); left != "" {
		l.t.Errorf("%s is left behind:\n%s", left, note)
	}
}

// plotOf wants an SVG that names a size.
func (l *lab) plotOf(file, size string) {
	l.t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		l.t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(data))
	root := ""
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			l.t.Fatalf("the plot is not XML: %v", err)
		}
		if e, ok := tok.(xml.StartElement); ok && root == "" {
			root = e.Name.Local
		}
	}
	if root != "svg" || !bytes.Contains(data, []byte(size+" ← recommended")) {
		l.t.Errorf("the plot is\n%s", data)
	}
}

// What is shown to people names the sizes, what they did and what to write into the file.
func TestAProfileInWords(t *testing.T) {
	var out bytes.Buffer
	a := &app{console: &console{out: &out, err: &out, now: time.Now}}
	at := func(n int, rate, p99 float64) rightsize.Point {
		return rightsize.Point{Concurrency: n, Load: rightsize.Load{Requests: 50, PerSecond: rate, P50MS: p99 / 2, P95MS: p99 / 1.2, P99MS: p99}}
	}
	small := rightsize.Size{Name: "Standard_DS1_v2", VCPUs: 1, MemoryGB: 3.5, PricePerHour: 0.073}
	large := rightsize.Size{Name: "Standard_D2_v3", VCPUs: 2, MemoryGB: 8, PricePerHour: 0.096}
	p := &profiler{app: a, rep: profileReport{Goal: rightsize.Goal{Rate: 100, P99MS: 100}, NeedMB: 300, WantMB: 450, Sizes: []rightsize.Trial{
		{Size: small, Outcome: rightsize.Measured, PeakMB: 290, Points: []rightsize.Point{at(1, 20, 120), at(2, 21, 240)}},
		{Size: large, Outcome: rightsize.Measured, PeakMB: 300, Points: []rightsize.Point{at(1, 40, 30), at(2, 60, 50), at(4, 61, 180)}},
		{Size: rightsize.Size{Name: "Standard_D64_v3", VCPUs: 64, MemoryGB: 256}, Outcome: rightsize.NotHere, Why: "it has 64 vCPUs and this machine 2"},
	}}}
	rec, err := rightsize.Recommend(p.rep.Sizes, p.rep.Goal, p.rep.NeedMB)
	if err != nil {
		t.Fatal(err)
	}
	p.rep.Recommendation = &rec
	p.rep.Verification = &verification{Held: true, Size: rec.Size, Instances: 1, Rate: 33.3, Share: true, Load: rightsize.Load{Requests: 100, Seconds: 3, P99MS: 44}}
	p.detail()
	has(t, out.String(), "needs 300 MB of memory; 150 % of that is 450 MB", "misses the goal", "not here: it has 64 vCPUs and this machine 2", "┄┄┄", "A Standard_DS1_v2", "B Standard_D2_v3",
		"Recommended: 3 × Standard_D2_v3, $0.288 an hour", "instance_type: Standard_D2_v3, instance_count: 3", "✓ it holds: 33.3 requests/s for 3 s on 1 instance",
		"→  Standard_D2_v3")
	out.Reset()
	p.rep.Sizes[0].Name = "<a&b>"
	if err := writePlot(&out, p.rep.Sizes, p.rep.Goal, rec.Size); err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal(out.Bytes(), new(struct{})); err != nil {
		t.Errorf("the plot is not XML: %v", err)
	}
	has(t, out.String(), "&lt;a&amp;b&gt;", "wanted: 100 ms", "Standard_D2_v3 ← recommended")
	if got := chart(nil, rightsize.Goal{}, 80); got != "" {
		t.Errorf("a chart of nothing is %q", got)
	}
}
