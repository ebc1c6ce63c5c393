package studio

import (
	"context"
	"html/template"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// jobEvery is how often a job's page is drawn anew while the job lives: its timeline grows, and places in queues change.
const jobEvery = 2 * time.Second

// followNone asks a job's stream for no log: the page shows a part that does not grow.
const followNone = "none"

// logView is the log on a job's page.
type logView struct {
	Tabs       []logTab
	Name       string
	At         string        // id of the place from which to follow
	Done, Open template.HTML // from screen, which escapes
	Start, End int64         // bytes of the log that are shown
	Tools      logTools
	Earlier    string // address of the part before this
	Latest     string // address of the end, if this is not it
	Fixed      bool   // a part from the middle, which does not grow
	Empty      string
}

// logTools are what can be done with a whole log; empty as long as there is none.
type logTools struct{ Size, Raw, Save string }

type logTab struct {
	Name, URL, Size string
	Chosen          bool
}

// logView reads the last window of the log that the visitor asked for, or the window before the offset "end".
func (d *door) logView(v *visit, j *trainyard.Job) (logView, error) {
	files, err := d.Logs.LogFiles(v.Context(), v.scope, j.Name)
	if err != nil {
		return logView{}, err
	}
	q := v.URL.Query()
	name := q.Get("log")
	switch {
	case name == "":
		name = chooseLog(j, files)
	case !isLog(name):
		return logView{}, trainyard.NotFound("job %q has no log %q", j.Name, name)
	}
	w := logView{Name: name, Tabs: tabsOf(v, j.Name, files, name)}
	i := slices.IndexFunc(files, func(f trainyard.BlobInfo) bool { return f.Key == name })
	if i < 0 {
		if q.Get("log") != "" && j.Status.State.Terminal() {
			return w, trainyard.NotFound("job %q has no log %q", j.Name, name)
		}
		w.At, w.Empty = logID(name, 0), emptyLog(j)
		return w, nil
	}
	last := files[i].Size
	if s := q.Get("end"); s != "" {
		end, err := strconv.ParseInt(s, 10, 64)
		if err != nil || end < 0 {
			return w, trainyard.Invalid("end=%s: want an offset in bytes", s)
		}
		w.Fixed = end < last
		last = min(last, end)
	}
	if err := d.fillLog(v, j, &w, last); err != nil {
		return w, err
	}
	w.Tools = toolsOf(v, j.Name, files, name)
	if w.Fixed {
		w.Latest = v.jobLink(j.Name, "log", name) + "#log"
	}
	if w.Start > 0 {
		w.Earlier = v.jobLink(j.Name, "log", name, "end", strconv.FormatInt(w.Start, 10)) + "#log"
	}
	return w, nil
}

// isLog says whether a log can have the name.
func isLog(name string) bool {
	folder, _, _ := strings.Cut(name, "/")
	return fs.ValidPath(name) && slices.Contains(logFolders, folder) && folder != name
}

func (d *door) fillLog(v *visit, j *trainyard.Job, w *logView, last int64) error {
	s, err := d.tail(v.Context(), v.scope, j.Name, w.Name, max(last-window, 0))
	if err != nil {
		return err
	}
	most := last - s.at
	if !w.Fixed {
		most = 2 * window // what came since its size was asked for too
	}
	w.Start = s.at
	data, err := d.readLog(v.Context(), v.scope, j.Name, w.Name, s.at, max(most, 0))
	if err != nil {
		return err
	}
	w.Done = template.HTML(s.write(data))
	if w.Fixed || j.Status.State.Terminal() {
		w.Open = template.HTML(s.rest())
	} else {
		w.Open = template.HTML(s.open())
	}
	w.At, w.End = logID(w.Name, s.at), s.at+int64(len(s.line))
	if w.Done == "" && w.Open == "" {
		w.Empty = emptyLog(j)
	}
	return nil
}

func emptyLog(j *trainyard.Job) string {
	switch s := j.Status.State; {
	case s.Terminal():
		return "The job printed nothing."
	case s == trainyard.JobRunning || s == trainyard.JobFinalizing:
		return "The job has printed nothing yet."
	}
	return "The log begins when the job runs."
}

func toolsOf(v *visit, job string, files []trainyard.BlobInfo, name string) logTools {
	for _, f := range files {
		if f.Key == name {
			path := "/jobs/" + escapePath(job) + "/files/" + escapePath(name)
			return logTools{Size: size(f.Size), Raw: v.link(path), Save: v.link(path, "download", "1")}
		}
	}
	return logTools{}
}

// logFolders are the folders of a job's artifacts that hold logs, what the user's processes said first.
var logFolders = []string{"user_logs", "system_logs", "logs"}

// tabsOf lists a job's logs, what the user's processes said first.
func tabsOf(v *visit, job string, files []trainyard.BlobInfo, chosen string) []logTab {
	sorted := slices.Clone(files)
	rank := func(name string) int {
		folder, _, _ := strings.Cut(name, "/")
		return slices.Index(logFolders, folder)
	}
	slices.SortStableFunc(sorted, func(a, b trainyard.BlobInfo) int { return rank(a.Key) - rank(b.Key) })
	var tabs []logTab
	for _, f := range sorted {
		tabs = append(tabs, logTab{f.Key, v.jobLink(job, "log", f.Key) + "#log", size(f.Size), f.Key == chosen})
	}
	return tabs
}

// streamJob keeps a job's page up to date and follows a log: the one that the query names, none, or the one to look at now. A browser that
// comes back gets what came after the last that it has.
func (d *door) streamJob(v *visit) error {
	if _, err := d.Jobs.Job(v.Context(), v.scope, v.PathValue("name")); err != nil {
		return err
	}
	if pinned := v.URL.Query().Get("log"); pinned != "" && pinned != followNone && !isLog(pinned) {
		return trainyard.NotFound("there is no log %q", pinned)
	}
	s, err := openStream(v.w)
	if err != nil {
		return nil
	}
	ctx, stop := context.WithTimeout(v.Context(), streamLife)
	defer stop()
	t := &jobStream{d: d, v: v, s: s, pinned: v.URL.Query().Get("log"), pieces: make(chan piece), ended: make(chan error, 1)}
	for _, id := range []string{v.Header.Get("Last-Event-ID"), v.URL.Query().Get("at")} {
		if name, at, ok := parseLogID(id); ok {
			t.name, t.from = name, at
			break
		}
	}
	defer t.leave()
	if err := t.run(ctx); err != nil {
		return d.broken(v, err)
	}
	return nil
}

// jobStream is one browser's view of one job.
type jobStream struct {
	d      *door
	v      *visit
	s      *stream
	pinned string // log asked for by name; "" for the one to look at now, followNone for none

	name   string // log that is followed, or that the browser has when nothing is followed yet
	from   int64  // how much of it the browser has
	stop   context.CancelFunc
	pieces chan piece
	ended  chan error // of the follower
	done   bool       // the log was sent to its end
	over   bool       // the job was shown in its last state
}

func (t *jobStream) run(ctx context.Context) error {
	key := trainyard.MakeJobKey(t.v.scope, t.v.PathValue("name"))
	w := t.d.watch(jobEvery, func(c trainyard.Change) bool { return slices.Contains(c.Jobs, key) })
	defer w.close()
	for look := true; ; {
		if look {
			if _, err := t.d.session(t.v.Request); err != nil {
				return nil
			}
			if err := t.look(ctx); err != nil {
				return err
			}
		}
		if t.over && (t.done || t.pinned == followNone) {
			return t.s.event("end", "", true)
		}
		look = true
		select {
		case <-ctx.Done():
			return nil
		case <-w.changed:
			pause(ctx, breath/3)
		case <-w.tick.C:
			if err := t.s.beat(); err != nil {
				return err
			}
		case p := <-t.pieces:
			look = false
			t.name, t.from = p.Name, p.next
			if err := t.s.event("log", p.id(), p); err != nil {
				return err
			}
		case err := <-t.ended:
			if t.done = true; err != nil {
				return err
			}
		}
	}
}

// look sends the parts of the page as they are now, and follows another log if another is to be seen.
func (t *jobStream) look(ctx context.Context) error {
	d, v := t.d, t.v
	v.now = d.Now()
	j, err := d.Jobs.Job(ctx, v.scope, v.PathValue("name"))
	if err != nil {
		return err
	}
	job, err := d.jobView(v, j)
	if err != nil {
		return err
	}
	files, err := d.Logs.LogFiles(ctx, v.scope, j.Name)
	if err != nil {
		return err
	}
	if t.pinned != followNone {
		t.follow(ctx, j, files)
	}
	parts := []struct {
		id   string
		data any
	}{{"job-head", job}, {"job-facts", job}, {"job-history", job}, {"log-tabs", tabsOf(v, j.Name, files, t.name)},
		{"log-tools", toolsOf(v, j.Name, files, t.name)}, {"log-note", emptyLog(j)}}
	if t.pinned == followNone {
		parts = parts[:3]
	}
	for _, p := range parts {
		if err := t.send(p.id, p.data); err != nil {
			return err
		}
	}
	if t.over = job.Over; t.over {
		groups, err := d.filesOf(v, j)
		if err != nil {
			return err
		}
		return t.send("job-files", groups)
	}
	return nil
}

func (t *jobStream) send(id string, data any) error {
	html, err := t.d.render(id, data)
	if err != nil {
		return err
	}
	return t.s.part(id, html, t.v.now)
}

// follow begins to follow the log that should be seen, if it is not that already.
func (t *jobStream) follow(ctx context.Context, j *trainyard.Job, files []trainyard.BlobInfo) {
	want := t.pinned
	if want == "" {
		want = chooseLog(j, files)
	}
	if t.stop != nil && want == t.name {
		return
	}
	start := t.from
	if want != t.name {
		start = -1
	}
	t.leave()
	t.name, t.done = want, false
	ctx, t.stop = context.WithCancel(ctx)
	f := &follower{d: t.d, scope: t.v.scope, job: j.Name, name: want, start: start, out: t.pieces}
	ended := make(chan error, 1)
	t.ended = ended
	go func() { ended <- f.run(ctx) }()
}

// leave stops following and waits until nothing of it runs.
func (t *jobStream) leave() {
	if t.stop == nil {
		return
	}
	t.stop()
	if !t.done {
		<-t.ended
	}
	t.stop = nil
}
