-- What finds entries. Each index here costs every row that it takes, some 0.5 µs and its bytes, so:
-- - Time is found by the days' partitions and the primary key, which also finds what nearly every
--   entry has (an outcome of `ok`): those questions walk back in time until they have their page.
-- - What repeats is indexed without the time: of equal keys Postgres keeps one, so that a row takes 7
--   bytes where it took 45. Which of its rows are of the time that is asked for, the rows say.
-- - With the time: what is asked for by the hour ("did anything with `fleet:write` touch arcadedb?").
-- - Of what is unique 16 characters do: the rest is compared in the row.
-- - Only what is ordered by time leaves out nulls: of an expression in a partial index the planner
--   takes no statistics, and would rather walk back in time for what is rare.
--
-- Texts are up to 8 KiB, which no index takes: 200 characters of them are indexed.
CREATE INDEX audit_subject ON audit (left(subject, 200));
CREATE INDEX audit_agent ON audit (left(agent, 200));
CREATE INDEX audit_model ON audit (left(model, 200));
CREATE INDEX audit_tier ON audit (left(tier, 200));
CREATE INDEX audit_run ON audit (left(run_id, 200));
CREATE INDEX audit_capability ON audit (left(capability, 200), time_micros);
CREATE INDEX audit_tool ON audit (left(tool, 200), time_micros) WHERE tool IS NOT NULL;
CREATE INDEX audit_trace ON audit (left(trace_id, 16));
CREATE INDEX audit_input ON audit (left(input_hash, 16));
CREATE INDEX audit_stream ON audit (stream_id) WHERE stream_id IS NOT NULL;
CREATE INDEX audit_outcome ON audit (left(outcome, 200), time_micros)
    WHERE outcome IS NOT NULL AND outcome <> 'ok';
CREATE INDEX audit_kind ON audit (kind, time_micros) WHERE kind NOT IN ('intent', 'settle');

-- What was asked and answered, as far as it is kept. Apart from the chained rows, which have its hash
-- and length, so that it can be deleted by itself.
CREATE TABLE audit_content (
    entry_id    UUID NOT NULL,
    side        TEXT NOT NULL CHECK (side IN ('input', 'output')),
    time_micros BIGINT NOT NULL,
    text        TEXT NOT NULL,
    full_bytes  BIGINT,
    hash        TEXT,
    PRIMARY KEY (entry_id, side)
);
CREATE INDEX audit_content_time ON audit_content (time_micros);
