package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard"
)

// What is read from the database, outside transactions.

// Page sizes.
const (
	defaultTop = 100
	mostTop    = 1000
)

// selection puts a query together. Every condition is an AND, every value a parameter.
type selection struct {
	text strings.Builder
	args []any
}

func selecting(text string) *selection {
	q := &selection{}
	q.text.WriteString(text + " WHERE 1 = 1")
	return q
}

// and adds a condition; each ? in it stands for the next value.
func (q *selection) and(condition string, values ...any) {
	q.text.WriteString(" AND ")
	q.add(condition, values...)
}

func (q *selection) add(text string, values ...any) {
	for _, part := range strings.SplitAfter(text, "?") {
		if bare, ok := strings.CutSuffix(part, "?"); ok {
			q.args = append(q.args, values[0])
			values = values[1:]
			part = bare + "$" + strconv.Itoa(len(q.args))
		}
		q.text.WriteString(part)
	}
}

// view adds the archive flag's condition.
func (q *selection) view(column string, v trainyard.View) {
	switch v {
	case trainyard.ViewAll:
	case trainyard.ViewArchived:
		q.and(column + " = 1")
	default:
		q.and(column + " = 0")
	}
}

func pageSize(top int) int {
	if top <= 0 {
		return defaultTop
	}
	return min(top, mostTop)
}

// A page token is the seq of the last item on the page before.
func token(seq int64) string { return "p" + strconv.FormatInt(seq, 36) }

func (q *selection) after(column, tok string) error {
	if tok == "" {
		return nil
	}
	bare, ok := strings.CutPrefix(tok, "p")
	seq, err := strconv.ParseInt(bare, 36, 64)
	if !ok || err != nil {
		return trainyard.Invalid("%q is no place in a list that this server has handed out: begin the list again", clean(tok, 80))
	}
	q.and(column+" < ?", seq)
	return nil
}

func list[T any](ctx context.Context, s *Store, q *selection, scan func(*sql.Rows) (T, error)) ([]T, error) {
	rows, err := s.reads.query(ctx, q.text.String(), q.args...)
	out, err := scanAll(rows, err, scan)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, s.db.explain(err)
	}
	return out, nil
}

// page cuts a list that was asked for with one item too many.
func page[R, T any](rows []R, top int, seq func(R) int64, item func(R) T) trainyard.Page[T] {
	var p trainyard.Page[T]
	if len(rows) > top {
		rows = rows[:top]
		p.Next = token(seq(rows[top-1]))
	}
	for _, r := range rows {
		p.Items = append(p.Items, item(r))
	}
	return p
}

// Job reads a job.
func (s *Store) Job(ctx context.Context, key trainyard.JobKey) (*trainyard.Job, error) {
	if j, ok := s.image.liveJob(key); ok {
		return cloneJob(j), nil
	}
	j, err := readJob(ctx, s.reads, key)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, s.db.explain(err)
	case j == nil:
		return nil, noJob(key)
	}
	return j, nil
}

// Jobs lists jobs, newest first. The zero Scope lists those of all workspaces.
func (s *Store) Jobs(ctx context.Context, jq trainyard.JobQuery) (trainyard.Page[*trainyard.Job], error) {
	q, top := selecting("SELECT "+jobColumns), pageSize(jq.Top)
	if jq.Scope != (trainyard.Scope{}) {
		q.and("j.scope = ?", clean(jq.Scope.Key(), mostName))
	}
	if jq.Compute != "" {
		q.and("j.compute = ?", clean(strings.ToLower(jq.Compute), mostName))
	}
	if len(jq.States) > 0 {
		var states []any
		for _, st := range jq.States {
			states = append(states, clean(string(st), mostName))
		}
		q.and("j.state IN (?"+strings.Repeat(", ?", len(states)-1)+")", states...)
	}
	if tag, value, valued := strings.Cut(jq.Tag, "="); tag != "" {
		tagged := "EXISTS (SELECT 1 FROM job_tags t WHERE t.seq = j.seq AND t.tag = ?"
		if valued {
			q.and(tagged+" AND t.value = ?)", clean(tag, mostName), clean(value, mostName))
		} else {
			q.and(tagged+")", clean(tag, mostName))
		}
	}
	q.view("j.archived", jq.View)
	if err := q.after("j.seq", jq.After); err != nil {
		return trainyard.Page[*trainyard.Job]{}, err
	}
	q.add(" ORDER BY j.seq DESC LIMIT ?", top+1)
	jobs, err := list(ctx, s, q, scanJob)
	return page(jobs, top, func(j *trainyard.Job) int64 { return j.Seq }, func(j *trainyard.Job) *trainyard.Job { return j }), err
}

// Resource reads a resource. Names compare without regard to case. An empty version of a versioned kind is the newest.
func (s *Store) Resource(ctx context.Context, scope trainyard.Scope, kind trainyard.Kind, name, version string) (*trainyard.Resource, error) {
	if version == "" && kind.Versioned() {
		latest, _, err := s.NextVersion(ctx, scope, kind, name)
		if err != nil {
			return nil, err
		}
		if latest == "" {
			return nil, noResource(scope, kind, name, "")
		}
		version = latest
	}
	r, err := readResource(ctx, s.reads, makeResourceKey(scope, kind, name, version))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, s.db.explain(err)
	case r.resource == nil:
		return nil, noResource(scope, kind, name, version)
	}
	return r.resource, r.unseal(s.image.seal)
}

// Resources lists resources of a kind, newest first. Without Name and Hash a versioned kind lists the newest version of every name, of
// those that View lets through. A Scope with a subscription alone, or without a workspace, is all the workspaces below it.
func (s *Store) Resources(ctx context.Context, rq trainyard.ResourceQuery) (trainyard.Page[*trainyard.Resource], error) {
	q, top, scope := selecting("SELECT r.seq, r.doc FROM resources r"), pageSize(rq.Top), rq.Scope.Fold()
	switch {
	case scope.Workspace != "":
		q.and("r.scope = ?", clean(scope.Key(), mostName))
	case scope.ResourceGroup != "":
		q.and("r.subscription = ? AND r.resource_group = ?", clean(scope.Subscription, mostName), clean(scope.ResourceGroup, mostName))
	case scope.Subscription != "":
		q.and("r.subscription = ?", clean(scope.Subscription, mostName))
	}
	q.and("r.kind = ?", clean(strings.ToLower(string(rq.Kind)), mostName))
	if rq.Name != "" {
		q.and("r.folded = ?", clean(strings.ToLower(rq.Name), mostName))
	}
	if rq.Hash != "" {
		q.and("r.hash = ? AND r.hash <> ''", clean(rq.Hash, mostName)) // repeats the index's condition, for SQLite
	}
	if rq.Default != nil {
		q.and("r.is_default = ?", bit(*rq.Default))
	}
	q.view("r.archived", rq.View)
	if rq.Kind.Versioned() && rq.Name == "" && rq.Hash == "" {
		newer := "NOT EXISTS (SELECT 1 FROM resources n WHERE n.scope = r.scope AND n.kind = r.kind AND n.folded = r.folded AND n.seq > r.seq"
		switch rq.View {
		case trainyard.ViewAll:
			q.and(newer + ")")
		default:
			q.and(newer + " AND n.archived = r.archived)")
		}
	}
	if err := q.after("r.seq", rq.After); err != nil {
		return trainyard.Page[*trainyard.Resource]{}, err
	}
	q.add(" ORDER BY r.seq DESC LIMIT ?", top+1)
	rows, err := list(ctx, s, q, scanResource)
	for _, r := range rows {
		if err == nil {
			err = r.unseal(s.image.seal)
		}
	}
	return page(rows, top, func(r *resourceRecord) int64 { return r.seq }, func(r *resourceRecord) *trainyard.Resource { return r.resource }), err
}

// NextVersion is the newest version of a name that is not archived, else the newest ("" if there is none), and the number after its highest
// ("1" if none is a number).
func (s *Store) NextVersion(ctx context.Context, scope trainyard.Scope, kind trainyard.Kind, name string) (latest, next string, err error) {
	v, err := readVersions(ctx, s.reads, makeResourceKey(scope, kind, name, ""), nil)
	if err != nil {
		if ctx.Err() != nil {
			return "", "", ctx.Err()
		}
		return "", "", s.db.explain(err)
	}
	return v.latest, fmt.Sprint(v.highest + 1), nil
}

// Events lists events in order of Seq, those after eq.After.
func (s *Store) Events(ctx context.Context, eq trainyard.EventQuery) ([]trainyard.Event, error) {
	q := selectingEvents()
	q.and("seq > ?", eq.After)
	if eq.Scope != (trainyard.Scope{}) {
		q.and("scope = ?", clean(eq.Scope.Key(), mostName))
	}
	if eq.Kind != "" {
		q.and("kind = ?", clean(eq.Kind, mostName))
	}
	if eq.Subject != "" {
		q.and("subject = ?", clean(eq.Subject, mostName))
	}
	q.add(" ORDER BY seq LIMIT ?", pageSize(eq.Top))
	return list(ctx, s, q, scanEvent)
}

// LastEvent is the newest of a subject's events that is one of two; zero if there is none.
func (s *Store) LastEvent(ctx context.Context, kind, subject, what, or string) (trainyard.Event, error) {
	q := selectingEvents()
	q.and("kind = ?", clean(kind, mostName))
	q.and("subject = ?", clean(subject, mostName))
	q.and("what IN (?, ?)", what, or)
	q.add(" ORDER BY seq DESC LIMIT 1")
	events, err := list(ctx, s, q, scanEvent)
	if err != nil || len(events) == 0 {
		return trainyard.Event{}, err
	}
	return events[0], nil
}

func selectingEvents() *selection {
	return selecting("SELECT seq, time, scope_shown, kind, subject, what, who, message FROM events")
}

func scanEvent(rows *sql.Rows) (e trainyard.Event, err error) {
	var shown string
	var at int64
	err = rows.Scan(&e.Seq, &at, &shown, &e.Kind, &e.Subject, &e.What, &e.Who, &e.Message)
	e.Time, e.Scope = fromNanos(at), parseScope(shown)
	return e, err
}

// Setting reads a setting; one that was never put is NotFound.
func (s *Store) Setting(ctx context.Context, key string) ([]byte, error) {
	value, err := readSetting(ctx, s.reads, key)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, s.db.explain(err)
	}
	return settingOr(key, value)
}

// PutSetting stores a setting in a transaction of its own.
func (s *Store) PutSetting(ctx context.Context, key string, value []byte) error {
	return s.Update(ctx, func(tx *Tx) error { return tx.PutSetting(key, value) })
}
