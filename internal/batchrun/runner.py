"""Scores files in mini-batches on all nodes of a job.

Every node runs this program. The first one hands the mini-batches out and collects what comes back; each keeps its worker processes, in
which the scoring script's init() was called once and run(files) is called for each mini-batch. It needs nothing but Python: pandas and
MLflow are used where the script or the model brings them.
"""
import collections
import hmac
import http.client
import http.server
import importlib.util
import json
import logging
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
import urllib.request

WORK = ".batch"  # in the working directory: of ours, and never brought home
MOST_TOLD = 1000  # failures that logs/batch_errors.txt holds
STARTS = 3  # a worker that dies this often in a row before it is ready ends the job
log = logging.getLogger("batch")


def settings():
    return json.loads(os.environ["AZURE_ML_INPUT_batch_settings"])


def level(s):
    return {"debug": logging.DEBUG, "warning": logging.WARNING}.get(s["loggingLevel"].lower(), logging.INFO)


# Files and mini-batches.


def table_files(folder):
    """The files that an MLTable names, as far as it names them by path; all beside it if it names none."""
    with open(os.path.join(folder, "MLTable"), encoding="utf-8") as f:
        names = re.findall(r"^\s*-\s*(?:file|pattern|folder)\s*:\s*['\"]?(.+?)['\"]?\s*$", f.read(), re.MULTILINE)
    import glob
    found = []
    for name in names:
        for path in sorted(glob.glob(os.path.join(folder, name), recursive=True)):
            found += walk(path, path) if os.path.isdir(path) else [path]
    return found or [p for p in walk(folder, folder) if os.path.basename(p) != "MLTable"]


def walk(top, path):
    found = []
    for folder, folders, names in os.walk(path, followlinks=True):
        folders.sort()
        found += [os.path.join(folder, n) for n in sorted(names)]
    return found


def input_files(s):
    """Pairs of input and path below it, the same on every node."""
    pairs = []
    for name in s["inputs"]:
        top = os.environ["AZURE_ML_INPUT_" + name]
        if os.path.isfile(top):
            pairs.append([name, ""])
            continue
        table = os.path.isfile(os.path.join(top, "MLTable"))
        for path in table_files(top) if table else walk(top, top):
            pairs.append([name, os.path.relpath(path, top)])
    return pairs


def local_path(pair):
    top = os.environ["AZURE_ML_INPUT_" + pair[0]]
    return os.path.join(top, pair[1]) if pair[1] else top


# The coordinator, on the first node.


class Coordinator:
    def __init__(self, s, pairs, ranks):
        size = s["miniBatchSize"]
        self.s, self.ranks = s, ranks
        self.batches = [pairs[i:i + size] for i in range(0, len(pairs), size)]
        self.files = len(pairs)
        self.todo = collections.deque(range(len(self.batches)))
        self.tries = [0] * len(self.batches)
        self.finished = [False] * len(self.batches)
        self.leases = {}  # by worker
        self.left = len(self.batches)
        self.failed = 0
        self.failures = []
        self.error = ""  # why the job ends early
        self.gone = set()  # nodes that have no more to do
        self.segments = {}
        self.changed = threading.Condition()
        self.told = 0.0
        os.makedirs(WORK, exist_ok=True)
        self.rows = open(os.path.join(WORK, "rows"), "w+b")

    def over(self):
        return self.error != "" or self.left == 0

    def take(self, worker):
        until = time.monotonic() + 20
        with self.changed:
            lost = self.leases.pop(worker, None)
            if lost is not None and not self.finished[lost]:  # the answer with it did not arrive
                self.tries[lost] -= 1
                self.todo.appendleft(lost)
            while not self.over() and not self.todo:
                rest = until - time.monotonic()
                if rest <= 0:
                    return {"wait": True}
                self.changed.wait(rest)
            if self.over():
                return {"end": True}
            n = self.todo.popleft()
            self.tries[n] += 1
            self.leases[worker] = n
            return {"id": n, "try": self.tries[n], "files": self.batches[n]}

    def done(self, worker, m):
        """Takes what came of a mini-batch. The same word twice counts once."""
        n = m["id"]
        with self.changed:
            if self.leases.get(worker) != n or self.tries[n] != m["try"] or self.finished[n]:
                return {}
            del self.leases[worker]
            names = ", ".join(p[1] or os.path.basename(local_path(p)) for p in self.batches[n][:5])
            if len(self.batches[n]) > 5:
                names += ", …"
            if m.get("error"):
                again = self.tries[n] <= self.s["maxRetries"]
                log.warning("mini-batch %d (%s) failed, try %d of %d%s: %s", n, names, m["try"], 1 + self.s["maxRetries"],
                            ", it is tried again" if again else "", m["error"])
                if again:
                    self.todo.append(n)
                    self.changed.notify_all()
                    return {}
                self.fail(n, len(self.batches[n]), names, m["error"])
            else:
                text = m["rows"].encode()
                if text:
                    self.rows.seek(0, os.SEEK_END)
                    self.segments[n] = (self.rows.tell(), len(text))
                    self.rows.write(text)
                short = len(self.batches[n]) - m["count"]
                if short > 0:
                    self.fail(n, short, names, "run() returned %d results for %d files" % (m["count"], len(self.batches[n])))
            self.finished[n] = True
            self.left -= 1
            self.tell()
            self.changed.notify_all()
        return {}

    def fail(self, n, files, names, why):
        self.failed += files
        if len(self.failures) < MOST_TOLD:
            self.failures.append("mini-batch %d, %d of %d files (%s):\n%s\n" % (n, files, len(self.batches[n]), names, why))
        most = self.s["errorThreshold"]
        if 0 <= most < self.failed and not self.error:
            self.error = "%d files failed, and error_threshold lets %d fail" % (self.failed, most)

    def fatal(self, why):
        with self.changed:
            self.error = self.error or why
            self.changed.notify_all()

    def bye(self, rank):
        with self.changed:
            self.gone.add(rank)
            self.changed.notify_all()

    def tell(self):
        now = time.monotonic()
        if self.left == 0 or now - self.told >= 1:
            self.told = now
            done = len(self.batches) - self.left
            log.info("%d of %d mini-batches done, %d files failed", done, len(self.batches), self.failed)
            METRICS.put({"mini_batches_done": done, "files_failed": self.failed})

    def wait(self):
        """Returns when there is nothing left to do, and on every node the last worker has been told so."""
        with self.changed:
            while not self.over():
                self.changed.wait(60)
            while not self.error and len(self.gone) < self.ranks - 1:
                self.changed.wait(60)

    def write(self, folder):
        """Puts the rows into the output, in the order of the input."""
        if self.failures:
            os.makedirs("logs", exist_ok=True)
            with open(os.path.join("logs", "batch_errors.txt"), "w", encoding="utf-8") as f:
                f.write("\n".join(self.failures))
        if not self.s["append"]:
            return
        part = os.path.join(WORK, "ordered")
        with open(part, "wb") as out:
            for n in range(len(self.batches)):
                at, size = self.segments.get(n, (0, 0))
                self.rows.seek(at)
                while size > 0:
                    piece = self.rows.read(min(size, 1 << 20))
                    out.write(piece)
                    size -= len(piece)
        target = os.path.join(folder, self.s["outputFile"])
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        shutil.move(part, target)


class Metrics:
    """Tells MLflow how far the job is, now and then; gives up at the first trouble."""

    def __init__(self):
        self.latest, self.news, self.to = {}, threading.Event(), None

    def put(self, values):
        self.latest = values
        self.news.set()

    def start(self):
        base, run = os.environ.get("MLFLOW_TRACKING_URI", ""), os.environ.get("MLFLOW_RUN_ID", "")
        if base.startswith("http") and run:
            self.to = (base, run)
            threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while self.to and self.news.wait():
            self.news.clear()
            self.send()
            time.sleep(2)

    def end(self):
        """Tells how it ended."""
        if self.news.is_set():
            self.send()

    def send(self):
        try:
            if self.to:
                self.post(*self.to)
        except Exception as e:  # metrics are not worth a job
            self.to = None
            log.debug("no metrics: %s", e)

    def post(self, base, run):
        now = int(time.time() * 1000)
        body = {"run_id": run, "metrics": [{"key": k, "value": v, "timestamp": now, "step": 0} for k, v in self.latest.items()]}
        req = urllib.request.Request(base + "/api/2.0/mlflow/runs/log-batch", json.dumps(body).encode(),
                                     {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ.get("MLFLOW_TRACKING_TOKEN", "")})
        urllib.request.urlopen(req, timeout=5).close()


METRICS = Metrics()


def secret():
    return os.environ.get("TRAINYARD_GANG_TOKEN", "")


def serve(coordinator, host, port):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            said = self.headers.get("Authorization", "")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if not hmac.compare_digest(said.encode(), ("Bearer " + secret()).encode()):
                return self.answer(401, {})
            m = json.loads(body)
            if self.path == "/take":
                return self.answer(200, coordinator.take(m["worker"]))
            if self.path == "/done":
                return self.answer(200, coordinator.done(m["worker"], m))
            self.answer(200, {})  # before it is acted on: the end of this process may come of it
            if self.path == "/fatal":
                coordinator.fatal(m["why"])
            if self.path == "/bye":
                coordinator.bye(m["rank"])

        def answer(self, status, m):
            data = json.dumps(m).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request, client_address):  # a peer that is gone asks again
            log.debug("a connection broke: %s", sys.exc_info()[1])

    for i in range(60):
        for at in (host, ""):
            try:
                server = Server((at, port), Handler)
                threading.Thread(target=server.serve_forever, daemon=True).start()
                return
            except OSError as e:
                why = e
        time.sleep(0.5)
    sys.exit("the first node cannot listen on port %d: %s" % (port, why))


class Here:
    """The coordinator of this process, as workers' keepers call it."""

    def __init__(self, coordinator):
        self.c = coordinator

    def call(self, path, m):
        if path == "/take":
            return self.c.take(m["worker"])
        if path == "/done":
            return self.c.done(m["worker"], m)
        return self.c.fatal(m["why"])


class There:
    """The coordinator on the first node. Each keeper has its own connection."""

    def __init__(self, host, port):
        self.host, self.port, self.conn, self.met = host, port, None, False

    def call(self, path, m):
        body, since, said = json.dumps(m).encode(), time.monotonic(), False
        while True:
            try:
                if self.conn is None:
                    self.conn = http.client.HTTPConnection(self.host, self.port, timeout=60)
                self.conn.request("POST", path, body, {"Authorization": "Bearer " + secret(), "Content-Type": "application/json"})
                answer = self.conn.getresponse()
                data = answer.read()
                if answer.status != 200:
                    raise OSError("the first node answered %d" % answer.status)
                self.met = True
                return json.loads(data)
            except (OSError, http.client.HTTPException) as e:
                self.conn = None
                away = time.monotonic() - since
                if path == "/bye" and (isinstance(e, ConnectionRefusedError) or away > 5):
                    return {}  # it has gone already, and there was nothing left to do
                if self.met and away > 60:  # once it has been there; before that it may be building its environment
                    die("the first node is gone: %s" % e)
                if away > 15 and not said:
                    said = True
                    log.info("waiting for the first node at %s:%d (%s)", self.host, self.port, e)
                time.sleep(0.2)


# Keepers: one thread for each worker process of this node.


class Keeper(threading.Thread):
    def __init__(self, s, rank, number, link):
        super().__init__(daemon=True)
        self.s, self.link, self.worker = s, link, "%d.%d" % (rank, number)
        self.proc, self.said = None, None

    def run(self):
        try:
            while True:
                m = self.link.call("/take", {"worker": self.worker})
                if m.get("end"):
                    break
                if not m.get("wait"):
                    self.score(m)
        except Exception:
            self.link.call("/fatal", {"why": "worker %s: %s" % (self.worker, traceback.format_exc())})
        self.kill()

    def score(self, m):
        out = {"worker": self.worker, "id": m["id"], "try": m["try"]}
        if self.proc is None and not self.start_worker():
            return
        try:
            self.proc.stdin.write(json.dumps({"files": [local_path(p) for p in m["files"]]}).encode() + b"\n")
            self.proc.stdin.flush()
            answer = self.said.get(timeout=self.s["timeout"])
        except queue.Empty:
            answer = {"error": "it took longer than retry_settings.timeout, %g s" % self.s["timeout"]}
            self.kill()
        except OSError:
            answer = None
        if answer is None:
            answer = {"error": "its worker process " + self.death()}
        out.update(answer)
        self.link.call("/done", out)

    def start_worker(self):
        """Starts a worker and waits until it has done init(). False: the job ends."""
        for i in range(STARTS):
            self.proc = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--worker", self.worker], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, start_new_session=os.name == "posix")
            KEPT.add(self.proc)
            self.said = queue.Queue()
            threading.Thread(target=self.listen, args=(self.proc.stdout, self.said), daemon=True).start()
            first = self.said.get()
            if first and first.get("ready"):
                return True
            if first:
                self.kill()
                self.link.call("/fatal", {"why": first["error"]})
                return False
            how = self.death()
            log.warning("a worker process %s before it was ready, start %d of %d", how, i + 1, STARTS)
        self.link.call("/fatal", {"why": "a worker process %s in init(), %d times in a row" % (how, STARTS)})
        return False

    @staticmethod
    def listen(pipe, said):
        for line in pipe:
            try:
                said.put(json.loads(line))
            except ValueError:
                log.warning("a worker said what cannot be read: %r", line[:200])
        said.put(None)

    def death(self):
        proc, self.proc = self.proc, None
        kill(proc, wait=5)
        code = proc.returncode
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            return "died of %s%s" % (name, " (out of memory?)" if -code == signal.SIGKILL else "")
        return "ended with exit code %s" % code

    def kill(self):
        if self.proc is not None:
            kill(self.proc)
            self.proc = None


KEPT = set()


def kill(proc, wait=0.0):
    """Ends a worker process and what it started."""
    try:
        if wait:
            proc.wait(wait)
    except subprocess.TimeoutExpired:
        pass
    try:
        if os.name == "posix":
            os.killpg(proc.pid, signal.SIGKILL)
        else:
            proc.kill()
    except OSError:
        pass
    proc.wait()
    KEPT.discard(proc)


def end_workers():
    for proc in list(KEPT):
        kill(proc)


def die(why):
    log.error("%s", why)
    end_workers()
    sys.stderr.flush()
    os._exit(1)


# A worker process.


class Scored:
    """Rows of a file, and how many files they came of."""

    def __init__(self, frame, count):
        self.frame, self.count = frame, count


def render(result):
    """Rows as text, and how many results they are. Tables are written as Azure ML does: separated by blanks, without a header."""
    if isinstance(result, Scored):
        return (result.frame.to_csv(sep=" ", header=False, index=False) if result.frame is not None else ""), result.count
    if hasattr(result, "to_csv"):
        return result.to_csv(sep=" ", header=False, index=False), len(result)
    if isinstance(result, (list, tuple)) or hasattr(result, "tolist"):
        return "".join("%s\n" % (r,) for r in result), len(result)
    raise TypeError("run() returned %s; it must return a list or a pandas DataFrame with a result for each file" % type(result).__name__)


def load_script(path):
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    if not callable(getattr(module, "run", None)):
        raise AttributeError("%s has no function run(mini_batch)" % os.path.basename(path))
    return getattr(module, "init", lambda: None), module.run


def mlflow_script():
    """What scores with an MLflow model when there is no script: a row for each prediction, with its number in the file and the file's name."""
    import mlflow.pyfunc
    import pandas

    model = []

    def init():
        top = os.environ["AZUREML_MODEL_DIR"]
        found = sorted(f for f, _, names in os.walk(top, followlinks=True) if "MLmodel" in names)
        if not found:
            raise FileNotFoundError("there is no MLmodel in the model's folder")
        model.append(mlflow.pyfunc.load_model(found[0]))

    def read(path):
        kind = os.path.splitext(path)[1].lower()
        if kind == ".parquet":
            return pandas.read_parquet(path)
        if kind in (".json", ".jsonl"):
            return pandas.read_json(path, lines=kind == ".jsonl")
        if kind in (".csv", ".tsv", ".txt", ""):
            return pandas.read_csv(path, sep="\t" if kind == ".tsv" else ",")
        raise ValueError("%s is no file that is read without a scoring script: csv, tsv, parquet, json and jsonl are" % os.path.basename(path))

    def run(files):
        frames, good = [], 0
        for path in files:
            try:
                found = model[0].predict(read(path))
                out = found.reset_index(drop=True) if isinstance(found, pandas.DataFrame) else pandas.DataFrame({"prediction": list(found)})
                out.insert(0, "row", range(len(out)))
                out["file"] = os.path.basename(path)
                frames.append(out)
                good += 1
            except Exception:
                log.exception("%s could not be scored", path)
        if files and not good:
            raise RuntimeError("none of the %d files of the mini-batch could be scored; the log says why" % len(files))
        return Scored(pandas.concat(frames) if frames else None, good)

    return init, run


def work(name):
    """Serves requests on standard input. What the script prints goes to the log."""
    said, asked = os.fdopen(os.dup(1), "wb"), os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    try:
        with open("/proc/self/oom_score_adj", "w") as f:  # where memory ends, it ends here and not in who keeps count
            f.write("1000")
    except OSError:
        pass
    s = settings()
    logging.basicConfig(level=level(s), format="%(asctime)s %(levelname)s [" + name + "] %(message)s", stream=sys.stderr)

    def say(m):
        said.write(json.dumps(m).encode() + b"\n")
        said.flush()

    todo = queue.Queue()

    def listen():
        for line in asked:
            todo.put(json.loads(line))
        os._exit(0)  # whoever kept us is gone

    threading.Thread(target=listen, daemon=True).start()
    try:
        init, run = load_script(s["script"]) if s["script"] else mlflow_script()
        init()
    except BaseException as e:
        traceback.print_exc()
        say({"error": "init() failed: %s: %s" % (type(e).__name__, e)})
        return
    say({"ready": True})
    while True:
        files = todo.get()["files"]
        try:
            rows, count = render(run(files))
        except Exception:
            say({"error": traceback.format_exc()})
            continue
        say({"rows": rows if s["append"] else "", "count": count})


# A node.


def lay_out(s):
    """Where the script finds the model and leaves its own outputs. The model's folder holds the model under the name that it was registered with."""
    os.makedirs(WORK, exist_ok=True)
    if s["model"]:
        top = os.path.abspath(os.path.join(WORK, "model"))
        os.makedirs(top, exist_ok=True)
        at, real = os.path.join(top, s["model"]), os.environ["AZURE_ML_INPUT_model"]
        if not os.path.lexists(at):
            try:
                os.symlink(real, at, target_is_directory=os.path.isdir(real))
            except OSError:
                shutil.copytree(real, at) if os.path.isdir(real) else shutil.copy(real, at)
        os.environ["AZUREML_MODEL_DIR"] = top
    own = os.path.abspath(os.path.join(WORK, "out"))
    os.makedirs(own, exist_ok=True)
    os.environ["AZUREML_BI_OUTPUT_PATH"] = own
    os.environ["PYTHONUNBUFFERED"] = "1"
    return own


def bring(own, folder):
    """Moves what scripts wrote into the output. It stays apart until then: an attempt that is cut short leaves nothing that the next would double."""
    for path in walk(own, own):
        to = os.path.join(folder, os.path.relpath(path, own))
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.move(path, to)


def keep(s, rank, links):
    keepers = [Keeper(s, rank, i, links()) for i in range(s["concurrency"])]
    for k in keepers:
        k.start()
    return keepers


def first(s, own, ranks, host, port):
    pairs = input_files(s)
    if not pairs:
        die("there is nothing to score: the input holds no files")
    c = Coordinator(s, pairs, ranks)
    log.info("%d files in %d mini-batches, for %d workers on each of %d nodes", len(pairs), len(c.batches), s["concurrency"], ranks)
    METRICS.start()
    if ranks > 1:
        serve(c, host, port)
    keepers = keep(s, 0, lambda: Here(c))
    c.wait()
    if not c.error:
        for k in keepers:
            k.join()
    end_workers()
    METRICS.end()
    folder = os.environ["AZURE_ML_OUTPUT_score"]
    c.write(folder)
    bring(own, folder)
    done = len(c.batches) - c.left
    if c.error:
        die("the job ends early, with %d of %d mini-batches done: %s" % (done, len(c.batches), c.error))
    log.info("all done: %d files, %d failed%s", c.files, c.failed, "; logs/batch_errors.txt says why" if c.failed else "")


def other(s, own, rank, host, port):
    for k in keep(s, rank, lambda: There(host, port)):
        k.join()
    end_workers()
    bring(own, os.environ["AZURE_ML_OUTPUT_score"])
    There(host, port).call("/bye", {"rank": rank})


def main():
    s = settings()
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    logging.basicConfig(level=level(s), format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, frame: (end_workers(), os._exit(128 + n)))
    own = lay_out(s)
    host, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "0"))
    if rank == 0:
        first(s, own, ranks, host, port)
    else:
        other(s, own, rank, host, port)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2])
    else:
        main()
