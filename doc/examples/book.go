// Books the next invoice under the lock "invoices". withLock is the reusable part: it repeats the
// transaction after the errors of the retry rules (doc/guide.md).
//
//     book ADDRESS CUSTOMER
//
// ADDRESS is the address of the server, such as postgresql://app@127.0.0.1:5432/shop;
// the table is invoices (number int PRIMARY KEY, customer text).
//
// With pgx 5 import github.com/jackc/pgx/v5, its pgxpool and pgconn, and call
// pgx.BeginFunc(ctx, pool, ...) and pgxpool.New. A nested call of withLock is another session, and waits
// for the locks of its caller.

package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand"
	"os"
	"time"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
	"github.com/jackc/pgx/v4/pgxpool"
)

var retry = map[string]bool{"40001": true, "40P01": true, "08006": true}

// withLock runs the work, possibly several times, in a transaction that holds the lock.
func withLock(ctx context.Context, pool *pgxpool.Pool, lock string, attempts int,
	work func(pgx.Tx) error) error {
	for attempt := 1; ; attempt++ {
		err := pool.BeginFunc(ctx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '30s'"); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "SELECT zk_xact_lock($1)", lock); err != nil {
				return err
			}
			return work(tx)
		})
		// Only the server's errors are a PgError; a broken connection is none.
		var pgErr *pgconn.PgError
		if err == nil || !errors.As(err, &pgErr) || !retry[pgErr.Code] || attempt == attempts {
			return err
		}
		fmt.Printf("attempt %d: %s, trying again\n", attempt, pgErr.Code)
		time.Sleep(time.Duration(rand.Int63n(int64(50*time.Millisecond) << attempt)))
	}
}

func main() {
	rand.Seed(time.Now().UnixNano()) // not needed since Go 1.20
	ctx := context.Background()
	pool, err := pgxpool.Connect(ctx, os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	var number int
	err = withLock(ctx, pool, "invoices", 5, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx,
			"INSERT INTO invoices SELECT coalesce(max(number), 0) + 1, $1 FROM invoices "+
				"RETURNING number", os.Args[2]).Scan(&number)
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("booked invoice", number)
}
