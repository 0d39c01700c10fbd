# Runs a server that ends with the process that started it, whatever ends that process.
# Arguments: DIRECTORY LOG COMMAND...   Prints the server's process id. Exits when the server does.
#
# Standard input is a pipe whose other end only the test process holds: its end of file means that
# the test is gone, also by SIGKILL. Then the server goes, and its directory with it.

# When the test dies while the server is stopped, the kernel hangs up on this process group.
trap '' HUP

directory=$1 log=$2
shift 2
exec 3<&0

"$@" 3<&- </dev/null >>"$log" 2>&1 &
server=$!
echo $server

{
    read -r _
    trap '' TERM # from here on nothing stops the clean-up, see the last line
    kill -9 $server
    rm -rf -- "$directory"
} <&3 &
lifeline=$!

wait $server
kill $lifeline
