# Books the next invoice under the lock "invoices". with_lock is the reusable part: it repeats the
# transaction after the errors of the retry rules (doc/guide.md).
#
#     book_rails.rb ADDRESS CUSTOMER
#
# ADDRESS is the address of the server, such as postgresql://app@127.0.0.1:5432/shop;
# the table is invoices (number int PRIMARY KEY, customer text).
#
# with_lock is not ActiveRecord's method of that name, which locks a row. It must be the outermost
# transaction, because a nested one cannot be repeated alone.

require "active_record"

RETRY = %w[40001 40P01 08006].freeze

class NotCommitted < StandardError; end

class Invoice < ActiveRecord::Base
  self.primary_key = "number"
end

# Runs the block, possibly several times, in a transaction that holds the lock.
def with_lock(lock, attempts: 5)
  attempt = 1
  conn = ActiveRecord::Base.connection
  raise "with_lock begins the transaction itself" if conn.transaction_open?

  begin
    ActiveRecord::Base.transaction do
      conn.execute("SET LOCAL lock_timeout = '30s'")
      conn.execute("SELECT zk_xact_lock(#{conn.quote(lock)})")
      result = yield
      # The block caught the error of a statement: COMMIT would roll back silently.
      raise NotCommitted if conn.raw_connection.transaction_status == PG::PQTRANS_INERROR
      result
    end
  rescue ActiveRecord::StatementInvalid => error
    # A broken connection has no result, and no SQLSTATE of the server.
    state = error.cause&.result&.error_field(PG::Result::PG_DIAG_SQLSTATE)
    raise unless RETRY.include?(state) && attempt < attempts

    puts "attempt #{attempt}: #{state}, trying again"
    sleep(rand * 0.05 * 2**attempt)
    attempt += 1
    retry
  end
end

$stdout.sync = true
ActiveRecord::Base.establish_connection(ARGV[0])
invoice = with_lock("invoices") do
  Invoice.create!(number: (Invoice.maximum(:number) || 0) + 1, customer: ARGV[1])
end
puts "booked invoice #{invoice.number}"
