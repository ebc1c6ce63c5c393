"""Pipelines through the official Python SDK, unmodified: written in Python and as YAML, watched, listed, downloaded, changed, and as the
component of a batch deployment.

Run by test/sdk/run.sh, which starts a server and sets the variables that azure-identity and requests read.
"""
import contextlib
import io
import os
import pathlib
import socket
import subprocess
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

from azure.ai.ml import Input, MLClient, Output, command, dsl, load_component, load_job  # noqa: E402
from azure.ai.ml.constants import AssetTypes  # noqa: E402
from azure.ai.ml.entities import AmlCompute, BatchEndpoint, Environment, PipelineComponentBatchDeployment  # noqa: E402
from azure.core.exceptions import HttpResponseError  # noqa: E402
from azure.identity import DefaultAzureCredential  # noqa: E402

ml = MLClient(DefaultAzureCredential(), "00000000-0000-0000-0000-000000000000", "default", "default")
ml.compute.begin_create_or_update(AmlCompute(name="steps-cluster", size="Standard_DS3_v2", min_instances=0, max_instances=2, idle_time_before_scale_down=60)).result()
ml.environments.create_or_update(Environment(name="steps", version="1", image="python:3.11"))


def stream(name):
    """What the SDK prints while it follows a job, and the exception that it ends with."""
    said, failed = io.StringIO(), None
    with contextlib.redirect_stdout(said):
        try:
            ml.jobs.stream(name)
        except Exception as e:  # the SDK raises its own JobException
            failed = str(e)
    return said.getvalue(), failed


def output(name, output_name, folder):
    into = folder / ("down-" + name + "-" + output_name)
    ml.jobs.download(name, output_name=output_name, download_path=str(into))
    return {p.name: p.read_text() for p in into.rglob("*") if p.is_file()}


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    for name, text in {
        "src/shout.py": "import pathlib, sys\npathlib.Path(sys.argv[3], 'word').write_text(open(sys.argv[1]).read().upper() + sys.argv[2])\n",
        "in/rows.txt": "rows\n",
        "shout.yml": "type: command\nname: shout\nversion: '1'\nenvironment: azureml:steps:1\ncode: src\ninputs: {text: {type: uri_file}, mark: {type: string, default: '!'}}\n"
                     "outputs: {out: {type: uri_folder}}\ncommand: python3 shout.py ${{inputs.text}} '${{inputs.mark}}' ${{outputs.out}}\n",
        "join.yml": "type: command\nname: join\nversion: '1'\nenvironment: azureml:steps:1\ninputs: {a: {type: uri_folder}, b: {type: uri_folder}}\n"
                    "outputs: {made: {type: uri_folder}}\ncommand: cat ${{inputs.a}}/word ${{inputs.b}}/word > ${{outputs.made}}/both\n",
        "pipeline.yml": "type: pipeline\nexperiment_name: steps\nsettings: {default_compute: azureml:steps-cluster}\n"
                        "inputs: {rows: {type: uri_file, path: in/rows.txt}, mark: '?'}\noutputs: {made: {type: uri_folder}}\njobs:\n"
                        "  left: {type: command, component: ./shout.yml, inputs: {text: '${{parent.inputs.rows}}', mark: '${{parent.inputs.mark}}'}}\n"
                        "  right: {type: command, component: ./shout.yml, inputs: {text: {type: uri_file, path: '${{parent.inputs.rows}}', mode: download}}}\n"
                        "  join: {type: command, component: ./join.yml, inputs: {a: '${{parent.jobs.left.outputs.out}}', b: '${{parent.jobs.right.outputs.out}}'},"
                        " outputs: {made: '${{parent.outputs.made}}'}}\n",
        "letter.yml": "type: pipeline\nname: letter\nversion: '1'\ninputs: {rows: {type: uri_file}}\noutputs: {made: {type: uri_folder}}\njobs:\n"
                      "  left: {type: command, component: azureml:shout:1, inputs: {text: '${{parent.inputs.rows}}'}}\n"
                      "  join: {type: command, component: ./join.yml, inputs: {a: '${{parent.jobs.left.outputs.out}}', b: '${{parent.jobs.left.outputs.out}}'},"
                      " outputs: {made: '${{parent.outputs.made}}'}}\n",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)

    # written in Python: components of files, one of the workspace, one in place
    shout, join = load_component(str(folder / "shout.yml")), load_component(str(folder / "join.yml"))
    registered = ml.components.create_or_update(shout)
    assert (registered.name, registered.version) == ("shout", "1"), registered
    count = command(name="count", command="wc -l < ${{inputs.text}}/both > ${{outputs.made}}/lines", environment="azureml:steps:1",
                    inputs={"text": Input(type=AssetTypes.URI_FOLDER)}, outputs={"made": Output(type=AssetTypes.URI_FOLDER)})

    @dsl.pipeline(name="letters", description="two words", default_compute="steps-cluster")
    def letters(rows, mark="?"):
        left = shout(text=rows, mark=mark)
        right = ml.components.get("shout", "1")(text=rows)
        both = join(a=left.outputs.out, b=right.outputs.out)
        lines = count(text=both.outputs.made)
        return {"made": both.outputs.made, "lines": lines.outputs.made}

    yaml = ml.jobs.create_or_update(load_job(str(folder / "pipeline.yml")))  # looked at below, when it is over
    job = letters(rows=Input(type=AssetTypes.URI_FILE, path=str(folder / "in" / "rows.txt")))
    job.experiment_name, job.name = "steps", "letters-1"
    made = ml.jobs.create_or_update(job)
    assert made.name == "letters-1" and made.type == "pipeline", made
    said, failed = stream(made.name)
    assert failed is None and "executionlogs.txt" in said and all(said.count(step + "  Completed") == 1 for step in ["left ", "right", "both ", "lines"]), said
    done = ml.jobs.get(made.name)
    assert done.status == "Completed" and set(done.jobs) == {"left", "right", "both", "lines"}, done
    assert output(made.name, "made", folder) == {"both": "ROWS\n?ROWS\n!"}
    assert output(made.name, "lines", folder) == {"lines": "2\n"}

    children = {c.display_name: c for c in ml.jobs.list(parent_job_name=made.name)}
    assert set(children) == {"left", "right", "both", "lines"} and all(c.status == "Completed" for c in children.values()), children
    assert ml.jobs.get(children["left"].name).status == "Completed"
    assert children["left"].name not in [j.name for j in ml.jobs.list()] and made.name in [j.name for j in ml.jobs.list()]
    assert output(children["left"].name, "out", folder) == {"word": "ROWS\n?"}

    done.tags["read"] = "back"  # what was read may be sent back with other tags
    assert ml.jobs.create_or_update(done).tags["read"] == "back"
    again = letters(rows=Input(type=AssetTypes.URI_FILE, path=str(folder / "in" / "rows.txt")))
    again.experiment_name, again.name = "steps", "letters-1"
    assert ml.jobs.create_or_update(again).status == "Completed"  # the same request again is the same job
    other = letters(rows=Input(type=AssetTypes.URI_FILE, path=str(folder / "in" / "rows.txt")), mark="#")
    other.name = "letters-1"
    try:
        ml.jobs.create_or_update(other)
        sys.exit("another pipeline was taken for the one that has its name")
    except HttpResponseError as e:
        assert "exists already with other inputs" in str(e), e
    ml.jobs.archive(made.name)
    assert made.name not in [j.name for j in ml.jobs.list()]

    # as YAML
    assert stream(yaml.name)[1] is None and output(yaml.name, "made", folder) == {"both": "ROWS\n?ROWS\n!"}

    # as our own command line submits it, with commands and components in place: the SDK reads it like any other
    (folder / "own.yml").write_text("type: pipeline\ncompute: azureml:local\ninputs: {word: hello}\njobs:\n"
                                    "  say: {command: 'echo ${{inputs.word}} > ${{outputs.out}}/word', inputs: {word: '${{parent.inputs.word}}'}, outputs: {out: {type: uri_folder}}}\n"
                                    "  repeat: {component: {type: command, command: 'cat ${{inputs.of}}/word', inputs: {of: {type: uri_folder}}}, inputs: {of: '${{parent.jobs.say.outputs.out}}'}}\n")
    subprocess.run([os.environ["TRAINYARD"], "job", "create", "--name", "own", "--file", str(folder / "own.yml"), "-o", "none"], check=True)
    assert set(ml.jobs.get("own").jobs) == {"say", "repeat"} and "own" in [j.name for j in ml.jobs.list()]

    # and what it reads it can send back, whatever the job was given by name
    (folder / "named.yml").write_text("type: pipeline\ncompute: azureml:steps-cluster\nsettings: {default_compute: azureml:steps-cluster, default_datastore: workspaceblobstore}\njobs:\n"
                                      "  left: {component: azureml:shout@latest, compute: azureml:steps-cluster, inputs: {text: {type: uri_file, path: in/rows.txt}}}\n"
                                      "  show: {command: 'cat ${{inputs.of}}/word', inputs: {of: '${{parent.jobs.left.outputs.out}}'}}\n")
    subprocess.run([os.environ["TRAINYARD"], "job", "create", "--name", "named", "--file", str(folder / "named.yml"), "-o", "none"], check=True)
    named = ml.jobs.get("named")
    named.tags["read"] = "back"
    named = ml.jobs.create_or_update(named)
    assert named.tags["read"] == "back" and set(named.jobs) == {"left", "show"}, named

    # a step that fails
    fails = command(name="fails", command="cat ${{inputs.text}}; exit 7", environment="azureml:steps:1",
                    inputs={"text": Input(type=AssetTypes.URI_FILE)}, outputs={"out": Output(type=AssetTypes.URI_FOLDER)})

    @dsl.pipeline(default_compute="steps-cluster")
    def breaks(rows):
        bad = fails(text=rows)
        never = join(a=bad.outputs.out, b=bad.outputs.out)
        return {"made": never.outputs.made}

    made = ml.jobs.create_or_update(breaks(rows=Input(type=AssetTypes.URI_FILE, path=str(folder / "in" / "rows.txt"))))
    said, failed = stream(made.name)
    assert failed and "step bad failed" in failed and "exit code 7" in failed and "NotRun" in said, (said, failed)
    assert {c.display_name: c.status for c in ml.jobs.list(parent_job_name=made.name)} == {"bad": "Failed"}

    # canceled with its steps
    sleeps = command(name="sleeps", command="sleep 600", environment="azureml:steps:1")

    @dsl.pipeline(default_compute="steps-cluster")
    def slow():
        sleeps()

    made = ml.jobs.create_or_update(slow())
    ml.jobs.begin_cancel(made.name).result()
    assert ml.jobs.get(made.name).status == "Canceled" and all(c.status == "Canceled" for c in ml.jobs.list(parent_job_name=made.name))

    # deployed to a batch endpoint
    ml.batch_endpoints.begin_create_or_update(BatchEndpoint(name="sdk-steps")).result()
    component = ml.components.create_or_update(load_component(str(folder / "letter.yml")))
    assert component.type == "pipeline" and set(component.jobs) == {"left", "join"}, component
    deployment = ml.batch_deployments.begin_create_or_update(PipelineComponentBatchDeployment(
        name="letter", endpoint_name="sdk-steps", component=component, settings={"default_compute": "steps-cluster", "continue_on_step_failure": False})).result()
    got = ml.batch_deployments.get("letter", "sdk-steps")
    assert deployment.component == component.id and got.properties["deployment_configuration_type"] == "PipelineComponent" and got.properties["default_compute"] == "steps-cluster", got
    endpoint = ml.batch_endpoints.get("sdk-steps")
    endpoint.defaults.deployment_name = "letter"
    ml.batch_endpoints.begin_create_or_update(endpoint).result()
    run = ml.batch_endpoints.invoke("sdk-steps", inputs={"rows": Input(type=AssetTypes.URI_FILE, path=str(folder / "in" / "rows.txt"))})
    said, failed = stream(run.name)
    assert failed is None and said.count("join  Completed") == 1, said
    assert output(run.name, "made", folder) == {"both": "ROWS\n!ROWS\n!"}
    assert {c.display_name: c.status for c in ml.jobs.list(parent_job_name=run.name)} == {"left": "Completed", "join": "Completed"}
    assert [j.name for j in ml.batch_endpoints.list_jobs("sdk-steps")] == [run.name]
    try:
        ml.batch_endpoints.invoke("sdk-steps", inputs={"raws": Input(type=AssetTypes.URI_FILE, path=str(folder / "in" / "rows.txt"))})
        sys.exit("an input that the pipeline does not have was taken")
    except Exception as e:  # the SDK raises its own
        assert "raws" in str(e), e
    ml.batch_endpoints.begin_delete("sdk-steps").result()

ml.compute.begin_delete("steps-cluster").result()
print("pipelines: 1 passed, 0 failed")
