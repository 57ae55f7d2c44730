// Books the next invoice under the lock "invoices". withLock is the reusable part: it repeats the
// transaction after the errors of the retry rules (doc/guide.md).
//
//     node book.js ADDRESS CUSTOMER
//
// ADDRESS is the address of the server, such as postgresql://app@127.0.0.1:5432/shop;
// the table is invoices (number int PRIMARY KEY, customer text).
//
// withLock checks out a client of its own for the whole transaction; pool.query() can use another
// connection for each statement. Node.js ends the process if a connection breaks and nobody listens
// for 'error', so the program listens on the client and on the pool. client.release(broken) removes a
// broken client from the pool. A nested call is another session, and waits for the locks of its caller.

const { Pool } = require('pg');

const RETRY = new Set(['40001', '40P01', '08006']);

// Runs work(client), possibly several times, in a transaction that holds the lock.
async function withLock(pool, lock, work, attempts = 5) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await runOnce(pool, lock, work);
    } catch (error) {
      if (!RETRY.has(error.code) || attempt === attempts) {
        throw error;
      }
      console.log(`attempt ${attempt}: ${error.code}, trying again`);
      await new Promise((resolve) => setTimeout(resolve, Math.random() * 50 * 2 ** attempt));
    }
  }
}

async function runOnce(pool, lock, work) {
  const client = await pool.connect();
  let broken;
  const onError = (error) => { broken = error; };
  client.on('error', onError);
  try {
    await client.query('BEGIN');
    await client.query("SET LOCAL lock_timeout = '30s'");
    await client.query('SELECT zk_xact_lock($1)', [lock]);
    const result = await work(client);
    const { command } = await client.query('COMMIT');
    if (command !== 'COMMIT') {
      throw new Error('work() caught the error of a statement: COMMIT rolled back');
    }
    return result;
  } catch (error) {
    // Outside a transaction this is a warning; on a broken connection it fails.
    await client.query('ROLLBACK').catch(onError);
    throw error;
  } finally {
    client.off('error', onError);
    client.release(broken);
  }
}

async function book(client, customer) {
  const { rows } = await client.query(
    'INSERT INTO invoices SELECT coalesce(max(number), 0) + 1, $1 FROM invoices ' +
      'RETURNING number', [customer]);
  return rows[0].number;
}

async function main(url, customer) {
  const pool = new Pool({ connectionString: url });
  pool.on('error', (error) => console.error(`idle client: ${error.message}`));
  try {
    const number = await withLock(pool, 'invoices', (client) => book(client, customer));
    console.log(`booked invoice ${number}`);
  } finally {
    await pool.end();
  }
}

main(...process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
