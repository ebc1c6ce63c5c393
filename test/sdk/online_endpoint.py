"""An online endpoint through the official Python SDK, unmodified: made, deployed to, invoked, scaled, read, deleted.

Run by test/sdk/run.sh, which starts a server and sets the variables that azure-identity and requests read.
"""
import json
import pathlib
import socket
import tempfile

# RFC 6761: names below .localhost are this machine. Not every C library's resolver knows.
_getaddrinfo = socket.getaddrinfo


def getaddrinfo(host, *args, **kwargs):
    name = host.decode() if isinstance(host, bytes) else host
    if isinstance(name, str) and name.endswith(".localhost"):
        host = "127.0.0.1"
    return _getaddrinfo(host, *args, **kwargs)


socket.getaddrinfo = getaddrinfo

from azure.ai.ml import MLClient  # noqa: E402
from azure.ai.ml.entities import CodeConfiguration, Environment, ManagedOnlineDeployment, ManagedOnlineEndpoint, Model, OnlineRequestSettings  # noqa: E402
from azure.core.exceptions import ResourceNotFoundError  # noqa: E402
from azure.identity import DefaultAzureCredential  # noqa: E402

ml = MLClient(DefaultAzureCredential(), "00000000-0000-0000-0000-000000000000", "default", "default")
endpoint = ml.online_endpoints.begin_create_or_update(ManagedOnlineEndpoint(name="sdk-online", auth_mode="key", tags={"a": "b"})).result()
assert endpoint.provisioning_state == "Succeeded" and endpoint.auth_mode == "key" and endpoint.scoring_uri, endpoint

with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    for name, text in {"code/score.py": "import json, os\n\ndef init():\n    global unit\n    unit = open(os.path.join(os.environ['AZUREML_MODEL_DIR'], 'unit.txt')).read()\n\n"
                                        "def run(data):\n    return [unit, len(json.loads(data)['data'])]\n",
                       "unit.txt": "items", "in.json": '{"data": [1, 2, 3]}',
                       "conda.yml": "dependencies: [python=3.11, {pip: [azureml-inference-server-http]}]\n"}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    deployment = ml.online_deployments.begin_create_or_update(ManagedOnlineDeployment(
        name="blue", endpoint_name="sdk-online", model=Model(path=str(folder / "unit.txt")),
        code_configuration=CodeConfiguration(code=str(folder / "code"), scoring_script="score.py"),
        environment=Environment(image="mcr.microsoft.com/azureml/minimal-ubuntu22.04-py39-cpu-inference", conda_file=str(folder / "conda.yml")),
        instance_type="Standard_DS3_v2", instance_count=1, request_settings=OnlineRequestSettings(request_timeout_ms=4000))).result()
    assert deployment.provisioning_state == "Succeeded" and deployment.instance_count == 1 and deployment.request_settings.request_timeout_ms == 4000, deployment

    endpoint.traffic = {"blue": 100}
    assert ml.online_endpoints.begin_create_or_update(endpoint).result().traffic == {"blue": 100}
    assert json.loads(ml.online_endpoints.invoke("sdk-online", request_file=str(folder / "in.json"))) == ["items", 3]
    assert json.loads(ml.online_endpoints.invoke("sdk-online", deployment_name="blue", request_file=str(folder / "in.json"))) == ["items", 3]

keys = ml.online_endpoints.get_keys("sdk-online")
ml.online_endpoints.begin_regenerate_keys("sdk-online", key_type="secondary").result()
again = ml.online_endpoints.get_keys("sdk-online")
assert keys.primary_key == again.primary_key and keys.secondary_key != again.secondary_key

deployment = ml.online_deployments.get("blue", "sdk-online")
deployment.instance_count = 2
assert ml.online_deployments.begin_create_or_update(deployment).result().instance_count == 2
assert "azmlinfsrv" in ml.online_deployments.get_logs("blue", "sdk-online", lines=100)
assert [d.name for d in ml.online_deployments.list("sdk-online")] == ["blue"]
assert [e.name for e in ml.online_endpoints.list()] == ["sdk-online"]
ml.online_endpoints.begin_delete("sdk-online").result()
try:
    ml.online_endpoints.get("sdk-online")
    raise SystemExit("the endpoint is there after its delete")
except ResourceNotFoundError:
    pass
print("online endpoint: deployed, invoked, scaled, deleted")
