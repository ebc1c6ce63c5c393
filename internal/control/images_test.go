package control

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// waiter is a server with a compute whose nodes have engines, all of them busy, and what they say of images. Its clock is the test's.
type waiter struct {
	*testing.T
	c     *Control
	comp  *trainyard.Compute
	of    imageOf
	nodes []trainyard.NodeID
	now   time.Time
}

const itsImage = "registry.lab/train:1"

// newWaiter has a cluster of at most high nodes, or, where that is 0, an attached machine. Job waits has an image and no room.
func newWaiter(t *testing.T, high int, nodes ...trainyard.NodeID) *waiter {
	t.Helper()
	w := &waiter{T: t, c: newControl(t), nodes: nodes, now: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)}
	w.c.Config.Now = func() time.Time { return w.now }
	w.comp = putCluster(t, w.c, "lab", 0, max(high, 1), nodes...)
	err := w.c.Store.Update(t.Context(), func(tx *store.Tx) error {
		if high == 0 {
			w.comp.Spec = trainyard.ComputeSpec{ComputeType: "VirtualMachine"}
			if err := tx.PutCompute(w.comp); err != nil {
				return err
			}
		}
		for _, id := range nodes {
			n, err := tx.Node(id)
			if err != nil {
				return err
			}
			n.Engines, n.Epoch = []string{"docker"}, 1
			if err := tx.PutNode(n); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for version, image := range map[string]string{"1": itsImage, "2": "registry.lab/train:2"} {
		env := &trainyard.Resource{Scope: w.comp.Scope, Kind: trainyard.KindEnvironment, Name: "env", Version: version, Properties: json.RawMessage(`{"image":"` + image + `"}`)}
		if _, _, err := w.c.PutResource(t.Context(), anAdmin, env); err != nil {
			t.Fatal(err)
		}
	}
	w.of = imageOf{w.comp.Key(), itsImage}
	for _, id := range nodes {
		w.submit("on-"+string(id), "")
	}
	w.round()
	w.submit("waits", "azureml:env:1")
	w.round()
	return w
}

func (w *waiter) submit(name, env string) {
	w.Helper()
	w.submitTo("lab", name, env)
}

func (w *waiter) submitTo(compute, name, env string) {
	w.Helper()
	j := &trainyard.Job{Scope: w.comp.Scope, Name: name, Spec: trainyard.JobSpec{JobType: "Command", Command: "true", ComputeID: compute, EnvironmentID: env}}
	if _, _, err := w.c.SubmitJob(w.Context(), anAdmin, j); err != nil {
		w.Fatal(err)
	}
}

// remove cancels and deletes a job that waits.
func (w *waiter) remove(name string) {
	w.Helper()
	if err := w.c.CancelJob(w.Context(), anAdmin, w.comp.Scope, name); err != nil {
		w.Fatal(err)
	}
	if err := w.c.DeleteJob(w.Context(), anAdmin, w.comp.Scope, name); err != nil {
		w.Fatal(err)
	}
}

func (w *waiter) round() {
	w.Helper()
	if err := w.c.round(w.Context(), true); err != nil {
		w.Fatal(err)
	}
}

// look has the nodes asked at a later moment, and returns those that were.
func (w *waiter) look() (asked []trainyard.NodeID) {
	w.Helper()
	w.now = w.now.Add(imageAgain)
	if _, err := w.c.askForImage(w.Context(), w.of); err != nil {
		w.Fatal(err)
	}
	for _, id := range w.nodes {
		if slices.Contains(w.c.images.of(id), itsImage) {
			asked = append(asked, id)
		}
	}
	return asked
}

// says has a node answer: "" is that it has the image.
func (w *waiter) says(id trainyard.NodeID, why string, certain bool) {
	w.Helper()
	w.report(id, trainyard.ImageWord{Image: itsImage, Missing: why != "", Certain: certain, Why: why})
}

func (w *waiter) report(id trainyard.NodeID, words ...trainyard.ImageWord) {
	w.Helper()
	if err := w.c.Report(w.Context(), trainyard.Report{Node: id, Epoch: 1, Images: words}); err != nil {
		w.Fatal(err)
	}
}

// job is a job as it is shown.
func (w *waiter) job(name string) *trainyard.Job {
	w.Helper()
	j, err := w.c.Job(w.Context(), w.comp.Scope, name)
	if err != nil {
		w.Fatal(err)
	}
	return j
}

// want checks the state of job waits and the reason that is shown.
func (w *waiter) want(state trainyard.JobState, reason string) {
	w.Helper()
	j := w.job("waits")
	if j.Status.State != state || j.Status.Reason.Message != reason {
		w.Errorf("%s because %q, want %s because %q", j.Status.State, j.Status.Reason.Message, state, reason)
	}
	if n := len(j.Status.Timeline); state == trainyard.JobQueued && n > 0 && j.Status.Timeline[n-1].Note != reason {
		w.Errorf("the timeline says %q", j.Status.Timeline[n-1].Note)
	}
	if len(j.Status.Warnings) > 0 {
		w.Errorf("warnings: %q", j.Status.Warnings)
	}
}

const (
	away = `image "registry.lab/train:1" is not on this node and could not be pulled: no route to host`
	none = `image "registry.lab/train:1" is not on this node and could not be pulled: manifest unknown`
)

func TestAWaitingJobSaysThatItsImageIsOutOfReachForAsLongAsItIs(t *testing.T) {
	w := newWaiter(t, 2, "a", "b")
	full := "lab is at its maximum of 2 nodes; jobs on-a and on-b are there"
	w.want(trainyard.JobQueued, full)
	if asked := w.look(); len(asked) != 2 {
		t.Fatalf("%v were asked", asked)
	}
	w.says("a", away, false)
	w.want(trainyard.JobQueued, full)
	w.says("b", none, true)
	lack := full + "; and none of its 2 nodes can get the image at the moment: node a says: " + away
	w.want(trainyard.JobQueued, lack)
	page, err := w.c.Jobs(t.Context(), trainyard.JobQuery{Scope: w.comp.Scope, States: []trainyard.JobState{trainyard.JobQueued}})
	if err != nil || len(page.Items) != 1 || page.Items[0].Status.Reason.Message != lack {
		t.Errorf("the list: %+v, %v", page.Items, err)
	}

	w.submit("too", "azureml:env:1")
	w.round()
	if got := w.job("too").Status.Reason.Message; got != lack {
		t.Errorf("the next job with the image waits because %q", got)
	}
	if asked := w.look(); len(asked) != 2 {
		t.Errorf("later %v were asked", asked)
	}
	w.want(trainyard.JobQueued, lack)
	w.says("a", "", false)
	w.want(trainyard.JobQueued, full)
	if asked := w.look(); len(asked) != 0 {
		t.Errorf("when it was found %v were asked", asked)
	}
}

// A node whose engine is away does not have the image for that.
func TestANodeThatDoesNotKnowIsAskedAgain(t *testing.T) {
	w := newWaiter(t, 2, "a", "b")
	full := w.job("waits").Status.Reason.Message
	lack := full + "; and none of its 2 nodes can get the image at the moment: node b says: " + away
	unknown := trainyard.ImageWord{Image: itsImage, Unknown: true}
	w.look()
	w.says("a", away, false)
	w.report("b", unknown)
	w.want(trainyard.JobQueued, full)
	if asked := w.c.images.of("b"); len(asked) > 0 {
		t.Errorf("it is asked again at once for %q", asked)
	}
	if asked := w.look(); len(asked) != 2 {
		t.Errorf("later %v were asked", asked)
	}
	w.says("a", away, false)
	w.says("b", away, false)
	w.want(trainyard.JobQueued, lack)
	w.look()
	w.report("a", unknown)
	w.report("b", unknown)
	w.want(trainyard.JobQueued, lack)
	if asked := w.look(); len(asked) != 2 {
		t.Errorf("at last %v were asked", asked)
	}
}

func TestARegistryIsNotAskedMoreOftenForMoreJobs(t *testing.T) {
	w := newWaiter(t, 1, "a")
	w.look()
	w.says("a", away, false)
	for _, name := range []string{"b", "c"} {
		w.submit(name, "azureml:env:1")
		if again, err := w.c.askForImage(t.Context(), w.of); err != nil || again != imageAgain {
			t.Errorf("asked again after %v, %v", again, err)
		}
		if asked := w.c.images.of("a"); len(asked) > 0 {
			t.Errorf("the node is asked for %q", asked)
		}
	}
}

func TestAnotherNodeIsSpokenOfOnlyWhereThereCanBeOne(t *testing.T) {
	for _, tt := range []struct {
		name string
		high int
		more string
	}{
		{"a cluster of one", 1, ""},
		{"a cluster that may grow", 2, "; another node of lab may have it"},
	} {
		w := newWaiter(t, tt.high, "a")
		why := w.job("waits").Status.Reason.Message
		w.look()
		w.says("a", away, false)
		w.want(trainyard.JobQueued, why+"; and the image cannot be had at the moment: node a says: "+away+tt.more)
	}
}

func TestNothingIsSaidOfAnImageWhenNobodyIsThereWhoCouldKnow(t *testing.T) {
	w := newWaiter(t, 1, "a")
	w.look()
	w.says("a", away, false)
	err := w.c.Store.Update(t.Context(), func(tx *store.Tx) error {
		n, err := tx.Node("a")
		if err != nil {
			return err
		}
		n.State = trainyard.NodeUnusable
		return tx.PutNode(n)
	})
	if err != nil {
		t.Fatal(err)
	}
	w.nodes = nil
	w.look()
	w.round()
	if got := w.job("waits").Status.Reason.Message; got == "" || strings.Contains(got, "image") {
		t.Errorf("it waits because %q", got)
	}
}

func TestAJobFailsBeforeItsTurnWhenItsImageIsCertainlyNone(t *testing.T) {
	for _, tt := range []struct {
		name    string
		high    int
		why     string
		certain bool
	}{
		{"a cluster's node that may be followed by others", 2, none, true},
		{"an attached machine's", 0, none, true},
		{"an attached machine's, with doubts: it is the only one", 0, away, false},
	} {
		w := newWaiter(t, tt.high, "a")
		w.look()
		w.says("a", tt.why, tt.certain)
		w.want(trainyard.JobFailed, "node a was asked while it waited: "+tt.why)
		if f := w.job("waits").Status.Failure; f == nil || f.Class != trainyard.ClassEnvironment {
			t.Errorf("%s: %+v", tt.name, f)
		}
		if again, err := w.c.askForImage(t.Context(), w.of); again != 0 || err != nil {
			t.Errorf("%s: it is asked for again in %v, %v", tt.name, again, err)
		}
	}
}

// A job that was preempted and waits says so beside why it waits, wherever it is shown: there is one reason.
func TestAJobThatWaitsAgainSaysAllOfWhy(t *testing.T) {
	w := newWaiter(t, 1, "a")
	err := w.c.Store.Update(t.Context(), func(tx *store.Tx) error {
		j, err := tx.Job(trainyard.MakeJobKey(w.comp.Scope, "waits"))
		if err != nil {
			return err
		}
		j.Status.Reason = trainyard.Reason{Code: "Preempted", Message: "attempt 1 was preempted"}
		return tx.PutJob(j)
	})
	if err != nil {
		t.Fatal(err)
	}
	w.look()
	w.says("a", away, false)
	w.want(trainyard.JobQueued, "attempt 1 was preempted; lab is at its maximum of 1 node; job on-a is there; and the image cannot be had at the moment: node a says: "+away)
}

// What is said of an image is no affair of a job that came by the name of one which had it.
func TestAJobHearsNothingOfTheImageOfAnEarlierOneOfItsName(t *testing.T) {
	for _, tt := range []struct{ name, compute, env string }{
		{"another image", "lab", "azureml:env:2"},
		{"another compute", "lab2", "azureml:env:1"},
		{"no image", "lab", ""},
	} {
		for _, late := range []bool{false, true} { // the new job comes when it is known that the old one's image is out of reach
			w := newWaiter(t, 1, "a")
			putCluster(t, w.c, "lab2", 0, 1)
			w.look()
			if late {
				w.says("a", away, false)
				w.look()
			}
			w.remove("waits")
			w.submitTo(tt.compute, "waits", tt.env)
			w.round()
			why := w.job("waits").Status.Reason.Message
			if strings.Contains(why, "image") {
				t.Errorf("%s: it waits because %q", tt.name, why)
			}
			w.says("a", none, true)
			if j := w.job("waits"); j.Status.State != trainyard.JobQueued || j.Status.Reason.Message != why {
				t.Errorf("%s: %s because %q, want it to wait because %q", tt.name, j.Status.State, j.Status.Reason.Message, why)
			}
			if asked := w.look(); len(asked) > 0 {
				t.Errorf("%s: %v were asked for the image of the job that is gone", tt.name, asked)
			}
		}
	}
}

// A verdict may be on its way when the name is used again: what counts is the job as it is stored then.
func TestAVerdictIsOnTheJobsThatHaveTheImage(t *testing.T) {
	w := newWaiter(t, 1, "a")
	v := &verdict{of: w.of, asked: 1, node: "a", why: none, jobs: []trainyard.JobKey{trainyard.MakeJobKey(w.comp.Scope, "waits")}}
	w.remove("waits")
	w.submit("waits", "azureml:env:2")
	w.round()
	why := w.job("waits").Status.Reason.Message
	if err := w.c.failForImage(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	w.want(trainyard.JobQueued, why)
	w.c.images.forget(v.of, v.jobs)
	if got := w.c.images.jobs[v.jobs[0]].image; got != "registry.lab/train:2" {
		t.Errorf("it waits with image %q", got)
	}
}

// many has so many more jobs wait, each with an image of its own, and returns the images.
func (w *waiter) many(n int) (images []string) {
	w.Helper()
	for i := range n {
		name := fmt.Sprint("many", i)
		image := "registry.lab/" + name
		env := &trainyard.Resource{Scope: w.comp.Scope, Kind: trainyard.KindEnvironment, Name: name, Version: "1", Properties: json.RawMessage(`{"image":"` + image + `"}`)}
		if _, _, err := w.c.PutResource(w.Context(), anAdmin, env); err != nil {
			w.Fatal(err)
		}
		w.submit(name, "azureml:"+name+":1")
		images = append(images, image)
	}
	w.round()
	return images
}

// ask has the nodes of the compute asked for an image, when it is time.
func (w *waiter) ask(images ...string) {
	w.Helper()
	for _, image := range images {
		if _, err := w.c.askForImage(w.Context(), imageOf{w.comp.Key(), image}); err != nil {
			w.Fatal(err)
		}
	}
}

func TestANodeIsAskedForManyImagesByAndBy(t *testing.T) {
	w := newWaiter(t, 1, "a")
	images := w.many(2*imagesAtOnce + 3)
	rev := w.c.nodes.rev("a")
	w.ask(images...)
	for left := images; len(left) > 0; {
		now := w.c.nodes.rev("a")
		if now <= rev {
			t.Fatalf("it is not told of %d more", len(left))
		}
		rev = now
		got := w.c.images.of("a")
		if n := min(imagesAtOnce, len(left)); !slices.Equal(got, left[:n]) {
			t.Fatalf("it is asked for %q, want %q", got, left[:n])
		}
		for i, image := range got {
			if now := w.c.nodes.rev("a"); now != rev {
				t.Errorf("it is told again when it has answered for %d", i)
			}
			w.report("a", trainyard.ImageWord{Image: image, Missing: true, Why: "away"})
		}
		left = left[len(got):]
	}
	for i := range images {
		if why := w.job(fmt.Sprint("many", i)).Status.Reason.Message; !strings.HasSuffix(why, "node a says: away") {
			t.Errorf("job %d waits because %q", i, why)
		}
	}
}

func TestImagesThatNobodyWaitsForLeaveRoomForOthers(t *testing.T) {
	w := newWaiter(t, 1, "a")
	images := w.many(imagesAtOnce + 2)
	w.ask(images...)
	for i := range imagesAtOnce {
		w.remove(fmt.Sprint("many", i))
	}
	w.ask(images...)
	if got := w.c.images.of("a"); !slices.Equal(got, images[imagesAtOnce:]) {
		t.Errorf("it is asked for %q", got)
	}
	w.report("a", trainyard.ImageWord{Image: images[imagesAtOnce]}, trainyard.ImageWord{Image: images[imagesAtOnce+1]})
	if n := len(w.c.images.nodes) + len(w.c.images.asks) - 1; n != 0 { // job waits has a question that nobody was asked
		t.Errorf("%d things are kept of questions that are settled", n)
	}
}

// What one node has said is not forgotten while another has not come to the question.
func TestANodeThatHasManyImagesToAnswerForComesToAll(t *testing.T) {
	w := newWaiter(t, 2, "a", "b")
	images := w.many(imagesAtOnce + 1)
	last := images[imagesAtOnce]
	w.ask(images...)
	for _, image := range w.c.images.of("a") {
		w.report("a", trainyard.ImageWord{Image: image, Missing: true, Why: "away"})
	}
	w.report("a", trainyard.ImageWord{Image: last, Missing: true, Why: "away"})
	w.c.images.of("b")
	w.now = w.now.Add(imageAgain)
	w.ask(images...)
	if got := w.c.images.of("a"); !slices.Equal(got, images[:imagesAtOnce]) {
		t.Errorf("after a while a is asked for %q", got)
	}
	for _, image := range images {
		w.report("b", trainyard.ImageWord{Image: image, Missing: true, Why: "away"})
	}
	if why := w.job(fmt.Sprint("many", imagesAtOnce)).Status.Reason.Message; !strings.HasSuffix(why, "none of its 2 nodes can get the image at the moment: node b says: away") {
		t.Errorf("it waits because %q", why)
	}
}
