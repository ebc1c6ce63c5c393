def predict(model, rows):
    return model.predict_proba(rows).tolist() if rows else []
