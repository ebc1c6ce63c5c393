package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/trainyard/trainyard"
)

// Names in the table counters.
const (
	counterSeq   = "seq"   // no seq above it was ever given out
	counterOwner = "owner" // a number that the process that has the database made up
)

const upsertCounter = "INSERT INTO counters (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value"

// spare is how many seqs are set aside at once; so many are skipped by a restart.
const spare = 10000

// next gives out a seq.
func (s *Store) next() int64 {
	s.seq++
	return s.seq
}

func (s *Store) counter(ctx context.Context, name string) (value int64, err error) {
	rows, err := s.conn.query(ctx, "SELECT value FROM counters WHERE name = $1", name)
	_, err = scanAll(rows, err, func(rows *sql.Rows) (any, error) { return nil, rows.Scan(&value) })
	return value, err
}

// statements spells a batch's writes, with the mark that holds once they are stored.
func (s *Store) statements(l *layer) (list []statement, mark int64) {
	add := func(sql string, args ...any) { list = append(list, statement{sql, args}) }
	for key, r := range l.computes {
		if r.compute == nil {
			add("DELETE FROM computes WHERE key = $1", string(key))
		} else {
			add("INSERT INTO computes (key, doc) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET doc = excluded.doc", string(key), r.doc)
		}
	}
	for id, r := range l.nodes {
		switch {
		case r.quiet:
		case r.node == nil:
			add("DELETE FROM nodes WHERE id = $1", string(id))
		default:
			add("INSERT INTO nodes (id, compute, doc) VALUES ($1, $2, $3) ON CONFLICT (id) DO UPDATE SET compute = excluded.compute, doc = excluded.doc",
				string(id), string(r.node.Compute), r.doc)
		}
	}
	for key, r := range l.settings {
		if r.write {
			add("INSERT INTO settings (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value", key, r.value)
		}
	}
	for _, r := range l.jobs {
		if r.write {
			jobStatements(r, add)
		}
	}
	for key, r := range l.resources {
		if r.write {
			resourceStatements(key, r, add)
		}
	}
	for i := range l.events {
		e := &l.events[i]
		add("INSERT INTO events (seq, time, scope, scope_shown, kind, subject, what, who, message) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
			e.Seq, nanos(e.Time), clean(e.Scope.Key(), mostName), showScope(e.Scope), e.Kind, e.Subject, e.What, e.Who, e.Message)
	}
	if s.seq > s.mark {
		mark = s.seq + spare
		add(upsertCounter, counterSeq, mark)
		return list, mark
	}
	return list, s.mark
}

func jobStatements(r *jobRecord, add func(string, ...any)) {
	j := r.job
	if r.stored != 0 && (j == nil || j.Seq != r.stored) {
		add("DELETE FROM jobs WHERE seq = $1", r.stored) // specs and tags go with it
	}
	if j == nil {
		return
	}
	phase := phaseOf(j.Status.State)
	switch {
	case j.Seq == r.stored && !r.whole && phase == r.phase: // the one that happens all the time: touches no index
		add("UPDATE jobs SET state = $2, since = $3, modified = $4, status = $5 WHERE seq = $1",
			j.Seq, string(j.Status.State), since(j), nanos(j.Modified), r.status)
		return
	case j.Seq == r.stored && !r.whole:
		add("UPDATE jobs SET state = $2, since = $3, modified = $4, status = $5, phase = $6 WHERE seq = $1",
			j.Seq, string(j.Status.State), since(j), nanos(j.Modified), r.status, int64(phase))
		return
	case j.Seq == r.stored:
		add(`UPDATE jobs SET scope_shown = $2, compute = $3, state = $4, phase = $5, archived = $6, nodes = $7, priority = $8, since = $9,
			created = $10, created_by = $11, modified = $12, status = $13 WHERE seq = $1`, j.Seq, showScope(j.Scope), j.Plan.Compute, string(j.Status.State),
			int64(phase), bit(j.Spec.IsArchived), j.Plan.Nodes, j.Plan.Priority, since(j), nanos(j.Created), clean(j.CreatedBy, mostName), nanos(j.Modified), r.status)
		add("UPDATE job_specs SET spec = $2, plan = $3 WHERE seq = $1", j.Seq, r.spec, r.plan)
		add("DELETE FROM job_tags WHERE seq = $1", j.Seq)
	default:
		add(`INSERT INTO jobs (seq, key, scope, scope_shown, name, compute, state, phase, archived, nodes, priority, since, created, created_by, modified, status)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`, j.Seq, string(j.Key()), j.Scope.Key(), showScope(j.Scope), j.Name,
			j.Plan.Compute, string(j.Status.State), int64(phase), bit(j.Spec.IsArchived), j.Plan.Nodes, j.Plan.Priority, since(j), nanos(j.Created),
			clean(j.CreatedBy, mostName), nanos(j.Modified), r.status)
		add("INSERT INTO job_specs (seq, spec, plan) VALUES ($1, $2, $3)", j.Seq, r.spec, r.plan)
	}
	for tag, value := range j.Spec.Tags {
		add("INSERT INTO job_tags (seq, tag, value) VALUES ($1, $2, $3) ON CONFLICT (seq, tag) DO NOTHING", j.Seq, clean(tag, mostName), clean(value, mostName))
	}
}

func resourceStatements(k resourceKey, r *resourceRecord, add func(string, ...any)) {
	if r.stored != 0 && (r.resource == nil || r.seq != r.stored) {
		add("DELETE FROM resources WHERE seq = $1", r.stored)
	}
	if r.resource == nil {
		return
	}
	if r.seq == r.stored {
		add("UPDATE resources SET hash = $2, archived = $3, is_default = $4, doc = $5 WHERE seq = $1", r.seq, r.resource.Hash, bit(r.resource.Archived), bit(isDefault(r.resource)), r.doc)
		return
	}
	scope := r.resource.Scope.Fold()
	add(`INSERT INTO resources (seq, scope, subscription, resource_group, kind, folded, version, number, hash, archived, is_default, created, doc)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)`, r.seq, k.scope, scope.Subscription, scope.ResourceGroup, string(k.kind), k.folded, k.version,
		number(k.version), r.resource.Hash, bit(r.resource.Archived), bit(isDefault(r.resource)), nanos(r.resource.Created), r.doc)
}

// isDefault reads properties.isDefault of a datastore.
func isDefault(r *trainyard.Resource) bool {
	if r.Kind != trainyard.KindDatastore {
		return false
	}
	var p struct {
		IsDefault bool `json:"isDefault"`
	}
	return json.Unmarshal(r.Properties, &p) == nil && p.IsDefault
}

func bit(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// load reads into a new image all that has not ended, and says what may have changed by it.
func (s *Store) load(ctx context.Context) (trainyard.Change, error) {
	mark, err := s.counter(ctx, counterSeq)
	if err != nil {
		return trainyard.Change{}, fmt.Errorf("read its counters: %w", err)
	}
	s.mark, s.seq = mark, max(s.seq, mark)
	im := newImage()
	im.seal = s.image.seal
	for _, part := range []func(context.Context, querier, *image) error{loadComputes, loadNodes, loadWaiting, loadPlaced} {
		if err := part(ctx, s.conn, im); err != nil {
			return trainyard.Change{}, err
		}
	}
	return s.image.replace(im), nil
}

func loadComputes(ctx context.Context, q querier, im *image) error {
	rows, err := q.query(ctx, "SELECT doc FROM computes")
	_, err = scanAll(rows, err, func(rows *sql.Rows) (any, error) {
		var doc string
		if err := rows.Scan(&doc); err != nil {
			return nil, err
		}
		c, err := decodeCompute(doc, im.seal)
		if err == nil {
			im.setCompute(c.Key(), c)
		}
		return nil, err
	})
	return err
}

func loadNodes(ctx context.Context, q querier, im *image) error {
	rows, err := q.query(ctx, "SELECT doc FROM nodes ORDER BY id")
	_, err = scanAll(rows, err, func(rows *sql.Rows) (any, error) {
		var doc string
		if err := rows.Scan(&doc); err != nil {
			return nil, err
		}
		n := &trainyard.Node{}
		if err := json.Unmarshal([]byte(doc), n); err != nil {
			return nil, fmt.Errorf("read a node: %w", err)
		}
		im.setNode(n.ID, n)
		return nil, nil
	})
	return err
}

// loadWaiting reads of waiting jobs what a queue needs; their documents stay in the database. "phase > 0" says nothing new but to SQLite,
// which uses the index of unfinished jobs only where its condition is repeated.
func loadWaiting(ctx context.Context, q querier, im *image) error {
	rows, err := q.query(ctx, "SELECT key, scope, compute, seq, nodes, priority, since FROM jobs WHERE phase = 1 AND phase > 0 ORDER BY priority DESC, seq")
	_, err = scanAll(rows, err, func(rows *sql.Rows) (struct{}, error) {
		var key, scope, compute string
		var w trainyard.QueuedJob
		var at int64
		if err := rows.Scan(&key, &scope, &compute, &w.Seq, &w.Nodes, &w.Priority, &at); err != nil {
			return struct{}{}, err
		}
		w.Key, w.Since = trainyard.JobKey(key), fromNanos(at)
		_, w.Name, _ = cutLast(key)
		im.enqueue(trainyard.ComputeKey(scope+"/"+compute), w)
		return struct{}{}, nil
	})
	return err
}

func loadPlaced(ctx context.Context, q querier, im *image) error {
	rows, err := q.query(ctx, "SELECT "+jobColumns+" WHERE j.phase = 2 AND j.phase > 0")
	jobs, err := scanAll(rows, err, scanJob)
	for _, j := range jobs {
		im.setJob(j.Key(), j)
	}
	return err
}
