-- Up to this row every intent has its end: those behind it are looked through.
CREATE TABLE audit_swept (
    only_row BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (only_row),
    seq      BIGINT NOT NULL
);
INSERT INTO audit_swept (seq) VALUES (0);

-- Its owner's rights: the gateway's role can only say so of rows that are there, and never less than
-- was said before. Who says it wrongly leaves calls open, and changes no row.
CREATE FUNCTION mark_swept(upto BIGINT) RETURNS VOID
LANGUAGE sql SECURITY DEFINER SET search_path = tollgate, pg_temp AS $$
    UPDATE audit_swept SET seq = upto
    WHERE seq < upto AND upto <= (SELECT last_value FROM audit_seq_seq)
$$;
REVOKE EXECUTE ON FUNCTION mark_swept FROM PUBLIC;
