-- What finds entries. An index on each column that can be filtered by would cost more than the
-- entries themselves. So values are noted once for each block of 256 rows (`seq >> 8`) in which they
-- occur: a question reads the blocks that are left. It may be noted that a value is in a block where
-- it isn't; never the other way round.
--
-- `field` is a number of src/storage/sqlite/block.rs; `value` is cut to 64 characters.
CREATE TABLE audit_block (
    field INTEGER NOT NULL,
    value TEXT NOT NULL,
    block INTEGER NOT NULL,
    PRIMARY KEY (field, value, block)
) STRICT, WITHOUT ROWID;

-- In which blocks there are entries of an hour (since 1970, in UTC).
CREATE TABLE audit_hour (
    hour  INTEGER NOT NULL,
    block INTEGER NOT NULL,
    PRIMARY KEY (hour, block)
) STRICT, WITHOUT ROWID;

-- Those of before. What other columns have is null in them.
INSERT INTO audit_block
    SELECT DISTINCT 0, substr(call_id, 1, 64), seq >> 8 FROM audit WHERE call_id IS NOT NULL
    UNION ALL SELECT DISTINCT 1, substr(stream_id, 1, 64), seq >> 8 FROM audit WHERE stream_id IS NOT NULL
    UNION ALL SELECT DISTINCT 2, substr(trace_id, 1, 64), seq >> 8 FROM audit WHERE trace_id IS NOT NULL
    UNION ALL SELECT DISTINCT 6, substr(subject, 1, 64), seq >> 8 FROM audit WHERE subject IS NOT NULL
    UNION ALL SELECT DISTINCT 7, substr(agent, 1, 64), seq >> 8 FROM audit WHERE agent IS NOT NULL
    UNION ALL SELECT DISTINCT 9, substr(model, 1, 64), seq >> 8 FROM audit WHERE model IS NOT NULL
    UNION ALL SELECT DISTINCT 10, substr(outcome, 1, 64), seq >> 8 FROM audit WHERE outcome IS NOT NULL
    UNION ALL SELECT DISTINCT 11, substr(kind, 1, 64), seq >> 8 FROM audit
    UNION ALL SELECT DISTINCT 12, substr(tier, 1, 64), seq >> 8 FROM audit WHERE tier IS NOT NULL;
INSERT INTO audit_hour SELECT DISTINCT time_micros / 3600000000, seq >> 8 FROM audit;

-- What was spent by calls that have ended, by their last day (since 1970, in UTC). Written with the
-- entries themselves. Where a call has no value in a column it is empty.
CREATE TABLE audit_usage (
    day                 INTEGER NOT NULL,
    subject             TEXT NOT NULL,
    agent               TEXT NOT NULL,
    tier                TEXT NOT NULL,
    model               TEXT NOT NULL,
    provider            TEXT NOT NULL,
    capability          TEXT NOT NULL,
    cost_center         TEXT NOT NULL,
    calls               INTEGER NOT NULL,
    input_tokens        INTEGER NOT NULL,
    output_tokens       INTEGER NOT NULL,
    cached_input_tokens INTEGER NOT NULL,
    cost_micro_usd      INTEGER NOT NULL,
    PRIMARY KEY (day, subject, agent, tier, model, provider, capability, cost_center)
) STRICT, WITHOUT ROWID;

-- As src/storage/sqlite/usage.rs does it for new ones.
INSERT INTO audit_usage
SELECT time_micros / 86400000000, coalesce(subject, ''), coalesce(agent, ''), coalesce(tier, ''),
       coalesce(model, ''), coalesce(provider, ''), coalesce(capability, ''),
       CASE WHEN json_valid(extra) THEN coalesce(CAST(extra ->> '$.cost_center' AS TEXT), '') ELSE '' END,
       count(*), sum(min(coalesce(input_tokens, 0), 1000000000000)),
       sum(min(coalesce(output_tokens, 0), 1000000000000)),
       sum(min(coalesce(cached_input_tokens, 0), 1000000000000)),
       sum(min(coalesce(cost_micro_usd, 0), 1000000000000))
FROM audit
WHERE call_id IS NOT NULL AND kind IN ('settle', 'denied', 'canceled') AND NOT superseded
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8;

-- What was asked and answered, as far as it is kept. Apart from the chained rows, which have its hash
-- and length, so that it can be deleted by itself.
CREATE TABLE audit_content (
    entry_id    TEXT NOT NULL,
    side        TEXT NOT NULL CHECK (side IN ('input', 'output')),
    time_micros INTEGER NOT NULL,
    text        TEXT NOT NULL,
    full_bytes  INTEGER,
    hash        TEXT,
    UNIQUE (entry_id, side)
) STRICT;
CREATE INDEX audit_content_time ON audit_content (time_micros);
