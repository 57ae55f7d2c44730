--
-- Fencing tokens: the later of two exclusive holders of a lock has the greater token.
-- Re-entry returns the same token.
--
-- Promise: 1.5
\pset format unaligned
\pset tuples_only on

-- the same session, one hold after the other
DO $$
DECLARE
	last bigint := 0;
	token bigint;
BEGIN
	FOR i IN 1..20 LOOP
		token := zk_lock('tokens.a');
		ASSERT token > last, format('%s after %s', token, last);
		ASSERT zk_lock('tokens.a') = token, 're-entry';
		ASSERT zk_xact_lock('tokens.a') = token, 're-entry at the other level';
		ASSERT zk_lock_shared('tokens.a') = token, 're-entry in the other mode';
		ASSERT zk_lock_token('tokens.a') = token, 'asked for';
		last := token;
		PERFORM zk_unlock_all();
		COMMIT;
	END LOOP;
END $$;

-- one session after the other
SELECT zk_lock('tokens.a') AS first \gset
\c
SELECT zk_lock('tokens.a') AS second \gset
\c
SELECT zk_lock('tokens.a') AS third \gset
SELECT :first < :second AS grows, :second < :third AS grows;
SELECT zk_unlock_all();

-- across levels and functions
SELECT zk_xact_lock('tokens.a') AS fourth \gset
SELECT :third < :fourth AS grows;
SELECT (zk_lock_many(ARRAY['tokens.b', 'tokens.a']))[2] AS fifth \gset
SELECT :fourth < :fifth AS grows;
SELECT zk_unlock_all();
SELECT zk_try_lock('tokens.a') AS locked;
SELECT :fifth < zk_lock_token('tokens.a') AS grows;
SELECT zk_lock_token('tokens.a') AS sixth \gset
SELECT zk_unlock_all();

-- during an upgrade and a downgrade, and after them
SELECT zk_lock_shared('tokens.a') AS shared \gset
SELECT zk_lock('tokens.a') AS seventh \gset
SELECT :sixth < :seventh AS grows;
SELECT zk_unlock('tokens.a'), zk_unlock_shared('tokens.a');
SELECT zk_lock('tokens.a') AS eighth \gset
SELECT :seventh < :eighth AS grows;
SELECT zk_unlock_all();

-- zk_held_locks and zk_lock_token agree
SELECT zk_lock('tokens.a') > 0, zk_lock_shared('tokens.b') > 0, zk_lock('8') > 0, zk_lock('8,9') > 0;
SELECT name FROM zk_held_locks WHERE token <> zk_lock_token(name);
SELECT zk_unlock_all();

-- not held: null, no error, no connection
\c
SELECT zk_lock_token('tokens.a') IS NULL AS unknown, (SELECT state FROM zk_session());
