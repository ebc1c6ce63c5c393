"""The real MLflow against a real server: runs of jobs, runs of laptops, the registry. Run by run.sh with the server's address in the environment.

"work" does it all; "after" looks, after the server was killed and started again, whether it is still there.
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request

import mlflow
import mlflow.sklearn
from mlflow.entities import Metric, Param, RunTag, ViewType
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from sklearn.linear_model import LogisticRegression

what, major = sys.argv[1:]
here = pathlib.Path(__file__).resolve().parent
client = MlflowClient()
job = f"mljob{major}"
experiment = f"real client {major}"
laptop = f"laptop-{major}"
extra = {"serialization_format": "cloudpickle"} if major == "3" else {}


def trainyard(*args):
    done = subprocess.run([os.environ["TRAINYARD"], *args], capture_output=True, text=True)
    assert done.returncode == 0, (args, done.stdout, done.stderr)
    return done.stdout


def asset(path):
    """The properties of a resource, as Azure's own clients see them."""
    base, workspace = os.environ["MLFLOW_TRACKING_URI"].split("/mlflow/v1.0")
    ask = urllib.request.Request(f"{base}{workspace}/{path}?api-version=2024-10-01", headers={"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"]})
    with urllib.request.urlopen(ask) as answer:
        return json.load(answer)["properties"]


def fails(code, do):
    try:
        do()
    except MlflowException as e:
        assert e.error_code == code, (code, e.error_code, str(e))
        return str(e)
    raise AssertionError(f"want {code}")


def run_job(other):
    with tempfile.TemporaryDirectory() as folder:
        spec = {"command": f'MLFLOW_RUN_ID_WAS="$MLFLOW_RUN_ID" {sys.executable} -W ignore job.py {major}', "code": str(here), "compute": "local",
                "experiment_name": experiment, "display_name": "a job of MLflow's", "tags": {"team": "blue"},
                "environment_variables": {"OTHER_RUN": other, "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_DISABLE_TELEMETRY": "true"}}
        path = pathlib.Path(folder, "job.yml")
        path.write_text(json.dumps(spec))
        trainyard("job", "create", "--file", str(path), "--name", job)
        trainyard("job", "stream", "--name", job)


def check_job():
    run = client.get_run(job)
    assert run.info.status == "FINISHED" and run.info.end_time >= run.info.start_time > 0, run.info
    assert run.data.tags["mlflow.runName"] == "a job of MLflow's" and run.data.tags["team"] == "blue", run.data.tags
    assert run.data.tags["odd tag"] == "é" and run.data.tags["mlflow.user"], run.data.tags
    assert run.data.params["lr"] == "0.1" and run.data.params["p119"] == "119" and run.data.params["max_iter"] == "50", run.data.params
    assert run.data.metrics["loss"] == 0.1 and math.isnan(run.data.metrics["nan"]) and run.data.metrics["inf"] == math.inf, run.data.metrics
    history = client.get_metric_history(job, "loss")
    assert [(m.step, m.value) for m in history] == [(i, 1 / (i + 1)) for i in range(10)], history
    e = client.get_experiment_by_name(experiment)
    assert run.info.experiment_id == e.experiment_id == client.get_experiment(e.experiment_id).experiment_id
    top = {f.path: f.is_dir for f in client.list_artifacts(job)}
    assert top["notes"] and top["user_logs"] and top["config.json"] is False and "_mlflow" not in top, top
    assert [(f.path, f.file_size) for f in client.list_artifacts(job, "notes")] == [("notes/note.txt", 7)]
    with tempfile.TemporaryDirectory() as folder:
        path = client.download_artifacts(job, "", folder)
        assert pathlib.Path(path, "deep/er/hello.txt").read_text() == "hello"
        assert "the job is done" in pathlib.Path(path, "user_logs/std_log.txt").read_text()
    children = client.search_runs([e.experiment_id], f"tags.mlflow.parentRunId = '{job}'", order_by=["metrics.loss DESC"])
    assert [(r.info.run_name, r.data.metrics["loss"], r.info.status) for r in children] == [("second", 8, "FINISHED"), ("child", 7, "FINISHED")], children
    found = mlflow.search_runs([e.experiment_id], "metrics.loss < 0.5 and params.lr = '0.1' and tags.`odd tag` LIKE 'é%' and attributes.status = 'FINISHED'")
    assert list(found["run_id"]) == [job], found
    v = client.get_model_version(f"in-job-{major}", "1")
    assert v.run_id == job and v.status == "READY", v
    shown = asset(f"models/in-job-{major}/versions/1")
    assert shown["modelUri"].startswith("azureml://") and f"dcid.{job}/" in shown["modelUri"] and shown["modelType"] == "mlflow_model", shown
    loaded = mlflow.sklearn.load_model(f"models:/in-job-{major}/1")
    assert list(loaded.predict([[0.0], [3.0]])) == [0, 1]


def check_laptop():
    e = client.get_experiment_by_name(laptop)
    run = client.search_runs([e.experiment_id], "params.kind = 'laptop'", max_results=1)[0]
    assert run.info.status == "FAILED" and run.data.metrics["m"] == 999 and run.data.tags["late"] == "yes", run
    history = client.get_metric_history(run.info.run_id, "m")
    assert [m.value for m in history] == list(range(1000))
    v = client.get_model_version_by_alias(f"house-{major}", "champion")
    assert v.version in ("1", 1) and v.tags == {"q": "good"} and v.description == "the first", v
    assert list(mlflow.sklearn.load_model(f"models:/house-{major}@champion").predict([[0.0], [3.0]])) == [0, 1]


def work_laptop():
    assert client.get_experiment("0").name == "Default"
    e = mlflow.set_experiment(laptop)
    assert mlflow.set_experiment(laptop).experiment_id == e.experiment_id
    fails("RESOURCE_ALREADY_EXISTS", lambda: client.create_experiment(laptop))
    client.set_experiment_tag(e.experiment_id, "team", "red")
    found = client.search_experiments(filter_string="tags.team = 'red' AND name LIKE 'laptop%'")
    assert e.experiment_id in [x.experiment_id for x in found]
    run = client.create_run(e.experiment_id, run_name="by hand")
    rid = run.info.run_id
    client.log_batch(rid, metrics=[Metric("m", float(i), 1_700_000_000_000 + i, i) for i in range(900)], params=[Param("kind", "laptop")],
                     tags=[RunTag("early", "yes")])
    client.log_batch(rid, metrics=[Metric("m", float(i), 1_700_000_000_000 + i, i) for i in range(900, 1000)])
    client.set_tag(rid, "late", "yes")
    client.delete_tag(rid, "early")
    fails("RESOURCE_DOES_NOT_EXIST", lambda: client.delete_tag(rid, "early"))
    fails("RESOURCE_DOES_NOT_EXIST", lambda: client.get_run("no-such-run"))
    fails("INVALID_PARAMETER_VALUE", lambda: client.log_param(rid, "kind", "other"))
    fails("INVALID_PARAMETER_VALUE", lambda: client.search_runs([e.experiment_id], "metrics.m ~ 3"))
    client.set_terminated(rid, "FAILED")
    other = client.create_run(e.experiment_id)
    client.delete_run(other.info.run_id)
    assert [r.info.run_id for r in client.search_runs([e.experiment_id])] == [rid]
    assert [r.info.run_id for r in client.search_runs([e.experiment_id], run_view_type=ViewType.DELETED_ONLY)] == [other.info.run_id]
    client.restore_run(other.info.run_id)
    first = client.search_runs([e.experiment_id], max_results=1)
    assert first.token and len(client.search_runs([e.experiment_id], max_results=1, page_token=first.token)) == 1
    x = client.create_experiment(f"gone {major}")
    client.delete_experiment(x)
    assert client.get_experiment(x).lifecycle_stage == "deleted"
    client.restore_experiment(x)
    client.rename_experiment(x, f"found {major}")
    assert client.get_experiment_by_name(f"found {major}").experiment_id == x
    data = mlflow.data.from_numpy(__import__("numpy").zeros((2, 2)), name="zeros")
    with mlflow.start_run(run_id=other.info.run_id):
        mlflow.log_input(data, context="training")
    found = client.search_runs([e.experiment_id], "dataset.name = 'zeros' AND dataset.context = 'training'")
    assert [r.info.run_id for r in found] == [other.info.run_id]
    return rid


def work_registry(rid):
    name = f"house-{major}"
    model = LogisticRegression().fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    with mlflow.start_run() as run:
        at = mlflow.sklearn.log_model(model, **({"name": "m"} if major == "3" else {"artifact_path": "m"}), **extra)
    if major == "3":
        logged = client.get_logged_model(at.model_id)
        assert logged.status == "READY" and logged.source_run_id == run.info.run_id, logged
        assert [m.model_id for m in client.search_logged_models([run.info.experiment_id], "name = 'm'")] == [at.model_id]
        client.set_logged_model_tags(at.model_id, {"a": "b"})
        mlflow.log_metric("acc", 0.9, run_id=run.info.run_id, model_id=at.model_id)
        assert [(m.key, m.value) for m in client.get_logged_model(at.model_id).metrics] == [("acc", 0.9)]
        assert [o.model_id for o in client.get_run(run.info.run_id).outputs.model_outputs] == [at.model_id]
    v = mlflow.register_model(f"runs:/{run.info.run_id}/m", name)
    assert str(v.version) == "1", v
    second = mlflow.register_model(at.model_uri, name)
    assert str(second.version) == "2", second
    client.set_registered_model_alias(name, "champion", "1")
    client.set_model_version_tag(name, "1", "q", "good")
    client.update_model_version(name, "1", "the first")
    client.update_registered_model(name, "houses")
    client.set_registered_model_tag(name, "kind", "tree")
    client.transition_model_version_stage(name, "2", "Production", archive_existing_versions=True)
    assert [str(v.version) for v in client.get_latest_versions(name, ["Production"])] == ["2"]
    m = client.get_registered_model(name)
    assert m.description == "houses" and m.tags == {"kind": "tree"} and {k: str(n) for k, n in m.aliases.items()} == {"champion": "1"}, m
    assert [str(v.version) for v in client.search_model_versions(f"name = '{name}'", order_by=["version_number ASC"])] == ["1", "2"]
    assert name in [m.name for m in client.search_registered_models("tags.kind = 'tree'")]
    client.create_registered_model(f"empty-{major}")
    client.rename_registered_model(f"empty-{major}", f"void-{major}")
    client.delete_registered_model(f"void-{major}")
    fails("RESOURCE_DOES_NOT_EXIST", lambda: client.get_registered_model(f"void-{major}"))
    fails("RESOURCE_DOES_NOT_EXIST", lambda: client.get_model_version(name, "9"))


def work_traces():
    @mlflow.trace
    def double(x):
        return 2 * x

    assert double(21) == 42
    if hasattr(mlflow, "flush_trace_async_logging"):
        mlflow.flush_trace_async_logging()
    e = client.get_experiment_by_name(laptop)
    for _ in range(50):
        if found := client.search_traces([e.experiment_id]):
            break
        time.sleep(0.1)
    assert len(found) == 1 and found[0].data.spans[0].outputs == 42, found
    client.set_trace_tag(found[0].info.request_id, "seen", "yes")
    assert len(client.search_traces([e.experiment_id], filter_string="tags.seen = 'yes'")) == 1


if what == "work":
    rid = work_laptop()
    work_registry(rid)
    work_traces()
    run_job(rid)
else:
    # Azure's clients and the command see the same files, and not what MLflow logged beside them.
    with tempfile.TemporaryDirectory() as folder:
        trainyard("job", "download", "--name", job, "--all", "--download-path", folder)
        names = {p.relative_to(folder).as_posix() for p in pathlib.Path(folder).rglob("*") if p.is_file()}
        assert "artifacts/notes/note.txt" in names and not [n for n in names if n.endswith(".jsonl")], names
check_laptop()
check_job()
if what == "after":
    trainyard("job", "delete", "--name", job, "--yes")
    fails("RESOURCE_DOES_NOT_EXIST", lambda: client.get_run(job))
print(f"mlflow {mlflow.__version__}: {what} passed")
