import json
import os

import mlflow.pyfunc
import pandas as pd


def init():
    global model
    model = mlflow.pyfunc.load_model(os.path.join(os.environ["AZUREML_MODEL_DIR"], "price model"))


def run(data):
    return model.predict(pd.DataFrame(json.loads(data))).tolist()
