# Does not run the job if another session runs it. Ends with an exit status other than 0 when it has
# lost the lock.
#
#     job.py ADDRESS
#
# The table is batches (number int).

import sys

import psycopg2


def run_job(conn, batches):
    """Returns False if another session runs the job."""
    conn.autocommit = True              # each statement is a transaction
    with conn.cursor() as cursor:
        cursor.execute("SELECT zk_try_lock('job:nightly')")
        if not cursor.fetchone()[0]:
            return False
        try:
            for batch in range(batches):
                cursor.execute("INSERT INTO batches VALUES (%s)", (batch,))
        finally:
            release(cursor)
    return True


def release(cursor):
    try:
        cursor.execute("SELECT zk_unlock('job:nightly')")
    except psycopg2.Error:
        cursor.connection.close()       # releases all locks of the session


if __name__ == "__main__":
    try:
        finished = run_job(psycopg2.connect(sys.argv[1]), 3)
    except psycopg2.Error as error:
        sys.exit(f"the job failed: {error.pgcode or error}")
    print("done" if finished else "another session runs the job")
