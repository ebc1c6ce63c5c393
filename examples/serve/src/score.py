"""Answers which cultivar each wine is of, and how sure the forest is of each."""
import json
import os

import joblib


def init():
    global model
    model = joblib.load(os.path.join(os.environ["AZUREML_MODEL_DIR"], "model", "model.joblib"))
    print(f"the forest has {len(model.estimators_)} trees", flush=True)


def run(data):
    rows = json.loads(data)["data"]
    return {"cultivar": model.predict(rows).tolist(), "sure": model.predict_proba(rows).tolist()}
