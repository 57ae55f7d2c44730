# Books the next invoice under the lock "invoices". with_lock is the reusable part: it repeats the
# transaction after the errors of the retry rules (doc/guide.md).
#
#     book.rb ADDRESS CUSTOMER
#
# ADDRESS is the address of the server, such as postgresql://app@127.0.0.1:5432/shop;
# the table is invoices (number int PRIMARY KEY, customer text).

require "pg"

RETRY = %w[40001 40P01 08006].freeze

class NotCommitted < StandardError; end

# Runs the block, possibly several times, in a transaction that holds the lock.
def with_lock(conn, lock, attempts: 5)
  raise "with_lock begins the transaction itself" unless conn.transaction_status == PG::PQTRANS_IDLE

  attempt = 1
  begin
    conn.exec("BEGIN")
    conn.exec("SET LOCAL lock_timeout = '30s'")
    conn.exec_params("SELECT zk_xact_lock($1)", [lock])
    result = yield
    # The block caught the error of a statement: COMMIT rolled back.
    raise NotCommitted unless conn.exec("COMMIT").cmd_status == "COMMIT"
    result
  rescue PG::Error => error
    # A broken connection has no result, and no SQLSTATE of the server.
    state = error.result&.error_field(PG::Result::PG_DIAG_SQLSTATE)
    raise unless RETRY.include?(state) && attempt < attempts

    conn.exec("ROLLBACK") unless conn.transaction_status == PG::PQTRANS_IDLE
    puts "attempt #{attempt}: #{state}, trying again"
    sleep(rand * 0.05 * 2**attempt)
    attempt += 1
    retry
  ensure
    conn.exec("ROLLBACK") if [PG::PQTRANS_INTRANS, PG::PQTRANS_INERROR].include?(conn.transaction_status)
  end
end

def book(conn, customer)
  conn.exec_params(
    "INSERT INTO invoices SELECT coalesce(max(number), 0) + 1, $1 FROM invoices " \
    "RETURNING number", [customer]
  ).getvalue(0, 0)
end

$stdout.sync = true
conn = PG.connect(ARGV[0])
number = with_lock(conn, "invoices") { book(conn, ARGV[1]) }
puts "booked invoice #{number}"
