<?php

// symfony.php DSN [search_path]: locks of Symfony's PostgreSqlStore, unchanged, by order. Each
// line of standard input is an order and the name of a lock, and gets one line of output:
//
//   acquire, wait, read, wait_read    Lock::acquire(), acquire(true), acquireRead(), acquireRead(true)
//   held, refresh, release            isAcquired(), refresh(), release()
//
// A name like "report#2" is a second lock object of the resource "report". The answer is
// true, false, done, or the class of the exception.

require '/usr/share/php/Symfony/Component/Lock/autoload.php';

use Symfony\Component\Lock\LockFactory;
use Symfony\Component\Lock\Store\PostgreSqlStore;

error_reporting(E_ALL & ~E_DEPRECATED);

$pdo = new PDO($argv[1]);
$pdo->setAttribute(PDO::ATTR_ERRMODE, PDO::ERRMODE_EXCEPTION);
if (isset($argv[2])) {
    $pdo->exec("SET search_path = $argv[2]");
}
$factory = new LockFactory(new PostgreSqlStore($pdo));
$locks = [];

echo $pdo->query('SELECT pg_backend_pid()')->fetchColumn(), "\n";
while (($line = fgets(STDIN)) !== false) {
    [$order, $name] = explode(' ', trim($line));
    $lock = $locks[$name] ??= $factory->createLock(explode('#', $name)[0]);
    try {
        $answer = match ($order) {
            'acquire' => $lock->acquire(),
            'wait' => $lock->acquire(true),
            'read' => $lock->acquireRead(),
            'wait_read' => $lock->acquireRead(true),
            'held' => $lock->isAcquired(),
            'refresh' => $lock->refresh(),
            'release' => $lock->release(),
        };
        echo $answer === null ? 'done' : var_export($answer, true), "\n";
    } catch (Exception $e) {
        echo (new ReflectionClass($e))->getShortName(), "\n";
    }
}
