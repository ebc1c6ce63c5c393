import json
import os
import signal
import time

import joblib

import helper  # beside this file

model = None
tmp = os.environ["TMPDIR"]


def touch(name):
    open(os.path.join(tmp, name), "w").close()


def wait(name):
    deadline = time.monotonic() + 30
    while not os.path.exists(os.path.join(tmp, name)):
        if time.monotonic() > deadline:
            raise TimeoutError(name)
        time.sleep(0.01)


def init():
    global model
    print("init of", os.environ["AZUREML_ENTRY_SCRIPT"])
    touch("init-%d" % os.getpid())
    if os.environ.get("FAIL") == "raise":
        raise RuntimeError("the weights are not there")
    if os.environ.get("FAIL") == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    model = joblib.load(os.path.join(os.environ["AZUREML_MODEL_DIR"], "model.joblib"))


def run(data):
    body = json.loads(data)
    if "touch" in body:
        touch(body["touch"])
    if "wait" in body:
        wait(body["wait"])
    if body.get("fail"):
        raise ValueError("no")
    return {"prediction": helper.predict(model, body.get("data", [])), "pid": os.getpid()}
