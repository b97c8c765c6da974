-- The mark is no part of what is hashed, so each row that has it is looked at. They are few.
CREATE INDEX audit_superseded ON audit (call_id) WHERE superseded;
