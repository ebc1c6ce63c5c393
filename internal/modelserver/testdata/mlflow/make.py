"""Trains two models, keeps them as MLflow and as joblib do, and keeps what they themselves predict."""
import json
import pathlib
import sys

import joblib
import mlflow
import pandas as pd
from mlflow.models import infer_signature
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

out = pathlib.Path(sys.argv[1])
extra = {"serialization_format": "cloudpickle"} if mlflow.__version__.startswith("3") else {}

plain = LogisticRegression().fit([[0.0, 1.0], [1.0, 0.5], [2.0, 0.2], [3.0, 0.1]], [0, 0, 1, 1])
joblib.dump(plain, out / "model.joblib")
rows = [[0.3, 0.7], [2.5, 0.25]]

table = pd.DataFrame({"rooms": [1, 2, 3, 4, 5, 6], "city": ["Bern", "Basel"] * 3, "area": [20.5, 40.0, 55.5, 80.25, 100.0, 130.0]})
price = [100.5, 210.25, 260.0, 380.75, 470.0, 600.125]
tall = make_pipeline(make_column_transformer((OneHotEncoder(), ["city"]), remainder="passthrough"), LinearRegression()).fit(table, price)
mlflow.sklearn.save_model(tall, str(out / "price model"), signature=infer_signature(table, tall.predict(table)), **extra)

asked = table.iloc[[4, 1]]
json.dump({"rows": rows, "proba": plain.predict_proba(rows).tolist(), "split": asked.to_dict(orient="split"), "records": asked.to_dict(orient="records"),
           "price": tall.predict(asked).tolist()}, open(out / "expected.json", "w"))
