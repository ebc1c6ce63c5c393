package control

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/store"
)

// A node whose engine is away says so to whoever lists it, with nothing that runs there too, and afterwards how long that was is to be read.
func TestANodeWhoseEngineIsAwaySaysSo(t *testing.T) {
	c, scope := newControl(t), trainyard.DefaultScope()
	id := c.Store.AllNodes()[0].ID
	err := c.Store.Update(t.Context(), func(tx *store.Tx) error {
		n, err := tx.Node(id)
		if err != nil {
			return err
		}
		n.State, n.Epoch, n.Reason = trainyard.NodeIdle, 1, trainyard.Reason{Code: "Joined", Message: "its agent has joined"}
		return tx.PutNode(n)
	})
	if err != nil {
		t.Fatal(err)
	}
	report := func(away ...trainyard.EngineAway) trainyard.Reason {
		t.Helper()
		if err := c.Report(t.Context(), trainyard.Report{Node: id, Epoch: 1, Away: away}); err != nil {
			t.Fatal(err)
		}
		list, err := c.Nodes(t.Context(), scope, trainyard.LocalCompute)
		if err != nil || len(list) != 1 {
			t.Fatalf("nodes %v, %v", list, err)
		}
		return list[0].Why()
	}
	joined := report()
	since := time.Date(2026, 1, 2, 12, 3, 4, 0, time.UTC)
	away := trainyard.EngineAway{Why: "the Kubernetes API has not answered since 12:03:04 UTC: connection refused", Since: since}
	for range 2 { // as often as the agent gives a sign of life
		if got := report(away); got != (trainyard.Reason{Code: codeUnseen, Message: away.Why, Since: since}) {
			t.Errorf("the node says %+v", got)
		}
	}
	for _, r := range []trainyard.Report{{Images: []trainyard.ImageWord{{Image: "alpine"}}}, {Yields: "it is taken away"}} {
		if r.Node, r.Epoch = id, 1; c.Report(t.Context(), r) != nil || c.engineAway(id).Message != away.Why {
			t.Errorf("after a report that tells nothing of engines the node says %+v", c.engineAway(id))
		}
	}
	if got := report(); got != joined {
		t.Errorf("after it answered the node says %+v", got)
	}
	if err := c.HostedFailed(t.Context(), id, "the cluster cannot be reached"); err != nil { // by a server that begins meanwhile
		t.Fatal(err)
	}
	list, err := c.Nodes(t.Context(), scope, trainyard.LocalCompute)
	if err != nil || list[0].Why().Message != "the cluster cannot be reached" {
		t.Errorf("the node that has no agent says %+v, %v", list[0].Why(), err)
	}
	if got := report(); got != joined {
		t.Errorf("with an agent that is well the node says %+v", got)
	}
	said := engineWords(t, c, id)
	if want := "engine away: " + away.Why + "|engine back: all its engines answer again|engine away: the cluster cannot be reached" +
		"|engine back: all its engines answer again"; strings.Join(said, "|") != want {
		t.Errorf("events %q", said)
	}
}

// engineWords are what is written down of the node's engines.
func engineWords(t *testing.T, c *Control, id trainyard.NodeID) (said []string) {
	t.Helper()
	events, err := c.Store.Events(t.Context(), trainyard.EventQuery{Kind: "node", Subject: string(id)})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if strings.HasPrefix(e.What, "engine") {
			said = append(said, e.What+": "+e.Message)
		}
	}
	return said
}

// Nothing is kept of the engines of nodes that are not there, or gone.
func TestEnginesOfNodesThatAreGoneAreForgotten(t *testing.T) {
	c := newControl(t)
	scope := trainyard.Scope{Subscription: trainyard.DefaultScope().Subscription, ResourceGroup: trainyard.DefaultScope().ResourceGroup, Workspace: "other"}
	if _, _, err := c.PutResource(t.Context(), anAdmin, &trainyard.Resource{Scope: scope, Kind: trainyard.KindWorkspace, Name: "other"}); err != nil {
		t.Fatal(err)
	}
	nodes, err := c.Store.Nodes(t.Context(), trainyard.MakeComputeKey(scope, trainyard.LocalCompute))
	if err != nil || len(nodes) != 1 {
		t.Fatalf("nodes %v, %v", nodes, err)
	}
	id := nodes[0].ID
	fail := func(id trainyard.NodeID) string {
		t.Helper()
		if err := c.HostedFailed(t.Context(), id, "bad"); err != nil {
			t.Fatal(err)
		}
		return c.engineAway(id).Message
	}
	if fail("nosuch") != "" || fail(id) != "bad" {
		t.Errorf("kept are %v", c.silent)
	}
	if err := c.DeleteResource(t.Context(), anAdmin, scope, trainyard.KindWorkspace, "other", ""); err != nil {
		t.Fatal(err)
	}
	if fail(id) != "" || len(c.silent) > 0 {
		t.Errorf("of nodes that are gone %v is kept", c.silent)
	}
}

// A machine that says new things of its engines all the time, and much, costs no more than one that does not.
func TestWhatAMachineSaysOfItselfIsKeptShort(t *testing.T) {
	c, _ := placed(t)
	n, err := c.Store.Node(t.Context(), "node")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		r := trainyard.Report{Node: n.ID, Epoch: n.Epoch}
		for range 100 {
			r.Away = append(r.Away, trainyard.EngineAway{Why: fmt.Sprintf("%d ", i) + strings.Repeat("ä", 5000)})
		}
		if err := c.Report(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if why := c.engineAway(n.ID).Message; !strings.HasPrefix(why, fmt.Sprint(i)) || utf8.RuneCountInString(why) > mostAway*(mostSaid+2) {
			t.Errorf("of report %d %d characters are kept", i, utf8.RuneCountInString(why))
		}
	}
	if said := engineWords(t, c, n.ID); len(said) != 1 {
		t.Errorf("%d events", len(said))
	}
	if err := c.Report(t.Context(), trainyard.Report{Node: n.ID, Epoch: n.Epoch, Yields: strings.Repeat("ä", 5000)}); err != nil {
		t.Fatal(err)
	}
	if n, err = c.Store.Node(t.Context(), "node"); err != nil || n.Reason.Code != takenAway || utf8.RuneCountInString(n.Reason.Message) > mostSaid {
		t.Errorf("of why it goes %d characters are kept, %v", utf8.RuneCountInString(n.Reason.Message), err)
	}
}

// A server that begins while an engine is away does not write down again that it went.
func TestAnEngineThatIsAwayIsWrittenDownOnce(t *testing.T) {
	c, _ := placed(t)
	n, err := c.Store.Node(t.Context(), "node")
	if err != nil {
		t.Fatal(err)
	}
	report := func(away ...trainyard.EngineAway) {
		t.Helper()
		if err := c.Report(t.Context(), trainyard.Report{Node: n.ID, Epoch: n.Epoch, Away: away}); err != nil {
			t.Fatal(err)
		}
	}
	fail := func(why string) {
		t.Helper()
		if err := c.HostedFailed(t.Context(), n.ID, why); err != nil {
			t.Fatal(err)
		}
	}
	for i, step := range []func(){
		func() { report(trainyard.EngineAway{Why: "first"}) },
		func() { report(trainyard.EngineAway{Why: "first, still"}) },
		func() { fail(""); fail("the server's own agent cannot work") },
		func() { report(trainyard.EngineAway{Why: "first, still"}); report() },
		func() { report(); report(trainyard.EngineAway{Why: "second"}) },
		func() { report(); report(trainyard.EngineAway{Why: "third"}) }, // it was seen to answer between: it came back while no server looked
	} {
		c = New(c.Config)
		step()
		if i < 3 && (len(engineWords(t, c, n.ID)) != 1 || c.engineAway(n.ID).Message == "") {
			t.Errorf("after step %d: %+v, events %q", i, c.engineAway(n.ID), engineWords(t, c, n.ID))
		}
	}
	want := []string{"engine away: first", "engine back: all its engines answer again", "engine away: second", "engine away: third"}
	if said := engineWords(t, c, n.ID); !slices.Equal(said, want) {
		t.Errorf("events %q", said)
	}
}

// An agent that hangs has asked what it should run, and is heard of no more for that it is answered.
func TestAnAnswerIsNoWordOfTheAgent(t *testing.T) {
	c := newControl(t)
	putCluster(t, c, "cpu", 0, 1, "node")
	n, err := c.Store.Node(t.Context(), "node")
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Wanted(t.Context(), n.ID, n.Epoch, 0)
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{})
	start := time.Now()
	var once sync.Once
	c.Now = func() time.Time {
		once.Do(func() { close(asked) })
		return start
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.Wanted(t.Context(), n.ID, n.Epoch, w.Rev)
		done <- err
	}()
	<-asked // it waits, or is about to
	c.mu.Lock()
	c.seen[n.ID] = start.Add(-time.Hour)
	c.mu.Unlock()
	c.nodes.bump(n.ID)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if last := c.lastSeen(n.ID); !last.Equal(start.Add(-time.Hour)) {
		t.Errorf("it was last heard of at %v, when it was answered", last)
	}
}
