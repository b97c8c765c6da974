-- The audit trail. Rows are only ever added.
--
-- Times are microseconds since 1970 in UTC. Ids are text, so that `sqlite3` shows them as the log
-- and the API do. There are no constraints on what strangers send: a row that is refused would
-- hold up all those behind it.
CREATE TABLE audit (
    seq                  INTEGER PRIMARY KEY,
    id                   TEXT NOT NULL UNIQUE,
    call_id              TEXT,
    time_micros          INTEGER NOT NULL,
    kind                 TEXT NOT NULL,
    outcome              TEXT,
    status               INTEGER,
    request_id           TEXT NOT NULL,
    operation            TEXT NOT NULL,
    subject              TEXT,
    issuer               TEXT,
    tier                 TEXT,
    agent                TEXT,
    trust                TEXT,
    capabilities         TEXT,
    required             TEXT,
    extra                TEXT,
    model                TEXT,
    provider             TEXT,
    provider_model       TEXT,
    stream_id            TEXT,
    trace_id             TEXT,
    client_address       TEXT,
    input_tokens         INTEGER,
    output_tokens        INTEGER,
    cached_input_tokens  INTEGER,
    reasoning_tokens     INTEGER,
    usage_source         TEXT,
    cost_micro_usd       INTEGER,
    finish_reason        TEXT,
    latency_micros       INTEGER,
    time_to_first_micros INTEGER,
    redactions           TEXT,
    detail               TEXT
) STRICT;

-- Exactly one terminal row for a call: a second one conflicts and is left out.
CREATE UNIQUE INDEX audit_terminal ON audit (call_id)
    WHERE call_id IS NOT NULL AND kind IN ('settle', 'denied', 'canceled');

-- A guard against mistakes, not against an intruder: who may write the file may drop these, and
-- INSERT OR REPLACE gets past them. (A trigger against that costs a third more for each row.)
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is append-only');
END;

CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit trail is append-only');
END;
