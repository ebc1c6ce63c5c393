"""Scores the request in plain Python, prints the answer, and saves the same model as MLflow does."""
import json
import os
import sys

import mlflow.sklearn

model, score, request, out = sys.argv[1:]
os.environ["AZUREML_MODEL_DIR"] = os.path.dirname(model)
sys.path.insert(0, score)
import score  # noqa: E402: it is where the argument says

score.model = score.joblib.load(os.path.join(model, "model.joblib"))
with open(request) as f:
    print("plain " + json.dumps(score.run(f.read())))
# azureml-ai-monitoring is for the script in collecting/src, which has the same environment, so that no other one is made.
mlflow.sklearn.save_model(score.model, out, pip_requirements=["mlflow-skinny==3.6.0", "pandas", "numpy", "scikit-learn==1.5.2", "joblib==1.4.2", "azureml-ai-monitoring"])
