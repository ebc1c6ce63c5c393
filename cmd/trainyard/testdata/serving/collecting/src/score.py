"""The demo's script, which also collects what it is asked, with Azure's own package."""
import json
import os

import joblib
import pandas
from azureml.ai.monitoring import Collector


def init():
    global model, inputs
    inputs = Collector(name="inputs")
    model = joblib.load(os.path.join(os.environ["AZUREML_MODEL_DIR"], "model", "model.joblib"))
    print(f"the forest has {len(model.estimators_)} trees", flush=True)


def run(data):
    rows = json.loads(data)["data"]
    inputs.collect(pandas.DataFrame(rows))
    return {"cultivar": model.predict(rows).tolist(), "sure": model.predict_proba(rows).tolist()}
