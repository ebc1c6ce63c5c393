-- One text for SQLite and PostgreSQL. Times are nanoseconds since 1970 (0: none), flags are 0 or 1, documents are JSON text. Every scope
-- and every name that is looked up is stored folded as well; seq is the store's own count of everything it ever took in.

-- +goose Up
CREATE TABLE counters (
	name  TEXT NOT NULL PRIMARY KEY,
	value BIGINT NOT NULL
);

CREATE TABLE settings (
	key   TEXT NOT NULL PRIMARY KEY,
	value BYTEA NOT NULL
);

CREATE TABLE computes (
	key TEXT NOT NULL PRIMARY KEY,
	doc TEXT NOT NULL
);

CREATE TABLE nodes (
	id      TEXT NOT NULL PRIMARY KEY,
	compute TEXT NOT NULL,
	doc     TEXT NOT NULL
);

-- What of a job is written as it lives. phase: 0 over (or not begun), 1 waiting, 2 placed.
CREATE TABLE jobs (
	seq         BIGINT NOT NULL PRIMARY KEY,
	key         TEXT NOT NULL UNIQUE,
	scope       TEXT NOT NULL,
	scope_shown TEXT NOT NULL,
	name        TEXT NOT NULL,
	compute     TEXT NOT NULL,
	state       TEXT NOT NULL,
	phase       BIGINT NOT NULL,
	archived    BIGINT NOT NULL,
	nodes       BIGINT NOT NULL,
	priority    BIGINT NOT NULL,
	since       BIGINT NOT NULL,
	created     BIGINT NOT NULL,
	created_by  TEXT NOT NULL,
	modified    BIGINT NOT NULL,
	status      TEXT NOT NULL
);
CREATE INDEX jobs_by_scope ON jobs (scope, seq);
CREATE INDEX jobs_by_compute ON jobs (scope, compute, seq);
CREATE INDEX jobs_unfinished ON jobs (phase, seq) WHERE phase > 0;

-- What of a job hardly ever changes: apart, so that writing a status does not write it again.
CREATE TABLE job_specs (
	seq  BIGINT NOT NULL PRIMARY KEY REFERENCES jobs (seq) ON DELETE CASCADE,
	spec TEXT NOT NULL,
	plan TEXT NOT NULL
);

CREATE TABLE job_tags (
	seq   BIGINT NOT NULL REFERENCES jobs (seq) ON DELETE CASCADE,
	tag   TEXT NOT NULL,
	value TEXT NOT NULL,
	PRIMARY KEY (seq, tag)
);

-- number is the version where that is a number, else -1.
CREATE TABLE resources (
	seq            BIGINT NOT NULL PRIMARY KEY,
	scope          TEXT NOT NULL,
	subscription   TEXT NOT NULL,
	resource_group TEXT NOT NULL,
	kind           TEXT NOT NULL,
	folded         TEXT NOT NULL,
	version        TEXT NOT NULL,
	number         BIGINT NOT NULL,
	hash           TEXT NOT NULL,
	archived       BIGINT NOT NULL,
	is_default     BIGINT NOT NULL,
	created        BIGINT NOT NULL,
	doc            TEXT NOT NULL,
	UNIQUE (scope, kind, folded, version)
);
CREATE INDEX resources_by_name ON resources (scope, kind, folded, seq);
CREATE INDEX resources_by_kind ON resources (scope, kind, seq);
CREATE INDEX resources_by_hash ON resources (scope, kind, hash, seq) WHERE hash <> '';

CREATE TABLE events (
	seq         BIGINT NOT NULL PRIMARY KEY,
	time        BIGINT NOT NULL,
	scope       TEXT NOT NULL,
	scope_shown TEXT NOT NULL,
	kind        TEXT NOT NULL,
	subject     TEXT NOT NULL,
	what        TEXT NOT NULL,
	who         TEXT NOT NULL,
	message     TEXT NOT NULL
);
CREATE INDEX events_by_subject ON events (subject, seq);

-- +goose Down
DROP TABLE events;
DROP TABLE resources;
DROP TABLE job_tags;
DROP TABLE job_specs;
DROP TABLE jobs;
DROP TABLE nodes;
DROP TABLE computes;
DROP TABLE settings;
DROP TABLE counters;
