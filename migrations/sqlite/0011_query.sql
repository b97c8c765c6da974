-- What finds entries. An index on each column that can be filtered by would cost more than the
-- entries themselves. So each block of 4,096 rows (`seq >> 12`) is summed up once it is full: between
-- which times its rows are, and which values its columns may hold. A question reads the blocks that
-- are left, and those that no summary is there of yet: the last one.
CREATE TABLE audit_block (
    block        INTEGER PRIMARY KEY,
    first_micros INTEGER NOT NULL,
    last_micros  INTEGER NOT NULL
) STRICT;

-- A Bloom filter over the values of a column in a block (src/storage/sqlite/bloom.rs). None where
-- the column is null in all of its rows. By number, as a table of its own key would put what is
-- larger than a quarter of a page elsewhere.
CREATE TABLE audit_filter (
    -- `field << 32 | block`; the field's number is in src/storage/sqlite/block.rs.
    id   INTEGER PRIMARY KEY,
    bits BLOB NOT NULL
) STRICT;

-- What was spent by calls that have ended, by their last day (since 1970, in UTC), in the blocks
-- that are summed up. Where a call has no value in a column it is empty.
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

-- What was asked and answered, as far as it is kept. Apart from the chained rows, which have its hash
-- and length, so that it can be deleted by itself. Ids are UUIDv7, so its order is that of time.
CREATE TABLE audit_content (
    entry_id    TEXT NOT NULL,
    side        TEXT NOT NULL CHECK (side IN ('input', 'output')),
    time_micros INTEGER NOT NULL,
    text        TEXT NOT NULL,
    full_bytes  INTEGER,
    hash        TEXT,
    UNIQUE (entry_id, side)
) STRICT;
