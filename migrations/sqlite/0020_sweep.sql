-- Up to this row every intent has its end: those behind it are looked through.
CREATE TABLE audit_swept (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    seq      INTEGER NOT NULL
) STRICT;
INSERT INTO audit_swept (only_row, seq) VALUES (1, 0);
