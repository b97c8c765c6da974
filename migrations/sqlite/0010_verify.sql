-- Verifying reads each writer's rows in the order of its chain. Not unique: a second row of one
-- place is to be stored, and then told of, and not to be left out.
CREATE INDEX audit_chain ON audit (writer, chain_seq);

-- The mark is no part of what is hashed, so each row that has it is looked at. They are few.
CREATE INDEX audit_superseded ON audit (call_id) WHERE superseded;
