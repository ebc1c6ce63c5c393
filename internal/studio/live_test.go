package studio_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

func TestJobsPageFollowsTheJob(t *testing.T) {
	w := newWorld(t)
	w.add("calm_river", trainyard.JobQueued)
	b := w.admin()
	live := b.page("/jobs/calm_river").all(tag("body"))[0].attr("data-live")
	if live != "/studio/live/jobs/calm_river" {
		t.Fatalf("the page's stream is %q", live)
	}
	e := b.stream(live, "")
	e.part("job-head", "Queued", "place 3 in its queue")
	w.change("calm_river", func(j *trainyard.Job) { j.Status.State = trainyard.JobPreparing })
	w.say("calm_river", "system_logs/environment.txt", "building\n")
	var log pane
	log.reads(e, "building\n")
	w.change("calm_river", func(j *trainyard.Job) { j.Status.State = trainyard.JobRunning })
	w.say("calm_river", std, "one\nhalf a l")
	log.reads(e, "one\nhalf a l") // the log that is followed is another one now
	w.say("calm_river", std, "ine\n 5%\r")
	log.reads(e, "one\nhalf a line\n 5%")
	w.say("calm_river", std, "99%\rdone <b>\n")
	log.reads(e, "one\nhalf a line\ndone &lt;b&gt;\n")
	w.say("calm_river", std, "bye")
	w.put(artifacts+"outputs/model.bin", "m")
	w.change("calm_river", func(j *trainyard.Job) {
		j.Status.State, j.Status.Started, j.Status.Ended = trainyard.JobCompleted, start, w.now
	})
	heads, files, last := false, false, pane{}
	last = log
	e.until("the end", func(ev event) bool {
		if ev.name == "log" {
			last.take(t, ev)
		}
		heads = heads || strings.Contains(ev.data, "job-head") && strings.Contains(ev.data, "Completed")
		files = files || strings.Contains(ev.data, "job-files") && strings.Contains(ev.data, "model.bin")
		return ev.name == "end"
	})
	if !heads || !files || last.done+last.open != "one\nhalf a line\ndone &lt;b&gt;\nbye" {
		t.Errorf("at the end: state %v, files %v, log %q", heads, files, last.done+last.open)
	}
	if _, more := <-e.ch; more {
		t.Error("something came after the end")
	}
}

func TestLogGoesOnWhereABrowserWas(t *testing.T) {
	w := newWorld(t)
	w.add("calm_river", trainyard.JobRunning)
	w.say("calm_river", std, "one\ntwo\nthr")
	b := w.admin()
	box := b.page("/jobs/calm_river").id(t, "log")
	if got := box.id(t, "log-text").text(); got != "one\ntwo\nthr" || box.attr("data-at") != std+":8" {
		t.Fatalf("the page has %q up to %q", got, box.attr("data-at"))
	}
	log := pane{done: "one\ntwo\n", open: "thr"}
	e := b.stream("/studio/live/jobs/calm_river?at="+box.attr("data-at"), "")
	w.say("calm_river", std, "ee\nfour\n")
	log.reads(e, "one\ntwo\nthree\nfour\n")
	e.stop()
	w.say("calm_river", std, "five\nsix")
	e = b.stream("/studio/live/jobs/calm_river?at="+box.attr("data-at"), log.id) // EventSource repeats its address and adds what it had
	log.reads(e, "one\ntwo\nthree\nfour\nfive\nsix")
	if log.resets > 0 {
		t.Errorf("what was there was sent again %d times", log.resets)
	}
	for _, id := range []string{"nonsense", "user_logs/std_log.txt:-5", "user_logs/std_log.txt:x", ":", "../../secret:0"} {
		var fresh pane
		e := b.stream("/studio/live/jobs/calm_river", id)
		fresh.reads(e, "one\ntwo\nthree\nfour\nfive\nsix")
		e.stop()
	}
}

func TestPinnedLog(t *testing.T) {
	w := newWorld(t)
	w.add("calm_river", trainyard.JobRunning)
	w.say("calm_river", std, "user\n")
	w.say("calm_river", "system_logs/environment.txt", "system\n")
	b := w.admin()
	page := b.page("/jobs/calm_river?log=system_logs/environment.txt")
	if got := page.id(t, "log-text").text(); got != "system\n" {
		t.Errorf("%q", got)
	}
	tabs := page.id(t, "log-tabs").all(tag("a"))
	if len(tabs) != 2 || !strings.HasPrefix(tabs[0].words(), std) || tabs[1].attr("aria-current") != "true" {
		t.Errorf("%d tabs", len(tabs))
	}
	var log pane
	e := b.stream(page.all(tag("body"))[0].attr("data-live"), "")
	log.reads(e, "system\n")
	w.say("calm_river", std, "more\n")
	w.say("calm_river", "system_logs/environment.txt", "again\n")
	log.reads(e, "system\nagain\n")
	for _, name := range []string{"../secret", "outputs/model", "user_logs", "user_logs/../../x", "/etc/passwd"} {
		for _, path := range []string{"/jobs/calm_river?log=", "/studio/live/jobs/calm_river?log="} {
			if a := b.get(path + name); a.StatusCode != http.StatusNotFound {
				t.Errorf("a log that is none: %s%s: %s", path, name, a.Status)
			}
		}
	}
}

// numbered is a log of lines with numbers, at least size bytes long.
func numbered(from, size int) string {
	var b strings.Builder
	for i := from; b.Len() < size; i++ {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

func TestBigLogComesInParts(t *testing.T) {
	w := newWorld(t)
	w.add("calm_river", trainyard.JobCompleted)
	all := numbered(0, 900<<10)
	w.say("calm_river", std, all)
	b := w.admin()
	got, path := "", "/jobs/calm_river"
	for parts := 0; path != ""; parts++ {
		page := b.page(path)
		text := page.id(t, "log-text").text()
		if len(text) > 256<<10 || parts > 5 {
			t.Fatalf("part %d has %d bytes", parts, len(text))
		}
		got = text + got
		path = page.link("Load earlier")
		if latest := page.link("To the end of the log"); (latest != "") != (parts > 0) {
			t.Errorf("part %d leads to the end by %q", parts, latest)
		}
		path, _, _ = strings.Cut(path, "#")
	}
	if got != all {
		t.Errorf("the parts together have %d bytes of %d", len(got), len(all))
	}
	raw := b.page("/jobs/calm_river").link("Raw")
	if a := b.get(raw); a.body != all {
		t.Errorf("the whole log, at %q, has %d bytes", raw, len(a.body))
	}
	if a := b.get("/jobs/calm_river?log=" + std + "&end=-1"); a.StatusCode != http.StatusBadRequest {
		t.Errorf("end=-1: %s", a.Status)
	}
}

func TestFastLogIsNotWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.add("calm_river", trainyard.JobRunning)
	w.say("calm_river", std, "first\n")
	e := w.admin().stream("/studio/live/jobs/calm_river", "")
	var log pane
	log.reads(e, "first\n")
	flood := numbered(0, 2<<20)
	w.say("calm_river", std, flood)
	e.until("the end of the flood", func(ev event) bool {
		if ev.name == "log" {
			log.take(t, ev)
		}
		return strings.HasSuffix(flood, log.done) && strings.HasSuffix(log.done, flood[len(flood)-20:])
	})
	if log.start == 0 || len(log.done) > 512<<10 {
		t.Errorf("%d bytes were sent, from %d on", len(log.done), log.start)
	}
}

func TestListFollowsJobs(t *testing.T) {
	w := newWorld(t)
	w.add("old_one", trainyard.JobCompleted)
	b := w.admin()
	live := b.page("/jobs?state=Running").all(tag("body"))[0].attr("data-live")
	e := b.stream(live, "")
	e.part("jobs-list", "No job matches.")
	w.add("calm_river", trainyard.JobRunning)
	e.part("jobs-list", "Train calm_river", "Running")
	w.change("calm_river", func(j *trainyard.Job) { j.Status.State = trainyard.JobCompleted })
	e.part("jobs-list", "No job matches.")
}

func TestComputesFollowNodes(t *testing.T) {
	w := newWorld(t)
	w.addCluster()
	b := w.admin()
	for page, part := range map[string]string{"/computes": "computes-list", "/computes/cpu-cluster": "compute-live"} {
		e := b.stream(b.page(page).all(tag("body"))[0].attr("data-live"), "")
		e.part(part, "3 nodes")
		w.mu.Lock()
		kept := w.nodes["cpu-cluster"]
		w.nodes["cpu-cluster"] = kept[:1]
		w.mu.Unlock()
		w.tell(trainyard.Change{Nodes: []trainyard.NodeID{"n-2"}})
		e.part(part, "1 node")
		w.mu.Lock()
		w.nodes["cpu-cluster"] = kept
		w.mu.Unlock()
		e.stop()
	}
}

func TestLogoutEndsStreams(t *testing.T) {
	w := newWorld(t)
	w.add("calm_river", trainyard.JobRunning)
	b := w.admin()
	streams := []*events{b.stream("/studio/live/jobs", ""), b.stream("/studio/live/jobs/calm_river", "")}
	streams[0].part("jobs-list", "calm_river")
	streams[1].part("job-head", "calm_river")
	b.post("/studio/logout", nil)
	w.change("calm_river", func(j *trainyard.Job) { j.Spec.DisplayName = "another" })
	for i, e := range streams {
		late := time.After(patience)
		for open := true; open; {
			select {
			case ev, more := <-e.ch:
				if open = more; strings.Contains(ev.data, "another") {
					t.Errorf("stream %d told something after the logout", i)
				}
			case <-late:
				t.Fatalf("stream %d goes on", i)
			}
		}
	}
}

func TestStreamOfNothing(t *testing.T) {
	b := newWorld(t).admin()
	if a := b.get("/studio/live/jobs/nothing"); a.StatusCode != http.StatusNotFound {
		t.Errorf("%s", a.Status)
	}
}
