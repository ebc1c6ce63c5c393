from azureml_inference_server_http.api.aml_request import AMLRequest, rawhttp
from azureml_inference_server_http.api.aml_response import AMLResponse


def init():
    pass


@rawhttp
def run(request: AMLRequest):
    if request.args.get("status"):
        return AMLResponse("as asked", int(request.args["status"]))
    return AMLResponse(request.get_data()[::-1], 200, {"Content-Type": "application/octet-stream", "x-method": request.method})
