package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

func TestStampIsTheTimeThatBashPrints(t *testing.T) {
	if at, err := stamp("1795255884.062686\n"); err != nil || !at.Equal(time.UnixMicro(1795255884062686)) {
		t.Errorf("%v (%v)", at, err)
	}
	for _, text := range []string{"", "$EPOCHREALTIME\n", "1795255884\n"} { // no process, a shell that is not bash
		if at, err := stamp(text); err == nil {
			t.Errorf("%q is %v", text, at)
		}
	}
}

func TestAtOnceDoesAllAndTellsWhatFailed(t *testing.T) {
	var did atomic.Int64
	if err := atOnce(100, func(int) error { did.Add(1); return nil }); err != nil || did.Load() != 100 {
		t.Errorf("%d of 100 (%v)", did.Load(), err)
	}
	broken := errors.New("broken")
	if err := atOnce(100, func(i int) error {
		if i == 50 {
			return broken
		}
		return nil
	}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestEnginesThatAreNotThereAreNamed(t *testing.T) {
	for _, e := range engines() {
		t.Setenv(e.env, "")
	}
	rows, leftOut, err := beside(t.Context(), "no-program", "", "")
	if err != nil || len(rows) > 0 || len(leftOut) != len(engines()) {
		t.Fatalf("%v, %v (%v)", rows, leftOut, err)
	}
	text := besides(rows, leftOut)
	for _, e := range engines() {
		if !strings.Contains(text, "Left out: "+e.name) {
			t.Errorf("%s is not named in %s", e.name, text)
		}
	}
}

func TestExportSetsWhatAScriptPrints(t *testing.T) {
	t.Setenv("TRAINYARD_BENCH_TRY", "before")
	if _, err := export("noise\nexport TRAINYARD_BENCH_TRY=/a=b\n"); err != nil || os.Getenv("TRAINYARD_BENCH_TRY") != "/a=b" {
		t.Errorf("%q (%v)", os.Getenv("TRAINYARD_BENCH_TRY"), err)
	}
}

func TestAFailedRequestIsNoFigure(t *testing.T) {
	good := `{"requests":1000,"micros":2000000,"p50":100,"p99":900,"connect":0,"read":0,"write":0,"status":0,"timeout":0}`
	if l, err := readLoad("Running 2s test\n" + good + "\n"); err != nil || l.rate() != 500 || l.P99 != 900 {
		t.Errorf("%+v (%v)", l, err)
	}
	for _, out := range []string{"unable to connect", strings.Replace(good, `"read":0`, `"read":1`, 1), strings.Replace(good, "1000", "0", 1)} {
		if l, err := readLoad(out); err == nil {
			t.Errorf("%q is %+v", out, l)
		}
	}
}

func TestAStartIsSplitByItsTimeline(t *testing.T) {
	at := time.Unix(1000, 0)
	span := func(name string, from, to int) trainyard.Span {
		return trainyard.Span{Name: name, Start: at.Add(time.Duration(from) * time.Millisecond), End: at.Add(time.Duration(to) * time.Millisecond)}
	}
	j := &replicaJob{}
	j.Properties.Timeline = []trainyard.Span{span(trainyard.SpanQueue, 2, 5), span(trainyard.SpanNode, 5, 10), span(trainyard.SpanCode, 10, 11), span(trainyard.SpanData, 11, 14),
		span(trainyard.SpanEnvironment, 14, 20), span(trainyard.SpanStart, 20, 32), span(trainyard.SpanUser, 32, 5000)}
	want := []int{2, 8, 4, 6, 12, 68}
	for i, p := range split(j, "held", at, at.Add(100*time.Millisecond)) {
		if p.took != time.Duration(want[i])*time.Millisecond {
			t.Errorf("%s took %s, want %d ms", p.name, p.took, want[i])
		}
	}
}

func TestOneEnginesRowsTakeThePlaceOfItsOwn(t *testing.T) {
	row := func(through string, times int) pair {
		return pair{through: through, what: "w", plain: "p", ours: "o", more: fmt.Sprint(times), limits: "l"}
	}
	page := besides([]pair{row("Docker", 1), row("Slurm, attached", 2), row("Slurm, attached", 3), row("Kubernetes", 4)}, nil)
	got, err := renewed(page, []pair{row("Slurm, attached", 5), row("Slurm, attached", 6)})
	want := besides([]pair{row("Docker", 1), row("Slurm, attached", 5), row("Slurm, attached", 6), row("Kubernetes", 4)}, nil)
	if err != nil || got != want {
		t.Errorf("%v:\n%s", err, got)
	}
	crowd := row("Slurm, attached, 9 CPUs in name", 7)
	crowd.crowded = true
	page = besides([]pair{row("Slurm, attached", 2), row("Kubernetes", 4), crowd}, nil)
	crowd.more = "8"
	got, err = renewed(page, []pair{row("Slurm, attached", 5), crowd})
	if want := besides([]pair{row("Slurm, attached", 5), row("Kubernetes", 4), crowd}, nil); err != nil || got != want {
		t.Errorf("%v:\n%s", err, got)
	}
	if asked, more, found := strings.Cut(got, "### Where jobs are more than processors"); !found || strings.Contains(asked, "9 CPUs in name") || strings.Contains(more, "| Kubernetes") {
		t.Errorf("rows of crowded engines are not by themselves:\n%s", got)
	}
	if _, err := renewed(page, nil); err == nil {
		t.Error("a page was renewed with nothing")
	}
	crowd.more = "7" // as the page has it
	attached, pilots, other := row("Slurm, attached", 5), row("Slurm, pilot nodes", 6), crowd
	other.through, other.more = "Slurm, pilot nodes, 9 CPUs in name", "9 (8 to 10)"
	more := []pair{attached, pilots, pilots, crowd, other}
	if got, err := renewed(page, more); err != nil || got != besides([]pair{attached, pilots, pilots, row("Kubernetes", 4), crowd, other}, nil) {
		t.Errorf("rows that the page had not are not behind those of their engine (%v):\n%s", err, got)
	}
	lacking := besides([]pair{row("Slurm, attached", 2), row("Kubernetes", 4)}, []string{"Slurm, pilot nodes: they are not there"})
	for _, bad := range []struct {
		page string
		rows []pair
	}{{page, more[1:]}, {lacking, more[:2]}} {
		if _, err := renewed(bad.page, bad.rows); err == nil || !strings.Contains(err.Error(), "Slurm, pilot nodes") {
			t.Errorf("rows were put in a place that nobody knows: %v", err)
		}
	}
	if got, err := renewed(besides([]pair{row("Docker", 1), row(crowd.through, 7)}, []string{"Kubernetes: it is not there"}), []pair{crowd}); err != nil ||
		got != besides([]pair{row("Docker", 1), crowd}, []string{"Kubernetes: it is not there"}) {
		t.Errorf("a row of a crowded engine is not where it belongs (%v):\n%s", err, got)
	}
	again := besides([]pair{row("Docker", 1), row("Kubernetes", 4)}, []string{"Podman: it is not there", "Slurm, broken off: it was there and then it was not"})
	if got, err := renewed(again, []pair{attached, pilots, pilots, crowd}, "Slurm"); err != nil ||
		got != besides([]pair{row("Docker", 1), row("Kubernetes", 4), attached, pilots, pilots, crowd}, []string{"Podman: it is not there"}) {
		t.Errorf("an engine that was left out is not there (%v):\n%s", err, got)
	}
	for _, bad := range []string{strings.Replace(page, measuredToday(), "Measured on 2020-01-01.", 1), besides([]pair{row("Docker", 1)}, nil)} {
		if _, err := renewed(bad, []pair{row("Slurm, attached", 5)}); err == nil || !strings.Contains(err.Error(), "-only engines") {
			t.Errorf("rows went into a page where they do not belong: %v", err)
		}
	}
}

func TestHowMuchRoundsDifferIsTold(t *testing.T) {
	var plain, ours []cost
	for i, times := range []int{9, 1, 2, 8, 3, 4, 7, 5, 6} {
		engine := time.Duration(i+1) * time.Second // which is as quick in no two rounds
		plain = append(plain, cost{took: engine})
		ours = append(ours, cost{took: time.Duration(times) * engine})
	}
	if got := byRound(ours, plain); got != "5.00 (3.00 to 7.00)" {
		t.Errorf("of 1 to 9 times the median and the middle half are %s", got)
	}
	if got := byRound(ours[:1], plain); got != "9.00 (9.00 to 9.00)" {
		t.Errorf("of one round it is %s", got)
	}
}

func TestEachSideHasItsOwnFigures(t *testing.T) {
	took := func(seconds int) []cost { return []cost{{took: time.Duration(seconds) * time.Second}} }
	e := &engine{where: ", here", starts: 1, jobs: 1, rounds: 1, work: nothing}
	ours := []entrant{{name: "a", startLimit: "s"}, {name: "b"}, {name: "c", startLimit: "s"}}
	var got []string
	for _, r := range e.rows(ours, [][]cost{took(1), took(2), took(3)}, [][]cost{took(10), took(40), took(50), took(60)}) {
		got = append(got, r.through+" "+r.more)
	}
	want := []string{"a, here 2.00", "a, here 4.00 (4.00 to 4.00)", "b, here 5.00 (5.00 to 5.00)", "c, here 3.00", "c, here 6.00 (6.00 to 6.00)"}
	if !slices.Equal(got, want) {
		t.Errorf("rows %q", got)
	}
}

func TestWithoutAPartOfTheEnginesNothingIsMeasuredThatWouldLeaveIt(t *testing.T) {
	out := filepath.Join(t.TempDir(), "page.md")
	for _, there := range []string{"", "# Benchmarks\n"} {
		if there != "" {
			if err := os.WriteFile(out, []byte(there), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := run(t.Context(), "no program", out, "", onlyItself, 1, 1); err == nil || !strings.Contains(err.Error(), "has no part of the engines") {
			t.Errorf("of %q it says %v", there, err)
		}
		if now, _ := os.ReadFile(out); string(now) != there {
			t.Errorf("%q became %q", there, now)
		}
	}
}

func TestEnginesAreAskedForByNameOrKind(t *testing.T) {
	for only, want := range map[string]int{"": 6, onlyEngines: 6, "docker": 1, "Docker": 1, "slurm": 4, "SLURM": 4, "Slurm": 1, "Slurm with 16 CPUs in name": 1, "slrum": 0} {
		n := 0
		for _, e := range engines() {
			if e.meant(only) {
				n++
			}
		}
		if n != want {
			t.Errorf("-only %q means %d engines", only, n)
		}
	}
}

func TestEnginesWithMoreCPUsInNameAreCrowded(t *testing.T) {
	for n, want := range map[int]bool{0: false, 1: false, runtime.NumCPU(): false, runtime.NumCPU() + 1: true, 1 << 20: true} {
		if got := (&engine{named: n}).crowded(); got != want {
			t.Errorf("with %d in name: %v", n, got)
		}
	}
}

func TestWhatIsMeasuredBeginsAtEveryTimeOfTheClock(t *testing.T) {
	e := engine{spread: time.Second}
	const rounds, parts = 100, 10
	var begun [parts]int
	now := time.Unix(1000, 123456789)
	for round := range rounds {
		var first time.Duration // of the clock
		for side := range 3 {
			p := e.pause(round, now)
			if p < 0 || p > e.spread {
				t.Errorf("round %d: a pause of %s", round, p)
			}
			now = now.Add(p)
			at := time.Duration(now.Nanosecond())
			if side == 0 {
				first = at
				begun[at*parts/time.Second]++
			} else if at != first {
				t.Errorf("round %d: one side begins at %s of the clock, another at %s", round, first, at)
			}
			now = now.Add(time.Duration(round*100+side*37) * time.Millisecond) // what it did
		}
	}
	for part, n := range begun {
		if n < rounds/parts/2 || n > rounds/parts*2 {
			t.Errorf("%d of %d rounds begin in part %d of %d of the clock", n, rounds, part, parts)
		}
	}
	if p := (&engine{}).pause(3, now); p != 0 {
		t.Errorf("without a clock the pause is %s", p)
	}
}

func TestTheLeastServerNotesAJobBeforeItAnswers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	side, dir := tryLeastServer(t)
	journal := func() string {
		data, err := os.ReadFile(filepath.Join(dir, "journal"))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	const jobs = 20
	took, err := side.all(ctx, "try", jobs, func(one string) error {
		err := side.ask(ctx, http.MethodPost, one, ": >"+dir+"/ran-$$")
		if !strings.Contains(journal(), `"`+one+`"`) {
			t.Errorf("%s was taken and is not in the journal", one)
		}
		return err
	})
	if err != nil || took <= 0 {
		t.Fatalf("%s (%v)", took, err)
	}
	if ran, _ := filepath.Glob(filepath.Join(dir, "ran-*")); len(ran) != jobs {
		t.Errorf("%d of %d ran", len(ran), jobs)
	}
	// Each is noted when it is taken, when it has a number, and when it is over.
	if err := until(ctx, lookEvery, func() bool { return strings.Count(journal(), "\n") >= 3*jobs }); err != nil {
		t.Fatalf("%v: %s", err, journal())
	}
	if text := journal(); strings.Count(text, "\n") != 3*jobs || strings.Count(text, `"Number":""`) != jobs {
		t.Errorf("%d jobs are noted as\n%s", jobs, text)
	}
}

// tryLeastServer is a least server and its folder; in the place of Slurm a batch script is run at once, and its number is that of its process.
func tryLeastServer(t *testing.T) (throughLeast, string) {
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"sbatch": "#!/bin/bash\nbash >/dev/null 2>&1\necho $$\n", "least": "#!/bin/bash\nbash -c \"$1\" && : >\"$2\"\n"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), asChild+"=1")
	log := filepath.Join(dir, "log")
	served, err := begin(t.Context(), env, log, self, "least-server", "127.0.0.1:0", "slurm.conf", dir, filepath.Join(bin, "least"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(served.end)
	return newThroughLeast(sbatch{dir: dir}, served.first, log), dir
}

func TestWhatTheLeastServerDiedOfIsTold(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	side, dir := tryLeastServer(t)
	if err := os.WriteFile(filepath.Join(dir, "bin", "sbatch"), []byte("#!/bin/bash\necho no more jobs\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := side.many(ctx, "try", nothing, 1); err == nil || !strings.Contains(err.Error(), "no more jobs") || ctx.Err() != nil {
		t.Errorf("got %v (%v)", err, ctx.Err())
	}
}

// asChild has the test program be the bench's own child.
const asChild = "TRAINYARD_BENCH_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(asChild) == "" {
		os.Exit(m.Run())
	}
	if ok, err := child(os.Args); !ok || err != nil {
		log.Fatal(ok, err)
	}
}
