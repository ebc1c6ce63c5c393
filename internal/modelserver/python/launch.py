"""Runs the Azure ML inference server on an address of the node's choice; to gunicorn it is the configuration for that.

Usage: launch.py HOST PORT SCRIPT DRAIN_SECONDS
"""
import mmap
import os
import shlex
import sys

PACKAGE = "azureml-inference-server-http"


def main(host, port, script, drain):
    sys.path.pop(0)  # this file's folder, which no score script knows of
    try:
        from azureml_inference_server_http import amlserver
        from gunicorn.errors import HaltServer
    except ImportError as why:
        sys.exit("The environment cannot run scoring scripts: %s cannot be imported (%s). "
                 "Add %s to the pip list of its conda_file, or use an image that has it." % (PACKAGE, why, PACKAGE))
    if not hasattr(amlserver, "DEFAULT_HOST"):
        sys.exit("The environment's %s is of a version that cannot be told where to listen; ask for >=0.8." % PACKAGE)
    if not os.path.isfile(script):
        sys.exit("The scoring script %r is not in the code; there is: %s" % (script, ", ".join(sorted(os.listdir("."))) or "nothing"))
    amlserver.DEFAULT_HOST = host
    os.environ["GUNICORN_CMD_ARGS"] = "--config %s --graceful-timeout %s %s" % (
        shlex.quote(os.path.abspath(__file__)), drain, os.environ.get("GUNICORN_CMD_ARGS", ""))
    sys.argv = ["azmlinfsrv", "--entry_script", script, "--port", port]
    try:
        amlserver.run()
    except HaltServer as why:  # gunicorn trips when another worker cannot boot either while it is ending for the first
        sys.exit(why.exit_status)


if __name__ == "__main__":
    main(*sys.argv[1:])
else:
    from gunicorn.errors import HaltServer
    from gunicorn.workers.sync import SyncWorker

    control_socket_disable = True  # it would be one for all replicas of a user

    def drained(run):
        """A worker that is told to end answers the connections too that were made before and wait their turn."""

        def run_and_drain(self):
            run(self)
            for listener in self.sockets if getattr(self, "leaving", False) else []:
                try:
                    while True:
                        self.notify()
                        self.accept(listener)
                except OSError:  # none waits
                    pass

        return run_and_drain

    def noted(handle_exit):
        def note_and_exit(self, sig, frame):
            self.leaving = True
            handle_exit(self, sig, frame)

        return note_and_exit

    # A class of our own is not taken by every gunicorn as worker_class.
    SyncWorker.run = drained(SyncWorker.run)
    SyncWorker.handle_exit = noted(SyncWorker.handle_exit)

    def pre_fork(server, worker):
        worker.booted_once = mmap.mmap(-1, 1)  # shared with the worker's process

    def post_worker_init(worker):
        worker.booted_once[0] = 1

    def child_exit(server, worker):
        # gunicorn ends by itself only when a worker that cannot boot exits. One that was killed, or that took longer than
        # WORKER_TIMEOUT, it would start again for ever. It has no listeners any more when it is ending anyway.
        booted = worker.booted_once[0]
        worker.booted_once.close()
        if server.LISTENERS and not booted:
            print("A worker ended before init() of the scoring script had returned: it was killed for want of memory, "
                  "it crashed, or it took longer than WORKER_TIMEOUT (%s s)." % server.cfg.timeout, file=sys.stderr, flush=True)
            raise HaltServer("Worker failed to boot.", 3)
