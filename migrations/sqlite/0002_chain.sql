-- Each row's place in the hash chain of the gateway that wrote it. Rows of before have none.
ALTER TABLE audit ADD COLUMN writer TEXT;
ALTER TABLE audit ADD COLUMN epoch INTEGER;
ALTER TABLE audit ADD COLUMN chain_seq INTEGER;
ALTER TABLE audit ADD COLUMN hash BLOB;

-- What the rows of before did not say. The hashes are SHA-256 in hexadecimal digits.
ALTER TABLE audit ADD COLUMN run_id TEXT;
ALTER TABLE audit ADD COLUMN tool TEXT;
ALTER TABLE audit ADD COLUMN capability TEXT;
ALTER TABLE audit ADD COLUMN input_hash TEXT;
ALTER TABLE audit ADD COLUMN input_bytes INTEGER;
ALTER TABLE audit ADD COLUMN output_hash TEXT;
ALTER TABLE audit ADD COLUMN output_bytes INTEGER;

-- A call's first terminal row stands. Later ones are kept, as the chain has no gaps, but they are
-- marked: queries leave them out, and the mark is no part of what is hashed.
ALTER TABLE audit ADD COLUMN superseded INTEGER NOT NULL DEFAULT 0;

DROP INDEX audit_terminal;
CREATE UNIQUE INDEX audit_terminal ON audit (call_id)
    WHERE call_id IS NOT NULL AND kind IN ('settle', 'denied', 'canceled') AND NOT superseded;
