package mlflow

import (
	"context"

	"github.com/trainyard/trainyard"
)

// What a job's token may write: its own run, the runs below it, and what those made. All else that Allow let through is free.

// mostNested bounds how far a run may be below its job.
const mostNested = 32

// mayWriteRun refuses a run that is not there, or not the caller's to write.
func (d *door) mayWriteRun(c *call, id string) error {
	if err := checkRunID(id); err != nil {
		return err
	}
	if c.who.Role == trainyard.RoleJob {
		if c.who.Job == id {
			return nil // its token is good only while the job is there
		}
		return d.isBelow(c, id)
	}
	return d.isRun(c.Context(), c.scope, id)
}

func (d *door) isRun(ctx context.Context, scope trainyard.Scope, id string) error {
	made := false
	err := d.journal.view(ctx, runKey(scope, id), func(rec *record) error { made = rec.Kind == kindRun; return nil })
	if err == nil && !made {
		_, err = d.job(ctx, scope, id)
	}
	return err
}

// isBelow refuses a job's token a run that the job did not make and that is not below it. Whose child a run is, is a tag of its own, so
// that only who may write a run can move it.
func (d *door) isBelow(c *call, id string) error {
	at := id
	for range mostNested {
		var made bool
		var owner, parent string
		err := d.journal.view(c.Context(), runKey(c.scope, at), func(rec *record) error {
			made, owner, parent = rec.Kind == kindRun, rec.Owner, rec.tags[tagParent]
			return nil
		})
		switch {
		case err != nil:
			return err
		case !made && at == id:
			if _, err := d.job(c.Context(), c.scope, id); err != nil {
				return err
			}
		}
		if made && owner == c.who.Job || at == c.who.Job {
			return nil
		}
		if !made || parent == "" {
			break
		}
		at = parent
	}
	return forbidden("the token of job \"%s\" may write its own run and runs nested below it, and run \"%s\" is neither: "+
		"start it with nested=True inside the job, or use a user's token", c.who.Job, id)
}

// below puts a run that a job's token makes below the job's own, unless it says itself that it is.
func (d *door) below(c *call, i *info, tags []pair) ([]pair, error) {
	if c.who.Role != trainyard.RoleJob {
		return tags, nil
	}
	i.Owner = c.who.Job
	for _, t := range tags {
		if t.Key == tagParent && t.Value != "" {
			return tags, d.mayWriteRun(c, t.Value)
		}
	}
	return append(tags, pair{tagParent, c.who.Job}), nil
}

// mayWrite refuses a job's token something that it did not make, and that is not of its runs. what names it: `logged model "m-1"`.
func (d *door) mayWrite(c *call, what, owner, run string) error {
	if c.who.Role != trainyard.RoleJob || owner != "" && owner == c.who.Job {
		return nil
	}
	if run != "" {
		return d.mayWriteRun(c, run)
	}
	return d.noJob(c, "change "+what)
}

// noJob refuses a job's token; to says what it was about to do.
func (d *door) noJob(c *call, to string) error {
	if c.who.Role != trainyard.RoleJob {
		return nil
	}
	return forbidden("the token of job \"%s\" may write its own run and runs nested below it, and read its workspace; it may not %s: "+
		"do that with a user's token, outside of the job", c.who.Job, to)
}
