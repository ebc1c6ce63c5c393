# What each example needs around its deployment, as its own deploy script does it. Read by run.sh.

# recipe FILE does an example and sets did, to what came of it, and changed, to what was done to it that its script does not do.
recipe() {
	local file=$1 at
	at=$(dirname "$1")
	case "$1" in
	*/custom-outputs-parquet/deployment.yml)
		az model create --name heart-classifier-sklpipe --type custom_model --path "$at/model"
		cluster
		changed="input: the files of heart-classifier-mlflow, in place of the same on the web"
		batch "$file" "$at/../heart-classifier-mlflow/data"
		;;
	*/mnist-classifier/*/deployment.yml)
		[ -d "$dir/digits" ] || digits "$dir/digits"
		changed="input: 25 pictures, in place of those on the web"
		cluster
		batch "$file" "$dir/digits"
		;;
	*/hello-batch/deployment.yml)
		cluster
		az component create -f "$at/hello-component/hello.yml"
		batch "$file" ""
		;;
	*/hello-batch/deployment-from-job.yml)
		pipeline "$at/pipeline-job.yml"
		batch "$file" "" --set "job_definition=azureml:$job"
		;;
	*/hello-component/hello.yml)
		az component create -f "$file"
		did="registered"
		;;
	*/batch-scoring-with-preprocessing/deployment.yml)
		heart "$at"
		az model create --name heart-classifier --type mlflow_model --path "$at/model"
		az model create --name heart-classifier-transforms --type custom_model --path "$at/transformations"
		az component create -f "$at/components/prepare/prepare.yml"
		az component create -f "$at/components/score/score.yml"
		batch "$file" "" --file "$at/inputs.yml"
		outputs scores
		;;
	*/batch-scoring-with-preprocessing/pipeline-job.yml) # after the deployment, whose component it runs
		pipeline "$file" --set "inputs.input_data.path=data/unlabeled"
		outputs scores
		;;
	*/training-with-components/*/deployment.yml)
		heart "$at/.."
		az data create --name heart-classifier-train --type uri_folder --path "$at/../data/train"
		batch "$file" "" --file "$at/../inputs.yml"
		outputs prepare_transformations model evaluation_results
		;;
	*/training-with-components/*/pipeline-job.yml)
		pipeline "$file" --set inputs.input_data.path=azureml:heart-classifier-train@latest
		outputs model
		;;
	*/pipeline-job.yml) pipeline "$file" ;;
	*/training_pipeline.yaml)
		changed="input: made-up rows, in place of those on the web"
		credit "$at/.."
		az compute create -n cpu-cluster --type amlcompute --min-instances 0 --max-instances 1
		az data create --name credit-default-reference --type mltable --path "$dir/credit/table"
		pipeline "$file"
		az model show --name credit-default-model --label latest
		did="$did, model registered"
		;;
	*/minimal-multimodel-deployment.yml)
		changed="environment.conda_file with what its Dockerfile installs, in place of the image"
		printf 'dependencies: [python=3.12, pip, {pip: [pandas, numpy, scikit-learn, joblib]}]\n' >"$at/conda.yml"
		online "$file" "$at/test-data/iris-test-data.json" --set environment.conda_file=conda.yml
		score "$at/test-data/diabetes-test-data.json"
		;;
	*/minimal-single-model-conda-in-dockerfile-deployment.yml)
		changed="environment.conda_file: the file that its Dockerfile installs, in place of the image"
		online "$file" "$at/../../../../model-1/sample-request.json" --set environment.conda_file=../../../../model-1/environment/conda.yaml
		;;
	*/kubernetes-blue-deployment.yml) kubernetes "$file" "$at/../model-1/sample-request.json" "$at/../model-1/environment/conda.yaml" ;;
	*/kubernetes-green-deployment.yml) kubernetes "$file" "$at/../model-2/sample-request.json" "$at/../model-2/environment/conda.yaml" ;;
	*/binary-payloads-deployment.yml)
		online "$file" none --set code_configuration.scoring_script=single-file-to-file-score.py
		score -F "file=@$at/input.jpg"
		cp "$dir/answer" "$at/output.jpg"
		az online-deployment update -n binary-payload -e "$ENDPOINT_NAME" --set code_configuration.scoring_script=multi-file-to-json-score.py
		score -F "file[]=@$at/input.jpg" -F "file[]=@$at/output.jpg"
		;;
	*/inference-schema/deployment-*.yml)
		local kind=${file##*deployment-}
		az model create -f "$at/model.yml" --set "version=$MODEL_VERSION"
		online "$file" "$at/sample-inputs/${kind%.yml}.json" --set "model=azureml:azureml-infschema:$MODEL_VERSION" "endpoint_name=$ENDPOINT_NAME"
		swagger
		;;
	*/single-model-registered/deployment.yml)
		fill "$at/model.yml"
		az model create -f "$at/model.yml"
		online "$file" "$at/../../../model-1/sample-request.json"
		;;
	*/openapi/deployment.yml)
		online "$file" "$at/../../model-1/sample-request.json" --set "endpoint_name=$ENDPOINT_NAME" code_configuration.code=code-decorated
		swagger
		az online-deployment update -f "$file" --set "endpoint_name=$ENDPOINT_NAME" code_configuration.code=code-custom
		score "$at/../../model-1/sample-request.json"
		swagger
		;;
	*/sample/blue-*.yml) online "$file" "$at/../../model-1/sample-request.json" ;;
	*/sample/green-*.yml) online "$file" "$at/../../model-2/sample-request.json" ;;
	*/ncd/lightgbm-*.yaml) online "$file" "$at/sample-request-lightgbm.json" ;;
	*/ncd/sklearn-deployment-with-script.yaml)
		changed="mlflow==2.9.2 in its conda file, which asks for any: the newest has no longer what its script imports; and the request in MLflow 2's form"
		sed -i 's/^  - mlflow$/  - mlflow==2.9.2/' "$at/sklearn-diabetes/environment/conda.yaml"
		python3 -c 'import json, sys; r = json.load(sys.stdin); json.dump({"input_data": {"dataframe_split": r["input_data"]}}, sys.stdout)' \
			<"$at/sample-request-sklearn.json" >"$dir/request.json"
		online "$file" "$dir/request.json"
		;;
	*/ncd/sklearn-*.yaml) online "$file" "$at/sample-request-sklearn.json" ;;
	*/azureml-e2e-model-monitoring/endpoints/deployment.yaml)
		changed="the model trained on made-up rows by the only step of its pipeline, as a command job"
		credit "$at/.."
		az job create --stream -f "$dir/credit/job.yml"
		printf '{"data": [%s]}' "$(sed -n 2p "$dir/credit/rows.json")" >"$dir/credit/request.json"
		online "$file" "$dir/credit/request.json"
		;;
	*)
		echo "error: recipes.sh does not know what this example needs" >&2
		return 1
		;;
	esac
}

heart() { # FOLDER: what its steps run in
	cluster
	az environment create -f "$1/environment/xgboost-sklearn-py38.yml"
}

cluster() { az compute create -n batch-cluster --type amlcompute --min-instances 0 --max-instances 5; }

# swagger fetches the description of the interface, as the scripts do.
swagger() {
	local url key
	url=$("$bin" online-endpoint show -n "$ENDPOINT_NAME" --query openapi_uri -o tsv)
	key=$("$bin" online-endpoint get-credentials -n "$ENDPOINT_NAME" --query primaryKey -o tsv)
	curl -fsSk -H "Authorization: Bearer $key" "$url" | grep -q '"swagger"' || { echo "error: no Swagger file at $url" >&2; return 1; }
	did="$did, Swagger"
}

# credit makes up rows for the monitoring example, and a job that trains its model.
credit() {
	mkdir -p "$dir/credit/table"
	python3 - "$1/code/score.py" "$dir/credit" <<'PY'
import ast, csv, json, os, random, sys
script, to = sys.argv[1:]
tree = ast.parse(open(script).read())
sample = next(ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "INPUT_SAMPLE")[0]
random.seed(1)
rows = [{k: max(-2, v + random.randint(-2, 2)) if abs(v) < 10 else v * random.randint(1, 9) for k, v in sample.items()} for _ in range(400)]
with open(os.path.join(to, "table/rows.csv"), "w", newline="") as f:
    w = csv.DictWriter(f, list(sample) + ["DEFAULT_NEXT_MONTH"])
    w.writeheader()
    w.writerows(r | {"DEFAULT_NEXT_MONTH": int(r["LIMIT_BAL"] + random.randint(0, 90000) > 140000)} for r in rows)
open(os.path.join(to, "table/MLTable"), "w").write("paths:\n  - file: ./rows.csv\ntransformations:\n  - read_delimited:\n      delimiter: ','\n      header: all_files_same_headers\n")
open(os.path.join(to, "rows.json"), "w").write("\n".join(json.dumps(r) for r in rows))
here = os.path.dirname(script)
json.dump({"type": "command", "code": here, "compute": "local", "environment": {"image": "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu20.04",
           "conda_file": os.path.join(here, "../environments/train.yaml")}, "inputs": {"training_data": {"type": "mltable", "path": os.path.join(to, "table")}},
           "outputs": {"model_output": {"type": "mlflow_model", "name": "credit-default-model"}},
           "command": "python train.py --training_data ${{inputs.training_data}} --model_output ${{outputs.model_output}}"}, open(os.path.join(to, "job.yml"), "w"))
PY
}
