package store

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/trainyard/trainyard"
)

// How rows are spelled: documents, names, and reading one thing by its key.

// Bounds in bytes. PostgreSQL takes no index entry beyond 2,704 bytes, and the longest key is made of four names and a scope.
const (
	mostName    = 400
	mostMessage = 64 << 10
)

// checkNames refuses what could not be a key in both databases.
func checkNames(what, name string, keys ...string) error {
	for _, k := range keys {
		switch {
		case len(k) > mostName:
			return trainyard.Invalid("%s %q: %q… is longer than %d bytes; choose a shorter name", what, clean(name, 80), clean(k, 40), mostName)
		case !utf8.ValidString(k) || strings.ContainsRune(k, 0):
			return trainyard.Invalid("%s %q: %q is not text; names are UTF-8 without zero bytes", what, name, k)
		}
	}
	if name == "" {
		return trainyard.Invalid("a %s needs a name", what)
	}
	return nil
}

// clean makes any text one that both databases take: valid UTF-8 without zero bytes, of at most so many bytes.
func clean(s string, most int) string {
	if utf8.ValidString(s) && len(s) <= most && !strings.ContainsRune(s, 0) {
		return s
	}
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}

// encode spells a document. Raw JSON inside it may hold bytes that are no text; they become U+FFFD.
func encode(v any) (string, error) {
	doc, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	if !utf8.Valid(doc) {
		doc = bytes.ToValidUTF8(doc, []byte("\uFFFD"))
	}
	return string(doc), nil
}

// computeDoc keeps raw fields that are empty out of the document: they would be read back as "null".
type computeDoc struct {
	*trainyard.Compute
	Identity json.RawMessage `json:",omitempty"`
	Sku      json.RawMessage `json:",omitempty"`
	Secret   json.RawMessage `json:",omitempty"`
	Settings json.RawMessage `json:",omitempty"`
}

func encodeCompute(c *trainyard.Compute, s sealer) (string, error) {
	return encode(computeDoc{c, c.Identity, c.Sku, s.seal(c.Secret), s.seal(c.Settings)})
}

func decodeCompute(doc string, s sealer) (c *trainyard.Compute, err error) {
	d := computeDoc{Compute: &trainyard.Compute{}}
	if err := json.Unmarshal([]byte(doc), &d); err != nil {
		return nil, fmt.Errorf("read a compute: %w", err)
	}
	d.Compute.Identity, d.Compute.Sku = d.Identity, d.Sku
	if d.Compute.Secret, err = s.open(d.Secret); err == nil {
		d.Compute.Settings, err = s.open(d.Settings)
	}
	if err != nil {
		return nil, fmt.Errorf("read compute %s: %w", d.Compute.Name, err)
	}
	return d.Compute, nil
}

// encodeResource writes a resource with its credentials sealed.
func encodeResource(r *trainyard.Resource, s sealer) (string, error) {
	c := *r
	c.Secret = s.seal(r.Secret)
	return encode(&c)
}

// unseal makes the credentials of a resource as it was read readable.
func (r *resourceRecord) unseal(s sealer) (err error) {
	if r.resource != nil {
		if r.resource.Secret, err = s.open(r.resource.Secret); err != nil {
			return fmt.Errorf("read %s %s: %w", r.resource.Kind, r.resource.Name, err)
		}
	}
	return nil
}

// encode fills in the record's documents.
func (r *jobRecord) encode() (err error) {
	if r.status, err = encode(&r.job.Status); err == nil && r.whole {
		if r.spec, err = encode(&r.job.Spec); err == nil {
			r.plan, err = encode(&r.job.Plan)
		}
	}
	if err != nil {
		return trainyard.Invalid("job %q cannot be stored: %v", r.job.Name, err)
	}
	return nil
}

// since is when the job began to be in its state.
func since(j *trainyard.Job) int64 {
	if t := j.Status.Reason.Since; !t.IsZero() {
		return nanos(t)
	}
	return nanos(j.Created)
}

const jobColumns = `j.seq, j.scope_shown, j.name, j.created, j.created_by, j.modified, j.status, s.spec, s.plan
	FROM jobs j JOIN job_specs s ON s.seq = j.seq`

func scanJob(rows *sql.Rows) (*trainyard.Job, error) {
	var (
		j                         = &trainyard.Job{}
		shown, status, spec, plan string
		created, modified         int64
	)
	if err := rows.Scan(&j.Seq, &shown, &j.Name, &created, &j.CreatedBy, &modified, &status, &spec, &plan); err != nil {
		return nil, err
	}
	j.Scope, j.Created, j.Modified = parseScope(shown), fromNanos(created), fromNanos(modified)
	err := errors.Join(json.Unmarshal([]byte(status), &j.Status), json.Unmarshal([]byte(spec), &j.Spec), json.Unmarshal([]byte(plan), &j.Plan))
	if err != nil {
		return nil, fmt.Errorf("read job %s: %w", j.Name, err)
	}
	return j, nil
}

// showScope spells a scope as it was written; Scope.Key folds it.
func showScope(s trainyard.Scope) string {
	return clean(s.Subscription+"/"+s.ResourceGroup+"/"+s.Workspace, 3*mostName)
}

func parseScope(shown string) trainyard.Scope {
	p := strings.SplitN(shown, "/", 3)
	if len(p) < 3 {
		return trainyard.Scope{}
	}
	return trainyard.Scope{Subscription: p[0], ResourceGroup: p[1], Workspace: p[2]}
}

// readJob reads one job; nil if there is none.
func readJob(ctx context.Context, q querier, key trainyard.JobKey) (*trainyard.Job, error) {
	rows, err := q.query(ctx, "SELECT "+jobColumns+" WHERE j.key = $1", clean(string(key), 2*mostName))
	jobs, err := scanAll(rows, err, scanJob)
	if err != nil || len(jobs) == 0 {
		return nil, err
	}
	return jobs[0], nil
}

// readResource reads one resource; the record is never nil.
func readResource(ctx context.Context, q querier, k resourceKey) (*resourceRecord, error) {
	rows, err := q.query(ctx, "SELECT seq, doc FROM resources WHERE scope = $1 AND kind = $2 AND folded = $3 AND version = $4",
		clean(k.scope, mostName), clean(string(k.kind), mostName), clean(k.folded, mostName), clean(k.version, mostName))
	found, err := scanAll(rows, err, scanResource)
	if err != nil || len(found) == 0 {
		return &resourceRecord{}, err
	}
	return found[0], nil
}

func scanResource(rows *sql.Rows) (*resourceRecord, error) {
	var doc string
	r := &resourceRecord{resource: &trainyard.Resource{}}
	if err := rows.Scan(&r.seq, &doc); err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(doc), r.resource); err != nil {
		return nil, fmt.Errorf("read a resource: %w", err)
	}
	r.stored = r.seq
	return r, nil
}

func readSetting(ctx context.Context, q querier, key string) ([]byte, error) {
	rows, err := q.query(ctx, "SELECT value FROM settings WHERE key = $1", clean(key, mostName))
	found, err := scanAll(rows, err, func(rows *sql.Rows) (value []byte, err error) {
		err = rows.Scan(&value)
		return append([]byte{}, value...), err
	})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// versions is what is known of the versions of a name.
type versions struct {
	latest    string // the newest, of those that are not archived if there are such
	latestSeq int64
	archived  int64 // of the latest: 1 or 0
	highest   int64
}

func (v *versions) add(version string, seq, archived int64) {
	if v.latest == "" || archived < v.archived || archived == v.archived && seq > v.latestSeq {
		v.latest, v.latestSeq, v.archived = version, seq, archived
	}
	v.highest = max(v.highest, number(version))
}

// number is a version as a number, -1 if it is none.
func number(version string) int64 {
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil || n < 0 || n >= 1<<53 || version[0] == '+' {
		return -1
	}
	return n
}

// readVersions reads what the database knows, but for the versions in skip.
func readVersions(ctx context.Context, q querier, k resourceKey, skip map[string]*resourceRecord) (v versions, err error) {
	where := " FROM resources WHERE scope = $1 AND kind = $2 AND folded = $3"
	args := []any{clean(k.scope, mostName), clean(string(k.kind), mostName), clean(k.folded, mostName)}
	for _, version := range sortedKeys(skip) {
		args = append(args, version)
		where += fmt.Sprintf(" AND version <> $%d", len(args))
	}
	rows, err := q.query(ctx, "SELECT version, seq, archived"+where+" ORDER BY archived, seq DESC LIMIT 1", args...)
	if _, err := scanAll(rows, err, func(rows *sql.Rows) (any, error) { return nil, rows.Scan(&v.latest, &v.latestSeq, &v.archived) }); err != nil {
		return v, err
	}
	rows, err = q.query(ctx, "SELECT COALESCE(MAX(number), 0)"+where, args...)
	_, err = scanAll(rows, err, func(rows *sql.Rows) (any, error) { return nil, rows.Scan(&v.highest) })
	v.highest = max(v.highest, 0)
	return v, err
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
