package arm_test

import (
	"testing"

	"github.com/trainyard/trainyard"
)

const (
	endpointBody   = `{"location":"local","tags":{"a":"b"},"identity":{"type":"SystemAssigned"},"properties":{"authMode":"aadtoken","traffic":{},"mirrorTraffic":{},"properties":{}}}`
	deploymentBody = `{"location":"local","tags":{},"sku":{"name":"Default","capacity":2},"properties":{"endpointComputeType":"managed","instanceType":"Standard_DS3_v2",
		"model":"azureml:iris:1","environmentId":null,"codeConfiguration":null,"environmentVariables":null,"requestSettings":{"requestTimeout":"PT3S"},"appInsightsEnabled":false}}`
	ep = ws + "/onlineEndpoints/iris"
)

func TestAnEndpointIsMadeReadChangedAndDeletedAsItsClientsWant(t *testing.T) {
	d := open(t)
	made := d.do("PUT", ep, endpointBody).want(201)
	if made.header.Get("Azure-AsyncOperation") == "" {
		t.Error("no operation")
	}
	made.is("AADToken", "properties", "authMode").is("Succeeded", "properties", "provisioningState").is("b", "tags", "a").is("SystemAssigned", "identity", "type")
	for _, m := range []string{"traffic", "mirrorTraffic", "properties"} {
		made.is(map[string]any{}, "properties", m)
	}
	d.do("PUT", ep, `{"location":"local","properties":{"authMode":"Key","traffic":{"blue":90,"green":10},"keys":{"primaryKey":"x"},"scoringUri":"http://elsewhere"}}`).want(200).
		is(map[string]any{"blue": 90.0, "green": 10.0}, "properties", "traffic").is(nil, "properties", "keys").is("http://gateway.test/endpoints/iris/score", "properties", "scoringUri")
	d.do("PATCH", ep, `{"tags":{"c":"d"},"properties":{"description":"flowers"}}`).want(200).is("flowers", "properties", "description").is(map[string]any{"c": "d"}, "tags").
		is(90.0, "properties", "traffic", "blue")
	d.do("GET", ws+"/onlineEndpoints?name=other", "").want(200).is([]any{}, "value")
	d.do("GET", ws+"/onlineEndpoints?tags=c=d&computeType=Managed", "").want(200).is("iris", "value", 0, "name")
	d.do("GET", ws+"/onlineEndpoints?computeType=Kubernetes", "").want(200).is([]any{}, "value")
	d.do("PUT", ws+"/onlineEndpoints/x", endpointBody).want(400)
	d.do("PUT", ep, `{}`).want(400)

	d.ctl.Slow = true
	gone := d.do("DELETE", ep, "").want(202)
	d.do("GET", gone.header.Get("Azure-AsyncOperation"), "").want(200).is("InProgress", "status")
	d.do("GET", ep, "").want(200).is("Deleting", "properties", "provisioningState")
	d.ctl.Slow = false
	d.do("DELETE", ep, "").want(200)
	d.do("GET", gone.header.Get("Azure-AsyncOperation"), "").want(200).is("Succeeded", "status")
	d.do("GET", gone.header.Get("Location"), "").want(204)
	d.do("DELETE", ep, "").want(204)
}

func TestAnEndpointsKeysAreShownToThoseAloneWhoMaySeeSecrets(t *testing.T) {
	d := open(t)
	d.do("PUT", ep, `{"properties":{"authMode":"Key","keys":{"primaryKey":"mine"}}}`).want(201)
	d.do("POST", ep+"/listKeys", "").want(200).is("mine", "primaryKey").is("second", "secondaryKey")
	op := d.do("POST", ep+"/regenerateKeys", `{"keyType":"secondary","keyValue":"new"}`).want(202)
	d.do("GET", op.header.Get("Azure-AsyncOperation"), "").want(200).is("Succeeded", "status")
	d.do("POST", ep+"/listKeys", "").want(200).is("new", "secondaryKey")
	d.do("POST", ep+"/regenerateKeys", `{"keyType":"Secondary","keyValue":"new"}`).want(202) // as the Python SDK asks for another one
	d.do("POST", ep+"/listKeys", "").want(200).is("new+", "secondaryKey").is("mine", "primaryKey")
	d.do("POST", ep+"/regenerateKeys", `{"keyType":"third"}`).want(400)
	d.do("POST", ep+"/token", "").want(200).is("token of iris", "accessToken").is("Bearer", "tokenType")
	d.user = trainyard.User{Name: "bob", Role: trainyard.RoleReader}
	d.do("GET", ep, "").want(200)
	for _, action := range []string{"listKeys", "regenerateKeys", "token"} {
		d.do("POST", ep+"/"+action, `{"keyType":"Primary"}`).want(403)
	}
}

func TestADeploymentsOperationFollowsItsState(t *testing.T) {
	d, scope := open(t), trainyard.DefaultScope()
	d.do("PUT", ep+"/deployments/blue", deploymentBody).want(404)
	d.do("PUT", ep, endpointBody).want(201)
	made := d.do("PUT", ep+"/deployments/blue", deploymentBody).want(201)
	made.is("Managed", "properties", "endpointComputeType").is("Default", "properties", "scaleSettings", "scaleType").is(2.0, "sku", "capacity").
		is("Creating", "properties", "provisioningState").is(map[string]any{}, "properties", "environmentVariables").is([]any{}, "properties", "replicas").
		is("0 of 1 replicas are ready", "properties", "reason", "message").is(2.0, "properties", "wanted").is([]any{}, "properties", "warnings").is(nil, "properties", "codeConfiguration")
	op := made.header.Get("Azure-AsyncOperation")
	if made.header.Get("Retry-After") != "1" || made.header.Get("X-Go-Azure-Sdk-Skip-Polling-Delay") != "" {
		t.Errorf("headers %v", made.header)
	}
	state := func(s trainyard.DeploymentState, why trainyard.Reason) {
		d.ctl.EditDeployment(scope, "iris", "blue", func(dep *trainyard.OnlineDeployment) { dep.Status.State, dep.Status.Reason = s, why })
	}
	for _, s := range []trainyard.DeploymentState{trainyard.DeploymentCreating, trainyard.DeploymentUpdating, trainyard.DeploymentScaling} {
		state(s, trainyard.Reason{})
		d.do("GET", op, "").want(200).is("InProgress", "status")
	}
	state(trainyard.DeploymentFailed, trainyard.Reason{Code: "ModelNotLoaded", Message: "score.py: init() raised KeyError"})
	d.do("GET", op, "").want(200).is("Failed", "status").is("ModelNotLoaded", "error", "code").is("score.py: init() raised KeyError", "error", "message")
	d.do("GET", ep+"/deployments/blue", "").want(200).is("Failed", "properties", "provisioningState")
	state(trainyard.DeploymentSucceeded, trainyard.Reason{})
	d.do("GET", op, "").want(200).is("Succeeded", "status")

	d.do("PATCH", ep+"/deployments/blue", `{"sku":{"capacity":5},"tags":{"x":"y"}}`).want(200).is(5.0, "sku", "capacity").is("y", "tags", "x").is("Updating", "properties", "provisioningState")
	d.do("PATCH", ep+"/deployments/blue", `{"sku":{"capacity":-1}}`).want(400)
	d.do("PATCH", ep+"/deployments/blue", `{"properties":{"scaleSettings":{"scaleType":"target_utilization","minInstances":1,"maxInstances":3}}}`).want(200).
		is("TargetUtilization", "properties", "scaleSettings", "scaleType").is(5.0, "sku", "capacity")
	d.do("GET", ep+"/deployments/blue/skus", "").want(200).is("Automatic", "value", 0, "capacity", "scaleType").is(3.0, "value", 0, "capacity", "maximum")
	d.do("GET", ep+"/deployments?$top=1", "").want(200).is("blue", "value", 0, "name").is(nil, "nextLink")
	d.do("PUT", ep+"/deployments/green", deploymentBody).want(201)
	page := d.do("GET", ep+"/deployments?$top=1", "").want(200)
	d.do("GET", page.at("nextLink").(string), "").want(200).is("green", "value", 0, "name").is(nil, "nextLink")
	d.do("POST", ep+"/deployments/blue/getLogs", `{"containerType":"inferenceserver","tail":3}`).want(200).is("InferenceServer\nloading the model\nserving\n", "content")
	d.do("POST", ep+"/deployments/blue/getLogs", `{"tail":-3}`).want(400)
	d.do("PUT", ep+"/deployments/red", `{"properties":{}}`).want(400)

	d.ctl.Slow = true
	del := d.do("DELETE", ep+"/deployments/blue", "").want(202).header.Get("Azure-AsyncOperation")
	d.do("GET", del, "").want(200).is("InProgress", "status")
	d.do("GET", op, "").want(200).is("Canceled", "status")
	d.ctl.Slow = false
	d.do("DELETE", ep+"/deployments/blue", "").want(200)
	d.do("GET", del, "").want(200).is("Succeeded", "status")
	d.do("GET", op, "").want(200).is("Canceled", "status")
	d.do("DELETE", ep+"/deployments/blue", "").want(204)
}
