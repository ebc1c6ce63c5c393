package store

import (
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// cutOff ends the connection that writes, from PostgreSQL's side.
func cutOff(t *testing.T, s *Store) {
	t.Helper()
	var pid int
	must(t, s, func(tx *Tx) error {
		return s.conn.conn.QueryRowContext(bg, "SELECT pg_backend_pid()").Scan(&pid)
	})
	if _, err := s.db.readers.ExecContext(bg, "SELECT pg_terminate_backend($1)", pid); err != nil {
		t.Fatal(err)
	}
	within(t, 5*time.Second, "the connection is gone", func() bool {
		var n int
		return s.db.readers.QueryRowContext(bg, "SELECT COUNT(*) FROM pg_stat_activity WHERE pid = $1", pid).Scan(&n) == nil && n == 0
	})
}

func TestAConnectionThatBreaksIsMadeAgain(t *testing.T) {
	s := opened(t, thePostgres.database(t))
	add(t, s, cluster("c", 2), aJob("before", "c", 1, 1))
	s.Snapshot(t0, true)
	cutOff(t, s)
	err := s.Update(bg, func(tx *Tx) error { return tx.PutNode(aNode("lost", "c", 1)) }) // reads nothing: only the commit fails
	wantError(t, err, trainyard.CodeInternal, "broke off")
	if nodes := s.AllNodes(); len(nodes) != 0 {
		t.Errorf("%v in memory after a batch that failed", nodes)
	}
	add(t, s, aJob("after", "c", 1, 1))
	if q := s.QueueOf(computeKey("c")); len(q) != 2 || q[1].Name != "after" {
		t.Errorf("queue %+v", q)
	}
	if snap := s.Snapshot(t0, false); len(snap.Computes) != 1 {
		t.Error("the scheduler is not asked to look at everything again")
	}
}

func TestAServerThatWasCutOffAndReplacedWritesNothing(t *testing.T) {
	dsn := thePostgres.database(t)
	first := opened(t, dsn)
	add(t, first, aJob("first", "c", 1, 1))
	cutOff(t, first)
	second := open(t, dsn)
	add(t, second, aJob("second", "c", 1, 1))
	fail := func() error {
		return first.Update(bg, func(tx *Tx) error { return tx.InsertJob(aJob("stale", "c", 1, 1)) })
	}
	wantError(t, fail(), trainyard.CodeInternal, "broke off")
	wantError(t, fail(), trainyard.CodeConflict, "another trainyard server is using")
	second.Close()
	wantError(t, fail(), trainyard.CodeConflict, "another trainyard server has taken over", "stop this one")
	wantError(t, fail(), trainyard.CodeConflict, "taken over")
	third := opened(t, dsn)
	if queued, _ := third.Counts(computeKey("c")); queued != 2 {
		t.Errorf("%d jobs, want first and second", queued)
	}
}
