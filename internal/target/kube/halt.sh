# Asks the task in the pod to end: $1 is how many milliseconds its process may take.
echo "$1" >/trainyard/bin/grace.new && mv /trainyard/bin/grace.new /trainyard/bin/grace
kill -TERM 1
