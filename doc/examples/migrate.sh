#!/bin/sh
# migrate.sh COMMAND: runs the command under the lock. The exit status is 0 only if the command
# has succeeded and the lock was held to the end; 75 if the command did not run.
status=$(mktemp) || exit 75
trap 'rm -f "$status"' EXIT
psql -X -q -o /dev/null -v ON_ERROR_STOP=1 \
    -c "SET idle_session_timeout = 0" \
    -c "CALL zk_lock_wait('shop:migrations', '10 min')" \
    -c "\\! ($1); echo \$? >'$status'" \
    -c "SELECT zk_lock_token('shop:migrations')" \
    -c "SELECT zk_unlock('shop:migrations')"
held=$?
ran=$(cat "$status")
[ -n "$ran" ] || exit 75
[ "$ran" = 0 ] || exit "$ran"
exit $held
