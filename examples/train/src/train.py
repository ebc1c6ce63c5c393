"""Trains a random forest on a CSV whose last column is the class, prints its scores, and saves the model."""
import argparse
import csv
import json
import os
import pathlib

import joblib
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.add_argument("--trees", type=int, default=100)
parser.add_argument("--test-share", type=float, default=0.3)
parser.add_argument("--model", required=True)
args = parser.parse_args()

with open(args.data, newline="") as f:
    header, *rows = csv.reader(f)
x = np.array([row[:-1] for row in rows], dtype=float)
y = np.array([row[-1] for row in rows], dtype=int)
print(f"{len(x)} rows, {x.shape[1]} columns, {len(set(y))} classes", flush=True)

x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=args.test_share, random_state=7, stratify=y)
model = RandomForestClassifier(n_estimators=args.trees, random_state=7).fit(x_train, y_train)
guess = model.predict(x_test)
scores = {"accuracy": round(accuracy_score(y_test, guess), 4), "f1": round(f1_score(y_test, guess, average="macro"), 4)}
for name, value in scores.items():
    print(f"{name}: {value}", flush=True)

out = pathlib.Path(args.model)
out.mkdir(parents=True, exist_ok=True)
joblib.dump(model, out / "model.joblib")
pathlib.Path("outputs").mkdir(exist_ok=True)
pathlib.Path("outputs/scores.json").write_text(json.dumps(scores))
print(f"trained by {os.environ.get('AZUREML_RUN_ID', 'nobody in particular')} with {args.trees} trees", flush=True)
