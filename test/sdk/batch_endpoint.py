"""A batch endpoint through the official Python SDK, unmodified: deployed, invoked, watched, downloaded, listed.

Run by test/sdk/run.sh, which starts a server and sets the variables that azure-identity and requests read.
"""
import pathlib
import socket
import sys
import tempfile

# RFC 6761: names below .localhost are this machine. Not every C library's resolver knows.
_getaddrinfo = socket.getaddrinfo


def getaddrinfo(host, *args, **kwargs):
    name = host.decode() if isinstance(host, bytes) else host
    if isinstance(name, str) and name.endswith(".localhost"):
        host = "127.0.0.1"
    return _getaddrinfo(host, *args, **kwargs)


socket.getaddrinfo = getaddrinfo

from azure.ai.ml import Input, MLClient  # noqa: E402
from azure.ai.ml.constants import AssetTypes  # noqa: E402
from azure.ai.ml.entities import AmlCompute, BatchEndpoint, BatchRetrySettings, CodeConfiguration, Model, ModelBatchDeployment, ModelBatchDeploymentSettings  # noqa: E402
from azure.identity import DefaultAzureCredential  # noqa: E402

ml = MLClient(DefaultAzureCredential(), "00000000-0000-0000-0000-000000000000", "default", "default")
ml.compute.begin_create_or_update(AmlCompute(name="batch-cluster", size="Standard_DS3_v2", min_instances=0, max_instances=2, idle_time_before_scale_down=2)).result()

endpoint = ml.batch_endpoints.begin_create_or_update(BatchEndpoint(name="sdk-batch", description="lengths of lines")).result()
assert endpoint.provisioning_state == "Succeeded" and endpoint.auth_mode == "aad_token", endpoint

with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    for name, text in {"code/score.py": "import os\n\ndef init():\n    global unit\n    unit = open(os.path.join(os.environ['AZUREML_MODEL_DIR'], 'unit.txt')).read()\n\n"
                                        "def run(files):\n    return ['%s %d %s' % (os.path.basename(f), len(open(f).read()), unit) for f in files]\n",
                       "unit.txt": "bytes", "data/a.txt": "abc", "data/b.txt": "", "data/c.txt": "de"}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    model = ml.models.create_or_update(Model(name="unit", path=str(folder / "unit.txt"), type=AssetTypes.CUSTOM_MODEL))
    deployment = ml.batch_deployments.begin_create_or_update(ModelBatchDeployment(
        name="lengths", endpoint_name="sdk-batch", model=model, compute="batch-cluster",
        code_configuration=CodeConfiguration(code=str(folder / "code"), scoring_script="score.py"),
        settings=ModelBatchDeploymentSettings(mini_batch_size=1, instance_count=2, max_concurrency_per_instance=1, output_action="append_row", output_file_name="lengths.txt",
                                              retry_settings=BatchRetrySettings(max_retries=2, timeout=60), logging_level="info"))).result()
    assert deployment.name == "lengths", deployment
    got = ml.batch_deployments.get("lengths", "sdk-batch")
    assert got.mini_batch_size == 1 and got.retry_settings.timeout == 60 and got.output_action == "append_row" and got.instance_count == 2, got

    endpoint = ml.batch_endpoints.get("sdk-batch")
    endpoint.defaults.deployment_name = "lengths"
    assert ml.batch_endpoints.begin_create_or_update(endpoint).result().defaults.deployment_name == "lengths"

    job = ml.batch_endpoints.invoke("sdk-batch", inputs={"texts": Input(type=AssetTypes.URI_FOLDER, path=str(folder / "data"))})
    ml.jobs.stream(job.name)
    assert ml.jobs.get(job.name).status == "Completed"
    ml.jobs.download(job.name, output_name="score", download_path=str(folder / "down"))
    rows = [p.read_text() for p in (folder / "down").rglob("lengths.txt")]
    assert rows == ["a.txt 3 bytes\nb.txt 0 bytes\nc.txt 2 bytes\n"], rows
    assert [j.name for j in ml.batch_endpoints.list_jobs("sdk-batch")] == [job.name]
    assert [c.display_name for c in ml.jobs.list(parent_job_name=job.name)] == ["batchscoring"]

    one = ml.batch_endpoints.invoke("sdk-batch", deployment_name="lengths", input=Input(type=AssetTypes.URI_FILE, path=str(folder / "data" / "a.txt")))
    ml.jobs.stream(one.name)
    try:
        ml.batch_endpoints.invoke("sdk-batch", deployment_name="nowhere", input=Input(type=AssetTypes.URI_FILE, path=str(folder / "data" / "a.txt")))
        sys.exit("a deployment that does not exist was invoked")
    except Exception as e:  # the SDK raises its own ValidationException
        assert "nowhere" in str(e), e

    assert [d.name for d in ml.batch_deployments.list("sdk-batch")] == ["lengths"]
    ml.batch_endpoints.begin_delete("sdk-batch").result()
    assert "sdk-batch" not in [e.name for e in ml.batch_endpoints.list()]

ml.compute.begin_delete("batch-cluster").result()
print("batch endpoint: 1 passed, 0 failed")
