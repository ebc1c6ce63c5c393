"""The main job through the official Python SDK, unmodified: one environment variable points it here.

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

from azure.ai.ml import Input, MLClient, Output, command  # noqa: E402
from azure.ai.ml.constants import AssetTypes  # noqa: E402
from azure.ai.ml.entities import AmlCompute, Data, Environment  # noqa: E402
from azure.core.exceptions import ResourceNotFoundError  # noqa: E402
from azure.identity import DefaultAzureCredential  # noqa: E402

ml = MLClient(DefaultAzureCredential(), "00000000-0000-0000-0000-000000000000", "default", "default")
assert ml.workspaces.get("default").name == "default"
assert [c.name for c in ml.compute.list()] == ["local"]

cluster = ml.compute.begin_create_or_update(AmlCompute(name="sdk-cluster", size="Standard_DS3_v2", min_instances=0, max_instances=1,
                                                       idle_time_before_scale_down=2)).result()
assert cluster.provisioning_state == "Succeeded", cluster.provisioning_state

try:
    ml.jobs.get("no-such-job")
    sys.exit("a job that does not exist was found")
except ResourceNotFoundError as e:
    assert "no-such-job" in str(e), e

ml.environments.create_or_update(Environment(name="plain", version="1", image="python:3.11"))
assert ml.environments.get("plain", label="latest").version == "1"

with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    (folder / "rows.csv").write_text("1,2\n3,4\n")
    data = ml.data.create_or_update(Data(name="rows", version="1", type=AssetTypes.URI_FILE, path=str(folder / "rows.csv")))
    assert data.path.startswith("azureml://"), data.path

    src = folder / "src"
    src.mkdir()
    (src / "main.py").write_text(
        "import sys, pathlib, os\n"
        "rows = open(sys.argv[1]).read()\n"
        "pathlib.Path(sys.argv[2], 'copy.csv').write_text(rows)\n"
        "os.makedirs('outputs', exist_ok=True)\n"
        "pathlib.Path('outputs/note.txt').write_text('kept')\n"
        "print('rows:', rows.split(), 'rate:', sys.argv[3], flush=True)\n")
    job = command(code=str(src), command="python3 main.py ${{inputs.rows}} ${{outputs.out}} ${{inputs.rate}}", compute="sdk-cluster",
                  environment=Environment(name="plain", version="1", image="python:3.11"), experiment_name="sdk",
                  inputs={"rows": Input(type=AssetTypes.URI_FILE, path="azureml:rows:1"), "rate": 0.1},
                  outputs={"out": Output(type=AssetTypes.URI_FOLDER)})
    made = ml.jobs.create_or_update(job)
    ml.jobs.stream(made.name)
    done = ml.jobs.get(made.name)
    assert done.status == "Completed", done.status
    done.tags["read"] = "back"  # what was read may be sent back with other tags
    assert ml.jobs.create_or_update(done).tags["read"] == "back"

    ml.jobs.download(made.name, download_path=str(folder / "down"), all=True)
    found = {p.name: p.read_text(errors="replace") for p in (folder / "down").rglob("*") if p.is_file()}
    assert found.get("copy.csv") == "1,2\n3,4\n", found
    assert found.get("note.txt") == "kept", found
    assert "rate: 0.1" in found.get("std_log.txt", ""), found

    failing = ml.jobs.create_or_update(command(command="exit 7", compute="sdk-cluster", environment="azureml:plain:1"))
    try:
        ml.jobs.stream(failing.name)
        sys.exit("a job that fails streamed without an exception")
    except Exception as e:  # the SDK raises its own JobException
        assert "exit code 7" in str(e), e

    assert made.name in [j.name for j in ml.jobs.list()]
    ml.jobs.archive(made.name)
    assert made.name not in [j.name for j in ml.jobs.list()]

ml.compute.begin_delete("sdk-cluster").result()
print("1 passed, 0 failed")
