"""What runs inside a job: a training script that knows MLflow and nothing of this server. The job's environment says where to log."""
import os
import pathlib
import sys

import mlflow
import mlflow.sklearn
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from sklearn.linear_model import LogisticRegression

major = sys.argv[1]
kept = {"name": "model"} if major == "3" else {"artifact_path": "model"}
# MLflow 3's default format wants an allow-list of types; pickles do for a test.
kept.update({"serialization_format": "cloudpickle"} if major == "3" else {})

mlflow.autolog(log_models=False, silent=True)
with mlflow.start_run() as run:
    assert run.info.run_id == os.environ["MLFLOW_RUN_ID_WAS"], (run.info.run_id, os.environ["MLFLOW_RUN_ID_WAS"])
    model = LogisticRegression(max_iter=50).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    mlflow.log_param("lr", 0.1)
    mlflow.log_params({f"p{i}": i for i in range(120)})
    for step in range(10):
        mlflow.log_metric("loss", 1.0 / (step + 1), step=step)
    mlflow.log_metrics({"nan": float("nan"), "inf": float("inf")})
    mlflow.set_tags({"stage": "first", "odd tag": "é"})
    pathlib.Path("note.txt").write_text("a note\n")
    mlflow.log_artifact("note.txt", "notes")
    mlflow.log_text("hello", "deep/er/hello.txt")
    mlflow.log_dict({"a": 1}, "config.json")
    info = mlflow.sklearn.log_model(model, registered_model_name=f"in-job-{major}", **kept)
    with mlflow.start_run(nested=True, run_name="child") as child:
        mlflow.log_metric("loss", 7)
    try:
        mlflow.log_param("lr", 0.2)
        sys.exit("a parameter changed")
    except MlflowException as e:
        assert "Changing param values is not allowed" in str(e), e

# A second run of the same script: MLflow forgets MLFLOW_RUN_ID after the first.
with mlflow.start_run(run_name="second") as second:
    mlflow.log_metric("loss", 8)

client = MlflowClient()
assert client.get_run(run.info.run_id).info.status == "RUNNING", "the client ended the job"
loaded = mlflow.sklearn.load_model(info.model_uri)
assert list(loaded.predict([[0.0], [3.0]])) == [0, 1]


def refused(do, word):
    try:
        do()
    except MlflowException as e:
        assert e.error_code == "PERMISSION_DENIED" and word in str(e), e
        return
    sys.exit("a job wrote what is not its own: " + word)


refused(lambda: client.log_metric(os.environ["OTHER_RUN"], "loss", 0.0), "nested below it")
refused(lambda: client.set_tag(os.environ["OTHER_RUN"], "a", "b"), "nested below it")
refused(lambda: client.create_experiment("mine"), "leave set_experiment out")
refused(lambda: client.set_registered_model_alias(f"in-job-{major}", "champion", "1"), "user's token")
assert client.get_run(os.environ["OTHER_RUN"]).data.params == {"kind": "laptop"}
print("the job is done")
