-- The audit trail. Rows are only ever added. Run by the role that owns the schema `tollgate`; the
-- gateway's own role is given INSERT and SELECT (src/storage/postgres/role.rs).
--
-- Times are microseconds since 1970 in UTC, as in every store, for rows come back as the chain's
-- hashes have them. Strangers' texts are up to 8 KiB, which no index takes: index `left(model, 200)`
-- and the like, else one call's row is refused.

-- What the oldest tollgate must know to run on this schema: gateways of before and after a migration
-- run side by side, unless it says otherwise here.
CREATE TABLE compatibility (
    only_row         BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (only_row),
    oldest_migration BIGINT NOT NULL
);
INSERT INTO compatibility (oldest_migration) VALUES (1);

CREATE TABLE audit (
    -- Later rows have greater numbers, but may come to be seen earlier: several gateways write.
    seq                  BIGINT GENERATED ALWAYS AS IDENTITY,
    time_micros          BIGINT NOT NULL,
    status               BIGINT,
    input_tokens         BIGINT,
    output_tokens        BIGINT,
    cached_input_tokens  BIGINT,
    reasoning_tokens     BIGINT,
    cost_micro_usd       BIGINT,
    latency_micros       BIGINT,
    time_to_first_micros BIGINT,
    input_bytes          BIGINT,
    output_bytes         BIGINT,
    chain_seq            BIGINT NOT NULL,
    epoch                BIGINT NOT NULL,
    id                   UUID NOT NULL,
    call_id              UUID,
    stream_id            UUID,
    writer               UUID NOT NULL,
    -- A later terminal row of its call. Kept, as the chain has no gaps; queries leave it out.
    superseded           BOOLEAN NOT NULL,
    hash                 BYTEA NOT NULL,
    kind                 TEXT NOT NULL,
    outcome              TEXT,
    request_id           TEXT,
    operation            TEXT,
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
    trace_id             TEXT,
    client_address       TEXT,
    usage_source         TEXT,
    finish_reason        TEXT,
    redactions           TEXT,
    detail               TEXT,
    run_id               TEXT,
    tool                 TEXT,
    capability           TEXT,
    input_hash           TEXT,
    output_hash          TEXT,
    -- A batch that is sent again brings the same times: so an id is there once.
    PRIMARY KEY (time_micros, id)
) PARTITION BY RANGE (time_micros);

-- For what no day's partition takes, so that no row is ever refused.
CREATE TABLE audit_default PARTITION OF audit DEFAULT;

CREATE INDEX audit_seq ON audit (seq);
CREATE INDEX audit_chain ON audit (writer, chain_seq);
CREATE INDEX audit_call ON audit (call_id) WHERE call_id IS NOT NULL;

-- Calls that have ended, and by which row. Apart from `audit`, as an index over all partitions must
-- hold the time, and two ends of a call have different ones: this key lets one of them win, however
-- many gateways write. Retention takes out the calls of days that are gone.
CREATE TABLE audit_closed (
    call_id  UUID PRIMARY KEY,
    entry_id UUID NOT NULL
);

-- What was used, by day (UTC) and dimension: kept by a trigger on `audit`, in the same transaction.
CREATE TABLE audit_usage (
    -- SHA-256 over the dimensions: together they may be longer than an index takes.
    key                 BYTEA PRIMARY KEY,
    day                 DATE NOT NULL,
    subject             TEXT,
    agent               TEXT,
    tier                TEXT,
    model               TEXT,
    provider            TEXT,
    capability          TEXT,
    cost_center         TEXT,
    calls               BIGINT NOT NULL,
    input_tokens        BIGINT NOT NULL,
    output_tokens       BIGINT NOT NULL,
    cached_input_tokens BIGINT NOT NULL,
    cost_micro_usd      BIGINT NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX audit_usage_day ON audit_usage (day);

-- Rows that Postgres takes in no batch, whole: `record` is what the chain's hash is over.
CREATE TABLE audit_dead_letter (
    noted_at  TIMESTAMPTZ NOT NULL DEFAULT now(),
    writer    UUID NOT NULL,
    epoch     BIGINT NOT NULL,
    chain_seq BIGINT NOT NULL,
    hash      BYTEA NOT NULL,
    record    BYTEA NOT NULL,
    error     TEXT NOT NULL,
    PRIMARY KEY (writer, chain_seq, hash)
);

-- Days that retention took out, so that whoever verifies the chain knows where it begins, and
-- which file holds what was before.
CREATE TABLE audit_retired (
    partition  TEXT NOT NULL,
    retired_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    row_count  BIGINT NOT NULL,
    file       TEXT NOT NULL,
    file_hash  BYTEA NOT NULL
);

-- A fact of the caller, from the JSON that `extra` is; none where it was cut and is none any more.
CREATE FUNCTION extra_fact(extra TEXT, name TEXT) RETURNS TEXT
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF extra IS NULL OR position(name IN extra) = 0 THEN
        RETURN NULL;
    END IF;
    RETURN extra::json ->> name;
EXCEPTION WHEN data_exception OR statement_too_complex THEN
    RETURN NULL;
END $$;

-- Its owner's rights: so the gateway's role need not change rows of `audit_usage`, and can't. Sums
-- stay at the greatest number rather than refuse a row.
CREATE FUNCTION audit_add_usage() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = tollgate, pg_temp AS $$
DECLARE
    most CONSTANT NUMERIC := 9223372036854775807;
BEGIN
    INSERT INTO audit_usage AS u
    SELECT sha256(convert_to(json_build_array(day, subject, agent, tier, model, provider, capability,
               cost_center)::text, 'UTF8')) AS key,
           DATE '1970-01-01' + day, subject, agent, tier, model, provider, capability, cost_center, count(*),
           least(sum(input_tokens), most), least(sum(output_tokens), most),
           least(sum(cached_input_tokens), most), least(sum(cost_micro_usd), most)
    FROM (
        -- Counted from 1970, and no earlier than a date can be.
        SELECT greatest(floor(time_micros / 86400000000.0)::int, -2440000) AS day,
               subject, agent, tier, model, provider, capability,
               extra_fact(extra, 'cost_center') AS cost_center,
               greatest(input_tokens, 0) AS input_tokens,
               greatest(output_tokens, 0) AS output_tokens,
               greatest(cached_input_tokens, 0) AS cached_input_tokens,
               greatest(cost_micro_usd, 0) AS cost_micro_usd
        FROM added
        WHERE kind IN ('settle', 'denied', 'canceled') AND call_id IS NOT NULL AND NOT superseded
    ) AS ends
    GROUP BY day, subject, agent, tier, model, provider, capability, cost_center
    -- Of two gateways that add to the same rows one waits for the other, never both.
    ORDER BY key
    ON CONFLICT (key) DO UPDATE SET
        calls = u.calls + excluded.calls,
        input_tokens = least(u.input_tokens::numeric + excluded.input_tokens, most),
        output_tokens = least(u.output_tokens::numeric + excluded.output_tokens, most),
        cached_input_tokens =
            least(u.cached_input_tokens::numeric + excluded.cached_input_tokens, most),
        cost_micro_usd = least(u.cost_micro_usd::numeric + excluded.cost_micro_usd, most);
    RETURN NULL;
END $$;

CREATE TRIGGER audit_usage AFTER INSERT ON audit
REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION audit_add_usage();

-- Makes the partitions of those days (counted from 1970) that have none. Its owner's rights: the
-- gateway's role can ask for days about now, and for no other change. A partition is made apart and
-- then attached, which lets rows be written and read meanwhile; days that have rows in the default
-- partition already stay there.
CREATE FUNCTION make_partitions(days BIGINT[]) RETURNS BIGINT
LANGUAGE plpgsql SECURITY DEFINER SET search_path = tollgate, pg_temp SET lock_timeout = '2s' AS $$
DECLARE
    micros_per_day CONSTANT BIGINT := 86400000000;
    today CONSTANT BIGINT := floor(extract(epoch FROM now()) / 86400);
    made BIGINT := 0;
    partition TEXT;
    wanted BIGINT;
BEGIN
    -- One gateway at a time; the others find what it made.
    PERFORM pg_advisory_xact_lock(hashtextextended('tollgate.make_partitions', 0));
    FOREACH wanted IN ARRAY days LOOP
        CONTINUE WHEN wanted < today - 400 OR wanted > today + 8 OR wanted IS NULL;
        partition := 'audit_' || to_char('epoch'::timestamp + wanted * INTERVAL '1 day', 'YYYYMMDD');
        CONTINUE WHEN to_regclass(partition) IS NOT NULL
            OR EXISTS (SELECT FROM audit_default WHERE time_micros >= wanted * micros_per_day
                AND time_micros < (wanted + 1) * micros_per_day);
        EXECUTE format('CREATE TABLE %I (LIKE audit INCLUDING DEFAULTS)', partition);
        EXECUTE format('ALTER TABLE audit ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)',
            partition, wanted * micros_per_day, (wanted + 1) * micros_per_day);
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;
REVOKE EXECUTE ON FUNCTION make_partitions, audit_add_usage FROM PUBLIC;
