package store

import (
	"database/sql"
	"strings"
	"testing"
)

// What is asked often must not read whole tables: a server keeps every job that ever was.
func TestQueriesUseTheirIndexes(t *testing.T) {
	s := opened(t, sqliteDSN(t))
	tests := []struct{ name, query, index string }{
		{"a job by its key", "SELECT " + jobColumns + " WHERE j.key = 'x'", "sqlite_autoindex_jobs_2"},
		{"what is placed, at start", "SELECT " + jobColumns + " WHERE j.phase = 2 AND j.phase > 0", "jobs_unfinished"},
		{"what waits, at start", "SELECT key FROM jobs WHERE phase = 1 AND phase > 0 ORDER BY priority DESC, seq", "jobs_unfinished"},
		{"a page of jobs", "SELECT " + jobColumns + " WHERE 1 = 1 AND j.scope = 'x' AND j.archived = 0 AND j.seq < 9 ORDER BY j.seq DESC LIMIT 10", "jobs_by_scope"},
		{"a page of a compute's jobs", "SELECT " + jobColumns + " WHERE 1 = 1 AND j.scope = 'x' AND j.compute = 'c' ORDER BY j.seq DESC LIMIT 10", "jobs_by_compute"},
		{"codes by hash", "SELECT r.doc FROM resources r WHERE 1 = 1 AND r.scope = 'x' AND r.kind = 'codes' AND r.hash = 'h' AND r.hash <> '' ORDER BY r.seq DESC LIMIT 10", "resources_by_hash"},
		{"versions of a name", "SELECT version FROM resources WHERE scope = 'x' AND kind = 'k' AND folded = 'f' ORDER BY seq DESC LIMIT 1", "resources_by_name"},
		{"events of a job", "SELECT seq FROM events WHERE 1 = 1 AND seq > 5 AND scope = 's' AND subject = 'j' ORDER BY seq LIMIT 10", "events_by_subject"},
		{"the newest events", "SELECT seq FROM events WHERE 1 = 1 AND seq > 5 ORDER BY seq LIMIT 10", "sqlite_autoindex_events_1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rows, err := s.db.readers.Query("EXPLAIN QUERY PLAN " + tt.query)
			steps, err := scanAll(rows, err, func(rows *sql.Rows) (step string, err error) {
				var a, b, c any
				err = rows.Scan(&a, &b, &c, &step)
				return step, err
			})
			if err != nil {
				t.Fatal(err)
			}
			if plan := strings.Join(steps, "; "); !strings.Contains(plan, "INDEX "+tt.index) || strings.Contains(plan, "SCAN") {
				t.Errorf("plan is %s", plan)
			}
		})
	}
}
